"""Elementary tests agree with the model, and conjunctions with their paths."""

from __future__ import annotations

import math
import random
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from palio.errors import LimitExceeded, NotSupported
from palio.language.parsing import parse_filter
from palio.model import Conjunction, Kind
from palio.model.values import coordinate, kind_of
from palio_studies.tree.attribute_tests import (
    MAX_BRANCHES,
    STAR,
    UNBOUNDED,
    Bounds,
    Path,
    TotalOrder,
    ValueSource,
    label,
    of_label,
)
from tests.studies.tree.test_tree import some_event, some_filter

ORDER = TotalOrder()


def conjunction(text: str) -> Conjunction:
    (only,) = parse_filter(text).conjunctions
    return only


def paths(text: str) -> list[Path]:
    return list(ORDER.paths(conjunction(text)))


def shown(path: Path) -> str:
    return ", ".join(f"{step.test}: {step.test.show(step.result)}" for step in path.steps)


def satisfies(path: Path, event: dict[str, Any]) -> bool:
    for step in path.steps:
        name, kind = step.test.source
        value = event.get(name)
        if value is not None and kind is None:
            value = label(kind_of(value), coordinate(value))
        elif value is not None:
            value = coordinate(value) if kind_of(value) is kind else None
        result = step.test.result(value)
        if result != step.result or result is None:
            return False
    return True


def test_an_event_takes_one_path_of_a_conjunction_exactly_if_it_matches(
    rng: random.Random,
) -> None:
    pairs = matched = 0
    for _ in range(400):
        events = [some_event(rng) for _ in range(15)]
        for part in some_filter(rng).conjunctions:
            with suppress(LimitExceeded):
                alternatives = list(ORDER.paths(part))
                for event in events:
                    taken = [path for path in alternatives if satisfies(path, event)]
                    assert len(taken) == (part.truth(event) is True)
                    pairs, matched = pairs + 1, matched + len(taken)
    assert pairs > 3_000
    assert matched > 100


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 5 AND x < 10", ["x: 5"]),
        ("x IN (1, 2)", ["x: 1", "x: 2"]),
        ("x = TRUE", ["x: TRUE"]),
        ("x IS NOT NULL AND x < 5", ["x < 5: yes"]),
        ("x STARTS WITH ''", ["x < '': no"]),
        ("x < 5 AND x > 7", []),
    ],
)
def test_what_becomes_of_a_conjunction(text: str, expected: list[str]) -> None:
    assert [shown(path) for path in paths(text)] == expected


@pytest.mark.parametrize(
    "text", ["x IS NULL", "x IS NOT NULL", "x ENDS WITH 'b'", "x < y", "LENGTH(x) > 3"]
)
def test_what_is_no_comparison_with_a_constant_is_refused(text: str) -> None:
    with pytest.raises(NotSupported, match="only compares attributes"):
        paths(text)


@pytest.mark.parametrize("members", [MAX_BRANCHES - 1, MAX_BRANCHES, MAX_BRANCHES + 1])
def test_the_paths_of_a_conjunction_are_limited(members: int) -> None:
    text = f"x IN ({', '.join(map(str, range(members)))})"
    if members <= MAX_BRANCHES:
        assert len(paths(text)) == members
    else:
        with pytest.raises(LimitExceeded, match="MAX_BRANCHES"):
            paths(text)


def test_the_order_is_by_schema_then_name() -> None:
    order = TotalOrder("zx")
    (path,) = order.paths(conjunction("a = 1 AND x = 1 AND y = 1 AND z = 1"))
    assert [step.test.source.attribute for step in path.steps] == ["z", "x", "a", "y"]


def test_levels_are_passed_by_every_path_but_at_factored_attributes() -> None:
    order = TotalOrder("abc", levels=True, factored="b")
    (path,) = order.paths(conjunction("c = 1"))
    assert [(str(step.test), step.result) for step in path.steps] == [("a", STAR), ("c", 1)]


def test_implied_results() -> None:
    source = ValueSource("x", Kind.NUMBER)
    cut = ORDER.cut(source, 5)
    assert cut.decide(Bounds(None, 5)) is True
    assert cut.decide(Bounds(0, 4)) is True
    assert cut.decide(Bounds(5, None)) is False
    assert cut.decide(Bounds(5, 9)) is False
    assert cut.decide(Bounds(4, 6)) is STAR
    assert cut.decide(UNBOUNDED) is STAR
    assert cut.implied({source: Bounds(None, 3)}) is True
    assert cut.implied({ValueSource("x", Kind.STRING): Bounds(None, 3)}) is STAR


def test_absence_and_nan_have_no_result() -> None:
    cut = ORDER.cut(ValueSource("x", Kind.NUMBER), 5)
    assert cut.result(None) is None
    assert cut.result(math.nan) is None


@pytest.mark.parametrize(
    ("text", "value", "left"),
    [
        ("x > 1 AND y = 2", 2, "y: 2"),
        ("x > 1 AND y = 2", 1, None),
        ("x > 1 AND y = 2", "b", None),
        ("x = 3 AND y = 2", 3, "y: 2"),
        ("y = 2", 3, "y: 2"),
    ],
)
def test_what_a_known_value_leaves_of_a_path(text: str, value: Any, left: str | None) -> None:
    (path,) = paths(text)
    rest = path.without("x", label(kind_of(value), coordinate(value)))
    assert (None if rest is None else shown(rest)) == left


def test_labels_tell_kinds_apart() -> None:
    moment = coordinate(datetime(1970, 1, 1, microsecond=1, tzinfo=UTC))
    labels = [
        label(Kind.NUMBER, 1),
        label(Kind.BOOL, True),
        label(Kind.TIME, moment),
        label(Kind.STRING, "1"),
        label(Kind.BYTES, b"1"),
    ]
    assert len(set(labels)) == 5
    assert [of_label(each)[0] for each in labels] == [
        Kind.NUMBER,
        Kind.BOOL,
        Kind.TIME,
        Kind.STRING,
        Kind.BYTES,
    ]
