"""Tests on text that are not intervals: suffix, contains, LIKE, ignore-case and CIDR.

A domain keeps them beside its intervals as a set of `TextTest`s, all of which must hold. What one
test implies or excludes of another (`implies`, `excludes`) is what covering knows about text. Both
answers may only err to False; where they do is counted by `tests/model/test_relations.py` and
listed in docs/reference/model.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from palio.model.operators import AFFIX, Op, fold, holds, like_parts, network_of


class TextTest(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A positive operator and operand, perhaps ignoring case, perhaps negated.

    >>> TextTest(Op.SUFFIX, ".csv").holds("a.csv")
    True
    """

    op: Op
    operand: str | bytes | tuple[str, ...]
    ignore_case: bool = False
    negated: bool = False

    def holds(self, value: Any) -> bool:
        """Check whether a string (or bytes) passes."""
        return holds(self.op, value, self.operand, self.ignore_case) is not self.negated

    def inverted(self) -> TextTest:
        """The test that passes exactly what this one fails."""
        return TextTest(self.op, self.operand, self.ignore_case, not self.negated)


class Fragment(msgspec.Struct, frozen=True):
    """A piece that every passing text contains, and whether it must be at an end."""

    text: Any
    at_start: bool = False
    at_end: bool = False
    folded: bool = False


def implies(test: TextTest, wanted: TextTest) -> bool:
    """Check whether everything that passes `known` certainly passes `wanted`.

    >>> implies(TextTest(Op.SUFFIX, "/orders.csv"), TextTest(Op.CONTAINS, "orders"))
    True
    """
    if test == wanted:
        return True
    if test.negated:
        return wanted.negated and implies(wanted.inverted(), test.inverted())
    if wanted.negated:
        return excludes(test, wanted.inverted())
    if test.op is Op.CIDR or wanted.op is Op.CIDR:
        return test.op is wanted.op and _subnet(test.operand, wanted.operand)
    choices = _choices(test)
    if choices is not None and wanted.ignore_case:
        return _passing(choices, wanted.op, wanted.operand) == len(choices)
    return any(proves(fragment, wanted) for fragment in fragments(test))


def excludes(one: TextTest, other: TextTest) -> bool:
    """Check whether certainly no text passes both (neither negated)."""
    if one.op is Op.CIDR or other.op is Op.CIDR:
        return one.op is other.op and _disjoint_blocks(one.operand, other.operand)
    for first, second in ((one, other), (other, one)):
        choices = _choices(first)
        if choices is None or not (second.ignore_case or second.op in AFFIX):
            continue
        # A text with a piece has, once folded, the folded piece: no choice with it, no such text.
        operand = second.operand if second.ignore_case else fold(second.operand)  # type: ignore[arg-type]  # str, as choices are
        return not _passing(choices, second.op, operand)
    pinned = [fragment for fragment in fragments(other) if fragment.at_start or fragment.at_end]
    return any(
        clash(mine, theirs)
        for mine in fragments(one)
        if mine.at_start or mine.at_end
        for theirs in pinned
    )


def contradict(one: TextTest, other: TextTest) -> bool:
    """Check whether certainly no text passes both, negated or not.

    >>> news = TextTest(Op.CONTAINS, "news")
    >>> contradict(news, TextTest(Op.CONTAINS, "new", negated=True)), contradict(news, news)
    (True, False)
    """
    if one.negated and other.negated:
        return False
    if one.negated:
        return implies(other, one.inverted())
    return implies(one, other.inverted()) if other.negated else excludes(one, other)


def fragments_of_prefix(prefix: str | bytes) -> Fragment:
    """The fragment of an interval of texts with a common prefix."""
    return Fragment(prefix, at_start=True)


def proves(fragment: Fragment, wanted: TextTest) -> bool:
    """Check whether a text with this fragment certainly passes a positive test."""
    operand = wanted.operand
    text = fragment.text
    if wanted.ignore_case and not fragment.folded and isinstance(text, str):
        text = fold(text)  # folding works character by character, so fragments survive it
    elif fragment.folded and not wanted.ignore_case:
        return False
    if wanted.op is Op.CONTAINS:
        return operand in text
    if wanted.op is Op.SUFFIX:
        return fragment.at_end and bool(text.endswith(operand))
    if wanted.op is Op.PREFIX:
        return fragment.at_start and bool(text.startswith(operand))
    if wanted.op is Op.LIKE:
        return _fragment_fits_like(fragment, text, wanted.operand)
    return False


def _fragment_fits_like(fragment: Fragment, text: Any, pattern: Any) -> bool:
    """The simple cases: the fragment alone, with what may be beside it, fits the pattern."""
    if not isinstance(text, str):
        return False
    free_start, free_end, least = _like_frame(pattern)
    if len(text) < least:
        return False
    if not (free_start or fragment.at_start) or not (free_end or fragment.at_end):
        return False
    return holds(Op.LIKE, text, pattern)


@lru_cache(maxsize=8192)
def _like_frame(pattern: str) -> tuple[bool, bool, int]:
    """Find whether a pattern is open at the start and at the end, and its least length."""
    parts = like_parts(pattern)
    least = sum(1 if part is None else len(part) for part in parts)
    return parts[0] == "", parts[-1] == "", least


def _choices(test: TextTest) -> tuple[str, ...] | None:
    """All folded texts that pass an ignore-case equality or list."""
    if test.op is Op.EQ:
        return (test.operand,)  # type: ignore[return-value]  # ignore-case operands are str
    if test.op is Op.IN:
        return test.operand  # type: ignore[return-value]  # IN operands are tuples
    return None


def _passing(choices: tuple[str, ...], op: Op, operand: Any) -> int:
    """Count the choices that pass a test; two lists are compared as sets."""
    if op is Op.IN:
        return len(frozenset(choices) & frozenset(operand))
    return sum(holds(op, choice, operand) for choice in choices)


@lru_cache(maxsize=8192)
def fragments(test: TextTest) -> tuple[Fragment, ...]:
    """The fragments that every passing text contains."""
    folded = test.ignore_case
    if test.op in AFFIX:
        return (Fragment(test.operand, test.op is Op.PREFIX, test.op is Op.SUFFIX, folded),)
    if test.op is Op.LIKE:
        parts = like_parts(test.operand)  # type: ignore[arg-type]  # LIKE operands are str
        last = len(parts) - 1
        return tuple(
            Fragment(part, place == 0, place == last, folded)
            for place, part in enumerate(parts)
            if part
        )
    choices = _choices(test)
    if choices is not None and len(choices) == 1:
        return (Fragment(choices[0], True, True, folded),)
    return ()


def clash(mine: Fragment, theirs: Fragment) -> bool:
    """Check whether two fragments pinned to the same end contradict each other."""
    a, b = mine.text, theirs.text
    if mine.folded is not theirs.folded:
        a, b = (a if mine.folded else fold(a)), (b if theirs.folded else fold(b))
    if mine.at_start and theirs.at_start and not (a.startswith(b) or b.startswith(a)):
        return True
    return mine.at_end and theirs.at_end and not (a.endswith(b) or b.endswith(a))


def _subnet(inner: Any, outer: Any) -> bool:
    a, b = network_of(inner), network_of(outer)
    return a.version == b.version and a.subnet_of(b)  # type: ignore[arg-type]  # same version


def _disjoint_blocks(one: Any, other: Any) -> bool:
    a, b = network_of(one), network_of(other)
    return a.version != b.version or not a.overlaps(b)
