"""Events drawn from subscriptions, against cells that are enumerated by hand and by brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import palio
from palio.errors import InvalidInput
from palio.model.filters import Filter
from palio.multicast.broker_sets import masks_of, named, words_of
from palio.multicast.drawn_events import AT_ONCE, drawn_events, without_residuals
from palio.multicast.merging import approximated
from palio.multicast.plans import received
from palio.multicast.traffic import Observed
from tests.strategies import filters, nearby


def observed_of(wishes: list[tuple[str, Filter]]) -> Observed:
    observed = Observed(sorted({broker for broker, _ in wishes}))
    for broker, filter in wishes:
        observed.subscribe(without_residuals(filter), broker)
    for batch in drawn_events(without_residuals(filter) for _, filter in wishes):
        observed.take(batch)
    return observed


def test_the_disjoint_matching_sets_of_ranges_and_names_all_occur() -> None:
    texts = {"b1": "x < 10 AND s = 'a'", "b2": "x >= 5 AND x < 20", "b3": "s IN ('a', 'b')"}
    wishes = [(broker, palio.parse_filter(text)) for broker, text in texts.items()]
    traffic = observed_of(wishes).traffic()
    expected = set()
    for x, s in product([None, 0, 5, 10, 20], [None, "a", "b", "c"]):
        event = {"x": x, "s": s}
        expected.add(tuple(broker for broker, filter in wishes if filter.matches(event)))
    assert {named(row, traffic.brokers) for row in traffic.sets} == expected - {()}


def test_every_operator_has_an_event_that_it_matches() -> None:
    texts = [
        "a = TRUE", "a != 3", "a > 5", "a STARTS WITH 'x'", "a ENDS WITH 'y'", "a CONTAINS 'z'",
        "a LIKE 'q%r_'", "a IN CIDR '10.1.0.0/16'", "a IS NULL", "a IS NOT NULL",
        "a = TIMESTAMP '2026-01-01T00:00:00Z'", "a = X'01'",
    ]  # fmt: skip
    wishes = [(f"b{place:02}", palio.parse_filter(text)) for place, text in enumerate(texts)]
    # A batch has one kind of values, and the kinds here are many: more batches than usual.
    observed = Observed([broker for broker, _ in wishes])
    for broker, filter in wishes:
        observed.subscribe(filter, broker)
    for batch in drawn_events([filter for _, filter in wishes], events=40 * AT_ONCE):
        observed.take(batch)
    traffic = observed.traffic()
    assert masks_of(traffic.sets, len(texts)).any(axis=0).tolist() == [True] * len(texts)


def test_a_value_is_as_likely_as_it_is_often_named() -> None:
    wishes = [palio.parse_filter("n = 1")] * 95 + [palio.parse_filter("n = 7")]
    [batch] = drawn_events(wishes, events=4_000)
    values = batch["n"].to_pylist()
    # 96 of 102 parts, as each of 6 cells has one more: two values, three gaps, and absence.
    assert values.count(1.0) / 4_000 == pytest.approx(96 / 102, abs=0.02)
    assert all(0 < values.count(each) < 400 for each in (7.0, None))


def test_the_same_subscriptions_give_the_same_events() -> None:
    wishes = [palio.parse_filter("n < 1 AND s = 'x'")]
    assert list(drawn_events(wishes)) == list(drawn_events(iter(wishes)))


def test_without_constraints_there_is_nothing_to_draw() -> None:
    with pytest.raises(InvalidInput, match="no subscription has a constraint"):
        next(drawn_events([palio.parse_filter("a < b")][:0]))


@given(st.lists(filters(variables=False), min_size=1, max_size=4))
def test_a_plan_from_subscriptions_alone_loses_no_event(wanted: list[Filter]) -> None:
    wishes = [(f"b{place}", each) for place, each in enumerate(wanted)]
    assume(any(without_residuals(each).attributes for each in wanted))
    observed = observed_of(wishes)
    plan = approximated(observed.traffic(), groups=2)
    for event in nearby(*wanted, seed=1):
        mask = np.array([[filter.matches(event) for _, filter in wishes]])
        sets = words_of(mask)
        sends = plan.sends(sets)
        got = received(plan, sends)
        assert not (sets & ~got).any(), event
        assert len(sends.groups) == mask.any()
