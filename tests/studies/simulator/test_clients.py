"""Clients that ask for patterns."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from palio.errors import InvalidInput
from palio.routing.patterns.router import Patterned
from palio.simulation import line
from palio_studies.simulator import Client, Network
from palio_studies.simulator.network import START

WINDOW_MS = 100


def pair() -> tuple[Network, Client, Client]:
    routing = partial(Patterned, window=timedelta(milliseconds=WINDOW_MS))
    network = Network.of(line(2), routing, seed=1)
    alice, bob = network.client("alice", "b1"), network.client("bob", "b2")
    bob.advertise("a IS NOT NULL")
    network.run()
    return network, alice, bob


def test_an_occurrence_carries_its_parts_and_comes_after_the_window() -> None:
    network, alice, bob = pair()
    key = alice.subscribe_pattern("a = 1 THEN a = :then", {"then": 2})
    network.run()
    start = network.now_ms
    bob.publish({"a": 1}, {"a": 2})
    network.run()
    (found,) = alice.found
    assert (found.key, found.time_us) == (key, round((start + WINDOW_MS + 10) * 1000))
    time = START + timedelta(milliseconds=start)
    assert [(each.publisher, each.seq, each.time, each.event["a"]) for each in found.parts] == [
        ("bob", 0, time, 1),
        ("bob", 1, time, 2),
    ]
    assert network.costs.delivered == 1


def test_cancelling_ends_the_covered_ones() -> None:
    network, alice, bob = pair()
    alice.subscribe_pattern("a = 1 THEN a = 2")
    kept = alice.subscribe_pattern("a = 3 THEN a = 2")
    alice.cancel_pattern("a < 3 THEN a IS NOT NULL")
    network.run()
    bob.publish({"a": 1}, {"a": 3}, {"a": 2})
    network.run()
    assert [found.key for found in alice.found] == [kept]


def test_what_was_given_up_a_moment_ago_is_dropped_and_counted() -> None:
    network, alice, bob = pair()
    key = alice.subscribe_pattern("a = 1 THEN a = 2")
    network.run()
    bob.publish({"a": 1}, {"a": 2})
    broker = network.routers["b1"]
    assert isinstance(broker, Patterned)
    alice._patterns.clear()  # gone at the client; at the broker not yet
    network.run()
    assert alice.found == []
    assert network.costs.spurious == 1
    alice.unsubscribe_pattern(key)
    network.run()
    assert all(
        not router.subscriptions
        for router in network.routers.values()
        if isinstance(router, Patterned)
    )


def test_a_pattern_has_then() -> None:
    _, alice, _ = pair()
    with pytest.raises(InvalidInput, match="THEN"):
        alice.subscribe_pattern("a = 1")


def test_a_broker_that_restarts_wakes_again() -> None:
    network, alice, bob = pair()
    bob.publish({"a": 1})
    network.crash("b2")
    network.restart("b2")
    carol = network.client("carol", "b2")
    carol.advertise("a IS NOT NULL")
    alice.subscribe_pattern("a = 1 THEN a = 2")
    network.run()
    carol.publish({"a": 1}, {"a": 2})
    network.crash("b2")  # with a timer running
    network.restart("b2")
    dora = network.client("dora", "b2")
    dora.advertise("a IS NOT NULL")
    network.run()
    dora.publish({"a": 1}, {"a": 2})
    network.run()
    assert [part.publisher for found in alice.found for part in found.parts] == ["dora", "dora"]
