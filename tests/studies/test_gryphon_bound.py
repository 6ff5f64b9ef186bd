"""The bound on visited nodes, against every set and every event of small schemas."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import combinations, product
from math import isclose

import pyarrow as pa
import pytest

from palio.model import Conjunction, Constraint, Filter
from palio_studies.gryphon_bound import (
    exponent,
    range_exponent,
    range_visits_at_most,
    visits_at_most,
)
from palio_studies.tree.tree import Tree

Wanted = tuple[int | None, ...]


def names(attributes: int) -> list[str]:
    return [f"a{number}" for number in range(attributes)]


def average_visits(subscriptions: Iterable[Wanted], attributes: int, values: int) -> float:
    """Visited nodes an event, over all events, in the equality version with all its levels."""
    filters: dict[int, Filter] = {}
    for key, wanted in enumerate(subscriptions):
        asked = zip(names(attributes), wanted, strict=True)
        parts = [Constraint.of(name, "=", value) for name, value in asked if value is not None]
        filters[key] = Filter.of([Conjunction.of(parts)])
    engine = Tree(filters, names(attributes), collapse=False, successors=False)
    columns = list(zip(*product(range(values), repeat=attributes), strict=True))
    events = pa.record_batch(dict(zip(names(attributes), map(pa.array, columns), strict=True)))
    engine.match(events)
    return engine.work.visited / events.num_rows


def all_subscriptions(attributes: int, values: int) -> list[Wanted]:
    return list(product([None, *range(values)], repeat=attributes))


def test_no_set_of_two_attributes_and_two_values_exceeds_the_bound() -> None:
    subscriptions = all_subscriptions(2, 2)
    for size in range(1, len(subscriptions) + 1):
        worst = max(average_visits(chosen, 2, 2) for chosen in combinations(subscriptions, size))
        assert worst <= visits_at_most(2, 2, size)


@pytest.mark.parametrize(("attributes", "values"), [(3, 2), (2, 5), (4, 3), (5, 2)])
def test_random_sets_stay_below_the_bound(rng: random.Random, attributes: int, values: int) -> None:
    subscriptions = all_subscriptions(attributes, values)
    for _ in range(10):
        chosen = rng.sample(subscriptions, rng.randint(1, len(subscriptions)))
        visits = average_visits(chosen, attributes, values)
        assert visits <= visits_at_most(attributes, values, len(chosen))


@pytest.mark.parametrize(("attributes", "values"), [(1, 1), (3, 2), (2, 4), (4, 3)])
def test_the_set_of_all_subscriptions_reaches_the_bound(attributes: int, values: int) -> None:
    subscriptions = all_subscriptions(attributes, values)
    visits = average_visits(subscriptions, attributes, values)
    assert isclose(visits, visits_at_most(attributes, values, len(subscriptions)))
    assert isclose(visits, 2 ** (attributes + 1) - 1)


def test_one_subscription_that_cares_about_nothing_is_found_along_one_path() -> None:
    assert average_visits([(None,) * 5], 5, 2) == visits_at_most(5, 2, 1) == 6


@pytest.mark.parametrize("attributes", [2, 5, 30])
@pytest.mark.parametrize("values", [2, 5, 10])
def test_the_bound_grows_no_faster_than_the_closed_form(attributes: int, values: int) -> None:
    """The nth likeliest node is visited with p(n) <= (n / (2 (K + 1))) ** -l; sum over all."""
    power = exponent(attributes, values)
    for subscriptions in (1, 10, 1_000, 100_000, 10_000_000):
        nodes = attributes * subscriptions + 1
        closed = (2 * (attributes + 1)) ** (1 - power) * nodes**power / power
        assert visits_at_most(attributes, values, subscriptions) <= closed


def test_the_exponent_falls_with_the_number_of_values() -> None:
    assert exponent(30, 2) > exponent(30, 10) > exponent(30, 1000) > 0


VALUES = 4
RANGES = [("=", value) for value in range(VALUES)]
RANGES += [("<=", value) for value in range(VALUES - 1)]
RANGES += [(">=", value) for value in range(1, VALUES)]


@pytest.mark.parametrize("attributes", [1, 2, 3])
def test_random_sets_of_ranges_stay_below_their_bound(rng: random.Random, attributes: int) -> None:
    columns = list(zip(*product(range(VALUES), repeat=attributes), strict=True))
    events = pa.record_batch(dict(zip(names(attributes), map(pa.array, columns), strict=True)))
    for _ in range(30):
        chosen = {
            Filter.of(
                [
                    Conjunction.of(
                        Constraint.of(name, *rng.choice(RANGES))
                        for name in names(attributes)
                        if rng.random() < 0.7
                    )
                ]
            )
            for _ in range(rng.randint(1, 60))
        }
        engine = Tree(dict(enumerate(chosen)), names(attributes), successors=False)
        engine.match(events)
        most = range_visits_at_most(attributes, len(RANGES), 1 - 1 / VALUES, len(chosen))
        assert engine.work.visited / events.num_rows <= most


def test_ranges_that_all_events_satisfy_have_no_better_bound_than_their_number() -> None:
    assert range_exponent(30, 200, 1.0) == 1.0
    assert range_exponent(30, 10, 1 / 10) == exponent(30, 10)
    assert range_visits_at_most(3, 100, 1.0, 10) == 1 + 3 * 10 * 2


@pytest.mark.parametrize(("tests", "satisfied"), [(10, 0.1), (200, 0.5), (50, 0.25)])
def test_the_bound_of_ranges_grows_no_faster_than_its_closed_form(
    tests: int, satisfied: float
) -> None:
    """Below the i where (K T)**i reaches N the terms grow, above it they fall, both in series."""
    attributes = 30
    power = range_exponent(attributes, tests, satisfied)
    constant = (1 + 1 / satisfied) * (1 / (1 - satisfied) + 1 / (1 - 1 / (attributes * tests)))
    for subscriptions in (1, 10, 1_000, 100_000, 10_000_000):
        most = range_visits_at_most(attributes, tests, satisfied, subscriptions)
        assert most <= 1 + constant * subscriptions**power
