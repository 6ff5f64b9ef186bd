"""Parts of an index: a segment with what changes about it, and how several answers become one.

A part is immutable; a change makes another part that shares the segment. Readers hold on to the
parts they began with, so that they never wait for a writer and never see half a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.matching.compile.merge import merged
from palio.matching.compile.ranges import Draft, compile_drafts
from palio.matching.compile.rows import Compiled
from palio.matching.compile.terms import Guard
from palio.matching.kernels.registry import Kernels
from palio.matching.residuals import holds_on
from palio.matching.segment import Codes, Found, Segment
from palio.model.values import NO_VALUES

__all__ = ["Part", "joined", "part_of", "plain_part", "united"]

Longs: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Part:
    """A segment, its dead filters as bits, and the destination of each rank.

    With `guards` the segment's keys are places in that list, whose keys ascend.
    """

    segment: Segment
    dead: Words
    destinations: Longs
    guards: tuple[Guard, ...] | None = None
    died: int = 0

    @property
    def owners(self) -> Longs:
        """The filter's key for each rank."""
        if self.guards is None:
            return self.segment.keys
        listed = np.array([guard.key for guard in self.guards], np.int64)
        return listed[self.segment.keys]

    @property
    def matches_singly(self) -> bool:
        """Whether a single event can take the short way through `Segment.match_one`."""
        return self.guards is None and self.segment.matches_singly

    @property
    def living(self) -> int:
        """How many ranks are not dead."""
        return len(self.segment.keys) - self.died

    def without(self, keys: Longs) -> Part:
        """The same part with some filters dead (those that it has)."""
        owners, kernels = self.owners, self.segment.kernels
        if kernels is not None:
            bits, count = kernels.mark_tombstones(owners, self.dead, keys)
            return replace(self, dead=bits, died=self.died + count) if count else self
        first, end = np.searchsorted(owners, keys), np.searchsorted(owners, keys, "right")
        hit = first < end
        if not hit.any():
            return self
        counts = (end - first)[hit]
        ranks = np.repeat(first[hit] - (np.cumsum(counts) - counts), counts)
        ranks += np.arange(len(ranks))
        words, bits = ranks >> 6, np.uint64(1) << (ranks & 63).astype(np.uint64)
        died = int(np.count_nonzero(self.dead[words] & bits == 0))
        if not died:
            return self
        dead = self.dead.copy()
        np.bitwise_or.at(dead, words, bits)
        return replace(self, dead=dead, died=self.died + died)

    def match(self, codes: Codes, events: pa.RecordBatch) -> Found:
        """The keys of filters that each event matches."""
        offsets, keys = self.segment.match(codes, self.dead)
        if self.guards is None or not len(keys):
            return offsets, keys
        rows = np.repeat(np.arange(events.num_rows), np.diff(offsets))
        holds = np.zeros(len(keys), np.bool_)
        order = np.argsort(keys, kind="stable")
        ends = np.flatnonzero(np.concatenate([np.diff(keys[order]) != 0, [True]])) + 1
        begin = 0
        for end in ends.tolist():
            here = order[begin:end]
            holds[here] = self._guarded(self.guards[keys[here[0]]], events, rows[here])
            begin = end
        owners = np.array([guard.key for guard in self.guards], np.int64)
        return united([(rows[holds], owners[keys[holds]])], events.num_rows)

    def _guarded(self, guard: Guard, events: pa.RecordBatch, rows: Longs) -> npt.NDArray[np.bool_]:
        holds = np.ones(len(rows), np.bool_)
        for residual in guard.residuals:
            left = np.flatnonzero(holds)
            holds[left] = holds_on(residual, events, rows[left], NO_VALUES)
        return holds


def part_of(
    drafts: Sequence[Draft],
    goals: tuple[Longs, Longs] | None,
    kernels: Kernels | None,
    guards: Sequence[Guard] | None = None,
) -> Part | None:
    """A part of some drafts; None if they have no rows.

    `goals` are keys, ascending, and their destinations; None if every filter is its own.
    """
    compiled = compile_drafts(drafts)
    if not compiled.rows:
        return None
    if guards is not None:
        return _guarded_part(compiled, guards, kernels)
    return plain_part(compiled, goals, kernels)


def plain_part(
    compiled: Compiled, goals: tuple[Longs, Longs] | None, kernels: Kernels | None
) -> Part:
    """A part of compiled rows without guards; `goals` as in `part_of`."""
    segment = Segment(compiled, kernels)
    destinations = segment.keys
    if goals is not None:
        known, targets = goals
        destinations = targets[np.searchsorted(known, segment.keys)]
    return Part(segment, segment.no_dead(), destinations)


def _guarded_part(compiled: Compiled, guards: Sequence[Guard], kernels: Kernels | None) -> Part:
    """With the guards that are used, ascending by key, and the rows renumbered to them."""
    used = np.unique(compiled.row_owners).tolist()
    ordered = sorted(used, key=lambda place: guards[place].key)
    renumbered = np.zeros(len(guards), np.int64)
    renumbered[ordered] = np.arange(len(ordered))
    rows = replace(compiled, row_owners=renumbered[compiled.row_owners])
    segment = Segment(rows, kernels)
    kept = tuple(guards[place] for place in ordered)
    destinations = np.array([guard.destination for guard in kept], np.int64)
    return Part(segment, segment.no_dead(), destinations, kept)


def joined(parts: Sequence[Part], kernels: Kernels | None) -> Part | None:
    """One part with the living rows of several of a sort (all with guards, or all without)."""
    kept, compiled, keys, goals = [], [], [], []
    guards: list[Guard] = []
    for part in parts:
        segment = part.segment
        dead = np.unpackbits(part.dead.view(np.uint8), bitorder="little").view(np.bool_)
        kept.append(~dead[segment.row_ranks])
        rows = segment.compiled
        if part.guards is not None:
            rows = replace(rows, row_owners=rows.row_owners + len(guards))
            guards += part.guards
        compiled.append(rows)
        living = ~dead[: len(segment.keys)]
        keys.append(segment.keys[living])
        goals.append(part.destinations[living])
    whole = merged(compiled, kept)
    if not whole.rows:
        return None
    if parts[0].guards is not None:
        return _guarded_part(whole, guards, kernels)
    every = np.concatenate(keys)
    order = np.argsort(every)
    return plain_part(whole, (every[order], np.concatenate(goals)[order]), kernels)


def united(pairs: Sequence[tuple[Longs, Longs]], events: int) -> Found:
    """Pairs (rows, keys) from several parts in order of row and key, each once."""
    rows = np.concatenate([np.zeros(0, np.int64), *(each[0] for each in pairs)])
    keys = np.concatenate([np.zeros(0, np.int64), *(each[1] for each in pairs)])
    order = np.lexsort((keys, rows))
    rows, keys = rows[order], keys[order]
    if len(rows):
        first = np.concatenate([[True], (np.diff(rows) != 0) | (np.diff(keys) != 0)])
        rows, keys = rows[first], keys[first]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=events))])
    return offsets.astype(np.int64), keys
