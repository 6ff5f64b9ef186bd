"""Operators: the meaning of each on one value, defined once and plainly.

`holds` is the definition that everything else must agree with: domains, kernels, other engines.
It is two-valued and expects operands of one kind; absence, kinds that differ and NaN are *unknown*
and never get here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Final, NamedTuple

from palio.errors import InvalidFilter, InvalidInput
from palio.model.limits import MAX_LIKE_CHARS, check_limit
from palio.model.values import Value


class Op(StrEnum):
    """An operator of a constraint; its value is its canonical spelling."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "IN"
    NOT_IN = "NOT IN"
    PREFIX = "STARTS WITH"
    NOT_PREFIX = "NOT STARTS WITH"
    SUFFIX = "ENDS WITH"
    NOT_SUFFIX = "NOT ENDS WITH"
    CONTAINS = "CONTAINS"
    NOT_CONTAINS = "NOT CONTAINS"
    LIKE = "LIKE"
    NOT_LIKE = "NOT LIKE"
    CIDR = "IN CIDR"
    NOT_CIDR = "NOT IN CIDR"
    EXISTS = "IS NOT NULL"
    ABSENT = "IS NULL"

    @property
    def negation(self) -> Op:
        """The operator that is true exactly where this one is false."""
        return _NEGATIONS[self]

    @property
    def is_negative(self) -> bool:
        """True if this is the negated member of its pair (`!=`, `NOT ...`)."""
        return self in NEGATIVE

    @property
    def rank(self) -> int:
        """Its place in the fixed order used for sorting constraints."""
        return _RANKS[self]


_PAIRS: Final = [
    (Op.EQ, Op.NE),
    (Op.LT, Op.GE),
    (Op.GT, Op.LE),
    (Op.IN, Op.NOT_IN),
    (Op.PREFIX, Op.NOT_PREFIX),
    (Op.SUFFIX, Op.NOT_SUFFIX),
    (Op.CONTAINS, Op.NOT_CONTAINS),
    (Op.LIKE, Op.NOT_LIKE),
    (Op.CIDR, Op.NOT_CIDR),
    (Op.EXISTS, Op.ABSENT),
]
_NEGATIONS: Final = dict(_PAIRS) | {b: a for a, b in _PAIRS}
_RANKS: Final = dict(zip(Op, range(len(Op)), strict=True))
NEGATIVE: Final = frozenset(
    {Op.NE, Op.NOT_IN, Op.NOT_PREFIX, Op.NOT_SUFFIX, Op.NOT_CONTAINS, Op.NOT_LIKE, Op.NOT_CIDR}
)
PRESENCE: Final = frozenset({Op.EXISTS, Op.ABSENT})
MEMBERSHIP: Final = frozenset({Op.IN, Op.NOT_IN})
ORDER: Final = frozenset({Op.LT, Op.LE, Op.GT, Op.GE})
AFFIX: Final = frozenset(
    {Op.PREFIX, Op.NOT_PREFIX, Op.SUFFIX, Op.NOT_SUFFIX, Op.CONTAINS, Op.NOT_CONTAINS}
)
STRING_ONLY: Final = frozenset({Op.LIKE, Op.NOT_LIKE, Op.CIDR, Op.NOT_CIDR})
TEXT_TESTS: Final = (AFFIX | STRING_ONLY) - {Op.PREFIX, Op.NOT_PREFIX}
"""Operators that are no intervals of texts, so that they are tried and compared one by one."""
CASELESS: Final = frozenset({Op.CIDR, Op.NOT_CIDR})
"""Operators that ignore case as they are: the digits of an address mean the same in either."""


def fold(text: str) -> str:
    """Fold a text to ignore its case: Unicode full case folding, character by character.

    >>> fold("STRASSE") == fold("straße")
    True
    """
    return text.casefold()


def holds(op: Op, value: Any, operand: Any, ignore_case: bool = False) -> bool:
    """Test `value op operand`, for canonical values of one kind.

    >>> holds(Op.PREFIX, "order.created", "order."), holds(Op.IN, 3, (1, 2))
    (True, False)
    """
    if ignore_case:
        value = fold(value)
    return _TESTS[op](value, operand)


def like_parts(pattern: str) -> list[str | None]:
    """A LIKE pattern as its literal runs and wildcards: `""` is `%`, `None` is `_`.

    A backslash takes the next character literally. Runs of `%` are one.
    """
    check_like_size(pattern)
    return _parts_of_any_length(pattern)


def _parts_of_any_length(pattern: str) -> list[str | None]:
    parts: list[str | None] = []
    literal: list[str] = []

    def flush() -> None:
        if literal:
            parts.append("".join(literal))
            literal.clear()

    characters = iter(pattern)
    for character in characters:
        if character == "%":
            flush()
            if not parts or parts[-1] != "":
                parts.append("")
        elif character == "_":
            flush()
            parts.append(None)
        elif character == "\\":
            following = next(characters, None)
            if following is None:
                raise InvalidFilter(
                    f"LIKE pattern {pattern!r:.80} ends in a lone backslash; write \\\\ for one"
                )
            literal.append(following)
        else:
            literal.append(character)
    flush()
    return parts


def like_cost(pattern: str | None) -> int:
    """The cost of a pattern, in the units of `MAX_RESIDUAL_COST`; None for any there may be. With a
    `_` in it each of its characters is tried at each place of a text.
    """
    if pattern is None:
        return 8 + 7 * MAX_LIKE_CHARS // 2
    return 8 + (7 * len(pattern) // 2 if "_" in pattern else 0)


def find_cost(wanted: str | bytes | None) -> int:
    """The cost of CONTAINS: for texts of some lengths Python tries what is wanted at each place."""
    return 8 + (_FIND_COST if wanted is None else min(len(wanted), _FIND_COST))


_FIND_COST: Final = 400
"""What is wanted has 1,200 characters then, of a text that has 2,500."""


def check_like_size(pattern: str) -> None:
    """Refuse a LIKE pattern longer than `MAX_LIKE_CHARS`."""
    check_limit("a LIKE pattern", "MAX_LIKE_CHARS", MAX_LIKE_CHARS, len(pattern))


def is_like(text: str, pattern: str) -> bool:
    """Check whether a text has a LIKE pattern, which may have any length.

    >>> is_like("ax...b", "a_%b")
    True
    """
    return _wildcards(pattern).fits(text)


class _Wildcards(NamedTuple):
    """A pattern with `%` and `_`: the start of a text, the segments that follow in turn, and its
    end with its width; None for a pattern without `%`.

    Each segment between two `%` is searched for from the end of the one before, which is
    exact for such patterns and never backtracks: the time is at worst that of text times pattern,
    and that of the text where a segment has no `_`.
    """

    first: re.Pattern[str]
    middle: tuple[re.Pattern[str], ...]
    last: tuple[int, re.Pattern[str]] | None

    def fits(self, text: str) -> bool:
        """Check whether a whole text has this pattern."""
        start = self.first.match(text)
        if start is None:
            return False
        place = start.end()
        if self.last is None:
            return place == len(text)
        for segment in self.middle:
            match = segment.search(text, place)
            if match is None:
                return False
            place = match.end()
        width, segment = self.last
        end = len(text) - width
        return end >= place and segment.match(text, end) is not None


def _segment_regex(segment: Sequence[str | None]) -> re.Pattern[str]:
    source = "".join("." if part is None else re.escape(part) for part in segment)
    return re.compile(source, re.DOTALL)


@lru_cache(maxsize=4096)
def _wildcards(pattern: str) -> _Wildcards:
    segments: list[list[str | None]] = [[]]
    for part in _parts_of_any_length(pattern):
        if part == "":
            segments.append([])
        else:
            segments[-1].append(part)
    first, *rest = segments
    if not rest:
        return _Wildcards(_segment_regex(first), (), None)
    *middle, last = rest
    width = sum(1 if part is None else len(part) for part in last)
    return _Wildcards(
        _segment_regex(first), tuple(map(_segment_regex, middle)), (width, _segment_regex(last))
    )


def like_shape(pattern: str) -> tuple[Op, str] | None:
    """The simpler operator that a LIKE pattern is, with its operand; None if it is a real pattern.

    >>> like_shape("%commerce%"), like_shape("a_c")
    ((<Op.CONTAINS: 'CONTAINS'>, 'commerce'), None)
    """
    parts = like_parts(pattern)
    match parts:
        case []:
            return Op.EQ, ""
        case [""]:
            return Op.PREFIX, ""
        case [None, ""] | ["", None] | ["", None, ""]:
            return Op.NE, ""
        case [str(text)]:
            return Op.EQ, text
        case [str(text), ""]:
            return Op.PREFIX, text
        case ["", str(text)]:
            return Op.SUFFIX, text
        case ["", str(text), ""]:
            return Op.CONTAINS, text
        case _:
            return None


def network(text: str) -> str:
    """The canonical spelling of a CIDR block, or `InvalidFilter`.

    >>> network("10.1.2.3/8")
    '10.0.0.0/8'
    """
    try:
        return str(ip_network(text, strict=False))
    except ValueError as error:
        raise InvalidFilter(
            f"{text!r:.80} is not an address block such as '10.0.0.0/8': {error}"
        ) from None


@lru_cache(maxsize=4096)
def network_of(text: str) -> IPv4Network | IPv6Network:
    """An address block, once read and then remembered."""
    return ip_network(text, strict=False)


MAX_ADDRESS_CHARS: Final = 256
"""A longer text is no address: these have 45 characters, and the name of an interface."""


def _in_network(value: str, block: str) -> bool:
    if len(value) > MAX_ADDRESS_CHARS:
        return False
    try:
        return ip_address(value) in network_of(block)
    except ValueError:  # text that is no address is in no block
        return False


_TESTS: Final[dict[Op, Callable[[Any, Any], bool]]] = {
    Op.EQ: lambda value, operand: value == operand,
    Op.NE: lambda value, operand: value != operand,
    Op.LT: lambda value, operand: value < operand,
    Op.LE: lambda value, operand: value <= operand,
    Op.GT: lambda value, operand: value > operand,
    Op.GE: lambda value, operand: value >= operand,
    Op.IN: lambda value, operand: value in operand,
    Op.NOT_IN: lambda value, operand: value not in operand,
    Op.PREFIX: lambda value, operand: value.startswith(operand),
    Op.NOT_PREFIX: lambda value, operand: not value.startswith(operand),
    Op.SUFFIX: lambda value, operand: value.endswith(operand),
    Op.NOT_SUFFIX: lambda value, operand: not value.endswith(operand),
    Op.CONTAINS: lambda value, operand: operand in value,
    Op.NOT_CONTAINS: lambda value, operand: operand not in value,
    Op.LIKE: is_like,
    Op.NOT_LIKE: lambda value, operand: not is_like(value, operand),
    Op.CIDR: _in_network,
    Op.NOT_CIDR: lambda value, operand: not _in_network(value, operand),
}


def simplest(op: Op, operand: Value) -> tuple[Op, Value]:
    """The simplest operator and operand that mean the same: LIKE reduced, blocks spelled alike."""
    if op in (Op.LIKE, Op.NOT_LIKE):
        assert isinstance(operand, str)
        shape = like_shape(operand)
        if shape is not None:
            simpler, text = shape
            return (simpler.negation if op is Op.NOT_LIKE else simpler), text
        return op, _canonical_like(operand)
    if op in (Op.CIDR, Op.NOT_CIDR):
        assert isinstance(operand, str)
        return op, network(operand)
    if op in AFFIX and not operand:  # any text at all: starting with nothing is an interval
        return (Op.NOT_PREFIX if op.is_negative else Op.PREFIX), operand
    return op, operand


@lru_cache(maxsize=4096)
def is_usable(op: Op, operand: str) -> bool:
    """Check whether a text is a pattern (a block) that LIKE (IN CIDR) can use."""
    try:
        simplest(op, operand)
    except InvalidInput:
        return False
    return True


def _canonical_like(pattern: str) -> str:
    """The pattern with one `%` for each run and backslashes only where they are needed.

    Within a run of wildcards `_` comes before `%`: `%_` and `_%` mean the same.
    """
    pieces: list[str] = []
    wild: list[str] = []
    for part in [*like_parts(pattern), "end"]:
        if part is None or part == "":
            wild.append("_" if part is None else "%")
            continue
        pieces.append("_" * wild.count("_") + ("%" if "%" in wild else ""))
        wild.clear()
        pieces.append(re.sub(r"([%_\\])", r"\\\1", part))
    return "".join(pieces[:-1])
