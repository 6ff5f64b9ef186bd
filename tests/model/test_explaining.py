"""Explanations agree with the verdict and give the reason for each part."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, reject

from palio.errors import InvalidBinding
from palio.model.filters import FALSE, TRUE, Filter
from tests import strategies as our


@our.examples(150)
@given(our.filters(variables=True), our.bindings(), our.SEEDS)
def test_an_explanation_says_what_the_truth_is(
    filter: Filter, values: dict[str, Any], seed: int
) -> None:
    try:
        bound = filter.bind(values)
    except InvalidBinding:
        reject()
    for event in our.nearby(bound, seed=seed, count=5):
        explanation = filter.explain(event, values)
        assert explanation.truth is filter.truth(event, values)
        assert explanation.matched is filter.matches(event, values)
        assert bool(explanation.failures) is not explanation.matched or not explanation.alternatives
        assert [each.truth for each in explanation.alternatives] == [
            each.truth(event, values) for each in filter.conjunctions
        ]
        for alternative, conjunction in zip(
            explanation.alternatives, filter.conjunctions, strict=True
        ):
            texts = [finding.text for finding in alternative.findings]
            assert texts == [str(part) for part in conjunction.parts]
            assert all(finding.reason for finding in alternative.findings)
        assert str(explanation).startswith("match" if explanation.matched else "no match")


@pytest.mark.parametrize(
    ("text", "event", "values", "lines"),
    [
        ("n < 5", {"n": 3}, {}, ["match", "    + n < 5: n is 3"]),
        ("n < 5", {"n": 7}, {}, ["no match (false)", "    - n < 5: n is 7"]),
        ("n < 5", {}, {}, ["no match (unknown)", "    ? n < 5: n is missing"]),
        (
            "n < 5",
            {"n": "a"},
            {},
            ["no match (unknown)", "    ? n < 5: n is 'a', a string and not a number"],
        ),
        (
            "n < 5",
            {"n": math.nan},
            {},
            ["no match (unknown)", "    ? n < 5: n is NaN, which satisfies no comparison"],
        ),
        ("n IS NOT NULL", {"n": math.nan}, {}, ["match", "    + n IS NOT NULL: n is NaN"]),
        ("n < :x", {"n": 7}, {"x": 5}, ["no match (false)", "    - n < :x: n is 7, :x is 5"]),
        (
            "n IN :x",
            {"n": 7},
            {"x": [5, 6]},
            ["no match (false)", "    - n IN :x: n is 7, :x is [5, 6]"],
        ),
        (
            "n + :x < m",
            {"n": 7, "m": 3},
            {"x": 5},
            ["no match (false)", "    - n + :x < m: m is 3, n is 7, :x is 5"],
        ),
        ("n < m", {"n": 7}, {}, ["no match (unknown)", "    ? n < m: m missing"]),
        (
            "n < 5 OR s = 'a'",
            {"n": 7, "s": "a"},
            {},
            [
                "match",
                "  alternative 1: false",
                "    - n < 5: n is 7",
                "  alternative 2: true",
                "    + s = 'a': s is 'a'",
            ],
        ),
    ],
)
def test_explanations(
    text: str, event: our.Event, values: dict[str, Any], lines: list[str]
) -> None:
    assert str(our.fresh(text).explain(event, values)).splitlines() == lines


def test_long_values_are_cut() -> None:
    explanation = str(our.fresh("s = 'a'").explain({"s": "x" * 1_000}))
    assert "xxx…" in explanation
    assert len(explanation) < 150


def test_nothing_to_explain() -> None:
    assert str(TRUE.explain({})) == "match\n  alternative 1: true" or TRUE.explain({}).matched
    assert not FALSE.explain({}).matched
    assert FALSE.explain({}).failures == ()
