"""Several compiled sets of rows as one, without going back to the filters.

Only the cuts that kept rows use come along: a set whose parameters change all the time would
otherwise never stop growing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from palio.matching.compile.cuts import CutCollector, Numbers, Universe
from palio.matching.compile.rows import CompiledRows, IntervalTable, assembled
from palio.matching.layers import Longs
from palio.model.values import Kind

Mask: TypeAlias = npt.NDArray[np.bool_]


def merged(parts: Sequence[CompiledRows], kept: Sequence[Mask]) -> CompiledRows:
    """The kept rows of several sets."""
    listed = [_Kept(part, keep) for part, keep in zip(parts, kept, strict=True)]
    gathered = CutCollector(sorted({name for layer in listed for name in layer.names}))
    for source in listed:
        source.gather(gathered)
    universe, ranks = gathered.universe({test for layer in listed for test in layer.tests})
    entries = IntervalTable()
    owners = [np.zeros(0, np.int64)]
    first_row = 0
    for source, places in zip(listed, ranks, strict=True):
        source.enter(entries, universe, source.recoded(universe, places), first_row)
        owners.append(source.owners)
        first_row += len(source.owners)
    return assembled(universe, entries, np.concatenate(owners))


class _Kept:
    """The kept rows of one set, with what they use of its codes.

    Codes of all slots stand in one flat space, in which slot s begins at `starts[s]`; an end of an
    interval is a place in it.
    """

    def __init__(self, part: CompiledRows, keep: Mask) -> None:
        self.part = part
        self.universe = universe = part.universe
        self.owners = part.row_owners[keep]
        lengths = np.diff(part.row_offsets)
        self.predicates = part.row_predicates[np.repeat(keep, lengths)].astype(np.int64)
        self.rows = np.repeat(np.arange(len(self.owners)), lengths[keep])
        self.used = np.zeros(len(part.predicate_slots), np.bool_)
        self.used[self.predicates] = True
        slots = np.unique(part.predicate_slots[self.used]).tolist()
        count = len(universe.names)
        self.slots = [slot for slot in slots if slot < count]
        self.names = [universe.names[slot] for slot in self.slots]
        self.tests = [universe.tests[slot - count] for slot in slots if slot >= count]
        sizes = universe.code_counts.astype(np.int64) + 1
        self.starts = np.cumsum(sizes) - sizes
        span_starts = np.repeat(self.starts[part.predicate_slots], np.diff(part.span_offsets))
        self.low_places, self.high_places = span_starts + part.lows, span_starts + part.highs
        self.is_end = np.zeros(int(sizes.sum()), np.bool_)
        spans = np.repeat(self.used, np.diff(part.span_offsets))
        self.is_end[self.low_places[spans]] = True
        self.is_end[self.high_places[spans]] = True

    def gather(self, gathered: CutCollector) -> None:
        """Add the cuts that are ends of intervals."""
        universe = self.universe
        own = np.diff(universe.number_offsets)
        slots = np.repeat(np.arange(len(own)), own)
        ranks = np.arange(len(slots)) - universe.number_offsets[slots]
        places = self.starts[slots] + universe.bases[slots, Kind.NUMBER] + 1 + ranks
        chosen = self.is_end[places]
        self.number_places = places[chosen]
        slot_map = np.array([gathered.slot_of.get(name, -1) for name in universe.names], np.int64)
        self.number_slots = slot_map[slots[chosen]]
        numbers = Numbers(
            universe.number_ints[chosen],
            universe.number_floats[chosen],
            ranks[chosen] >= universe.reachable[slots[chosen]],
        )
        gathered.add_numbers(self.number_slots, numbers)
        self.others = [
            (slot, kind, place, cut)
            for slot in self.slots
            for kind, cuts in universe.cuts[universe.names[slot]].others()
            for place, cut in enumerate(
                cuts, int(self.starts[slot] + universe.bases[slot, kind]) + 1
            )
            if self.is_end[place]
        ]
        for slot, kind, _, cut in self.others:
            gathered.add(int(slot_map[slot]), kind, (cut,))

    def recoded(self, universe: Universe, places: Longs) -> Longs:
        """The code in the new universe for every place of the flat space that is an end.

        `places` are those of the numeric cuts in their new slots.
        """
        codes = np.zeros(len(self.is_end), np.int64)
        tests = self.starts[len(self.universe.names) :]
        for code in range(3):
            codes[tests + code] = code
        for slot, name in zip(self.slots, self.names, strict=True):
            start, new = int(self.starts[slot]), universe.slot_of[name]
            codes[start + 1] = 1
            codes[start + self.universe.bases[slot]] = universe.bases[new]
            codes[start + self.universe.code_counts[slot]] = universe.code_counts[new]
        bases = universe.bases[self.number_slots, Kind.NUMBER]
        codes[self.number_places] = bases + 1 + places
        for slot, kind, place, cut in self.others:
            codes[place] = universe.code_at_cut(self.universe.names[slot], kind, cut)
        return codes

    def enter(
        self, entries: IntervalTable, universe: Universe, codes: Longs, first_row: int
    ) -> None:
        """Add the rows."""
        part = self.part
        lows, highs = codes[self.low_places], codes[self.high_places]
        slot_map = np.zeros(len(part.universe.code_counts), np.int64)
        slot_map[self.slots] = [universe.slot_of[name] for name in self.names]
        for test in self.tests:
            slot_map[part.universe.test_slots[test]] = universe.test_slots[test]
        slots = slot_map[part.predicate_slots]
        rows, predicates = self.rows + first_row, self.predicates
        single = np.diff(part.span_offsets) == 1
        chosen = np.flatnonzero(self.used & single)
        spans = part.span_offsets[chosen]
        places = np.zeros(len(single), np.int64)
        places[chosen] = np.arange(len(chosen))
        plain = single[predicates]
        choice = places[predicates[plain]]
        entries.add(rows[plain], slots[chosen], lows[spans], highs[spans], choice)
        rows, predicates = rows[~plain], predicates[~plain]
        order = np.argsort(predicates, kind="stable")
        unions, counts = np.unique(predicates, return_counts=True)
        first = 0
        for predicate, count in zip(unions.tolist(), counts.tolist(), strict=True):
            here = rows[order[first : first + count]]
            first += count
            span = slice(part.span_offsets[predicate], part.span_offsets[predicate + 1])
            union = tuple(zip(lows[span].tolist(), highs[span].tolist(), strict=True))
            entries.add_union(here, int(slots[predicate]), union)
