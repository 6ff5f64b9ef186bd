"""Filters with parameters everywhere, and values of every kind for them: what one broker sends.

Most of these pairs have to be refused. What is accepted must print to a text that reads back.
"""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from palio.errors import InvalidInput
from palio.model.filters import Filter
from tests import strategies as our

NAMES: Final = ("x", "y")
SCALARS: Final = (
    *(":x", "-:x", "a", "1", "'t'", ":x + 1", ":x * a", ":y", "a + :x", "10 / :x", "a / :x"),
    *("10 % :y", "(:x - :y) * 2", "-(-:x)", "9223372036854775807 + :x", "INFINITY - :x"),
    *("ABS(:x)", "ROUND(:x)", "CEIL(:x)", "FLOOR(:y)", "SQRT(:x)", "LENGTH(:x)", "TRIM(:x)"),
    *("CONCAT(:x, 'x')", "CONCAT(s, :y)", "UPPER(:x)", "LOWER(s)", "COALESCE(a, :x)"),
    *("COALESCE(:x, :y)", "SUBSTRING(:x, 1, :y)", "SUBSTRING('abc', :x)"),
)
OPERATORS: Final = (
    *("=", "!=", "<", "<=", ">", ">=", "LIKE", "NOT LIKE", "ILIKE", "STARTS WITH"),
    *("NOT ENDS WITH", "CONTAINS", "IN CIDR", "NOT IN CIDR"),
)
VALUES: Final[tuple[Any, ...]] = (
    *our.NUMBERS,
    *our.STRINGS,
    *our.BLOBS,
    *our.TIMES,
    *(True, False, None, math.nan, 2**63, -(2**63) - 1, object(), {"a": 1}),
    *("a\\", "10.0.0.0/8", "\ud800", "x" * 257 + "_", "'" * 65_536, "x" * 65_537),
    *(datetime(2026, 1, 1), datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))),  # noqa: DTZ001  # without a zone, on purpose
    datetime(1, 1, 1, tzinfo=UTC),
    *([], [1], ["a"], [1, "a"], (1, 2.5), frozenset({1}), {True}, [math.nan], [None], ["a\\"]),
    *([-math.inf, 1.0], range(3), list(range(40)), [f"{n}" for n in range(40)], [[1]]),
)


def some_filter(rng: random.Random) -> Filter | None:
    """A filter of up to three tests; None where its text is refused."""
    text = our.combined(rng, [_test(rng) for _ in range(rng.randint(1, 3))])
    try:
        return our.fresh(text)
    except InvalidInput:
        return None


def some_values(rng: random.Random) -> dict[str, Any]:
    """A value for each parameter, of any kind or none."""
    return {name: rng.choice(VALUES) for name in NAMES}


def _test(rng: random.Random) -> str:
    chance, scalar = rng.random(), rng.choice(SCALARS)
    if chance < 0.6:
        ignore = rng.choice(("", "", "", " IGNORE CASE"))
        return f"{scalar} {rng.choice(OPERATORS)} {rng.choice(SCALARS)}{ignore}"
    listed = f"{scalar} {rng.choice(('IN', 'NOT IN'))}"
    if chance < 0.75:
        return f"{listed} ({', '.join(rng.choices(SCALARS, k=rng.randint(1, 3)))})"
    if chance < 0.85:
        return f"{listed} :{rng.choice(NAMES)}{rng.choice(('', ' IGNORE CASE'))}"
    if chance < 0.9:
        return f"{scalar} BETWEEN {rng.choice(SCALARS)} AND {rng.choice(SCALARS)}"
    if chance < 0.95:
        return f"{scalar} IS {rng.choice(('', 'NOT '))}NULL"
    return "CESQL 'hop < 5'"
