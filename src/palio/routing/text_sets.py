"""`TextSets`: sets of texts that pass tests, and which of them meet another set, many at a time.

To compare two such sets exactly takes 15 to 300 us. But what keeps them apart is one of a few
things, and most pairs have none of them:

- of a list of texts each lacks a literal that a positive test insists on (`CONTAINS 'news'`), or
  has one that a negated test denies;
- both begin, or both end, in a way that the other does not allow;
- one denies a literal that the other insists on.

So a set is known by its literals, its begin and its end, and only pairs that may have one of these
are compared. What is not of this form (address blocks, lists without case, ...) is always compared.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.model.domains import KindSet, common_prefix, finite_members, full
from palio.model.operators import AFFIX, Op, fold
from palio.model.texts import Fragment, clash, fragments
from palio.model.values import Kind, successor

Longs: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Flags: TypeAlias = npt.NDArray[np.int8]

_ODD, _FULL, _POSITIVE, _START, _PREFIX, _END = (1 << bit for bit in range(6))
"""Flags of a set: it is of no form that is known here; it has all texts but for its tests; it has
positive tests; its tests want a begin that its interval lacks; its interval wants one; its
tests want an end."""

MOST_SPANS: Final = 16
"""Intervals of a set without tests that get a place each; a set of more gets one for all."""

MOST_TRIED: Final = 256
"""Tests of texts times what they are held against, tests and long lists: 0.3 ms. Two sets that take
more count as meeting, so that an advertisement and 100,000 filters do not take minutes."""


def listed(values: KindSet) -> int:
    """Return how many intervals of a set share a place: none, if each has its own."""
    return len(values.spans) if values.tests or len(values.spans) > MOST_SPANS else 0


def takes_long(tests: Any, intervals: int) -> Any:
    """Return whether to compare two sets of so many tests and `listed` intervals takes too long."""
    return tests * (tests + intervals) > MOST_TRIED


class _Form(NamedTuple):
    """The form of a set, known at a glance; the literals and texts without case."""

    flags: int
    start: Fragment | None = None
    end: Fragment | None = None
    literal: str = ""
    """One that each text of it has, the longest."""
    text: str = ""
    """All literals that each text of it has."""
    denied: tuple[str, ...] = ()
    """A literal of each negated test: a text without it passes."""


class TextSets:
    """Sets by the place that they have in a column.

    >>> from palio.model.texts import TextTest
    >>> from palio.model.values import TOP
    >>> sets, texts = TextSets(), (("", TOP),)
    >>> for place, word in enumerate(("news", "sport")):
    ...     sets.add(place, KindSet(texts, frozenset((TextTest(Op.CONTAINS, word),))))
    >>> asked = KindSet((("good news", "good news\\0"),))
    >>> sets.decide(asked, np.array([0, 1]), inside=np.array([False, False]))
    (array([False, False]), array([ True, False]))
    """

    def __init__(self) -> None:
        self._flags = array("b")
        self._tests = array("q")
        self._forms: dict[int, _Form] = {}
        self._texts: dict[int, str] = {}
        self._starts: dict[int, Fragment] = {}
        self._ends: dict[int, Fragment] = {}
        self._literals: dict[str, set[int]] = {}
        self._denied: dict[str, set[int]] = {}
        self._lengths: Counter[int] = Counter()
        """Lengths of the keys of both."""

    def add(self, place: int, values: KindSet) -> None:
        """A set that is not a few intervals has this place."""
        while len(self._flags) <= place:
            self._flags.append(_ODD)
            self._tests.append(0)
        form = _form_of(values)
        if len(values.spans) > 1 or (form.flags & _POSITIVE and not form.literal):
            form = _Form(_ODD)
        self._flags[place], self._tests[place] = form.flags, len(values.tests)
        if form.flags & _ODD or not values.tests:
            self._flags[place] |= _ODD
            return
        self._forms[place] = form
        if form.text:
            self._texts[place] = form.text
        if form.start is not None:
            self._starts[place] = form.start
        if form.end is not None:
            self._ends[place] = form.end
        for table, literals in self._tables(form):
            for each in literals:
                if each not in table:
                    self._lengths[len(each)] += 1
                table.setdefault(each, set()).add(place)

    def remove(self, place: int) -> None:
        """The place has none any longer."""
        form = self._forms.pop(place, None)
        if form is None:
            return
        self._texts.pop(place, None)
        self._starts.pop(place, None)
        self._ends.pop(place, None)
        for table, literals in self._tables(form):
            for each in dict.fromkeys(literals):
                table[each].discard(place)
                if not table[each]:
                    del table[each]
                    self._lengths[len(each)] -= 1
        self._lengths = +self._lengths

    def _tables(self, form: _Form) -> tuple[tuple[dict[str, set[int]], tuple[str, ...]], ...]:
        literals = (form.literal,) if form.flags & _POSITIVE else ()
        return (self._literals, literals), (self._denied, form.denied)

    def decide(self, values: KindSet, places: Longs, inside: Mask) -> tuple[Mask, Mask]:
        """Decide which places, whose intervals touch those of a set, surely have a value in common
        with it, and which have to be compared. Those of some are `inside` one of its own.
        """
        flags = np.asarray(self._flags)[places]
        is_full, known = (flags & _FULL) != 0, (flags & _ODD) == 0
        members = finite_members(Kind.STRING, values.spans)
        if members is None:
            form = _form_of(values)
            known &= inside | is_full | bool(form.flags & _FULL)
            known &= not form.flags & _ODD
            meets, unsure = self._against(form, len(values.spans), places, flags)
        else:
            known &= (is_full | ((flags & _POSITIVE) != 0)) & (not values.tests)
            meets, unsure = self._against_list(members, places, flags)
        tests = np.asarray(self._tests)[places]
        over = takes_long(tests + len(values.tests), 1 + listed(values))
        meets = np.where(over, is_full, known & meets & ~unsure)
        return meets, np.where(over, ~is_full, ~known | unsure)

    def _against_list(self, members: list[str], places: Longs, flags: Flags) -> tuple[Mask, Mask]:
        """Leave those to compare that require a text of the list. Others lack it; or they only
        deny literals, and then have the first text of the list if it has none of these.
        """
        folded = [fold(each) for each in members]
        found = self._having(self._literals, folded) | self._having(self._denied, folded[:1])
        return (flags & _POSITIVE) == 0, self._marked(found)[places]

    def _against(self, form: _Form, spans: int, places: Longs, flags: Flags) -> tuple[Mask, Mask]:
        """Leave those to compare that deny a literal of it, or that insist on one that it denies.
        Begins and ends are compared one by one.
        """
        apart, unsure = np.zeros(len(places), np.bool_), np.zeros(len(places), np.bool_)
        unsure |= self._marked(self._having(self._denied, [form.text]))[places]
        for literal in form.denied:
            hit = {place for place, text in self._texts.items() if literal in text}
            unsure |= self._marked(hit)[places]
        begins = 0
        if form.flags & _START:
            begins = _START | _PREFIX
        elif form.flags & _PREFIX:
            begins = _START
        if begins and form.start is not None:
            apart |= self._clashing(places, flags & begins, form.start)
            if spans > 1:  # another interval may do
                unsure |= apart
        if form.end is not None:
            apart |= self._clashing(places, flags & _END, form.end)
        return ~apart, unsure

    def _clashing(self, places: Longs, chosen: Flags, pin: Fragment) -> Mask:
        """Select the places that want another begin or end than this."""
        apart = np.zeros(len(places), np.bool_)
        chosen_at = np.flatnonzero(chosen)
        pins = self._ends if pin.at_end else self._starts
        apart[chosen_at] = [clash(pins[place], pin) for place in places[chosen_at].tolist()]
        return apart

    def _having(self, table: dict[str, set[int]], texts: Iterable[str]) -> set[int]:
        """The places of a table's literals that occur in one of some texts."""
        found: set[int] = set()
        for text in texts:
            if len(text) * len(self._lengths) > len(table):
                hits = [places for literal, places in table.items() if literal in text]
            else:
                pieces = {
                    text[start : start + length]
                    for length in self._lengths
                    for start in range(len(text) - length + 1)
                }
                hits = [table[each] for each in pieces if each in table]
            found.update(*hits)
        return found

    def _marked(self, places: set[int]) -> Mask:
        marks = np.zeros(len(self._flags), np.bool_)
        marks[list(places)] = True
        return marks


def _form_of(values: KindSet) -> _Form:
    """Return the form of a set of texts; an odd one if it has none."""
    spans = values.spans
    span = spans[0] if len(spans) == 1 else min(spans, key=_prefix_length)
    prefix = common_prefix(*span)
    positive = [each for each in values.tests if not each.negated]
    denied = [each.inverted() for each in values.tests if each.negated]
    pieces = [piece for each in positive for piece in fragments(each)]
    starts = [each for each in pieces if each.at_start and not _begins(prefix, each)]
    ends = [each for each in pieces if each.at_end]
    literals = [_literal(fragments(each)) for each in denied]
    if (
        any(each.op not in _KNOWN for each in (*positive, *denied))
        or len(starts) + bool(prefix) > 1
        or len(ends) > 1
        or not all(literals)
        or (values.tests and len(spans) > 1)
    ):
        return _Form(_ODD)
    text = "\0".join(fold(each) for each in (prefix, *(piece.text for piece in pieces)) if each)
    flags = (
        _FULL * (spans == full(Kind.STRING))
        | _POSITIVE * bool(positive)
        | _START * bool(starts)
        | _PREFIX * bool(prefix)
        | _END * bool(ends)
    )
    start = starts[0] if starts else Fragment(prefix, at_start=True) if prefix else None
    end = ends[0] if ends else None
    return _Form(flags, start, end, _literal(pieces), text, tuple(literals))


def _prefix_length(span: tuple[Any, Any]) -> tuple[bool, int]:
    """By which the interval is found that has most texts."""
    low, high = span
    return successor(Kind.STRING, low) == high, len(common_prefix(low, high))


def _begins(prefix: str, piece: Fragment) -> bool:
    """Return whether what begins with a prefix begins with a piece."""
    return (fold(prefix) if piece.folded else prefix).startswith(piece.text)


def _literal(pieces: Iterable[Fragment]) -> str:
    """The longest, without case."""
    return max((fold(each.text) for each in pieces), key=len, default="")


_KNOWN: Final = AFFIX | {Op.LIKE}
