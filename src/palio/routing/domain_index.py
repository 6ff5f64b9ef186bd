"""`DomainIndex`: boxes of values by attribute, and a search for those that meet another box.

A *box* has a set of values for each attribute that it names: those that an alternative of an
advertisement allows, or that a conjunction of a filter needs. Each attribute and kind of value has
a column of intervals, as floats (`measure`), so a few operations on arrays compare all of them.
They decide nearly all:

- intervals that are apart do not meet, nor do sets within them;
- intervals that overlap meet, unless one is only *around* a set: a long list, or texts that pass a
  test (`CONTAINS`, `LIKE`);
- an interval within another meets it, and so does a set that the inner one is around.

The rest is compared exactly: intervals whose ends have the same measure, which may have been
rounded, and sets that an interval is around.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from palio.model.domains import PRESENT, Domain, KindSet, Spans, full
from palio.model.texts import contradict
from palio.model.values import TOP, Kind
from palio.routing.normalized import ANY_KIND, measure
from palio.routing.text_sets import TextSets, listed, takes_long

Floats: TypeAlias = npt.NDArray[np.float64]
Longs: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_NONE: Final = np.zeros(0, np.int64)


class ValueSet(NamedTuple):
    """A set of values of one kind, or all values of all kinds; never empty."""

    kind: int
    values: KindSet


_ANYTHING: Final = ValueSet(ANY_KIND, KindSet(((0, 0),)))
"""All values of all kinds; its interval is never compared."""

ValueBox: TypeAlias = Mapping[str, Sequence[ValueSet]]
"""For each attribute the union of some sets."""

T = TypeVar("T")


def pieces_of(domains: Iterable[Domain]) -> list[ValueSet]:
    """Return the values, absence apart, that lie in any of some domains."""
    pieces: list[ValueSet] = []
    for domain in domains:
        if domain.kinds == PRESENT.kinds:
            return [_ANYTHING]
        kinds = domain.kinds.items()
        pieces += [ValueSet(kind, values) for kind, values in kinds if not values.is_empty]
    return pieces


class DomainIndex(Generic[T]):
    """Items, each with some boxes.

    An item meets a box if one of its own boxes does. Two boxes meet if their sets do in each
    attribute that one of the two *names*: the indexed box if the index is `needing` (filters, whose
    attributes an event must have), else the box of the query (advertisements are then indexed).

    >>> import palio
    >>> index: DomainIndex[str] = DomainIndex(needing=True)
    >>> def above(limit: int) -> list[ValueSet]:
    ...     return pieces_of(palio.parse(f"a > {limit}").conjunctions[0].domains.values())
    >>> index.add("one", [{"a": above(1)}]), index.add("two", [{"a": above(5), "b": above(5)}])
    (0, 1)
    >>> index.meeting([{"a": above(5)}]).tolist(), index.items[0]
    ([0], 'one')
    """

    def __init__(self, *, needing: bool) -> None:
        self.items: dict[int, T] = {}
        """The items by number. It is that of the item's first row, and reused once it is free."""
        self._needing = needing
        self._columns: dict[str, dict[int, _Column]] = {}
        # By item, for each of its boxes the row, and the slots in the columns.
        self._rows: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        self._free: list[int] = []
        self._names = array("q")  # by row, the number of attributes of its box; -1 if free
        self._items_of = array("q")

    def add(self, item: T, boxes: Iterable[ValueBox]) -> int | None:
        """Index an item; return its number, or None if it has no box and so meets nothing."""
        number: int | None = None
        for box in boxes:
            row = self._new_row()
            if number is None:
                number = row
                self.items[number] = item
                self._rows[number] = []
            self._names[row], self._items_of[row] = len(box), number
            slots = [
                self._column(name, piece.kind).add(row, span, piece.values)
                for name, pieces in box.items()
                for piece in pieces
                for span in _spans(piece.values)
            ]
            self._rows[number].append((row, tuple(slots)))
        return number

    def remove(self, number: int, boxes: Iterable[ValueBox]) -> None:
        """Forget an item, given its boxes again: slots are in the order of their intervals, so
        the index need not keep the boxes.
        """
        del self.items[number]
        for (row, slots), box in zip(self._rows.pop(number), boxes, strict=True):
            remaining = iter(slots)
            for name, pieces in box.items():
                columns = self._columns.get(name, {})
                for piece in pieces:
                    column = columns[piece.kind]
                    for _ in _spans(piece.values):
                        column.remove(next(remaining))
                    if column.is_empty:
                        del columns[piece.kind]
                if not columns:
                    self._columns.pop(name, None)
            self._names[row] = -1
            self._free.append(row)

    def meeting(self, boxes: Iterable[ValueBox]) -> Longs:
        """Return the numbers, ascending, of the items that meet one of some boxes."""
        names = np.asarray(self._names)
        rows = np.zeros(len(names), np.bool_)
        for box in boxes:
            # Boxes meet if they do in all attributes that one names, so it is enough to count.
            met = np.zeros(len(names), np.int64)
            for name, pieces in box.items():
                met += self._hits(name, pieces)
            rows |= met == (names if self._needing else len(box))
        marks = np.zeros(len(names), np.bool_)
        marks[np.asarray(self._items_of)[rows & (names >= 0)]] = True
        return np.flatnonzero(marks)

    def _hits(self, name: str, pieces: Sequence[ValueSet]) -> Mask:
        """Select the rows whose values of an attribute meet some sets."""
        hits = np.zeros(len(self._names), np.bool_)
        columns = self._columns.get(name, {})
        for piece in pieces:
            if piece.kind == ANY_KIND:
                for column in columns.values():
                    hits[column.rows] = True
                continue
            if ANY_KIND in columns:
                hits[columns[ANY_KIND].rows] = True
            if piece.kind in columns:
                hits[columns[piece.kind].meeting(piece.values)] = True
        return hits

    def _column(self, name: str, kind: int) -> _Column:
        columns = self._columns.setdefault(name, {})
        if kind not in columns:
            columns[kind] = _Column(kind)
        return columns[kind]

    def _new_row(self) -> int:
        if self._free:
            return self._free.pop()
        self._names.append(-1)
        self._items_of.append(-1)
        return len(self._names) - 1


def _spans(values: KindSet) -> Spans:
    """Return the intervals of a set that get a slot each: one around all, if it is `listed`."""
    spans = values.spans
    return ((spans[0][0], spans[-1][1]),) if listed(values) else spans


class _Column:
    """Intervals of one attribute and kind, each with the row that it belongs to."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        # Measured ends; a free slot has NaN, which meets nothing, so no search skips it explicitly.
        self._lows = array("d")
        self._highs = array("d")
        self._around = array("b")
        self._rounded = array("b")
        self._rows = array("q")
        # The exact ends, for intervals whose measures touch.
        self._begins: list[Any] = []
        self._ends: list[Any] = []
        self._sets: dict[int, KindSet] = {}  # by slot, the set that an interval is around
        self._texts = TextSets()  # those of them that are sets of texts
        self._free: list[int] = []

    @property
    def is_empty(self) -> bool:
        """True if all slots are free."""
        return len(self._free) == len(self._rows)

    @property
    def rows(self) -> Longs:
        """The rows with an interval here."""
        rows: Longs = np.asarray(self._rows)[~np.isnan(np.asarray(self._lows))]
        return rows

    def add(self, row: int, span: tuple[Any, Any], values: KindSet) -> int:
        """Add an interval of a set, or the one around it; return its slot."""
        if not self._free:
            self._free.append(len(self._rows))
            for column in (self._lows, self._highs, self._around, self._rounded, self._rows):
                column.append(0)
            self._begins.append(None)
            self._ends.append(None)
        slot, (low, high) = self._free.pop(), span
        self._begins[slot], self._ends[slot] = span
        self._lows[slot], self._highs[slot] = measure(low), measure(high)
        self._rounded[slot] = _is_rounded(low) or _is_rounded(high)
        self._around[slot] = bool(listed(values))
        if listed(values):
            self._sets[slot] = values
            if self._kind == Kind.STRING:
                self._texts.add(slot, values)
        self._rows[slot] = row
        return slot

    def remove(self, slot: int) -> None:
        """Remove an interval."""
        self._lows[slot] = self._highs[slot] = math.nan
        self._begins[slot] = self._ends[slot] = None
        if self._sets.pop(slot, None) is not None:
            self._texts.remove(slot)
        self._free.append(slot)

    def meeting(self, values: KindSet) -> Longs:
        """Return the rows with a value of a set.

        Cheapest first: all slots by their measures, then sets of texts by their literals
        (`TextSets`), and only the rest exactly, one by one.
        """
        lows, highs = np.asarray(self._lows), np.asarray(self._highs)
        around = np.asarray(self._around).astype(np.bool_)
        starts = np.array([measure(low) for low, _ in values.spans])
        ends = np.array([measure(high) for _, high in values.spans])
        touching, meeting, inside = _against(lows, highs, starts, ends)
        if values.tests:
            clear = (lows < starts[0]) & (highs > ends[-1]) & ~around
        else:
            clear = np.where(around, inside, meeting)
        unclear = touching & ~clear
        # Ends that have the same measure are equal if neither was rounded, and half-open intervals
        # with equal ends do not meet.
        if not any(_is_rounded(end) for span in values.spans for end in span):
            unclear &= around | np.asarray(self._rounded).astype(np.bool_)
        tested = np.flatnonzero(unclear & around) if self._kind == Kind.STRING else _NONE
        if len(tested):
            meets, unsure = self._texts.decide(values, tested, inside[tested])
            clear[tested], unclear[tested] = meets, unsure
        verdicts: dict[Any, bool] = {}  # a thousand filters may have the same list
        for slot in np.flatnonzero(unclear).tolist():
            exact = self._sets.get(slot) or (self._begins[slot], self._ends[slot])
            verdict = verdicts.get(exact)
            if verdict is None:
                verdict = verdicts[exact] = self._meet(exact, values)
            clear[slot] = verdict
        rows: Longs = np.asarray(self._rows)[clear]
        return rows

    def _meet(self, exact: KindSet | tuple[Any, Any], values: KindSet) -> bool:
        """Return whether two sets have a value in common, or take too long to compare."""
        indexed = KindSet((exact,)) if isinstance(exact, tuple) else exact
        if not _overlap(indexed.spans, values.spans):
            return False
        tests = len(indexed.tests) + len(values.tests)
        if not tests or takes_long(tests, listed(indexed) + listed(values)):
            return True
        kind = Kind(self._kind)
        if indexed.spans == values.spans == full(kind):  # only tests can keep them apart
            return not any(
                contradict(one, other) for one in indexed.tests for other in values.tests
            )
        return not Domain(False, {kind: indexed}).disjoint(Domain(False, {kind: values}))


def _overlap(one: Spans, other: Spans) -> bool:
    """Return whether an interval of one set overlaps one of another; both are ascending."""
    few, many = (one, other) if len(one) <= len(other) else (other, one)
    for low, high in few:
        index = bisect_right(many, low, key=_end)
        if index < len(many) and many[index][0] < high:
            return True
    return False


def _against(lows: Floats, highs: Floats, starts: Floats, ends: Floats) -> tuple[Mask, Mask, Mask]:
    """Select intervals that touch others (ascending), that surely meet one, that lie in one.

    The ends are measured. Equal measures may stand for different ends, so `<=` is only *touch*.
    """
    if len(starts) == 1:
        return (
            (lows <= ends) & (highs >= starts),
            (lows < ends) & (highs > starts),
            (lows > starts) & (highs < ends),
        )
    # A NaN at the end: an interval beyond the last one finds it, and compares as False.
    starts, ends = np.append(starts, np.nan), np.append(ends, np.nan)
    touched = starts[np.searchsorted(ends[:-1], lows, "left")] <= highs
    nearest = np.searchsorted(ends[:-1], lows, "right")
    inside = (starts[nearest] < lows) & (ends[nearest] > highs)
    return touched, starts[nearest] < highs, inside


def _end(span: tuple[Any, Any]) -> Any:
    return span[1]


def _is_rounded(coordinate: Any) -> bool:
    """Return whether another coordinate may have the same measure."""
    if coordinate is TOP:
        return False
    if isinstance(coordinate, str | bytes) or coordinate == math.inf:
        return True
    return bool(float(coordinate) != coordinate)
