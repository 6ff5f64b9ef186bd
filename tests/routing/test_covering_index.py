"""The index over domains: it may offer too much, never too little."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.matching import warming
from palio.matching.kernels import registry
from palio.model.filters import Filter
from palio.model.relations import covers
from palio.model.values import TOP, Kind, successor
from palio.routing.covering_index import CoveringIndex
from palio.routing.normalized import form_of, measure
from palio.simulation import Randomness
from tests.conftest import seeds
from tests.routing.helpers import parse
from tests.routing.scenarios import random_filter

ODD = [
    "a = 1 AND a = 2",
    "a IS NULL",
    "a IS NOT NULL",
    "a = 1 OR a = 'x'",
    "a > 1 OR b > 1",
    "a < 5 OR a >= 5",
    "d STARTS WITH 'abcdefgh'",
    "d = 'abcdefghi'",
    "d = 'abcdefghj'",
    "d LIKE 'abc%ghi'",
    "x = 9007199254740993",
    "x = 9007199254740992",
    "x > 9007199254740992",
    "a > 1 AND b > 1 AND c > 1 AND e > 1 AND f > 1 AND g > 1",
    "a > 2 AND b > 2 AND c > 2 AND e > 2 AND f > 2 AND g > 2 AND h = 1",
    "flag = true",
    "flag = 1",
    "a > b",
]


@pytest.fixture(params=["plain", "compiled"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = warming.warm() if request.param == "compiled" else None
    monkeypatch.setattr(registry, "ready", lambda: ready)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("seed", seeds(1, nightly=100))
def test_candidates_hold_every_answer_while_filters_come_and_go(seed: int) -> None:
    random = Randomness(seed)
    index = CoveringIndex()
    known: dict[int, Filter] = {}
    pool = [parse(text) for text in ODD] + [random_filter(random) for _ in range(150)]
    for step in range(400):
        if known and random.chance(0.4):
            number = random.choice(list(known))
            index.remove(number)
            del known[number]
        else:
            known[step] = random.choice(pool)
            index.add(step, form_of(known[step]))
        asked = random.choice(pool)
        above, below = index.above(form_of(asked)), index.below(form_of(asked))
        assert above == sorted(above)
        assert below == sorted(below)
        assert {n for n, f in known.items() if covers(f, asked)} <= set(above)
        assert {n for n, f in known.items() if covers(asked, f)} <= set(below)


def test_an_equality_leads_straight_to_its_own() -> None:
    index = CoveringIndex()
    for number in range(500):
        index.add(number, form_of(parse(f"symbol = 'symbol-{number}' AND price > {number % 7}")))
    assert index.above(form_of(parse("symbol = 'symbol-400' AND price > 100"))) == [400]
    assert index.below(form_of(parse("symbol = 'symbol-400'"))) == [400]


@given(st.text(), st.text())
def test_measure_keeps_the_order_of_strings(one: str, other: str) -> None:
    low, high = sorted([one, other])
    assert measure(low) <= measure(high) <= measure(TOP) == math.inf


@given(st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False))
def test_measure_keeps_the_order_of_numbers(number: int | float) -> None:
    assert measure(number) <= measure(successor(Kind.NUMBER, number))


@pytest.mark.usefixtures("engine")
def test_few_of_those_with_the_same_attributes_are_candidates() -> None:
    index = CoveringIndex()
    for number in range(100):
        index.add(number, form_of(parse(f"a > {number % 10} AND b < {number // 10}")))
    for number in range(50):
        index.add(100 + number, form_of(parse(f"a > {number} AND c > {number}")))
    assert index.above(form_of(parse("a > 1 AND b < 8"))) == [80, 81, 90, 91]
    assert index.below(form_of(parse("a >= 8 AND b < 1"))) == [8, 9, 18, 19]
    assert index.below(form_of(parse("c >= 48"))) == [148, 149]
    for number in range(100):
        index.remove(number)
    assert index.below(form_of(parse("a >= 48"))) == [148, 149]
