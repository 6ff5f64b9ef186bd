"""One answer from several parts: compiled parts together, others merged pair by pair.

An index that changes has one large part and a few small ones. Together they are matched by the
kernels of `kernels/combine.py`, which number the filters of all parts alike; parts with guards,
very large small ones, and plans for few events answer on their own, and answers are merged.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.matching.kernels.records import ARROW_WORDS
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import Part, united
from palio.matching.recent import NOTHING_FRESH, Overlay
from palio.matching.segment import Codes, Found, Segment
from palio.matching.snapshots import Seen

__all__ = ["Joiner", "coded_by"]

Integers: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]
Coded: TypeAlias = tuple[Part, Codes]

MAX_JOINT_ROWS: Final = 65_536
"""A larger small part is matched on its own: its notes for all blocks would take too much memory
(72 bytes a row and block).
"""

MAX_CODES: Final = 1 << 24
"""Codes of one piece of a batch, four bytes each: attributes and text tests times events."""

EVENTS: Final = 512
"""Events in a block."""


class _Numbering(NamedTuple):
    """The keys of several parts, and the common rank of each part's ranks; none if they agree."""

    of: tuple[object, ...]
    keys: Longs
    ranks: tuple[Integers, ...]

    @classmethod
    def made(
        cls, large: Segment, small: Sequence[Segment], overlay: Overlay | None, kernels: Kernels
    ) -> _Numbering:
        """The first of the ranks are of the large segment, whose keys mostly are all there are; the
        last are of the overlay.
        """
        listed = [segment.keys for segment in small]
        listed.append(np.zeros(0, np.int64) if overlay is None else overlay.rows.keys)
        others = listed[0] if len(listed) == 1 else np.unique(np.concatenate(listed))
        keys, ranks, of_others = kernels.common_ranks(large.keys, others)
        if len(listed) == 1:
            return cls((large, overlay), keys, (ranks, of_others))
        of_listed = [of_others[np.searchsorted(others, each)] for each in listed]
        return cls((large, *small, overlay), keys, (ranks, *of_listed))


class _Room(NamedTuple):
    """Rows' vectors and notes: of small parts for all blocks, of all parts for one block."""

    results: Words
    notes: Words
    own_results: Words
    own_notes: Words
    spare: Words

    @classmethod
    def of(cls, noted: int, rows: int) -> _Room:
        return cls(
            np.empty((noted + 16, 8), np.uint64),
            np.empty(noted + 16, np.uint64),
            np.empty((rows + 16, 8), np.uint64),
            np.empty(rows + 1, np.uint64),
            np.empty(rows + 1, np.uint64),
        )

    def fits(self, noted: int, rows: int) -> bool:
        """Whether there is enough of it."""
        return noted < len(self.notes) and rows < len(self.own_notes)


class Joiner:
    """Matches batches against several parts. Any number of threads may share it."""

    def __init__(self) -> None:
        self._numbering: _Numbering | None = None
        self._rooms: list[_Room] = []
        self._length = 1024

    def match(self, seen: Seen, events: pa.RecordBatch, kernels: Kernels | None) -> Found:
        """The keys that each event matches; a large batch in pieces, if there are many slots."""
        sizes = [len(part.segment.compiled.universe.code_counts) for part in seen.parts]
        step = max(EVENTS, MAX_CODES // max((1, *sizes)) // EVENTS * EVENTS)
        if events.num_rows <= step:
            return self._match(seen, events, kernels)
        firsts = range(0, events.num_rows, step)
        answers = [self._match(seen, events.slice(first, step), kernels) for first in firsts]
        counts = np.concatenate([np.diff(offsets) for offsets, _ in answers])
        keys = np.concatenate([keys for _, keys in answers])
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), keys

    def _match(self, seen: Seen, events: pa.RecordBatch, kernels: Kernels | None) -> Found:
        coded, fresh = coded_by(seen, events, kernels)
        together: list[Coded] = []
        if kernels is not None:
            together = _together(coded, events.num_rows, fresh is not None)
        alone = [each for each in coded if all(each is not other for other in together)]
        answers = [part.match(codes, events) for part, codes in alone]
        if together and kernels is not None:
            found = self._match_together(together, seen.overlay, fresh, events.num_rows, kernels)
            answers.append(found)
        elif seen.overlay is not None and fresh is not None:
            answers.append(seen.overlay.match(fresh))
        if not answers:
            return np.zeros(events.num_rows + 1, np.int64), np.zeros(0, np.int64)
        answers.sort(key=lambda answer: len(answer[1]))
        whole = answers[0]
        for other in answers[1:]:
            whole = _both(whole, other, kernels) if len(whole[1]) else other
        return whole

    def together(self, seen: Seen, events: pa.RecordBatch, kernels: Kernels) -> Found:
        """The answer of parts without guards, together whatever that costs."""
        coded, fresh = coded_by(seen, events, kernels)
        return self._match_together(coded, seen.overlay, fresh, events.num_rows, kernels)

    def _match_together(
        self,
        coded: list[Coded],
        overlay: Overlay | None,
        fresh: Codes | None,
        events: int,
        kernels: Kernels,
    ) -> Found:
        """Notes of the small parts first, then the large part, which takes in all others."""
        large, *small = (part.segment for part, _ in coded)
        numbering = self._numbering
        if numbering is None or not _same(numbering.of, (large, *small, overlay)):
            numbering = self._numbering = _Numbering.made(large, small, overlay, kernels)
        noted = [segment.compiled.rows for segment in small]
        blocks, rows = (events + EVENTS - 1) // EVENTS, large.compiled.rows + sum(noted)
        room = self._take_room(blocks * sum(noted), rows + (len(overlay) if overlay else 0))
        ends = np.zeros((len(small), blocks), np.int64)
        place = 0
        for at, (part, codes) in enumerate(coded[1:]):
            segment = part.segment
            scratch = segment.take_scratch()
            place = kernels.note_blocks(
                codes, segment.predicates, segment.program, part.dead, scratch,
                numbering.ranks[at + 1], place, room.results, room.notes, ends[at],
            )  # fmt: skip
            segment.give_back(scratch)
        lately = NOTHING_FRESH
        if overlay is not None and fresh is not None:
            lately = overlay.fresh(fresh, numbering.ranks[-1])
        (part, codes) = coded[0]
        scratch = large.take_scratch()
        offsets = np.zeros(events + 1, np.int64)
        found = np.empty(self._length, np.int64)
        done = 0
        alternatives = any(each.alternatives for each in (large, *small))
        widened = scratch._replace(results=room.own_results, notes=room.own_notes, spare=room.spare)
        while True:
            done = kernels.match_with_notes(
                codes, done, large.predicates, large.program, part.dead, alternatives,
                widened, numbering.ranks[0], ends, room.results, room.notes, lately,
                numbering.keys, offsets, found,
            )  # fmt: skip
            if done >= events:
                break
            used = int(offsets[done])
            grown = np.empty(
                2 * max(len(found), int(offsets[min(done + EVENTS, events)])), np.int64
            )
            grown[:used] = found[:used]
            found = grown
        large.give_back(scratch)
        self._rooms.append(room)
        total = int(offsets[-1])
        self._length = max(1024, total + total // 4 + 1)
        return offsets, found[:total]

    def _take_room(self, noted: int, rows: int) -> _Room:
        try:
            room = self._rooms.pop()
        except IndexError:
            return _Room.of(2 * noted, rows + rows // 4)
        return room if room.fits(noted, rows) else _Room.of(2 * noted, rows + rows // 4)

    def memory(self) -> int:
        """Bytes of the working arrays."""
        return sum(array.nbytes for room in self._rooms for array in room)


def coded_by(
    seen: Seen, events: pa.RecordBatch, kernels: Kernels | None
) -> tuple[list[Coded], Codes | None]:
    """Each part with the codes of the events, and those of the overlay if it has rows; the batch is
    exported once for all.
    """
    parts = seen.parts
    overlay = seen.overlay if seen.overlay is not None and len(seen.overlay) else None
    if kernels is None or not (parts or overlay):
        return [(part, part.segment.codes_of(events)) for part in parts], None
    structure = np.zeros(ARROW_WORDS, np.uint64)
    address = structure.ctypes.data
    events._export_to_c(address)
    try:
        fresh = None if overlay is None else overlay.codes_of(events, address)
        return [(part, part.segment.codes_of(events, address)) for part in parts], fresh
    finally:
        kernels.release_batch(address)


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _together(coded: Sequence[Coded], events: int, fresh: bool) -> list[Coded]:
    """The parts to match together, the largest first; none if there is nothing beside it."""
    plain = [each for each in coded if each[0].guards is None]
    plain.sort(key=lambda each: -each[0].segment.compiled.rows)
    if len(plain) + fresh < 2 or not plain or not events:
        return []
    costs = plain[0][0].segment.costs(events)
    if costs["few"] <= costs["many"]:
        return []
    small = [each for each in plain[1:] if each[0].segment.compiled.rows <= MAX_JOINT_ROWS]
    return [plain[0], *small] if small or fresh else []


def _both(one: Found, other: Found, kernels: Kernels | None) -> Found:
    if kernels is not None:
        offsets, keys = kernels.merge_found(*one, *other)
        return offsets, keys
    events = np.arange(len(one[0]) - 1)
    pairs = [(np.repeat(events, np.diff(offsets)), keys) for offsets, keys in (one, other)]
    return united(pairs, len(events))
