from __future__ import annotations

from typing import Any

import pytest

from palio.language.parsing import parse_filter
from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Acyclic
from palio.routing.messages import Batch, Subscribe, Unsubscribe, Update
from palio.routing.protocol import Peer
from palio.simulation import Randomness, line
from palio_studies.parametric_runs import (
    BROKERS,
    ENGINES,
    RESUBSCRIPTIONS,
    RETE,
    SIENA,
    SIENA_FILTER_US,
    UPD,
    UPDATE_FILTERS,
    WAYS,
    AdaptationStage,
    SienaService,
    SteadyWork,
    Swinger,
    broking,
    run,
    workload,
)
from palio_studies.simulator import Network
from palio_studies.simulator.inbox import Envelope
from palio_studies.simulator.poset_selector import PosetSelector
from palio_studies.study import Point, Row, Value

MS = 1000

CHEAP = parse_filter("price < 10")


def point(way: str = UPD, **others: Any) -> Point:
    usual: dict[str, Value] = {
        "workload": "AT",
        "subscribers": 24,
        "engine": "rete",
        "joined": False,
        "updates_per_s": 10,
        "events_per_s": 600,
        "bundle": 1,
        "window_s": 0.8,
        "swing_ms": 400,
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


def test_a_broker_that_is_full_with_re_subscriptions_delivers_less() -> None:
    load: dict[str, Any] = {"engine": SIENA, "updates_per_s": 1_000}
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
    heard = alice.heard({("bob", 0): {"type": 0, "value": 100, "segment": 1}}, 1000 * MS, 400)
    assert (heard.delays_ms, heard.unheard) == ([30.0], 0)
    assert (heard.missed, heard.steady, heard.doubled) == (0, 1, 0)


def test_a_swing_that_is_not_answered_counts_until_the_end_and_a_late_one_not_at_all() -> None:
    network, alice = swinger()
    alice.swing(0)
    alice.swing(100 * MS)
    network.run(900)
    alice.swing(900 * MS)
    unpublished = {("bob", 0): {"type": 0, "value": 100, "segment": 1}}
    heard = alice.heard(unpublished, 1000 * MS, 2000)
    assert (heard.delays_ms, heard.unheard, heard.missed) == ([1000.0], 1, 1)


def test_what_comes_after_the_swing_back_answers_nothing() -> None:
    network, alice = swinger()
    alice.swing(0)
    alice.swing(100 * MS)
    network.run(200)
    alice.swing(200 * MS)  # wide again: what comes now was let through by this one
    network.run(210)
    network.client("bob", "b1").publish({"type": 0, "value": 500, "segment": 5})
    network.run(1000)
    heard = alice.heard({}, 1000 * MS, 100)
    assert (heard.delays_ms, heard.unheard) == ([100.0, 10.0], 1)


def test_what_is_published_goes_by_the_rate_and_in_bundles() -> None:
    stage = AdaptationStage(point())
    stage.plan(10, 600, 10, 400)
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


# --- workloads and brokers ---


def said(*requests: Subscribe | Unsubscribe | Update, fresh: bool = False) -> Envelope:
    return Envelope("alice", Peer.client("alice"), 0, Batch(requests, fresh))


def published(*events: dict[str, int]) -> Envelope:
    return Envelope("bob", Peer.client("bob"), 0, RowParcel("bob", events))


def test_requests_cost_each_and_what_ends_what_never_began_costs_nothing() -> None:
    work = SteadyWork(10, 3, lines=1)
    assert work.time_us("b1", said(Subscribe(0, CHEAP))) == 10
    assert work.time_us("b1", said(Update(0, {"0": 9}, 1))) == 10
    # Ten re-subscriptions that were joined: the first end, nine ends of nothing, the last start.
    ends = [Unsubscribe(key) for key in range(10)]
    assert work.time_us("b1", said(*ends, Subscribe(10, CHEAP))) == 20
    assert work.time_us("b1", said(Unsubscribe(10))) == 10
    assert work.time_us("b1", said(Unsubscribe(10))) == 0
    assert work.time_us("b1", published({"price": 1}, {"price": 2})) == 6


def test_each_broker_and_sender_has_keys_of_its_own_and_a_fresh_batch_forgets_them() -> None:
    work = SteadyWork(10, 3, lines=1)
    assert work.time_us("b1", said(Subscribe(0, CHEAP))) == 10
    assert work.time_us("b2", said(Unsubscribe(0))) == 0
    assert work.time_us("b1", said(Subscribe(1, CHEAP), fresh=True)) == 10
    assert work.time_us("b1", said(Unsubscribe(0))) == 0


def test_only_with_two_lines_events_wait_for_no_requests() -> None:
    one, two = SteadyWork(1, 1, lines=1), SteadyWork(1, 1, lines=2)
    letters = said(Subscribe(0, CHEAP)), published({"price": 1})
    assert len({one.line(letter) for letter in letters}) == 1
    assert len({two.line(letter) for letter in letters}) == 2
    assert len({SienaService().line(letter) for letter in letters}) == 1


def test_siena_looks_at_all_filters_for_a_request_and_at_those_tried_for_an_event() -> None:
    siena = SienaService()
    poset = siena.posets["b1"] = PosetSelector()
    for key, bound in enumerate((10, 5, 3)):
        poset.add(key, parse_filter(f"price < {bound}"), {}, destination=key)
    assert siena.time_us("b1", said(Subscribe(7, CHEAP))) == 3 * SIENA_FILTER_US
    assert siena.time_us("b1", said(Unsubscribe(7))) == 3 * SIENA_FILTER_US
    assert siena.time_us("b1", published({"price": 20})) == SIENA_FILTER_US  # the widest only
    assert siena.time_us("b1", published({"price": 1})) == 3 * SIENA_FILTER_US


def test_an_update_is_looked_up_however_many_filters_there_are() -> None:
    times = {}
    for is_linear in (False, True):
        siena = SienaService(is_linear=is_linear)
        poset = siena.posets["b1"] = PosetSelector()
        for key in range(10):
            poset.add(key, parse_filter(f"price < {key}"), {}, destination=key)
        times[is_linear] = siena.time_us("b1", said(Update(0, {"0": 9}, 1)))
    assert times == {
        False: UPDATE_FILTERS * SIENA_FILTER_US,
        True: 10 * SIENA_FILTER_US,
    }


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["HTM", "AT", "scaling"])
def test_brokers_of_each_engine_deliver_what_matches(name: str, engine: str) -> None:
    load = workload(name, Randomness(1))
    routing, service = broking(engine, load, parametric=True)
    network = Network.of(load.topology, routing, seed=1, service=service)
    network.run()
    alice = network.client("alice", load.subscribers[0])
    alice.subscribe("price < :limit", {"limit": 10})
    network.run()
    start_us = network.agenda.now_us
    network.client("bob", load.publishers[0]).publish({"price": 9}, {"price": 11})
    network.run()
    (delivery,) = alice.received
    assert delivery.event == {"price": 9}
    assert delivery.time_us > start_us


def test_workloads_have_the_numbers_of_the_paper() -> None:
    highway, trading = (workload(name, Randomness(1)) for name in ("HTM", "AT"))
    scaling = workload("scaling", Randomness(1))
    assert {len(each.topology.brokers) for each in (highway, trading, scaling)} == {BROKERS}
    assert (len(highway.publishers), highway.types) == (200, 20)
    assert (len(trading.publishers), len(trading.subscribers), trading.types) == (5, 150, 200)
    assert (len(scaling.publishers), len(scaling.subscribers), scaling.types) == (100, 150, 200)
    assert trading.topology.is_tree
    assert not highway.topology.is_tree
    assert workload("HTM", Randomness(1), subscribers=40).rate_of_one(100) == 50  # two a broker
    assert scaling.rate_of_one(100) == 100


def test_in_trading_at_least_three_brokers_are_between_publishers_and_subscribers() -> None:
    load = workload("AT", Randomness(1))
    above = {below: up for up, below in load.topology.edges}

    def way_up(broker: str) -> list[str]:
        return [broker, *(way_up(above[broker]) if broker in above else [])]

    for one in set(load.publishers):
        for other in set(load.subscribers):
            ways = way_up(one), way_up(other)
            common = [each for each in ways[0] if each in ways[1]]
            links = sum(len(way) for way in ways) - 2 * len(common)
            assert links >= 4


@pytest.mark.parametrize("name", WAYS)
def test_after_each_change_the_newest_value_alone_is_in_force(name: str) -> None:
    load = workload("AT", Randomness(1))
    routing, _ = broking(RETE, load, parametric=name == UPD)
    network = Network.of(load.topology, routing, seed=1)
    alice = network.client("alice", load.subscribers[0])
    key = alice.subscribe("x <= :x", {"x": 1})
    network.run()
    for value in (9, 5):
        key = WAYS[name](alice, key, "x <= :x", value)
    network.run()
    assert (alice.wants({"x": 5}), alice.wants({"x": 6})) == (True, False)
    bob = network.client("bob", load.publishers[0])
    bob.publish({"x": 5}, {"x": 6})
    network.run()
    assert ([each.event for each in alice.received], alice.spurious) == ([{"x": 5}], 0)
