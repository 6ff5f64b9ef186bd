"""`TextSets`: sets of texts that pass tests, and a search for those that meet another set.

To compare two such sets exactly takes 15 to 300 us. But only a few things can keep them apart, and
most pairs have none of them:

- each text of a list lacks a literal that a positive test requires (`CONTAINS 'news'`), or has one
  that a negated test excludes;
- both require a prefix, or both a suffix, and the two differ;
- one excludes a literal that the other requires.

So a set is summarized by its literals, its prefix and its suffix (`_Form`). Only pairs that these
may keep apart are compared exactly. Sets of another form (address blocks, lists without case, ...)
always are.
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
"""Flags of a set: it has no form that is summarized here; only tests limit it; it has positive
tests; its tests require a prefix that its interval does not imply; its interval requires a prefix;
its tests require a suffix."""

MOST_SPANS: Final = 16
"""Intervals of a set without tests that get a slot each; a set of more gets one for all."""

MOST_TRIED: Final = 256
"""Tests of texts times the tests and intervals that they are compared with: 0.3 ms. Two sets that
take more count as meeting, so that an advertisement and 100,000 filters do not take minutes."""


def listed(values: KindSet) -> int:
    """Return how many intervals of a set share a slot: none, if each has its own."""
    return len(values.spans) if values.tests or len(values.spans) > MOST_SPANS else 0


def takes_long(tests: Any, intervals: int) -> Any:
    """Return whether two sets, with so many tests and `listed` intervals, take too long to
    compare.
    """
    return tests * (tests + intervals) > MOST_TRIED


class _Form(NamedTuple):
    """The summary of a set; literals and texts are case-folded, which only makes candidates."""

    flags: int
    start: Fragment | None = None
    end: Fragment | None = None
    literal: str = ""
    """The longest literal that each text of the set has."""
    text: str = ""
    """All literals that each text of the set has."""
    denied: tuple[str, ...] = ()
    """A literal of each negated test: a text without it passes."""


class TextSets:
    """Sets by their slot in a column of the domain index.

    >>> from palio.model.texts import TextTest
    >>> from palio.model.values import TOP
    >>> sets, texts = TextSets(), (("", TOP),)
    >>> for slot, word in enumerate(("news", "sport")):
    ...     sets.add(slot, KindSet(texts, frozenset((TextTest(Op.CONTAINS, word),))))
    >>> query = KindSet((("good news", "good news\\0"),))
    >>> sets.decide(query, np.array([0, 1]), inside=np.array([False, False]))
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
        self._lengths: Counter[int] = Counter()  # of the literals in both tables

    def add(self, slot: int, values: KindSet) -> None:
        """Add a set, one that has tests or many intervals."""
        while len(self._flags) <= slot:
            self._flags.append(_ODD)
            self._tests.append(0)
        form = _form_of(values)
        # A positive test without a literal (`LIKE '_a'`) could not be found by a text of a list.
        if len(values.spans) > 1 or (form.flags & _POSITIVE and not form.literal):
            form = _Form(_ODD)
        self._flags[slot], self._tests[slot] = form.flags, len(values.tests)
        if form.flags & _ODD or not values.tests:
            self._flags[slot] |= _ODD
            return
        self._forms[slot] = form
        if form.text:
            self._texts[slot] = form.text
        if form.start is not None:
            self._starts[slot] = form.start
        if form.end is not None:
            self._ends[slot] = form.end
        for table, literals in self._tables(form):
            for literal in literals:
                if literal not in table:
                    self._lengths[len(literal)] += 1
                table.setdefault(literal, set()).add(slot)

    def remove(self, slot: int) -> None:
        """Remove the set of a slot."""
        form = self._forms.pop(slot, None)
        if form is None:
            return
        self._texts.pop(slot, None)
        self._starts.pop(slot, None)
        self._ends.pop(slot, None)
        for table, literals in self._tables(form):
            for literal in dict.fromkeys(literals):
                table[literal].discard(slot)
                if not table[literal]:
                    del table[literal]
                    self._lengths[len(literal)] -= 1
        self._lengths = +self._lengths  # `_having` cuts texts for each length that is left

    def _tables(self, form: _Form) -> tuple[tuple[dict[str, set[int]], tuple[str, ...]], ...]:
        literals = (form.literal,) if form.flags & _POSITIVE else ()
        return (self._literals, literals), (self._denied, form.denied)

    def decide(self, values: KindSet, slots: Longs, inside: Mask) -> tuple[Mask, Mask]:
        """Divide slots, whose intervals touch those of a set, into those that surely have a value
        in common with it, those to compare exactly, and others, which have none.

        `inside` are the slots whose interval lies in one of the set's.
        """
        flags = np.asarray(self._flags)[slots]
        is_full, is_decided = (flags & _FULL) != 0, (flags & _ODD) == 0
        members = finite_members(Kind.STRING, values.spans)
        if members is None:
            form = _form_of(values)
            # Two intervals that overlap only in part may do so in too few texts for the tests.
            is_decided &= inside | is_full | bool(form.flags & _FULL)
            is_decided &= not form.flags & _ODD
            meets, unsure = self._against(form, len(values.spans), slots, flags)
        else:
            is_decided &= (is_full | ((flags & _POSITIVE) != 0)) & (not values.tests)
            meets, unsure = self._against_list(members, slots, flags)
        # Pairs that take too long: those with all texts count as meeting at once, the others once
        # the caller has seen that their intervals overlap.
        tests = np.asarray(self._tests)[slots]
        over = takes_long(tests + len(values.tests), 1 + listed(values))
        meets = np.where(over, is_full, is_decided & meets & ~unsure)
        return meets, np.where(over, ~is_full, ~is_decided | unsure)

    def _against_list(self, members: list[str], slots: Longs, flags: Flags) -> tuple[Mask, Mask]:
        """Compare exactly the sets whose literal is in a text of the list. Of the others, those
        with positive tests lack all its texts. Those with negated tests alone have its first text,
        unless it has one of their literals.
        """
        folded = [fold(member) for member in members]
        candidates = self._having(self._literals, folded) | self._having(self._denied, folded[:1])
        return (flags & _POSITIVE) == 0, self._marked(candidates)[slots]

    def _against(self, form: _Form, spans: int, slots: Longs, flags: Flags) -> tuple[Mask, Mask]:
        """Compare exactly the sets that exclude a literal of a form, or require one that it
        excludes. Prefixes and suffixes decide by themselves.
        """
        apart, unsure = np.zeros(len(slots), np.bool_), np.zeros(len(slots), np.bool_)
        unsure |= self._marked(self._having(self._denied, [form.text]))[slots]
        for literal in form.denied:
            holders = {slot for slot, text in self._texts.items() if literal in text}
            unsure |= self._marked(holders)[slots]
        # The intervals are compared already, so two prefixes of intervals need not be.
        starts = 0
        if form.flags & _START:
            starts = _START | _PREFIX
        elif form.flags & _PREFIX:
            starts = _START
        if starts and form.start is not None:
            apart |= self._clashing(slots, flags & starts, form.start)
            if spans > 1:  # the start is that of one interval; another may meet
                unsure |= apart
        if form.end is not None:
            apart |= self._clashing(slots, flags & _END, form.end)
        return ~apart, unsure

    def _clashing(self, slots: Longs, chosen: Flags, affix: Fragment) -> Mask:
        """Select the chosen slots that require another prefix or suffix than this."""
        apart = np.zeros(len(slots), np.bool_)
        indices = np.flatnonzero(chosen)
        affixes = self._ends if affix.at_end else self._starts
        apart[indices] = [clash(affixes[slot], affix) for slot in slots[indices].tolist()]
        return apart

    def _having(self, table: dict[str, set[int]], texts: Iterable[str]) -> set[int]:
        """Collect the slots of the table's literals that occur in one of some texts."""
        slots: set[int] = set()
        for text in texts:
            # Search the text for each literal, or look up each piece of the text: whichever are
            # fewer. So neither a long text nor a table of 100,000 literals makes this slow.
            if len(text) * len(self._lengths) > len(table):
                hits = [holders for literal, holders in table.items() if literal in text]
            else:
                pieces = {
                    text[start : start + length]
                    for length in self._lengths
                    for start in range(len(text) - length + 1)
                }
                hits = [table[piece] for piece in pieces if piece in table]
            slots.update(*hits)
        return slots

    def _marked(self, slots: set[int]) -> Mask:
        marks = np.zeros(len(self._flags), np.bool_)
        marks[list(slots)] = True
        return marks


def _form_of(values: KindSet) -> _Form:
    """Return the form of a set of texts; an odd one if it has none."""
    spans = values.spans
    span = spans[0] if len(spans) == 1 else min(spans, key=_prefix_length)
    prefix = common_prefix(*span)
    positive = [test for test in values.tests if not test.negated]
    denied = [test.inverted() for test in values.tests if test.negated]
    pieces = [piece for test in positive for piece in fragments(test)]
    starts = [piece for piece in pieces if piece.at_start and not _begins(prefix, piece)]
    ends = [piece for piece in pieces if piece.at_end]
    literals = [_literal(fragments(test)) for test in denied]
    # One prefix and one suffix at most: of several it would have to be found if they agree.
    if (
        any(test.op not in _SUMMARIZED for test in (*positive, *denied))
        or len(starts) + bool(prefix) > 1
        or len(ends) > 1
        or not all(literals)
        or (values.tests and len(spans) > 1)
    ):
        return _Form(_ODD)
    # A literal that is found across two pieces costs a needless comparison, and no more.
    texts = (prefix, *(piece.text for piece in pieces))
    text = "\0".join(fold(text) for text in texts if text)
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
    """Rank intervals: the least one has most texts, roughly."""
    low, high = span
    return successor(Kind.STRING, low) == high, len(common_prefix(low, high))


def _begins(prefix: str, piece: Fragment) -> bool:
    """Return whether all texts with a prefix begin with a piece."""
    return (fold(prefix) if piece.folded else prefix).startswith(piece.text)


def _literal(pieces: Iterable[Fragment]) -> str:
    """Return the longest of some fragments, case-folded."""
    return max((fold(piece.text) for piece in pieces), key=len, default="")


_SUMMARIZED: Final = AFFIX | {Op.LIKE}
"""Tests whose texts must contain, begin or end with literals."""
