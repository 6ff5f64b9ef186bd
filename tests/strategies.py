"""What the property tests of several rooms draw from: values, texts of filters, and events that
matter.

Random values almost never meet a random filter. So operands come from small pools in which they
collide, with the nasty values of every kind among them, and events are made *for* a filter:
`nearby` gives each attribute values at, just below and just above the filter's own operands,
besides missing ones, wrong kinds, NaN and infinities.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from ipaddress import ip_network
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from palio.errors import InvalidInput
from palio.language.lexer import tokens
from palio.language.parser import syntax_tree
from palio.language.parsing import parse_advertisement, parse_tokens
from palio.model.advertisements import Advertisement
from palio.model.constraints import Constraint, Residual
from palio.model.expressions import Boolean, Literal, Test, walk
from palio.model.filters import Filter
from palio.model.operators import AFFIX, MEMBERSHIP, PRESENCE, STRING_ONLY, Op
from palio.model.printing import show_name, show_value
from palio.model.values import INT64_MAX, INT64_MIN, Kind, Value, kind_of

USUAL_EXAMPLES: Final = 200
"""Examples that a property has if it names no count; a profile changes all counts alike."""

FEWEST_EXAMPLES: Final = 10

Event = dict[str, Any]


def shown(value: object) -> str:
    """The name of a case: its `repr` without addresses, so that every process names it alike."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def examples(count: int) -> settings:
    """Settings for a property that needs another count of examples than the usual one."""
    share = settings().max_examples / USUAL_EXAMPLES
    return settings(max_examples=max(FEWEST_EXAMPLES, round(count * share)))


# --- values ---

INFINITIES: Final = (math.inf, -math.inf)
NUMBERS: Final[tuple[int | float, ...]] = (
    *(0, 1, 2, 3, 5, -1, -2),
    *(-0.0, 0.5, 1.5, 0.1, 0.1 + 0.2, -2.5, 5e-324, -5e-324, math.nextafter(1, 2)),
    *(2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, float(2**53), -(2**53) - 1),
    *(INT64_MAX, INT64_MAX - 1, INT64_MIN, float(2**63), -float(2**63), 1e16, 1e22, 1.7e308),
    *INFINITIES,
)
STRINGS: Final = (
    *("", "a", "b", "ab", "ba", "aa", "abc", "A", "Ab", "b\0", "\0", "a b", "it's", '"', "\n"),
    *("%", "_", "\\", "a%", "a_c"),
    *("é", "e\u0301", "ß", "ss", "SS", "ẞ", "İ", "ı", "i", "\u212a", "k", "ﬀ", "ſ", "Σ", "ς"),
    *("𝒳", "😀", "\ud7ff", "\ue000", "\uffff", "\U0010ffff", "a\U0010ffff"),
    *("10.0.0.1", "10.0.0.255", "fe80::1", "::ffff:10.0.0.1"),
)
"""Empty, control characters, wildcards, precomposed and combining, case that changes length, the
ends of the planes, addresses."""
BLOBS: Final = (b"", b"\0", b"a", b"ab", b"b", b"\xff", b"a\xff", b"\xff\xff")
TIMES: Final = (
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 31, 12, tzinfo=UTC),
    datetime(2026, 1, 31, 13, 30, tzinfo=timezone(timedelta(hours=1, minutes=30))),
    datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone(timedelta(hours=-11))),
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
)
BLOCKS: Final = ("10.0.0.0/8", "10.0.0.0/24", "10.0.0.1/32", "0.0.0.0/0", "fe80::/10", "::/0")
POOLS: Final[dict[Kind, tuple[Any, ...]]] = {
    Kind.BOOL: (False, True),
    Kind.NUMBER: NUMBERS,
    Kind.STRING: STRINGS,
    Kind.BYTES: BLOBS,
    Kind.TIME: TIMES,
}
INT64S: Final = st.integers(INT64_MIN, INT64_MAX)
FLOATS: Final = st.floats(allow_nan=False)
NUMBERS_AT_LARGE: Final = INT64S | FLOATS | st.sampled_from(NUMBERS)
TEXTS: Final = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(STRINGS)
INSTANTS: Final = st.datetimes(timezones=st.just(UTC)) | st.sampled_from(TIMES)
AT_LARGE: Final[dict[Kind, st.SearchStrategy[Any]]] = {
    Kind.BOOL: st.booleans(),
    Kind.NUMBER: NUMBERS_AT_LARGE,
    Kind.STRING: TEXTS,
    Kind.BYTES: st.binary(max_size=4) | st.sampled_from(BLOBS),
    Kind.TIME: INSTANTS,
}


def values(kind: Kind | None = None) -> st.SearchStrategy[Any]:
    """Values of a kind (or of any), from anywhere in it; no NaN."""
    return AT_LARGE[kind] if kind is not None else st.one_of(*AT_LARGE.values())


def operands(kind: Kind) -> st.SearchStrategy[Any]:
    """Values of a kind from its pool, where they meet each other."""
    return st.sampled_from(POOLS[kind])


SEEDS: Final = st.integers(0, 2**32 - 1)
"""What `random.Random` starts from: one example then tries many events."""


# --- constraints and texts ---

ATTRIBUTES: Final[dict[str, Kind]] = {
    "n": Kind.NUMBER,
    "m": Kind.NUMBER,
    "s": Kind.STRING,
    "data.t": Kind.STRING,
    "odd name": Kind.BYTES,
    "at": Kind.TIME,
    "ok": Kind.BOOL,
}
"""The attributes that filters speak of, each mostly compared with one kind."""
NAMES: Final = tuple(ATTRIBUTES)
PATTERNS: Final = (
    *("", "%", "%%", "_", "_%", "%_", "a\\%b", "\\_", "\\\\", "%ß_", "a%b%c", "a%", "%a", "%a%"),
    *("a_", "_b", "a%b", "%a%b%", "ab", "%b_", "a%a", "%ab%ba", "A%", "%ẞ%", "a_%", "__"),
)


def kinds_of_operator(op: Op) -> tuple[Kind, ...]:
    """The kinds an operator takes."""
    if op in STRING_ONLY:
        return (Kind.STRING,)
    return (Kind.STRING, Kind.BYTES) if op in AFFIX else tuple(Kind)


def some_operand(rng: random.Random, op: Op, kind: Kind) -> Any:
    """A plain operand for an operator, a list of them after IN, None after IS NULL."""
    if op in PRESENCE:
        return None
    if op in MEMBERSHIP:
        return [rng.choice(POOLS[kind]) for _ in range(rng.randint(1, 4))]
    if op in (Op.CIDR, Op.NOT_CIDR):
        return rng.choice(BLOCKS)
    if op in (Op.LIKE, Op.NOT_LIKE):
        return rng.choice(PATTERNS)
    return rng.choice(POOLS[kind])


def some_constraint(
    rng: random.Random, names: Sequence[str] = NAMES, ops: Sequence[Op] = tuple(Op)
) -> Constraint:
    """A constraint without variables."""
    name = rng.choice(names)
    own = ATTRIBUTES.get(name, Kind.STRING)
    op = rng.choice([op for op in ops if own in kinds_of_operator(op)] or list(ops))
    kinds = kinds_of_operator(op)
    kind = own if own in kinds and rng.random() < 0.9 else rng.choice(kinds)
    operand = some_operand(rng, op, kind)
    ignore_case = kind is Kind.STRING and op not in PRESENCE and rng.random() < 0.25
    return Constraint.of(name, op, operand, ignore_case)


def _spelled(rng: random.Random, constraint: Constraint) -> str:
    """A text for a constraint: its own, or another spelling of the same."""
    text = str(constraint)
    if constraint.op is Op.EQ:
        text = text.replace(" = ", rng.choice((" = ", "==", " == ")), 1)
    elif constraint.op is Op.NE:
        text = text.replace(" != ", rng.choice((" != ", "<>")), 1)
    elif constraint.op is Op.EXISTS:
        name = show_name(constraint.name)
        text = rng.choice((text, f"EXISTS {name}", f"exists({name})"))
    return f"({text})" if rng.random() < 0.1 else text


SCALARS: Final = (
    *("n", "m", "1", "2.5", "-3", "n + 1", "n - m", "-n", "n * 2 / m", "n % 3", "-(n + m) * -2"),
    *("n - (m - 1.5)", "2.0 * n", "ABS(n)", "LENGTH(s)", "ROUND(n / 2)", "COALESCE(n, m, 1)"),
    *("SQRT(n)", "CEIL(n)", "FLOOR(m)", "9223372036854775807 + n", "INFINITY - n"),
)
WORDS: Final = ("s", "UPPER(s)", "LOWER(data.t)", "CONCAT(s, 'x')", "SUBSTRING(s, 1, 2)", "TRIM(s)")


def _residual_text(rng: random.Random, variables: bool) -> str:
    """A test that does not reduce to a constraint (or only now and then)."""
    shape = rng.randint(0, 5)
    if shape <= 2:
        left, right = rng.choice(SCALARS), rng.choice(SCALARS)
        if variables and rng.random() < 0.5:
            right = f"{right} + :number"
        return f"{left} {rng.choice(('=', '!=', '<', '<=', '>', '>='))} {right}"
    if shape == 3:
        left, right = rng.choice(WORDS), rng.choice((*WORDS, "'a'", "'A'"))
        op = rng.choice(("=", "STARTS WITH", "NOT CONTAINS", "LIKE", "ENDS WITH"))
        return f"{left} {op} {right}{rng.choice(('', ' IGNORE CASE'))}"
    if shape == 4:
        return f"{rng.choice(SCALARS)} IN (1, m, 2)"
    return f"{rng.choice(SCALARS)} IS {rng.choice(('', 'NOT '))}NULL"


VARIABLES: Final[dict[str, Kind]] = {
    "number": Kind.NUMBER,
    "other": Kind.NUMBER,
    "text": Kind.STRING,
    "when": Kind.TIME,
}
"""Variables of the texts; `:numbers` and `:texts` stand for collections."""
VARIABLE_TESTS: Final = (
    *("n < :number", "n >= :other", ":number = n", "m != :number", "n <= :other", "ok = :text"),
    *("n BETWEEN :number AND :other", "n IN (1, :number)", "m NOT IN (:other, 2)", "at > :when"),
    *("n IN :numbers", "s NOT IN :texts", "s IN :texts IGNORE CASE", "s = :text", "s LIKE :text"),
    *("s STARTS WITH :text", "s NOT ENDS WITH :text IGNORE CASE", "s CONTAINS :text"),
    *("n + :number < m", ":number > :other", ":number + 1 < n", "s IN CIDR :block"),
)


def some_bindings(rng: random.Random) -> dict[str, Any]:
    """A value for every variable that the texts use."""
    chosen: dict[str, Any] = {name: rng.choice(POOLS[kind]) for name, kind in VARIABLES.items()}
    chosen["text"] = chosen["text"].replace("\\", "/")  # a lone backslash is no LIKE pattern
    chosen["block"] = rng.choice((*BLOCKS, "10.0.0.7/8"))
    chosen["numbers"] = frozenset(rng.choices(NUMBERS, k=rng.randint(1, 3)))
    chosen["texts"] = rng.choices(STRINGS, k=rng.randint(1, 3))
    return chosen


def some_test(rng: random.Random, *, variables: bool = False, residuals: bool = True) -> str:
    """One test as text."""
    choice = rng.randint(0, 9)
    if variables and choice >= 6:
        return rng.choice(VARIABLE_TESTS)
    if residuals and choice in (4, 5):
        return _residual_text(rng, variables)
    if choice == 3:
        low, high = sorted(rng.choices(NUMBERS, k=2))
        return f"n {rng.choice(('', 'NOT '))}BETWEEN {show_value(low)} AND {show_value(high)}"
    if choice == 2:
        return rng.choice(("ok", "TRUE", "FALSE", "1 = 1", "'a' > 'b'", "not ok"))
    return _spelled(rng, some_constraint(rng))


def combined(rng: random.Random, tests: Sequence[str]) -> str:
    """Tests joined by every connective, with some parentheses, negations and comments."""
    parts = list(tests)
    while len(parts) > 1 or rng.random() < 0.3:
        place = rng.randrange(len(parts))
        how = rng.random()
        if how < 0.15:
            parts[place] = f"NOT {parts[place]}"
        elif how < 0.3:
            parts[place] = f"NOT ({parts[place]})"
        elif how < 0.4:
            parts[place] = f"({parts[place]} -- so far\n)"
        elif len(parts) > 1:
            place = max(1, place)
            word = rng.choice(("AND", "AND", "OR", "or", "XOR"))
            parts[place - 1 : place + 1] = [f"{parts[place - 1]} {word} {parts[place]}"]
    return parts[0]


_POOL: Final = 1_500
"""Tests and constraints made in advance: a strategy then draws each with one number."""


@cache
def _test_pool(variables: bool, residuals: bool) -> list[str]:
    rng = random.Random(_POOL)
    made = {some_test(rng, variables=variables, residuals=residuals) for _ in range(_POOL)}
    return sorted(made, key=lambda text: (len(text), text))


@cache
def _constraint_pool(names: tuple[str, ...], ops: tuple[Op, ...]) -> list[Constraint]:
    rng = random.Random(_POOL)
    made = dict.fromkeys(some_constraint(rng, names, ops) for _ in range(_POOL))
    return sorted(made, key=lambda each: (len(str(each)), str(each)))


def constraints(
    names: Sequence[str] = NAMES, ops: Sequence[Op] = tuple(Op)
) -> st.SearchStrategy[Constraint]:
    """Constraints without variables, the simple ones first."""
    return st.sampled_from(_constraint_pool(tuple(names), tuple(ops)))


def bindings() -> st.SearchStrategy[dict[str, Any]]:
    """A value for every variable that the texts use."""
    return SEEDS.map(lambda seed: some_bindings(random.Random(seed)))


def expression_texts(
    *, variables: bool = False, residuals: bool = True, leaves: int = 5
) -> st.SearchStrategy[str]:
    """Conditions as text."""
    tests = st.lists(st.sampled_from(_test_pool(variables, residuals)), min_size=1, max_size=leaves)
    return st.builds(lambda parts, seed: combined(random.Random(seed), parts), tests, SEEDS)


def fresh(text: str) -> Filter:
    """A filter parsed from scratch: no template is consulted or learned."""
    parsed = parse_tokens(text, tokens(text))
    assert isinstance(parsed, Filter)
    return parsed


def _parsed(text: str) -> Filter | None:
    try:
        return fresh(text)
    except InvalidInput:  # too large, or constants that cannot be compared
        return None


def filters(
    *, variables: bool = False, residuals: bool = True, leaves: int = 5
) -> st.SearchStrategy[Filter]:
    """Filters with the constraints, connectives and residuals that the language has."""
    texts = expression_texts(variables=variables, residuals=residuals, leaves=leaves)
    parsed: Any = texts.map(_parsed)
    return parsed.filter(lambda each: each is not None)  # type: ignore[no-any-return]  # a strategy


# --- events ---

ALWAYS: Final[tuple[Any, ...]] = (
    *(None, math.nan, *INFINITIES, 0, 1, True, False, "", "a", b"a", TIMES[1]),
)
"""What every attribute may be besides the values near its operands; None: missing."""


def advertisements(leaves: int = 4) -> st.SearchStrategy[Advertisement]:
    """Advertisements with the constraints, connectives and residuals that the language has."""

    def parsed(text: str) -> Advertisement | None:
        try:
            return parse_advertisement(text)
        except InvalidInput:  # too large, or constants that cannot be compared
            return None

    texts: Any = expression_texts(leaves=leaves).map(parsed)
    return texts.filter(lambda each: each is not None)  # type: ignore[no-any-return]  # a strategy


def told(advertisement: Advertisement) -> Filter:
    """A filter with all tests of an advertisement, to make events for: it means something else."""
    return Filter(tuple(each.together for each in advertisement.alternatives))


def neighbours(value: Value) -> Sequence[Value]:
    """A value with the ones just beside it, and its look-alikes of other types."""
    kind = kind_of(value)
    if kind is Kind.NUMBER:
        assert isinstance(value, int | float)
        return _numbers_near(value)
    if kind is Kind.STRING:
        return _strings_near(str(value))
    if kind is Kind.BYTES:
        assert isinstance(value, bytes)
        return [value, value[:-1], value + b"\0", value + b"a", b"a" + value, value + b"\xff"]
    if kind is Kind.TIME:
        assert isinstance(value, datetime)
        return [value, *_shifted(value)]
    return [True, False, 1, 0, "true"]


def _numbers_near(number: int | float) -> Sequence[Value]:
    near: list[int | float] = [number, float(number), -number if number != INT64_MIN else 0]
    near += [math.nextafter(float(number), direction) for direction in INFINITIES]
    if math.isfinite(number):
        near += range(math.floor(number) - 1, math.floor(number) + 3)
    return [each for each in near if isinstance(each, float) or INT64_MIN <= each <= INT64_MAX]


def _strings_near(text: str) -> list[Value]:
    pieces = [text.replace("%", filler).replace("_", "b") for filler in ("", "a", "ba")]
    near = [text, text[:-1], text[1:], text + "\0", text + "a", "a" + text, "b" + text + "b"]
    near += [text.upper(), text.lower(), text.swapcase(), text.casefold(), *pieces]
    if "/" in text:
        near += _addresses_near(text)
    return list(near)


def _addresses_near(block: str) -> list[str]:
    try:
        network = ip_network(block, strict=False)
    except ValueError:
        return []
    near = [network.network_address, network.broadcast_address]
    return [str(address) for address in near] + [str(near[0]).upper(), "11.0.0.0", "10.1.0.0"]


def _shifted(time: datetime) -> Iterator[datetime]:
    for step in (timedelta(microseconds=1), timedelta(microseconds=-1)):
        with suppress(OverflowError):
            yield time + step


def operands_of(filter: Filter) -> dict[str, list[Value]]:
    """The constants that each attribute is compared with; a residual's count for all it reads."""
    found: dict[str, list[Value]] = {}
    for conjunction in filter.conjunctions:
        for constraint in conjunction.constraints:
            operand = constraint.operand
            members = operand if isinstance(operand, tuple) else (operand,)
            found.setdefault(constraint.name, []).extend(
                each.value for each in members if isinstance(each, Literal)
            )
        for residual in conjunction.residuals:
            for name in residual.attributes:
                found.setdefault(name, []).extend(_constants(residual))
    return found


def _constants(residual: Residual) -> list[Value]:
    condition = residual.condition
    assert isinstance(condition, Test)
    return [node.value for node in walk(condition) if isinstance(node, Literal)]


def candidates(*parsed: Filter) -> dict[str, list[Any]]:
    """For every attribute that the filters read, the values worth trying, None for missing."""
    near: dict[str, list[Any]] = {}
    for one in parsed:
        for name, constants in operands_of(one).items():
            known = near.setdefault(name, list(ALWAYS))
            for constant in constants:
                known += neighbours(constant)
    return near


def nearby(*parsed: Filter, seed: int, count: int = 25) -> Iterator[Event]:
    """Events that matter to some filters: a few deterministic ones, then seeded random ones."""
    near = candidates(*parsed)
    rng = random.Random(seed)
    yield {}
    for _ in range(count):
        event = {name: rng.choice(choices) for name, choices in near.items()}
        if rng.random() < 0.2:
            event["unnamed"] = rng.choice(ALWAYS)
        yield {
            name: value for name, value in event.items() if value is not None or rng.random() < 0.3
        }


# --- syntax trees ---


def trees(text: str) -> list[Boolean]:
    """The conditions of a text as written, before any reduction."""
    conditions, _ = syntax_tree(text, tokens(text))
    return conditions


def given_texts() -> Callable[..., Any]:
    """`@given` one condition as text, which may have variables and residuals."""
    return given(text=expression_texts(variables=True))
