"""Combine the answers of several layers.

An index that changes has one large layer and a few small ones. Batches are matched by all layers
together, by the kernels of `kernels/combine.py`, which number the filters of all layers in common.
Guarded layers, very large small ones, and plans for few events answer on their own, and answers
are merged. What else is asked is asked of each layer, and is put together here.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.matching.coding import check_event
from palio.matching.compiled import CompiledLayer
from palio.matching.kernels.records import ARROW_WORDS, EVENTS
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import CodedBatch, Counts, Found, Layer, Longs, Words, by_event, in_room
from palio.matching.protocol import Matches, RowMask
from palio.matching.recent import NOTHING_RECENT, RecentLayer
from palio.matching.segment import Segment
from palio.matching.snapshots import EventView, Snapshot

Integers: TypeAlias = npt.NDArray[np.int32]
Coded: TypeAlias = tuple[Layer, CodedBatch]

MAX_JOINT_ROWS: Final = 65_536
"""A larger small layer is matched on its own: its notes for all blocks would take too much memory
(72 bytes a row and block).
"""

MAX_CODES: Final = 1 << 24
"""Codes of one piece of a batch, four bytes each: attributes and text tests times events."""

_NO_LONGS: Final = np.zeros(0, np.int64)


def match_event(view: EventView, event: Mapping[str, Any]) -> Longs:
    """The keys that one event matches, ascending. What is no event is refused."""
    base, held = view.base, view.held
    if not base.compiled:
        check_event(event)  # a compiled layer does so as it codes it
    key_arrays = [layer.match_event(event) for layer in base.layers]
    if len(held):
        key_arrays = [held.left(keys) for keys in key_arrays]
        key_arrays.append(np.array(sorted(held.match(event)), np.int64))
    if len(key_arrays) == 1:
        return key_arrays[0]
    keys = np.concatenate([_NO_LONGS, *key_arrays])
    return np.unique(keys) if base.is_guarded else np.sort(keys)


def route_event(view: EventView, event: Mapping[str, Any]) -> list[int]:
    """The destinations that one event goes to, ascending."""
    base, held = view.base, view.held
    hit: set[int] = set()
    for layer in base.layers:
        keys = layer.match_event(event)
        if len(held):
            keys = held.left(keys)
        hit.update(layer.destinations_of(keys).tolist())
    if len(held):
        hit.update(map(held.destination, held.match(event)))
    return sorted(hit)


def route(snapshot: Snapshot, events: pa.RecordBatch) -> dict[int, RowMask]:
    """A mask of events for each destination with any match, in their order."""
    step = _step(snapshot)
    if events.num_rows <= step:
        return _routed(snapshot, events)
    masks: dict[int, RowMask] = {}
    for first in range(0, events.num_rows, step):
        for name, mask in _routed(snapshot, events.slice(first, step)).items():
            whole = masks.setdefault(name, np.zeros(events.num_rows, np.bool_))
            whole[first : first + step] = mask
    return dict(sorted(masks.items()))


def _routed(snapshot: Snapshot, events: pa.RecordBatch) -> dict[int, RowMask]:
    """The same for as many events as are coded at once."""
    masks: dict[int, RowMask] = {}
    for layer, batch in coded(snapshot, events):
        hits, names = layer.route(batch)
        for name, mask in zip(names.tolist(), hits, strict=True):
            masks[name] = masks[name] | mask if name in masks else mask
    return dict(sorted(masks.items()))


def _step(snapshot: Snapshot) -> int:
    """The number of events that are coded at once."""
    widest = max((1, *(layer.slots for layer in snapshot.layers)))
    return max(EVENTS, MAX_CODES // widest // EVENTS * EVENTS)


class _Numbering(NamedTuple):
    """The keys of several layers, and the common rank of each layer's ranks; none if they agree."""

    of: tuple[object, ...]
    keys: Longs
    ranks: tuple[Integers, ...]

    @classmethod
    def made(
        cls, large: Segment, small: Sequence[Segment], recent: RecentLayer | None, kernels: Kernels
    ) -> _Numbering:
        """The first of the ranks are of the large segment, whose keys mostly are all there are; the
        last are of the recent layer.
        """
        listed = [segment.keys for segment in small]
        listed.append(_NO_LONGS if recent is None else recent.rows.keys)
        others = listed[0] if len(listed) == 1 else np.unique(np.concatenate(listed))
        keys, ranks, of_others = kernels.common_ranks(large.keys, others)
        if len(listed) == 1:
            return cls((large, recent), keys, (ranks, of_others))
        of_listed = [of_others[np.searchsorted(others, array)] for array in listed]
        return cls((large, *small, recent), keys, (ranks, *of_listed))


class _Workspace(NamedTuple):
    """Rows' vectors and notes: of small layers for all blocks, of all layers for one block."""

    results: Words
    notes: Words
    own_results: Words
    own_notes: Words
    spare: Words

    @classmethod
    def of(cls, noted: int, rows: int) -> _Workspace:
        return cls(
            np.empty((noted + 16, 8), np.uint64),
            np.empty(noted + 16, np.uint64),
            np.empty((rows + 16, 8), np.uint64),
            np.empty(rows + 1, np.uint64),
            np.empty(rows + 1, np.uint64),
        )

    def fits(self, noted: int, rows: int) -> bool:
        """Check whether the arrays are large enough."""
        return noted < len(self.notes) and rows < len(self.own_notes)


class Combiner:
    """Matches batches against several layers. Any number of threads may share it."""

    def __init__(self) -> None:
        self._numbering: _Numbering | None = None
        self._workspaces: list[_Workspace] = []
        self._length = 1024

    def match(self, snapshot: Snapshot, events: pa.RecordBatch) -> Matches:
        """All pairs of an event and a key that it matches, sorted."""
        if events.num_rows == 1 and len(snapshot.layers) == 1:
            for layer in snapshot.compiled:
                if layer.matches_singly:
                    keys = layer.match_one(events)
                    return Matches(np.zeros(len(keys), np.int64), keys)
        offsets, keys = self.found(snapshot, events)
        return Matches(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), keys)

    def count(self, snapshot: Snapshot, events: pa.RecordBatch) -> Counts:
        """The keys that any event matches, ascending, and the number of events for each."""
        if snapshot.is_guarded:  # a filter with rows in two layers would be counted twice
            keys, counts = np.unique(self.found(snapshot, events)[1], return_counts=True)
            return keys, counts
        step = _step(snapshot)
        sums: list[Counts] = []
        for first in range(0, events.num_rows, step):
            piece = events if events.num_rows <= step else events.slice(first, step)
            per_layer = [layer.count(batch) for layer, batch in coded(snapshot, piece)]
            if not first:
                sums = per_layer
            else:
                both = zip(sums, per_layer, strict=True)
                sums = [(keys, before + counts) for (keys, before), (_, counts) in both]
        listed = [(keys[counts > 0], counts[counts > 0]) for keys, counts in sums]
        if len(listed) == 1:
            return listed[0]
        keys, counts = (
            np.concatenate([_NO_LONGS, *(pair[at] for pair in listed)]) for at in range(2)
        )
        order = np.argsort(keys)
        return keys[order], counts[order]

    def found(self, snapshot: Snapshot, events: pa.RecordBatch) -> Found:
        """The keys that each event matches; a large batch in pieces, if there are many slots."""
        step = _step(snapshot)
        if events.num_rows <= step:
            return self._found(snapshot, events)
        firsts = range(0, events.num_rows, step)
        answers = [self._found(snapshot, events.slice(first, step)) for first in firsts]
        counts = np.concatenate([np.diff(offsets) for offsets, _ in answers])
        keys = np.concatenate([keys for _, keys in answers])
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), keys

    def _found(self, snapshot: Snapshot, events: pa.RecordBatch) -> Found:
        batches, kernels = coded(snapshot, events), snapshot.kernels
        together = [] if kernels is None else _together(batches, events.num_rows)
        alone = [entry for entry in batches if all(entry[0] is not layer for layer, _ in together)]
        answers = [layer.match(batch) for layer, batch in alone]
        if together and kernels is not None:
            answers.append(self.match_together(together, kernels))
        if not answers:
            return np.zeros(events.num_rows + 1, np.int64), _NO_LONGS
        answers.sort(key=lambda answer: len(answer[1]))
        whole = answers[0]
        for other in answers[1:]:
            whole = _merged(whole, other, kernels) if len(whole[1]) else other
        return whole

    def match_together(self, batches: Sequence[Coded], kernels: Kernels) -> Found:
        """The answer of layers without guards, a large one first, the recent one last: the notes
        of the small layers first, then the large layer, which takes in all others.
        """
        compiled = [
            (layer, batch.codes) for layer, batch in batches if isinstance(layer, CompiledLayer)
        ]
        large, *small = (layer.segment for layer, _ in compiled)
        last, batch = batches[-1]
        events = batch.events.num_rows
        recent = last if isinstance(last, RecentLayer) else None
        numbering = self._numbering
        if numbering is None or not _same(numbering.of, (large, *small, recent)):
            numbering = self._numbering = _Numbering.made(large, small, recent, kernels)
        noted = sum(segment.compiled.rows for segment in small)
        blocks, rows = (events + EVENTS - 1) // EVENTS, large.compiled.rows + noted
        work = self._take_workspace(blocks * noted, rows + (0 if recent is None else len(recent)))
        ends = np.zeros((len(small), blocks), np.int64)
        place = 0
        for at, (layer, codes) in enumerate(compiled[1:]):
            segment = layer.segment
            scratch = segment.take_scratch()
            place = kernels.note_blocks(
                codes, segment.predicates, segment.program, layer.tombstones, scratch,
                numbering.ranks[at + 1], place, work.results, work.notes, ends[at],
            )  # fmt: skip
            segment.give_back(scratch)
        changed = NOTHING_RECENT
        if recent is not None:
            changed = recent.for_notes(batch.codes, numbering.ranks[-1])
        layer, codes = compiled[0]
        scratch = large.take_scratch()
        alternatives = any(layer.alternatives for layer in (large, *small))
        widened = scratch._replace(results=work.own_results, notes=work.own_notes, spare=work.spare)

        def fill(offsets: Longs, keys: Longs, done: int) -> int:
            return kernels.match_with_notes(
                codes, done, large.predicates, large.program, layer.tombstones, alternatives,
                widened, numbering.ranks[0], ends, work.results, work.notes, changed,
                numbering.keys, offsets, keys,
            )  # fmt: skip

        answer = in_room(events, self._length, fill)
        large.give_back(scratch)
        self._workspaces.append(work)
        total = len(answer[1])
        self._length = max(1024, total + total // 4 + 1)
        return answer

    def _take_workspace(self, noted: int, rows: int) -> _Workspace:
        try:
            work = self._workspaces.pop()
        except IndexError:
            return _Workspace.of(2 * noted, rows + rows // 4)
        return work if work.fits(noted, rows) else _Workspace.of(2 * noted, rows + rows // 4)

    def memory(self) -> int:
        """Bytes of the working arrays."""
        return sum(array.nbytes for work in self._workspaces for array in work)


def coded(snapshot: Snapshot, events: pa.RecordBatch) -> list[Coded]:
    """Each layer with the codes of the events; the batch is exported once for all."""
    layers, kernels = snapshot.layers, snapshot.kernels
    if kernels is None or not layers:
        return [(layer, CodedBatch(layer.codes_of(events), events)) for layer in layers]
    structure = np.zeros(ARROW_WORDS, np.uint64)
    address = structure.ctypes.data
    events._export_to_c(address)
    try:
        return [(layer, CodedBatch(layer.codes_of(events, address), events)) for layer in layers]
    finally:
        kernels.release_batch(address)


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _together(batches: Sequence[Coded], events: int) -> list[Coded]:
    """The layers to match together: the largest compiled one, others, and the recent one; none if
    there is nothing beside the largest.
    """
    plain = [
        (layer, batch)
        for layer, batch in batches
        if isinstance(layer, CompiledLayer) and not layer.is_guarded
    ]
    plain.sort(key=lambda entry: -entry[0].rows)
    recent = [entry for entry in batches if isinstance(entry[0], RecentLayer)]
    if len(plain) + len(recent) < 2 or not plain or not events:
        return []
    if not plain[0][0].prefers_blocks(events):
        return []
    small = [entry for entry in plain[1:] if entry[0].rows <= MAX_JOINT_ROWS]
    return [plain[0], *small, *recent] if small or recent else []


def _merged(one: Found, other: Found, kernels: Kernels | None) -> Found:
    if kernels is not None:
        return kernels.merge_found(*one, *other)
    events = np.arange(len(one[0]) - 1)
    rows = np.concatenate([np.repeat(events, np.diff(offsets)) for offsets, _ in (one, other)])
    return by_event(rows, np.concatenate([one[1], other[1]]), len(events))
