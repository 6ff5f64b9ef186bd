from __future__ import annotations

from typing import Any

import pytest

from palio.routing.acyclic import Acyclic
from palio.simulation import line
from palio_studies.parametric_runs import AdaptationStage, Swinger, run
from palio_studies.parametric_workloads import RESUBSCRIPTIONS, UPD, WAYS
from palio_studies.simulator import Network
from palio_studies.study import Point, Row, Value

MS = 1000


def point(way: str = UPD, **others: Any) -> Point:
    usual: dict[str, Value] = {
        "workload": "AT",
        "subscribers": 24,
        "engine": "rete",
        "service_ms": 0.0,
        "joined": False,
        "updates_per_s": 10,
        "events_per_s": 600,
        "bundle": 1,
        "window_s": 0.8,
    }
    return Point("adaptation", {**usual, "way": way, **others}, 1)


def ran(way: str = UPD, **others: Any) -> Row:
    (row,) = run(point(way, **others))
    return row


def swinger(operator: str = "<=") -> tuple[Network, Swinger]:
    network = Network.of(line(1), Acyclic)
    client = network.client("alice", "b1")
    return network, Swinger(client, 0, operator, WAYS[UPD], 1)


def test_a_run_is_a_function_of_its_point() -> None:
    assert run(point()) == run(point())


def test_without_load_all_ways_have_one_delay() -> None:
    rows = {way: ran(way) for way in WAYS}
    assert {row["unheard"] for row in rows.values()} == {0.0}
    delays = [float(row["delay_ms"]) for row in rows.values()]
    assert max(delays) < 1.05 * min(delays)
    # To its broker, over three links at the least, and the same back.
    assert min(delays) > 60


def test_re_subscription_says_twice_as_much() -> None:
    ours, theirs = (float(ran(way)["requests_per_s"]) for way in (UPD, RESUBSCRIPTIONS[0]))
    assert theirs == pytest.approx(2 * ours, rel=0.05)


def test_a_broker_that_is_full_with_re_subscriptions_delivers_less() -> None:
    load: dict[str, Any] = {"engine": "steady", "service_ms": 2.0, "updates_per_s": 50}
    ours, theirs = (ran(way, **load) for way in (UPD, RESUBSCRIPTIONS[1]))
    assert float(ours["delivered_per_s"]) > 1.2 * float(theirs["delivered_per_s"])


@pytest.mark.parametrize("operator", ["<=", ">="])
def test_what_is_new_and_what_is_steady_is_so_for_every_value(operator: str) -> None:
    _, alice = swinger(operator)
    values: dict[bool, set[int]] = {False: set(), True: set()}
    for _ in range(500):
        values[alice.is_wide].add(alice.value())
        alice.is_wide = not alice.is_wide

    def passes(event: int, bound: int) -> bool:
        return event <= bound if operator == "<=" else event >= bound

    found: list[bool] = []
    for event in range(1000):
        wide = [passes(event, bound) for bound in values[True]]
        narrow = [passes(event, bound) for bound in values[False]]
        is_new, is_steady = (test({"value": event}) for test in (alice.is_new, alice.is_steady))
        found += (is_new, is_steady)
        assert not is_new or (all(wide) and not any(narrow))
        assert not is_steady or (all(wide) and all(narrow))
    assert found.count(True) > 700  # of 800 or so: values at the borders are left out


def test_the_delay_is_to_the_first_event_that_only_the_wide_region_matches() -> None:
    network, alice = swinger()
    bob = network.client("bob", "b1")
    alice.swing(network.agenda.now_us)
    bob.publish({"type": 0, "value": 100, "segment": 1})  # matched before, too
    network.run(30)
    bob.publish({"type": 0, "value": 500, "segment": 5})
    network.run(50)
    bob.publish({"type": 0, "value": 500, "segment": 5})
    network.run(1000)
    heard = alice.heard({("bob", 0): {"type": 0, "value": 100, "segment": 1}}, 1000 * MS)
    assert (heard.delays_ms, heard.unheard) == ([30.0], 0)
    assert (heard.missed, heard.steady, heard.doubled) == (0, 1, 0)


def test_a_swing_that_is_not_answered_counts_until_the_end_and_a_late_one_not_at_all() -> None:
    network, alice = swinger()
    alice.swing(0)
    alice.swing(100 * MS)
    network.run(900)
    alice.swing(900 * MS)
    unpublished = {("bob", 0): {"type": 0, "value": 100, "segment": 1}}
    heard = alice.heard(unpublished, 1000 * MS)
    assert (heard.delays_ms, heard.unheard, heard.missed) == ([1000.0], 1, 1)


def test_what_is_published_goes_by_the_rate_and_in_bundles() -> None:
    stage = AdaptationStage(point())
    stage.plan(10, 600, 10)
    start_ms = stage.network.now_ms
    stage.network.run(start_ms + 2000)
    assert len(stage.published) == pytest.approx(1200, rel=0.1)
    watched = sum(event["type"] < 12 for event in stage.published.values())
    assert watched == pytest.approx(0.8 * len(stage.published), rel=0.1)


def test_every_watched_subscriber_has_a_type_of_its_own_and_a_range() -> None:
    stage = AdaptationStage(point(subscribers=60))
    assert [each.topic for each in stage.watched] == list(range(12))
    assert {each.operator for each in stage.watched} == {"<=", ">="}
    assert min(each.topic for each in stage.swingers[12:]) >= 12
