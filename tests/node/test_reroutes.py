"""What was for a neighbour to which the link broke goes round; see docs/concepts/routing.md."""

from __future__ import annotations

import random
from typing import Final

import msgspec
import pytest

from palio.node import reroutes
from palio.node.settings import Settings
from palio.protocol.limits import MAX_DETOUR, MAX_NAME_BYTES, PROTOCOL_VERSION
from palio.protocol.messages import Deliver, Detour, Digest, Forward, Hello, Message, Welcome
from palio.routing.general import General
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology, connected_random, ring
from palio.simulation.world import World
from tests.conftest import NIGHTLY, seeds
from tests.node.events import heard, parcel
from tests.node.test_publish_barrier import NEIGHBOUR, Broker

QUICK: Final = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)


@pytest.mark.parametrize("seed", seeds(1, nightly=20))
def test_a_link_that_fails_costs_nobody_an_event(seed: int) -> None:
    """Where there is another way, all is heard, once, in the order of each publisher."""
    topology = connected_random(9, 8, Randomness(seed))
    world = World.of(topology, General, seed=seed, settings=QUICK)
    listeners = [world.client(f"listener at {name}", name) for name in topology.brokers]
    publishers = [world.client(f"publisher at {name}", name) for name in topology.brokers]
    for listener in listeners:
        listener.subscribe("x >= 0")
    world.run(8.0)
    published: dict[str, list[int]] = {f"{each.name}/1": [] for each in publishers}

    def load(count: int) -> None:
        for step in range(count):
            publisher = publishers[step * 5 % len(publishers)]
            published[f"{publisher.name}/1"].append(publisher.publish({"x": 1}))
            world.run(0.02)

    for edge in topology.edges if NIGHTLY else topology.edges[:3]:
        rest = tuple(each for each in topology.edges if each != edge)
        if not Topology(topology.brokers, rest).is_connected:
            continue
        load(20)
        world.cut(*edge)
        load(200)
        world.run(5.0)
        world.heal(*edge)
        world.run(8.0)
    for listener in listeners:
        for publisher, numbers in published.items():
            got = [number for whose, number, _ in listener.heard if whose == publisher]
            assert got == numbers, f"seed {seed}, {listener.name}, {publisher}"


def test_a_broker_that_has_started_anew_takes_none_of_what_was_for_its_earlier_life() -> None:
    world = World.of(ring(4), General, seed=1, settings=QUICK)
    alice, bob = world.client("alice", "b1"), world.client("bob", "b3")
    alice.subscribe("x >= 0")
    world.run(8.0)
    for number in range(50):
        bob.publish({"x": number})
        world.run(0.01)
        if number == 20:
            world.kill("b1")
            world.start("b1")
    world.run(10.0)
    assert len(heard(alice)) == len(set(heard(alice)))
    assert heard(alice) == sorted(heard(alice))


# --- one broker ---


def arrived(broker: Broker, path: tuple[str, ...] = (), session: str = "s") -> list[Message]:
    """What the client hears of an event that comes by a detour."""
    broker.say(NEIGHBOUR, Forward(parcel({"x": 7}), detour=Detour(path, session)))
    return [each for each in broker.answers if isinstance(each, Deliver)]


def test_of_a_session_that_nobody_had_nothing_is_taken() -> None:
    broker = Broker()
    broker.subscribe("x = 7")
    assert arrived(broker) == []


def test_on_the_way_events_go_to_the_next_broker_and_to_nobody_here() -> None:
    broker = Broker()
    broker.subscribe("x = 7")
    before = len(broker.sent)
    assert arrived(broker, ("b1", "b9")) == []
    (sent,) = (each for each in broker.sent[before:] if isinstance(each, Forward))
    assert sent.detour == Detour(("b9",), "s")
    assert arrived(broker, ("nobody",)) == []
    assert broker.sent[-1] is sent


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_a_detour_has_bounds(beyond: int) -> None:
    for path, session in ((MAX_DETOUR + beyond, 1), (0, MAX_NAME_BYTES + beyond)):
        said = {"path": ["b"] * path, "session": "s" * session}
        if beyond > 0:
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert(said, Detour)
        else:
            assert msgspec.convert(said, Detour) == Detour(("b",) * path, "s" * session)


@pytest.mark.parametrize(("most", "taken"), [(2, 2), (3, 3), (4, 3)])
def test_of_only_so_many_sessions_what_comes_late_is_taken(
    most: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reroutes, "MAX_PARTED", most)
    broker = Broker(Settings(heartbeat_s=1.0, peer_grace_s=1.0))
    broker.subscribe("x = 7")
    for number in range(3):
        link = NEIGHBOUR + 1 + number
        broker.node.accept(link, broker.at)
        broker.say(link, Hello("broker", f"n{number}", PROTOCOL_VERSION))
        broker.say(link, Digest({}))
        broker.node.lost(link, broker.at)
    sessions = [each.session for each in broker.sent if isinstance(each, Welcome)][-3:]
    broker.wait(1.5)
    for number, session in enumerate(sessions, 1):
        events = parcel({"x": 7}, first_seq=number)
        broker.say(NEIGHBOUR, Forward(events, detour=Detour((), session)))
    assert len([each for each in broker.answers if isinstance(each, Deliver)]) == taken


@pytest.mark.parametrize("seed", seeds(2, nightly=100))
def test_a_link_that_breaks_costs_nothing_though_its_ends_give_it_up_one_after_the_other(
    seed: int,
) -> None:
    """Brokers look at their links at times of their own."""
    phases = random.Random(seed)
    topology = ring(4)
    world = World.of(topology, General, seed=seed)
    for broker in topology.brokers:
        world.kill(broker)
        world.run(phases.uniform(0.1, 1.0))
        world.start(broker)
    world.run(10)
    clients = {name: world.client(f"at {name}", name) for name in topology.brokers}
    for client in clients.values():
        client.subscribe("x >= 0")
    world.run(3)
    published = 0
    for one, other in (("b1", "b2"), ("b2", "b3"), ("b3", "b4"), ("b4", "b1")):
        for step in range(400):
            if step == 20:
                world.cut(one, other)
            elif step == 250:
                world.heal(one, other)
            for client in clients.values():
                client.publish({"x": published})
                published += 1
            world.run(0.03)
    world.run(5)
    for name, client in clients.items():
        heard = [row["x"] for _, _, row in client.heard]
        missing = sorted(set(range(published)).difference(heard))
        assert (missing, len(heard)) == ([], published), name
