"""Cuts and codes: make a small integer, which every predicate can test, of any value.

Constraints are half-open intervals of coordinates (palio.model.values). The ends of all intervals
on an attribute are its *cuts*, sorted once; the *code* of a value is the number of cuts not above
it, so that `low <= value < high` becomes `code(low) <= code(value) < code(high)`, for every type
alike:

    0               absent
    1               NaN: present, but in no order
    bases[kind] +   the number of the kind's cuts that are not above the value

A numeric cut is kept twice, as the first int64 and as the first float64 that are not below it, so
that columns of either type are compared exactly. Text tests (suffix, LIKE, ...) are slots of their
own behind the attributes', with codes 0 (fails) and 1 (passes).
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.matching.layers import Longs
from palio.model.texts import TextTest
from palio.model.values import INT64_MAX, INT64_MIN, Kind, coordinate, is_nan, kind_of

Integers: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]

ABSENT_CODE: Final = 0
NAN_CODE: Final = 1
FIRST_CODE: Final = 2

TABLE_SPAN: Final = 65_536
"""Span of integer cuts up to which they may get a table of codes instead of a binary search..."""

SMALL_TABLE: Final = 1_024
"""...and the span up to which they always do."""

TABLE_SHARE: Final = 16
"""Span for each cut up to which a larger table is made: it takes at most 64 bytes a cut."""

_FEW_PLACES: Final = 16
"""Coordinates up to which each is computed by itself: arrays would cost more."""

_TWO_63: Final = 2.0**63
_INT64: Final = range(INT64_MIN, INT64_MAX + 1)


@dataclass(frozen=True)
class Numbers:
    """Numeric cuts: for each the first int64 and the first float64 (as an ordered integer) not
    below it.

    `beyond` marks cuts above every int64.
    """

    ints: Longs
    floats: Longs
    beyond: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ints)

    def __getitem__(self, chosen: Any) -> Numbers:
        return Numbers(self.ints[chosen], self.floats[chosen], self.beyond[chosen])

    def __setitem__(self, chosen: Any, cuts: Numbers) -> None:
        self.ints[chosen], self.floats[chosen] = cuts.ints, cuts.floats
        self.beyond[chosen] = cuts.beyond

    @classmethod
    def of_cuts(cls, cuts: Sequence[tuple[int, int, bool]]) -> Numbers:
        """Cuts one by one, as `number_cut` gives them."""
        ints, floats, beyond = zip(*cuts, strict=True) if cuts else ((), (), ())
        return cls(np.array(ints, np.int64), np.array(floats, np.int64), np.array(beyond, np.bool_))

    @classmethod
    def joined(cls, parts: Sequence[Numbers]) -> Numbers:
        """All cuts of some parts, one after the other."""
        if not parts:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_))
        return cls(
            np.concatenate([part.ints for part in parts]),
            np.concatenate([part.floats for part in parts]),
            np.concatenate([part.beyond for part in parts]),
        )


def ordered(values: Floats) -> Longs:
    """Floats as integers in the same order; -0.0 is 0.0.

    >>> ordered(np.array([-1.5, -0.0, 0.0])).tolist()
    [-4609434218613702656, 0, 0]
    """
    bits = np.ascontiguousarray(values, np.float64).view(np.int64)
    return np.where(bits < 0, -(bits & INT64_MAX), bits)


def number_cuts(values: npt.NDArray[Any]) -> Numbers:
    """The cut before each of some int64 or float64 values (none of them NaN)."""
    if values.dtype == np.int64:
        as_float = values.astype(np.float64)
        below = _whole(as_float) < values  # 2**63, what the largest integers round to, is not below
        rounded = np.where(below, _next_float(as_float), as_float)
        return Numbers(values, ordered(rounded), np.zeros(len(values), np.bool_))
    return Numbers(_whole(np.ceil(values)), ordered(values), values >= _TWO_63)


def past_numbers(values: npt.NDArray[Any]) -> Numbers:
    """The cut behind each value: before the next number of either type.

    There is nothing behind infinity: callers leave that end open.
    """
    if values.dtype == np.int64:
        as_float = values.astype(np.float64)
        above = (_whole(as_float) > values) | (as_float >= _TWO_63)
        following = np.where(above, as_float, _next_float(as_float))
        last = values == INT64_MAX
        return Numbers(np.where(last, values, values + ~last), ordered(following), last)
    whole = _whole(np.floor(values))
    beyond = values >= _TWO_63
    ints = np.where(beyond | (values < -_TWO_63), whole, whole + ~beyond)
    return Numbers(ints, ordered(_next_float(values)), beyond)


def _next_float(values: Floats) -> Floats:
    """The float behind each. Infinity comes behind the last; numpy warns of that."""
    with np.errstate(over="ignore", under="ignore"):
        following: Floats = np.nextafter(values, np.inf)
    return following


def _whole(values: Floats) -> Longs:
    """Floats as int64, clipped to what fits."""
    inside = np.clip(values, -_TWO_63, np.nextafter(_TWO_63, 0.0))
    return np.where(values >= _TWO_63, INT64_MAX, inside.astype(np.int64))


def number_cut(place: int | float) -> tuple[int, int, bool]:
    """The cut at one numeric coordinate: (first int64, first float64 as an ordered integer,
    beyond).

    >>> number_cut(2.5)[0], number_cut(2**53 + 1)[0]
    (3, 9007199254740993)
    """
    as_float = float(place)
    if as_float < place:
        as_float = math.nextafter(as_float, math.inf)
    beyond = place > INT64_MAX
    if beyond or place == math.inf:
        first = INT64_MAX
    else:
        first = INT64_MIN if place < INT64_MIN else math.ceil(place)
    bits: int = _INT.unpack(_FLOAT.pack(as_float))[0]
    return first, bits if bits >= 0 else -(bits & INT64_MAX), beyond


def cuts_at(places: Sequence[Any]) -> Numbers:
    """`number_cut` of many coordinates: a list of constants costs what its arrays do.

    >>> cuts_at([1, 2]).ints.tolist(), cuts_at([0.5, 2**64]).beyond.tolist()
    ([1, 2], [False, True])
    """
    if len(places) < _FEW_PLACES:
        return Numbers.of_cuts([number_cut(place) for place in places])
    are_ints = np.array([type(place) is int and place in _INT64 for place in places])
    are_floats = np.array([type(place) is float for place in places])
    size = len(places)
    numbers = Numbers(np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.bool_))
    numbers[are_ints] = number_cuts(np.array(places, object)[are_ints].astype(np.int64))
    numbers[are_floats] = number_cuts(np.array(places, object)[are_floats].astype(np.float64))
    for at in np.flatnonzero(~(are_ints | are_floats)).tolist():
        numbers[at : at + 1] = Numbers.of_cuts([number_cut(places[at])])
    return numbers


_FLOAT: Final = struct.Struct("<d")
_INT: Final = struct.Struct("<q")


_NO_LONGS: Final = np.zeros(0, np.int64)


@dataclass
class SlotCuts:
    """The cuts of one attribute, gathered kind by kind before they are ranked."""

    numbers: Numbers = field(default_factory=lambda: Numbers.joined([]))
    true: bool = False
    times: Longs = field(default_factory=lambda: _NO_LONGS)
    strings: list[bytes] = field(default_factory=list)
    binaries: list[bytes] = field(default_factory=list)

    def others(self) -> list[tuple[Kind, Sequence[Any]]]:
        """The kinds but numbers of which there are cuts, and these."""
        kinds: list[tuple[Kind, Sequence[Any]]] = [(Kind.BOOL, (True,))] if self.true else []
        if self.strings:
            kinds.append((Kind.STRING, self.strings))
        if self.binaries:
            kinds.append((Kind.BYTES, self.binaries))
        if len(self.times):
            kinds.append((Kind.TIME, self.times.tolist()))
        return kinds

    def sizes(self) -> list[int]:
        """The number of cuts of each kind, in the order of `Kind`."""
        texts = [len(self.strings), len(self.binaries)]
        return [int(self.true), len(self.numbers), *texts, len(self.times)]


class Universe:
    """All cuts of all slots, as the flat arrays that `kernels.arrow.code_batch` reads."""

    STORED: Final = (
        *("number_offsets", "number_ints", "number_floats", "reachable"),
        *("bool_cuts", "time_offsets", "times"),
        *("text_offsets", "text_heads", "text_starts", "text_data"),
    )
    """The names of the arrays from which all others follow."""

    def __init__(self, cuts: Mapping[str, SlotCuts], tests: Sequence[tuple[str, TextTest]]) -> None:
        self._name(tuple(cuts), tests)
        self._cuts: dict[str, SlotCuts] | None = dict(cuts)
        every = list(self._cuts.values())
        sizes = np.array([cuts.sizes() for cuts in every], np.int32).reshape(-1, len(Kind))
        numbers = Numbers.joined([cuts.numbers for cuts in every])
        self.number_offsets = _offsets(sizes[:, Kind.NUMBER])
        self.number_ints, self.number_floats = numbers.ints, numbers.floats
        self.reachable: Integers = np.array(
            [len(cuts.numbers) - int(cuts.numbers.beyond.sum()) for cuts in every], np.int32
        )
        self.bool_cuts: Integers = np.ascontiguousarray(sizes[:, Kind.BOOL])
        self.time_offsets = _offsets(sizes[:, Kind.TIME])
        self.times: Longs = np.concatenate([np.zeros(0, np.int64), *(cuts.times for cuts in every)])
        self._lay_texts([part for cuts in every for part in (cuts.strings, cuts.binaries)])
        self._derive()

    def _name(self, names: tuple[str, ...], tests: Sequence[tuple[str, TextTest]]) -> None:
        self.names = names
        self.tests = tuple(tests)
        self.slot_of = {name: slot for slot, name in enumerate(names)}
        self.test_slots = {test: len(names) + at for at, test in enumerate(self.tests)}

    @classmethod
    def loaded(
        cls,
        names: tuple[str, ...],
        tests: Sequence[tuple[str, TextTest]],
        stored: Mapping[str, npt.NDArray[Any]],
    ) -> Universe:
        """A universe from the arrays that are `STORED`."""
        universe = cls.__new__(cls)
        universe._name(names, tests)
        universe._cuts = None
        for name, array in stored.items():
            setattr(universe, name, array)
        universe._derive()
        return universe

    @classmethod
    def of_numbers(cls, names: tuple[str, ...], offsets: Integers, numbers: Numbers) -> Universe:
        """A universe of numeric cuts alone: those of slot s are `offsets[s] : offsets[s + 1]`."""
        slots = len(names)
        beyond = np.concatenate([[0], np.cumsum(numbers.beyond)])
        reachable = np.diff(offsets) - np.diff(beyond[offsets])
        none = np.zeros(2 * slots + 1, np.int32)
        arrays = (
            offsets, numbers.ints, numbers.floats, reachable.astype(np.int32),
            none[:slots], none[: slots + 1], _NO_LONGS,
            none, np.zeros(0, np.uint64), np.zeros(1, np.int64), np.zeros(0, np.uint8),
        )  # fmt: skip
        return cls.loaded(names, (), dict(zip(cls.STORED, arrays, strict=True)))

    def _derive(self) -> None:
        """Derive from the cuts where codes begin, and the tables of integers' codes."""
        sizes = np.empty((len(self.names), len(Kind)), np.int32)
        sizes[:, Kind.BOOL] = self.bool_cuts
        sizes[:, Kind.NUMBER] = np.diff(self.number_offsets)
        sizes[:, Kind.TIME] = np.diff(self.time_offsets)
        sizes[:, [Kind.STRING, Kind.BYTES]] = np.diff(self.text_offsets).reshape(-1, 2)
        self.bases, self.code_counts = _coded_sizes(sizes, len(self.tests))
        reached = (self.number_offsets, self.number_ints, self.reachable)
        self.table_lows, self.table_offsets = _tables_of(*reached)
        self.table: Integers = _table_codes(*reached, self.table_offsets)

    @property
    def cuts(self) -> dict[str, SlotCuts]:
        """The cuts of each attribute, taken back from the arrays if need be."""
        if self._cuts is None:
            self._cuts = {name: self._slot_cuts(slot) for slot, name in enumerate(self.names)}
        return self._cuts

    def _slot_cuts(self, slot: int) -> SlotCuts:
        first, end = self.number_offsets[slot], self.number_offsets[slot + 1]
        beyond = np.arange(end - first) >= self.reachable[slot]
        texts = []
        for column in (2 * slot, 2 * slot + 1):
            places = range(self.text_offsets[column], self.text_offsets[column + 1])
            starts = self.text_starts
            data = self.text_data
            texts.append([data[starts[at] : starts[at + 1]].tobytes() for at in places])
        return SlotCuts(
            Numbers(self.number_ints[first:end], self.number_floats[first:end], beyond),
            bool(self.bool_cuts[slot]),
            self.times[self.time_offsets[slot] : self.time_offsets[slot + 1]],
            *texts,
        )

    def _lay_texts(self, lists: Sequence[list[bytes]]) -> None:
        texts = [text for part in lists for text in part]
        self.text_offsets = _offsets(np.array([len(part) for part in lists], np.int64))
        self.text_starts: Longs = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(text) for text in texts], out=self.text_starts[1:])
        self.text_data: npt.NDArray[np.uint8] = np.frombuffer(
            b"".join(texts), np.uint8
        ).copy()  # kernels know writable arrays only
        heads = b"".join(text[:8].ljust(8, b"\0") for text in texts)
        self.text_heads: npt.NDArray[np.uint64] = np.frombuffer(heads, ">u8").astype(np.uint64)

    def edges_of(self, name: str) -> list[int]:
        """The code at which each kind of an attribute begins, and where the last one ends."""
        slot = self.slot_of[name]
        return [*self.bases[slot].tolist(), int(self.code_counts[slot])]

    def code_at_cut(self, name: str, kind: Kind, cut: Any) -> int:
        """The code that begins at a cut the slot has, one of no number; texts as bytes."""
        base, cuts = int(self.bases[self.slot_of[name], kind]), self.cuts[name]
        if kind is Kind.BOOL:
            return base + 1
        if kind is Kind.TIME:
            return base + int(np.searchsorted(cuts.times, cut)) + 1
        return base + bisect_right(cuts.strings if kind is Kind.STRING else cuts.binaries, cut)

    def code_of(self, name: str, value: Any) -> int:
        """The code of one value of an attribute (the definition; kernels do columns of them)."""
        if value is None:
            return ABSENT_CODE
        if is_nan(value):
            return NAN_CODE
        kind = kind_of(value)
        slot, cuts = self.slot_of[name], self.cuts[name]
        place: Any = coordinate(value)
        base = int(self.bases[slot, kind])
        if kind is Kind.BOOL:
            return base + int(bool(place) and cuts.true)
        if kind is Kind.NUMBER:
            return int(self.codes_of_numbers(name, np.array([place]))[0])
        if kind is Kind.TIME:
            return base + int(np.searchsorted(cuts.times, place, "right"))
        if isinstance(place, str):
            return base + bisect_right(cuts.strings, place.encode())
        assert isinstance(place, bytes)
        return base + bisect_right(cuts.binaries, place)

    def codes_of_numbers(self, name: str, values: npt.NDArray[Any]) -> Integers:
        """The codes of int64 or float64 values of an attribute."""
        slot, numbers = self.slot_of[name], self.cuts[name].numbers
        if values.dtype == np.int64:
            ranks = np.searchsorted(numbers.ints[: self.reachable[slot]], values, "right")
        else:
            ranks = np.searchsorted(numbers.floats, ordered(values), "right")
        codes = ranks.astype(np.int32) + self.bases[slot, Kind.NUMBER]
        return np.where(np.isnan(values), np.int32(NAN_CODE), codes)

    def arrays(self) -> tuple[Any, ...]:
        """The arrays that `kernels.arrow.code_batch` reads, in the order of its parameters."""
        return (
            self.bases, self.number_offsets, self.number_ints, self.number_floats, self.reachable,
            self.table_offsets, self.table_lows, self.table, self.bool_cuts,
            self.time_offsets, self.times,
            self.text_offsets, self.text_heads, self.text_starts, self.text_data,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays())


def _coded_sizes(sizes: Integers, tests: int) -> tuple[Integers, Integers]:
    """The first code of each attribute's kinds, and how many codes each slot has.

    `sizes` are the cuts of each attribute, kind by kind; slots of `tests` have two codes.
    """
    widths = sizes + 1
    bases = (FIRST_CODE + np.cumsum(widths, axis=1) - widths).astype(np.int32)
    attribute_codes = FIRST_CODE + widths.sum(axis=1)
    return bases, np.concatenate([attribute_codes, np.full(tests, 2)]).astype(np.int32)


def _tables_of(offsets: Integers, numbers: Longs, reachable: Integers) -> tuple[Longs, Integers]:
    """For slots whose integer cuts lie close together, a table has the code of every integer
    between: the first of these integers for each slot, and where its codes begin in the table.
    """
    firsts = offsets[:-1].astype(np.int64)
    lasts = np.maximum(firsts, firsts + reachable - 1)
    ints = np.append(numbers, 0)
    lows = np.where(reachable > 0, ints[firsts], 0)
    with np.errstate(over="ignore"):  # a span that overflows is negative, and too wide
        spans = ints[lasts] - lows
    most = np.minimum(TABLE_SPAN, np.maximum(SMALL_TABLE, TABLE_SHARE * reachable))
    chosen = (reachable > 0) & (spans >= 0) & (spans < most)
    return lows, _offsets(np.where(chosen, spans + 1, 0))


def _table_codes(
    offsets: Integers, numbers: Longs, reachable: Integers, table_offsets: Integers
) -> Integers:
    """The codes of such tables, one after the other."""
    firsts = offsets[:-1].astype(np.int64)
    ints = np.append(numbers, 0)
    counts = np.where(np.diff(table_offsets) > 0, reachable, 0)
    slots = np.repeat(np.arange(len(firsts)), counts)
    ranks = np.arange(len(slots)) - (np.cumsum(counts) - counts)[slots]
    places = firsts[slots] + ranks
    last = ranks == reachable[slots] - 1
    gaps = np.where(last, 1, ints[places + 1] - ints[places])
    return np.repeat((ranks + 1).astype(np.int32), gaps)


def _offsets(sizes: npt.NDArray[Any]) -> Integers:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


class CutCollector:
    """Cuts of all kinds and slots on their way to a universe.

    Numeric cuts come as arrays; where each of them is in its slot is known when all are sorted,
    once for all slots.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.slot_of = {name: slot for slot, name in enumerate(self.names)}
        self._slots: list[Longs] = []
        self._numbers: list[Numbers] = []
        self._others: dict[tuple[int, Kind], set[Any]] = {}

    def add_numbers(self, slots: Longs, cuts: Numbers) -> None:
        """Numeric cuts, each with its slot."""
        self._slots.append(slots)
        self._numbers.append(cuts)

    def add(self, slot: int, kind: Kind, places: Iterable[Any]) -> None:
        """Cuts of another kind than numbers; texts as bytes."""
        self._others.setdefault((slot, kind), set()).update(places)

    def universe(self, tests: Iterable[tuple[str, TextTest]]) -> tuple[Universe, list[Longs]]:
        """The universe, and for each array that was added where its cuts are among the cuts of
        their slots.
        """
        slots = np.concatenate([np.zeros(0, np.int64), *self._slots])
        numbers = Numbers.joined(self._numbers)
        order = np.lexsort((numbers.floats, numbers.ints, (slots << 1) | numbers.beyond))
        ranked, ranked_slots = numbers[order], slots[order]
        first = np.ones(len(order), np.bool_)
        if len(order):
            first[1:] = (
                (np.diff(ranked.ints) != 0)
                | (np.diff(ranked.floats) != 0)
                | (np.diff(ranked_slots) != 0)
                | (ranked.beyond[1:] != ranked.beyond[:-1])
            )
        distinct = ranked[first]
        ends = np.searchsorted(ranked_slots[first], np.arange(len(self.names) + 1))
        places = np.empty(len(order), np.int64)
        places[order] = np.cumsum(first) - 1 - ends[ranked_slots]
        cuts = {
            name: self._slot_cuts(slot, distinct[ends[slot] : ends[slot + 1]])
            for slot, name in enumerate(self.names)
        }
        universe = Universe(cuts, sorted(tests, key=lambda test: (test[0], str(test[1]))))
        lengths = [len(part) for part in self._slots]
        return universe, np.split(places, np.cumsum(lengths))[:-1]

    def _slot_cuts(self, slot: int, numbers: Numbers) -> SlotCuts:
        kinds = (Kind.BOOL, Kind.TIME, Kind.STRING, Kind.BYTES)
        true, times, strings, binaries = (self._others.get((slot, kind), ()) for kind in kinds)
        cuts = SlotCuts(numbers, bool(true), strings=sorted(strings), binaries=sorted(binaries))
        if times:
            cuts.times = np.array(sorted(times), np.int64)
        return cuts
