"""The virtual network: faults, costs, and the promise that one seed gives one trace."""

from __future__ import annotations

import pytest

from palio.errors import InvalidInput
from palio.routing.acyclic import Acyclic, Hierarchical
from palio.routing.general import General
from palio.simulation import line, ring, star, tree
from palio_studies.parametric_runs import SteadyWork
from palio_studies.simulator import Delivery, Link, Network


def test_messages_take_the_time_of_their_links() -> None:
    network = Network.of(line(3), seed=1, link=Link(latency_ms=5))
    alice, bob = network.client("alice", "b1"), network.client("bob", "b3")
    alice.subscribe("a = 1")
    network.run()
    start = network.now_ms
    bob.publish({"a": 1})
    network.run()
    assert [each.time_us for each in alice.received] == [round((start + 10) * 1000)]


def test_a_message_costs_the_price_of_each_link_or_1_if_it_has_none() -> None:
    network = Network.of(line(1), Acyclic)
    ways = [Link(price=2.5), Link(price=1.0), Link(), Link(price=0.0)]
    alice = network.client("alice", "b1", ways)
    network.run()
    before = network.costs.priced
    alice.publish({"n": 1})
    network.run()
    assert network.costs.priced - before == 4.5


def test_clients_may_be_away_from_their_brokers() -> None:
    network = Network.of(line(3), seed=1, link=Link(latency_ms=5), client_ms=7)
    alice, bob = network.client("alice", "b1"), network.client("bob", "b3")
    alice.subscribe("a < :x", {"x": 2})
    network.run()
    start = network.now_ms
    for number in range(3):
        bob.publish({"a": number})
    network.run()
    assert [each.event["a"] for each in alice.received] == [0, 1]
    assert {each.time_us for each in alice.received} == {round((start + 7 + 10 + 7) * 1000)}


def test_what_is_under_way_when_a_subscriber_narrows_is_spurious() -> None:
    network = Network.of(line(2), seed=1, link=Link(latency_ms=5), client_ms=5)
    alice, bob = network.client("alice", "b1"), network.client("bob", "b2")
    key = alice.subscribe("a < :x", {"x": 2})
    network.run()
    bob.publish({"a": 1})
    network.run(network.now_ms + 12)  # it has left the last broker
    alice.update(key, x=0)
    network.run()
    assert (alice.received, network.costs.spurious) == ([], 1)


def test_nothing_reaches_a_client_that_has_left_nor_comes_from_it() -> None:
    network = Network.of(line(2), seed=1, client_ms=5)
    alice, bob = network.client("alice", "b1"), network.client("bob", "b2")
    alice.subscribe("a = 1")
    network.run()
    bob.publish({"a": 1})
    network.leave(bob)
    network.run()
    assert alice.received == []
    bob = network.client("bob", "b2")
    bob.publish({"a": 1})
    network.run(network.now_ms + 6)
    network.leave(alice)
    network.run()
    assert alice.received == []


def test_a_cut_loses_what_is_on_its_way_and_heals() -> None:
    network = Network.of(line(2), seed=1)
    alice, bob = network.client("alice", "b1"), network.client("bob", "b2")
    alice.subscribe("a = 1")
    network.run()
    bob.publish({"a": 1})
    network.cut("b1", "b2")
    network.run()
    assert alice.received == []
    assert network.costs.lost == 1
    network.heal("b2", "b1")
    network.run()
    bob.publish({"a": 1})
    network.run()
    assert len(alice.received) == 1


def test_a_crash_forgets_and_a_restart_learns_again() -> None:
    network = Network.of(line(3), seed=1)
    alice, bob = network.client("alice", "b1"), network.client("bob", "b3")
    alice.subscribe("a = 1")
    network.run()
    network.crash("b2")
    network.run()
    bob.publish({"a": 1})
    network.run()
    assert alice.received == []
    network.restart("b2")
    network.run()
    bob.publish({"a": 1})
    network.run()
    assert len(alice.received) == 1


def test_a_planned_fault_comes_before_what_else_is_due() -> None:
    network = Network.of(line(2), seed=1)
    network.client("alice", "b1").subscribe("a = 1")
    network.at(10, lambda: network.cut("b1", "b2"))
    network.run()
    assert network.costs.lost == 3  # both first words and the subscription


def test_in_a_hierarchy_the_first_end_is_the_master() -> None:
    network = Network.of(tree(3), Hierarchical, seed=1)
    network.client("alice", "b2").subscribe("a = 1")
    network.run()
    publisher = network.client("publisher", "b3")
    publisher.publish({"a": 1}, {"a": 2})
    network.run()
    assert network.costs.notifications == 3
    assert network.costs.stray == 0


def test_brokers_work_on_one_message_at_a_time() -> None:
    network = Network.of(star(4), Acyclic, seed=1, service=SteadyWork(2000, 2000, lines=1))
    for name in ("b2", "b3", "b4"):
        network.client(f"at-{name}", name)
    network.run()
    start = network.now_ms
    for client in network.clients.values():
        client.subscribe(f"a = '{client.name}'")
    network.run()
    assert (
        network.now_ms - start == 2 + 10 + 3 * 2 + 10 + 2
    )  # each its own client, b1 three, then each of the others its last


def test_a_client_that_leaves_is_delivered_nothing() -> None:
    network = Network.of(ring(4), General, seed=1)
    alice, bob = network.client("alice", "b1"), network.client("bob", "b3")
    alice.subscribe("a = 1")
    network.run()
    bob.publish({"a": 1})
    network.leave(alice)
    network.run()
    assert alice.received == []
    bob.publish({"a": 1})
    before = network.costs.notifications
    network.run()
    assert network.costs.notifications == before


@pytest.mark.parametrize("what", ["broker", "client"])
def test_names_are_taken_once(what: str) -> None:
    network = Network.of(line(1), seed=1)
    network.client("alice", "b1")
    with pytest.raises(InvalidInput, match="choose another name"):
        network.add_broker("b1") if what == "broker" else network.client("alice", "b1")


def test_who_counts_crossings_is_told_of_each_with_its_ends() -> None:
    network = Network.of(line(2), seed=1, link=Link(latency_ms=5))
    seen: list[tuple[str, str, str]] = []
    network.on_crossing = lambda source, target, message: seen.append(
        (source, target, type(message).__name__)
    )
    away = network.client("away", "b1", [Link(), Link()])
    here = network.client("here", "b2")
    network.run()
    seen.clear()  # what brokers told each other when they met
    away.subscribe("a = 1")
    network.run()
    here.publish({"a": 1})
    network.run()
    assert seen == [
        ("away", "b1", "Batch"),
        ("b1", "b2", "Batch"),
        ("b2", "b1", "RowParcel"),
        ("b1", "away", "RowParcel"),
    ]


def test_an_application_hears_of_each_event_that_its_client_takes() -> None:
    network = Network.of(line(2), seed=1)
    alice, bob = network.client("alice", "b1"), network.client("bob", "b2")
    heard: list[Delivery] = []
    key = alice.subscribe("a = 1")
    network.run()

    def once(delivery: Delivery) -> None:
        heard.append(delivery)
        network.after(0, lambda: alice.unsubscribe(key))

    alice.on_delivery = once
    bob.publish({"a": 1})
    network.run()
    bob.publish({"a": 1})
    network.run()
    assert heard == alice.received
    assert len(heard) == 1
