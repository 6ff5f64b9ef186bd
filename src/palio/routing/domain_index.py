"""`DomainIndex`: boxes of values by attribute, and which of them meet another box.

A *box* has for each attribute its possible values: an alternative of an advertisement, or
what a conjunction of a filter needs. Each attribute and kind of value has a column of intervals, as
floats (`measure`), so that a few operations on arrays ask all of them. That decides nearly all:

- intervals apart do not meet, and neither does what lies in them;
- intervals that overlap meet, unless one is only *around* a set: a long list, or texts that pass a
  test (`CONTAINS`, `LIKE`);
- what lies in an interval meets it, also a set that it is around.

What is left is compared exactly: intervals whose ends have the same measure, which may have been
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
    """Values of one kind, or of all: never none."""

    kind: int
    values: KindSet


_ANYTHING: Final = ValueSet(ANY_KIND, KindSet(((0, 0),)))
"""All values of all kinds; nobody compares the interval."""

ValueBox: TypeAlias = Mapping[str, Sequence[ValueSet]]
"""For each attribute the values that there may be: those in any of the pieces."""

T = TypeVar("T")


def pieces_of(domains: Iterable[Domain]) -> list[ValueSet]:
    """The values, absence apart, that lie in any of some domains."""
    found: list[ValueSet] = []
    for domain in domains:
        if domain.kinds == PRESENT.kinds:
            return [_ANYTHING]
        kinds = domain.kinds.items()
        found += [ValueSet(kind, values) for kind, values in kinds if not values.is_empty]
    return found


class DomainIndex(Generic[T]):
    """Items, each of some boxes, by what they admit.

    An item meets a box if one of its own boxes does. Two boxes meet if they do so in each attribute
    that one of the two *names*: those in the index if it is `needing`, else the one asked about.

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
        """The items by number: that of a row of theirs, so another may have it later."""
        self._needing = needing
        self._columns: dict[str, dict[int, _Column]] = {}
        self._rows: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        """By item its rows, a row a box, and its places in the columns."""
        self._free: list[int] = []
        self._names = array("q")
        """Number of attributes that the box of a row names; -1 of a row that is free."""
        self._items_of = array("q")

    def add(self, item: T, boxes: Iterable[ValueBox]) -> int | None:
        """Index an item; its number, or None if it has no box and so meets nothing."""
        number: int | None = None
        for box in boxes:
            row = self._new_row()
            if number is None:
                number = row
                self.items[number] = item
                self._rows[number] = []
            self._names[row], self._items_of[row] = len(box), number
            places = [
                self._column(name, piece.kind).add(row, span, piece.values)
                for name, pieces in box.items()
                for piece in pieces
                for span in _spans(piece.values)
            ]
            self._rows[number].append((row, tuple(places)))
        return number

    def remove(self, number: int, boxes: Iterable[ValueBox]) -> None:
        """Forget an item, whose boxes these are."""
        del self.items[number]
        for (row, places), box in zip(self._rows.pop(number), boxes, strict=True):
            left = iter(places)
            for name, pieces in box.items():
                columns = self._columns.get(name, {})
                for piece in pieces:
                    column = columns[piece.kind]
                    for _ in _spans(piece.values):
                        column.remove(next(left))
                    if column.is_empty:
                        del columns[piece.kind]
                if not columns:
                    self._columns.pop(name, None)
            self._names[row] = -1
            self._free.append(row)

    def meeting(self, boxes: Iterable[ValueBox]) -> Longs:
        """The numbers, ascending, of the items that meet one of some boxes."""
        names = np.asarray(self._names)
        found = np.zeros(len(names), np.bool_)
        for box in boxes:
            met = np.zeros(len(names), np.int64)
            for name, pieces in box.items():
                met += self._hits(name, pieces)
            found |= met == (names if self._needing else len(box))
        marks = np.zeros(len(names), np.bool_)
        marks[np.asarray(self._items_of)[found & (names >= 0)]] = True
        return np.flatnonzero(marks)

    def _hits(self, name: str, pieces: Sequence[ValueSet]) -> Mask:
        """The rows whose values of an attribute meet some pieces."""
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
    """The intervals of a set that get a place each."""
    spans = values.spans
    return ((spans[0][0], spans[-1][1]),) if listed(values) else spans


class _Column:
    """Intervals of one attribute and kind, each with the row that it belongs to."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._lows = array("d")
        self._highs = array("d")
        """Begins and ends, measured; a place that is free has NaN, which meets nothing."""
        self._around = array("b")
        self._rounded = array("b")
        self._rows = array("q")
        self._begins: list[Any] = []
        self._ends: list[Any] = []
        """Begins and ends again, exactly."""
        self._sets: dict[int, KindSet] = {}
        """The sets that intervals are around, by place."""
        self._texts = TextSets()
        """Those of them that are of texts."""
        self._free: list[int] = []

    @property
    def is_empty(self) -> bool:
        """True if all its places are free."""
        return len(self._free) == len(self._rows)

    @property
    def rows(self) -> Longs:
        """The rows that it has anything of."""
        rows: Longs = np.asarray(self._rows)[~np.isnan(np.asarray(self._lows))]
        return rows

    def add(self, row: int, span: tuple[Any, Any], values: KindSet) -> int:
        """Enter an interval of a set, or the one around it; its place."""
        if not self._free:
            self._free.append(len(self._rows))
            for each in (self._lows, self._highs, self._around, self._rounded, self._rows):
                each.append(0)
            self._begins.append(None)
            self._ends.append(None)
        place, (low, high) = self._free.pop(), span
        self._begins[place], self._ends[place] = span
        self._lows[place], self._highs[place] = measure(low), measure(high)
        self._rounded[place] = _is_rounded(low) or _is_rounded(high)
        self._around[place] = bool(listed(values))
        if listed(values):
            self._sets[place] = values
            if self._kind == Kind.STRING:
                self._texts.add(place, values)
        self._rows[place] = row
        return place

    def remove(self, place: int) -> None:
        """Take an interval out."""
        self._lows[place] = self._highs[place] = math.nan
        self._begins[place] = self._ends[place] = None
        if self._sets.pop(place, None) is not None:
            self._texts.remove(place)
        self._free.append(place)

    def meeting(self, values: KindSet) -> Longs:
        """The rows with a value of a set."""
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
        if not any(_is_rounded(place) for span in values.spans for place in span):
            unclear &= around | np.asarray(self._rounded).astype(np.bool_)
        tested = np.flatnonzero(unclear & around) if self._kind == Kind.STRING else _NONE
        if len(tested):
            meets, unsure = self._texts.decide(values, tested, inside[tested])
            clear[tested], unclear[tested] = meets, unsure
        known: dict[Any, bool] = {}
        for place in np.flatnonzero(unclear).tolist():
            exactly = self._sets.get(place) or (self._begins[place], self._ends[place])
            verdict = known.get(exactly)
            if verdict is None:
                verdict = known[exactly] = self._meet(exactly, values)
            clear[place] = verdict
        rows: Longs = np.asarray(self._rows)[clear]
        return rows

    def _meet(self, known: KindSet | tuple[Any, Any], values: KindSet) -> bool:
        """Return whether two sets have a value in common; what would take long to compare may
        have.
        """
        if isinstance(known, tuple):
            known = KindSet((known,))
        if not _overlap(known.spans, values.spans):
            return False
        tests = len(known.tests) + len(values.tests)
        if not tests or takes_long(tests, listed(known) + listed(values)):
            return True
        kind = Kind(self._kind)
        if known.spans == values.spans == full(kind):  # tests alone may keep them apart
            return not any(contradict(one, other) for one in known.tests for other in values.tests)
        return not Domain(False, {kind: known}).disjoint(Domain(False, {kind: values}))


def _overlap(one: Spans, other: Spans) -> bool:
    """Return whether an interval of one set overlaps one of another; both are ascending."""
    few, many = (one, other) if len(one) <= len(other) else (other, one)
    for low, high in few:
        at = bisect_right(many, low, key=_end)
        if at < len(many) and many[at][0] < high:
            return True
    return False


def _against(lows: Floats, highs: Floats, starts: Floats, ends: Floats) -> tuple[Mask, Mask, Mask]:
    """Select intervals that touch others (ascending), surely meet them, lie in one."""
    if len(starts) == 1:
        return (
            (lows <= ends) & (highs >= starts),
            (lows < ends) & (highs > starts),
            (lows > starts) & (highs < ends),
        )
    starts, ends = np.append(starts, np.nan), np.append(ends, np.nan)  # beyond the last: nothing
    touched = starts[np.searchsorted(ends[:-1], lows, "left")] <= highs
    at = np.searchsorted(ends[:-1], lows, "right")
    return touched, starts[at] < highs, (starts[at] < lows) & (ends[at] > highs)


def _end(span: tuple[Any, Any]) -> Any:
    return span[1]


def _is_rounded(place: Any) -> bool:
    """Return whether another place than this may have the same measure."""
    if place is TOP:
        return False
    return isinstance(place, str | bytes) or place == math.inf or float(place) != place
