"""An index over domains: which filters may cover a filter, and which may it cover?

A conjunction is a box. On each attribute it names it has *tokens*: the attribute with the one kind
of value it admits (with no kind where it admits several, or absence), and, where it admits a
single value, that value too. With each token go the bounds of what is admitted, measured on a line
of floats. Then

- `g` can cover `c` only if `c` has each of `g`'s tokens, with bounds inside `g`'s;
- `c` can be covered by `k` only if it has each of `k`'s tokens, with bounds inside `k`'s.

For the first question boxes with the same tokens are one *group*, found by name: a filter of four
attributes can only be covered by the groups of its few dozen subsets, and within a group only
bounds are left to compare. For the second each token has a column of bounds, and the shortest
column comes first. Either way an equality leads straight to the few boxes with that value.
Measuring may round (long strings, 2**53 + 1) but never changes the order, so no true answer is
missed; candidates are confirmed by the exact relation, which is the caller's.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from palio.routing.bounds_tables import BoundsTable, Pool, Rows, rows_around, rows_within
from palio.routing.normalized import ANY_KIND, Box, NormalizedFilter, Token

__all__ = ["Boxes"]

_FEW_CANDIDATES: Final = 48
"""So few boxes are looked at one by one rather than with another column."""


class Boxes:
    """Filters by number, and the candidates for covering among them.

    >>> import palio
    >>> from palio.routing.normalized import form_of
    >>> boxes = Boxes()
    >>> boxes.add(0, form_of(palio.parse("a > 1")))
    >>> boxes.add(1, form_of(palio.parse("a > 5 AND b = 2")))
    >>> boxes.above(form_of(palio.parse("a > 7"))), boxes.below(form_of(palio.parse("a > 3")))
    ([0], [1])
    """

    def __init__(self) -> None:
        self._items: dict[int, None] = {}
        self._outer = _Outer()  # every box of every item
        self._inner = _Inner()  # one box of each item: all of them must lie in what covers it
        self._hollow: dict[int, None] = {}  # items that match nothing: everything covers them

    def add(self, item: int, form: NormalizedFilter) -> None:
        """Index a filter under a number that is new."""
        self._items[item] = None
        if not form.boxes:
            self._hollow[item] = None
            return
        self._inner.add(item, form.boxes[0])
        for box in form.boxes:
            self._outer.add(item, box)

    def remove(self, item: int) -> None:
        """Forget a filter."""
        del self._items[item]
        if item in self._hollow:
            del self._hollow[item]
            return
        self._inner.remove(item)
        self._outer.remove(item)

    def above(self, form: NormalizedFilter) -> list[int]:
        """Numbers, ascending, among which are all filters that cover this one."""
        return self._outer.around(form.boxes[0]) if form.boxes else sorted(self._items)

    def below(self, form: NormalizedFilter) -> list[int]:
        """Numbers, ascending, among which are all filters that this one covers."""
        found = set(self._hollow)
        for box in form.boxes:
            found.update(self._inner.within(box))
        return sorted(found)


class _Group(BoundsTable):
    """The boxes that have the same telling tokens: only bounds are left to compare."""

    __slots__ = ("key", "lead", "ranged")

    def __init__(
        self, pool: Pool, key: tuple[int, ...], lead: int, ranged: tuple[Token, ...]
    ) -> None:
        super().__init__(pool)
        self.key = key
        self.lead = lead
        self.ranged = ranged


class _Outer:
    """Which boxes hold a box? Those of the groups whose tokens it all has, bounds permitting."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._groups: dict[tuple[int, ...], _Group] = {}
        self._by_lead: dict[int, dict[tuple[int, ...], _Group]] = {}
        """Each group again, under the token that fewest groups had when it was new."""
        self._numbers: dict[Token, int] = {}
        self._uses: dict[int, int] = {}
        self._next_number = 0
        self._next_row = 0
        self._owners: dict[int, int] = {}
        self._places: dict[int, list[tuple[_Group, int, Box]]] = {}

    def add(self, item: int, box: Box) -> None:
        numbers = self._numbers
        key = tuple([numbers.get(token, -1) for token in box.telling])
        group = self._groups.get(key) or self._new_group(box)
        row = self._next_row
        self._next_row += 1
        self._owners[row] = item
        self._places.setdefault(item, []).append((group, row, box))
        group.add(row, box.bounds)

    def _new_group(self, box: Box) -> _Group:
        for token in box.telling:
            if token not in self._numbers:
                self._numbers[token] = self._next_number
                self._uses[self._next_number] = 0
                self._by_lead[self._next_number] = {}
                self._next_number += 1
        key = tuple([self._numbers[token] for token in box.telling])
        lead = min(key, key=self._uses.__getitem__, default=-1)
        group = self._groups[key] = _Group(self._pool, key, lead, box.ranged)
        if key:
            self._by_lead[lead][key] = group
        for number in key:
            self._uses[number] += 1
        return group

    def remove(self, item: int) -> None:
        for group, row, box in self._places.pop(item):
            del self._owners[row]
            group.remove(row)
            if not group.rows:
                self._drop_group(group, box)

    def _drop_group(self, group: _Group, box: Box) -> None:
        del self._groups[group.key]
        if group.key:
            del self._by_lead[group.lead][group.key]
        for token, number in zip(box.telling, group.key, strict=True):
            self._uses[number] -= 1
            if not self._uses[number]:
                del self._uses[number], self._by_lead[number], self._numbers[token]

    def around(self, box: Box) -> list[int]:
        """Items one of whose boxes holds this one."""
        given, owners = box.given, self._owners
        groups = self._within(box)
        wanted = [[given[token] for token in group.ranged] for group in groups]
        return sorted({owners[row] for row in rows_around(groups, wanted)})

    def _within(self, box: Box) -> list[_Group]:
        """The groups that have, of some of the box's attributes, one of its tokens each."""
        numbers, groups, by_lead = self._numbers, self._groups, self._by_lead
        choices = []
        subsets, led = 1, 0
        for options in box.options:
            known = [numbers[token] for token in options if token in numbers]
            if known:
                choices.append(known)
                subsets *= 1 + len(known)
                led += sum([len(by_lead[number]) for number in known])
        if subsets <= led:
            keys: list[tuple[int, ...]] = [()]
            for known in choices:
                keys += [(*key, number) for key in keys for number in known]
            return [groups[key] for key in keys if key in groups]
        found = [groups[()]] if () in groups else []
        at_hand = {number for known in choices for number in known}
        for number in at_hand:
            found += [group for key, group in by_lead[number].items() if at_hand.issuperset(key)]
        return found


class _Inner:
    """Which boxes lie in a box? Each has a place in the table of every side."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._tables: dict[Token, BoundsTable] = {}
        self._by_name: dict[str, dict[Token, BoundsTable]] = {}
        self._rows: dict[int, int] = {}
        self._boxes: list[Box] = []
        self._items: list[int] = []
        self._free: list[int] = []
        self._marks = np.zeros(0, np.bool_)

    def add(self, item: int, box: Box) -> None:
        if self._free:
            row = self._free.pop()
            self._items[row], self._boxes[row] = item, box
        else:
            row = len(self._items)
            self._items.append(item)
            self._boxes.append(box)
        self._rows[item] = row
        for token, bounds in box.sides.items():
            table = self._tables.get(token)
            if table is None:
                table = self._tables[token] = BoundsTable(self._pool)
                if token[2] is None:
                    self._by_name.setdefault(token[0], {})[token] = table
            table.add(row, (bounds,))

    def remove(self, item: int) -> None:
        row = self._rows.pop(item)
        for token in self._boxes[row].sides:
            table = self._tables[token]
            table.remove(row)
            if not table.rows:
                del self._tables[token]
                if token[2] is None:
                    del self._by_name[token[0]][token]
        self._free.append(row)

    def within(self, box: Box) -> list[int]:
        """Items whose box lies in this one."""
        if not box.telling:
            return list(self._rows)
        sides: list[tuple[int, int, list[BoundsTable], tuple[float, float]]] = []
        for token in box.telling:
            if token[1] == ANY_KIND:
                tables = list(self._by_name.get(token[0], {}).values())
            else:
                table = self._tables.get(token)
                tables = [] if table is None else [table]
            size = sum([len(table.rows) for table in tables])
            if not size:
                return []
            sides.append((size, len(sides), tables, box.sides[token]))
        sides.sort()
        size, _, tables, _ = sides[0]
        if size > _FEW_CANDIDATES:
            rows = self._narrowed(sides)
        else:
            rows = [row for table in tables for row in table.rows]
        items, boxes = self._items, self._boxes
        return [items[row] for row in rows if _lies_in(boxes[row], box)]

    def _narrowed(
        self, sides: list[tuple[int, int, list[BoundsTable], tuple[float, float]]]
    ) -> list[int]:
        """Rows that lie in one side after the other, until few are left."""
        if len(self._marks) < len(self._items):
            self._marks = np.zeros(2 * len(self._items), np.bool_)
        rows: Rows | None = None
        for _, _, tables, (low, high) in sides:
            pieces = [rows_within(table, low, high) for table in tables]
            here = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            if rows is not None:
                self._marks[rows] = True
                here, before = here[self._marks[here]], rows
                self._marks[before] = False
            rows = here
            if len(rows) <= _FEW_CANDIDATES:
                break
        assert rows is not None
        found: list[int] = rows.tolist()
        return found


def _lies_in(inner: Box, outer: Box) -> bool:
    """Whether every side of a box lies in the same side of another."""
    sides, others = inner.sides, outer.sides
    for token in outer.telling:
        if token[1] == ANY_KIND:
            continue  # the exact relation will see
        bounds = sides.get(token)
        if bounds is None:
            return False
        low, high = others[token]
        if bounds[0] < low or bounds[1] > high:
            return False
    return True
