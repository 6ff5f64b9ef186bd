"""Events wait while the tree of a graph changes; see docs/concepts/routing.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from benchmarks.healing_network import hierarchy
from palio.language.parsing import parse_filter
from palio.model.events import to_batch
from palio.node import publish_barrier
from palio.node.effects import Moment, Report, Send
from palio.node.limits import HELD_BEATS
from palio.node.loss_reports import QUIET_SWEEPS, TIMEOUT_SWEEPS
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.settings import Settings
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    UNCOUNTED,
    Accepted,
    Bye,
    Deliver,
    Digest,
    Forward,
    Gaps,
    Hello,
    Message,
    Parcel,
    Ping,
    Publish,
    Route,
    StreamAck,
    Subscribe,
)
from palio.routing import messages as routing
from palio.routing.algorithms import find_algorithm
from palio.routing.general import General
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology, connected_random
from palio.simulation.world import World
from tests.conftest import seeds
from tests.node.events import parcel

CLIENT, NEIGHBOUR = 1, 2
SETTINGS: Final = Settings(heartbeat_s=1.0, window_bytes=1 << 30)
QUICK: Final = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)
NOW_AND_THEN_S: Final = SETTINGS.heartbeat_s / 5


class Broker:
    """`b2`, whose tree is its link to `b1`, with a client that publishes."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.at = Moment(0.0, 1)
        self.node = Node("b2", General("b2"), MemoryStore(), settings=settings)
        self.node.start(self.at)
        self.sent: list[Message] = []
        """What the neighbour was sent."""
        self.answers: list[Message] = []
        """What the client was."""
        self.reports: list[Report] = []
        self.node.accept(CLIENT, self.at)
        self.say(CLIENT, Hello("client", "alice", PROTOCOL_VERSION, incarnation="1"))
        self.node.accept(NEIGHBOUR, self.at)
        self.say(NEIGHBOUR, Hello("broker", "b1", PROTOCOL_VERSION))
        self.say(NEIGHBOUR, Digest({}))
        everything = routing.Subscribe(0, parse_filter("EXISTS x"))
        self.hear(
            routing.LinkState("b1", 1, ("b2",)),
            routing.TreePlan("b1", 1, (("b1", "b2"),)),
            routing.Join(),
            routing.Batch((everything,), fresh=True),
        )
        self.numbers = iter(range(1, 1_000_000))

    def say(self, link: int, message: Message) -> None:
        self._note(self.node.receive(link, message, self.at))

    def _note(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                (self.answers if effect.link == CLIENT else self.sent).append(effect.message)
            elif isinstance(effect, Report):
                self.reports.append(effect)

    def hear(self, *controls: routing.Control) -> None:
        for control in controls:
            self.say(NEIGHBOUR, Route(control))

    def change(self) -> None:
        """The tree is to change, as far as this broker knows."""
        self.hear(routing.TreePlan("b1", 2, (("b1", "b2"),), calm=True))

    def end(self) -> None:
        """All others have reached all rounds."""
        self.hear(*(routing.Reached("b1", 2, each) for each in (0, 1)))

    def publish(self, event: Mapping[str, Any]) -> None:
        number = next(self.numbers)
        self.say(CLIENT, Publish(Parcel.of("", to_batch(event)), number))

    def subscribe(self, text: str) -> None:
        self.say(CLIENT, Subscribe(1, 1, text))

    def tick(self) -> None:
        self._note(self.node.tick(self.at))

    def rest(self) -> None:
        """As many ticks as the broker wants at once."""
        while self.node.wake_at <= self.at.now:
            self.tick()

    def wait(self, seconds: float) -> None:
        """Time passes; both others are there."""
        until = self.at.now + seconds
        while self.at.now < until:
            self.at = Moment(min(until, self.at.now + NOW_AND_THEN_S), 1)
            for link in (CLIENT, NEIGHBOUR):
                self.say(link, Ping())
            self.rest()

    @property
    def forwarded(self) -> list[int]:
        return [each.parcel.numbers[0] for each in self.sent if isinstance(each, Forward)]

    @property
    def accepted(self) -> list[int]:
        return [each.seq for each in self.answers if isinstance(each, Accepted)]


def test_events_wait_for_the_change_and_then_go_in_order() -> None:
    broker = Broker()
    broker.publish({"x": 1})
    broker.change()
    for number in (2, 3):
        broker.publish({"x": number})
    broker.rest()
    assert broker.forwarded == [1]
    assert broker.accepted == [1, 2, 3]
    broker.end()
    broker.publish({"x": 4})
    broker.rest()
    assert broker.forwarded == [1, 2, 3, 4]
    assert rounds_in(broker.sent) == [0, 1]


def test_who_has_published_may_go_before_the_events_do() -> None:
    broker = Broker()
    broker.change()
    broker.publish({"x": 1})
    broker.say(CLIENT, Bye("closed"))
    broker.end()
    broker.rest()
    assert broker.forwarded == [1]


def test_a_broker_that_says_goodbye_is_waited_for_no_longer() -> None:
    broker = Broker()
    broker.subscribe("x = 1")
    broker.change()
    broker.publish({"x": 1})
    assert not [each for each in broker.answers if isinstance(each, Deliver)]
    broker.say(NEIGHBOUR, Bye("closed"))
    broker.rest()
    assert [each for each in broker.answers if isinstance(each, Deliver)]


def test_what_comes_from_another_broker_does_not_wait() -> None:
    broker = Broker()
    broker.subscribe("x > 0")
    broker.change()
    broker.say(NEIGHBOUR, Forward(parcel({"x": 7})))
    assert any(isinstance(each, Deliver) for each in broker.answers)


@pytest.mark.parametrize(("at_once", "gone"), [(1, 1), (2, 2), (3, 3)])
def test_only_so_many_go_at_once(at_once: int, gone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_barrier, "HELD_AT_ONCE", at_once)
    broker = Broker()
    broker.change()
    for number in range(1, 8):
        broker.publish({"x": number})
    broker.end()
    broker.tick()
    assert len(broker.forwarded) == gone
    broker.rest()
    assert broker.forwarded == list(range(1, 8))


SIZE: Final = Parcel.of("", to_batch({"x": 1})).stamped("alice/1", 1, 1).held_bytes
"""What an event takes."""


@pytest.mark.parametrize(("room", "answered"), [(-1, 1), (0, 1), (1, 2)])
def test_with_half_of_the_room_taken_publishers_slow_down(
    room: int, answered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is answered at once, and the second if the first left room."""
    monkeypatch.setattr(publish_barrier, "HELD_BYTES", 2 * (SIZE + room))
    broker = Broker()
    broker.change()
    broker.publish({"x": 1})
    broker.publish({"x": 2})
    assert len(broker.accepted) == answered
    broker.end()
    broker.rest()
    assert broker.accepted == [1, 2]


@pytest.mark.parametrize(("room", "is_held"), [(-1, False), (0, True), (1, True)])
def test_with_all_of_it_taken_the_change_is_given_up(
    room: int, is_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_barrier, "HELD_BYTES", 3 * SIZE + room)
    broker = Broker()
    broker.change()
    for number in range(1, 4):
        broker.publish({"x": number})
    broker.rest()
    assert broker.forwarded == ([] if is_held else [1, 2, 3])
    assert [each.event for each in broker.reports].count("tree_change_aborted") == (not is_held)


@pytest.mark.parametrize(("late_s", "is_held"), [(-0.1, True), (0.0, True), (0.3, False)])
def test_what_takes_too_long_is_given_up_and_that_is_told(late_s: float, is_held: bool) -> None:
    broker = Broker()
    broker.subscribe("x > 0")
    broker.wait(1.0)
    broker.change()
    broker.publish({"x": 1})
    broker.wait(NOW_AND_THEN_S + HELD_BEATS * SETTINGS.heartbeat_s + late_s)
    assert broker.forwarded == ([] if is_held else [1])
    assert not any(isinstance(each, Gaps) for each in broker.answers)
    if not is_held:
        broker.wait((TIMEOUT_SWEEPS + QUIET_SWEEPS + 3) * NOW_AND_THEN_S)
        assert any(isinstance(each, Gaps) for each in broker.answers)


def test_that_all_is_still_is_said_behind_the_events_that_wait() -> None:
    """The neighbour has not seen what was sent: events queue, and what its router may not hear
    before them waits with them.
    """
    broker = Broker(Settings(heartbeat_s=1.0, window_bytes=1))
    for number in (1, 2, 3):
        broker.publish({"x": number})
    broker.change()
    sent = len([each for each in broker.sent if type(each) not in UNCOUNTED])
    assert not rounds_in(broker.sent)
    while not rounds_in(broker.sent):
        broker.say(NEIGHBOUR, StreamAck(sent))
        now = len([each for each in broker.sent if type(each) not in UNCOUNTED])
        assert now > sent
        sent = now
    assert broker.forwarded == [1, 2, 3]
    assert isinstance(broker.sent[-1], Route)


def rounds_in(messages: list[Message]) -> list[int]:
    return [
        each.control.round
        for each in messages
        if isinstance(each, Route) and isinstance(each.control, routing.Reached)
    ]


def is_connected(topology: Topology, gone: set[str]) -> bool:
    brokers = tuple(each for each in topology.brokers if each not in gone)
    edges = tuple(edge for edge in topology.edges if not gone & set(edge))
    return Topology(brokers, edges).is_connected


@pytest.mark.parametrize("seed", seeds(1, nightly=20))
def test_a_broker_that_is_told_to_stop_costs_nobody_an_event(seed: int) -> None:
    """One after the other leaves, under load: all is heard, once, in the order of each."""
    topology = connected_random(9, 8, Randomness(seed))
    world = World.of(topology, General, seed=seed, settings=QUICK)
    listeners = {name: world.client(f"listener at {name}", name) for name in topology.brokers}
    publishers = {name: world.client(f"publisher at {name}", name) for name in topology.brokers}
    for listener in listeners.values():
        listener.subscribe("x >= 0")
    world.run(8.0)
    for listener in listeners.values():
        listener.gaps.clear()
    gone: set[str] = set()
    published: list[tuple[str, int]] = []

    def load(count: int) -> None:
        for _ in range(count):
            name = sorted(publishers)[len(published) * 5 % len(publishers)]
            published.append((f"{publishers[name].name}/1", publishers[name].publish({"x": 1})))
            world.run(0.007)

    for _ in range(3):
        leaving = [each for each in sorted(publishers) if is_connected(topology, gone | {each})]
        name = Randomness(seed + len(gone)).choice(leaving)
        publishers.pop(name).vanish()
        load(20)
        world.host(name).leave()
        while not world.host(name).machine.is_free_to_go:
            load(1)
        assert not [gap for each in listeners.values() for gap in each.gaps]
        world.host(name).close("it stops")
        world.kill(name)
        del listeners[name]
        gone.add(name)
        load(40)
        world.run(5.0)
        for listener in listeners.values():
            listener.gaps.clear()  # that somebody is gone is told
    for listener in listeners.values():
        got = [(publisher, number) for publisher, number, _ in listener.heard]
        assert len(got) == len(set(got)), f"seed {seed}"
        for publisher in publishers.values():
            mine = f"{publisher.name}/1"
            assert [each for each in got if each[0] == mine] == [
                each for each in published if each[0] == mine
            ], f"seed {seed}"


def test_nobody_waits_for_a_broker_that_starts_again_at_once() -> None:
    """It decides on a tree by itself before it is linked to all its neighbours."""
    shape = hierarchy(31)
    algorithm = find_algorithm("proxies")
    world = World(settings=Settings(routing="proxies", discovery=True))
    for name in shape.names:
        world.add_broker(name, lambda broker: algorithm.new(broker, incarnation=world.at.wall_us))
    for edge in shape.links:
        world.connect(*edge)
    world.run(10.0)
    world.kill("b3")
    world.run(1.0)
    world.start("b3")
    world.run(3.0)
    changing = [name for name, node in world.nodes.items() if node._core.router.is_changing]
    assert changing == []
