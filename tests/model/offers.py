"""Random texts of advertisements with their meaning by siena 3.3, and all small events.

Nothing of `palio` is used: a text is made together with the alternatives that it says, as plain
functions on values.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import Any, Final

Check = Callable[[Any], bool | None]
"""True, False or unknown of a value that is there."""

Meaning = list[list[tuple[str, Check]]]
"""Alternatives, each of tests of a name."""

Written = tuple[str, Callable[[bool], Meaning]]
"""A text, and what it, or with True its negation, says."""

POOLS: Final[Mapping[str, tuple[Any, ...]]] = {
    "x": (None, 0, 1, 2, 3, 4, "a"),
    "y": (None, 0, 1, 2, 3),
    "s": (None, "", "a", "ab", "b", 1),
}


@cache
def every_event() -> tuple[dict[str, Any], ...]:
    """Every combination of the pools, None being no attribute at all."""
    return tuple(
        {name: value for name, value in zip(POOLS, each, strict=True) if value is not None}
        for each in product(*POOLS.values())
    )


def announced(meaning: Meaning, event: Mapping[str, Any]) -> bool:
    """The definition: every attribute satisfies some test of its name, in some alternative."""
    return any(
        all(
            any(name == about and check(value) is True for about, check in alternative)
            for name, value in event.items()
        )
        for alternative in meaning
    )


def random_offer(rng: random.Random) -> tuple[str, Meaning]:
    """A text and what it says."""
    parts = [_random_test(rng) for _ in range(rng.randint(1, 4))]
    while len(parts) > 1:
        one, other = parts.pop(), parts.pop()
        parts.append(rng.choice((_both, _both, _either, _either, _exclusive))(one, other))
        if rng.random() < 0.15:
            parts.append(_negated(parts.pop()))
        rng.shuffle(parts)
    text, says = parts[0]
    return text, says(False)


def _both(one: Written, other: Written) -> Written:
    return f"({one[0]}) AND ({other[0]})", lambda no: (_or if no else _and)(
        one[1](no), other[1](no)
    )


def _either(one: Written, other: Written) -> Written:
    return f"({one[0]}) OR ({other[0]})", lambda no: (_and if no else _or)(one[1](no), other[1](no))


def _exclusive(one: Written, other: Written) -> Written:
    return f"({one[0]}) XOR ({other[0]})", lambda no: _or(
        _and(one[1](False), other[1](not no)), _and(one[1](True), other[1](no))
    )


def _negated(part: Written) -> Written:
    return f"NOT ({part[0]})", lambda no: part[1](not no)


def _or(one: Meaning, other: Meaning) -> Meaning:
    return one + other


def _and(one: Meaning, other: Meaning) -> Meaning:
    return [left + right for left in one for right in other]


def _random_test(rng: random.Random) -> Written:
    name = rng.choice(("x", "x", "y", "s"))
    text, check = rng.choice((_presence, _texts if name == "s" else _numbers))(rng)

    def opposite(value: Any) -> bool | None:
        found = check(value)
        return None if found is None else not found

    return f"{name} {text}", lambda no: [[(name, opposite if no else check)]]


def _presence(rng: random.Random) -> tuple[str, Check]:
    return rng.choice((("IS NULL", lambda _: False), ("IS NOT NULL", lambda _: True)))


def _numbers(rng: random.Random) -> tuple[str, Check]:
    a, b = rng.randint(0, 3), rng.randint(0, 4)
    known: dict[str, Callable[[Any], bool]] = {
        f"= {a}": lambda v: v == a,
        f"!= {a}": lambda v: v != a,
        f"< {a}": lambda v: v < a,
        f">= {a}": lambda v: v >= a,
        f"BETWEEN {a} AND {b}": lambda v: a <= v <= b,
        f"NOT BETWEEN {a} AND {b}": lambda v: not a <= v <= b,
        f"IN ({a}, {b})": lambda v: v in (a, b),
        f"NOT IN ({a}, {b})": lambda v: v not in (a, b),
    }
    text = rng.choice(list(known))
    return text, _of_kind(int, known[text])


def _texts(rng: random.Random) -> tuple[str, Check]:
    a = rng.choice(("a", "ab", "b"))
    known: dict[str, Callable[[Any], bool]] = {
        f"= '{a}'": lambda v: v == a,
        f"LIKE '{a}%'": lambda v: v.startswith(a),
        f"NOT LIKE '{a}%'": lambda v: not v.startswith(a),
        f"LIKE '%{a}'": lambda v: v.endswith(a),
        f"BETWEEN 'a' AND '{a}'": lambda v: "a" <= v <= a,
        f"NOT IN ('', '{a}')": lambda v: v not in ("", a),
    }
    text = rng.choice(list(known))
    return text, _of_kind(str, known[text])


def _of_kind(kind: type, check: Callable[[Any], bool]) -> Check:
    """Nothing is known of a value of another kind."""
    return lambda value: check(value) if isinstance(value, kind) else None
