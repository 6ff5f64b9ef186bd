from __future__ import annotations

import pytest

from palio.language.parsing import parse_filter
from palio.model.row_parcels import RowParcel
from palio.routing.messages import Batch, Subscribe, Unsubscribe, Update
from palio.routing.protocol import Peer
from palio.simulation import Network, Randomness
from palio.simulation.inbox import Letter
from palio.simulation.poset_selector import PosetSelector
from palio_studies.parametric_workloads import (
    BROKERS,
    ENGINES,
    RETE_EVENT_US,
    RETE_REQUEST_US,
    SIENA_FILTER_US,
    WAYS,
    SienaService,
    SteadyWork,
    broking,
    workload,
)

CHEAP = parse_filter("price < 10")


def said(*requests: Subscribe | Unsubscribe | Update, fresh: bool = False) -> Letter:
    return Letter("alice", Peer.client("alice"), 0, Batch(requests, fresh))


def published(*events: dict[str, int]) -> Letter:
    return Letter("bob", Peer.client("bob"), 0, RowParcel("bob", events))


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
    assert siena.time_us("b1", published({"price": 20})) == SIENA_FILTER_US  # the widest only
    assert siena.time_us("b1", published({"price": 1})) == 3 * SIENA_FILTER_US


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["HTM", "AT", "scaling"])
def test_brokers_of_each_engine_deliver_what_matches(name: str, engine: str) -> None:
    load = workload(name, Randomness(1))
    routing, service = broking(engine, load, parametric=True, service_us=100)
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


def test_rete_has_the_times_that_the_paper_lets_one_guess() -> None:
    _, service = broking("rete", workload("AT", Randomness(1)), parametric=False)
    assert service.time_us("b1", said(Subscribe(0, CHEAP))) == RETE_REQUEST_US
    assert service.time_us("b1", published({"price": 1})) == RETE_EVENT_US


def test_workloads_have_the_numbers_of_the_paper() -> None:
    highway, trading = (workload(name, Randomness(1)) for name in ("HTM", "AT"))
    scaling = workload("scaling", Randomness(1))
    assert {len(each.topology.brokers) for each in (highway, trading, scaling)} == {BROKERS}
    assert (len(highway.publishers), highway.types) == (200, 20)
    assert (len(trading.publishers), len(trading.subscribers), trading.types) == (5, 150, 200)
    assert (len(scaling.publishers), len(scaling.subscribers), scaling.types) == (100, 150, 200)
    assert trading.is_tree
    assert not highway.is_tree
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
    way = WAYS[name]
    load = workload("AT", Randomness(1))
    routing, _ = broking("steady", load, parametric=way.parametric)
    network = Network.of(load.topology, routing, seed=1)
    alice = network.client("alice", load.subscribers[0])
    key = alice.subscribe("x <= :x", {"x": 1})
    network.run()
    for value in (9, 5):
        key = way.change(alice, key, "x <= :x", value)
    network.run()
    assert (alice.wants({"x": 5}), alice.wants({"x": 6})) == (True, False)
    bob = network.client("bob", load.publishers[0])
    bob.publish({"x": 5}, {"x": 6})
    network.run()
    assert ([each.event for each in alice.received], alice.spurious) == ([{"x": 5}], 0)
