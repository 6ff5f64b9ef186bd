"""A broker looks round: at sessions that are away, at leases, and in pieces."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from palio.model.events import to_batch
from palio.node.effects import Close, Effect, Moment, Send
from palio.node.limits import PEER_GRACE_S, PEER_HEARTBEAT_S
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.peers import STEPS
from palio.node.round_trips import FIRST_SAMPLES
from palio.node.settings import Settings
from palio.protocol.limits import PROTOCOL_VERSION, SILENT_BEATS
from palio.protocol.messages import (
    Accepted,
    Bye,
    Deliver,
    Hello,
    Message,
    Parcel,
    Ping,
    Pong,
    Publish,
    StreamAck,
    Subscribe,
    Welcome,
)
from palio.routing.acyclic import Acyclic
from palio.routing.algorithms import find_algorithm
from palio.routing.flooded import Flooded
from palio.routing.general import General
from palio.routing.source_trees import SourceTrees
from palio.simulation.cluster import NodeRouter
from palio.simulation.topologies import Topology, line, ring
from palio.simulation.world import World

QUICK: Final = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)


def world_of(size: int, settings: Settings = QUICK) -> World:
    return World.of(line(size), settings=settings)


def test_a_session_ends_with_its_grace() -> None:
    world = world_of(1)
    member = world.client("a", "b1")
    member.subscribe("x > 0")
    world.run(1.0)
    assert world.nodes["b1"].status()["sessions"] == 1
    member.broker = "nowhere"
    member.cut()
    world.run(QUICK.client_grace_s - 0.5)
    assert world.nodes["b1"].status()["sessions"] == 1
    world.run(1.5)
    assert world.nodes["b1"].status()["sessions"] == 0


def test_a_lease_ends_and_its_owner_is_told() -> None:
    world = world_of(1, settings=msgspec.structs.replace(QUICK, lease_s=10.0))
    owner, publisher = world.client("a", "b1"), world.client("p", "b1")
    key = owner.subscribe("x > 0", durable="d")
    world.run(1.0)
    owner.broker = "nowhere"
    owner.cut()
    publisher.publish({"x": 1}, durable=True)
    world.run(20.0)
    assert [each.details for _, each in world.reports if each.event == "lease_expired"] == [
        {"subscription": "a/d", "entries_lost": 1}
    ]
    owner.broker = "b1"
    world.run(2.0)
    assert [(gap.publisher, gap.key) for gap in owner.gaps] == [("*", key)]


def gathered(count: int, settings: Settings = QUICK) -> tuple[Node, Moment]:
    """A broker with so many clients, each with a subscription, who are all away."""
    at = Moment(0.0, 0)
    node = Node("b1", Acyclic("b1"), MemoryStore(), settings=settings)
    node.start(at)
    for link in range(count):
        node.accept(link, at)
        node.receive(link, Hello("client", f"c{link}", PROTOCOL_VERSION, incarnation="x"), at)
        node.receive(link, Subscribe(1, 1, f"x = {link}"), at)
    return node, at


def ticks(node: Node, at: Moment) -> list[int]:
    """Let the broker look round once, with all the ticks that it wants; sessions after each."""
    found = []
    while node.wake_at <= at.now:
        node.tick(at)
        found.append(node.status()["sessions"])
    return found


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_many_connections_are_looked_at_in_pieces(extra: int) -> None:
    node, _ = gathered(2 * STEPS + extra)
    assert len(ticks(node, Moment(1.0, 0))) == (2 if extra < 0 else 3)
    assert node.wake_at > 1.0


def test_many_sessions_end_in_pieces() -> None:
    count = STEPS
    node, at = gathered(count)
    for link in range(count):
        node.lost(link, at)
    left = ticks(node, Moment(QUICK.client_grace_s + 1.0, 0))
    assert left == [count // 2, 0, 0]
    assert node.status()["subscriptions"] == 0


def test_a_session_that_comes_back_while_others_end_goes_on() -> None:
    count = STEPS
    node, at = gathered(count)
    last = node._core.sessions["session-1000"]
    for link in range(count):
        node.lost(link, at)
    at = Moment(QUICK.client_grace_s + 1.0, 0)
    node.tick(at)
    node.accept(count, at)
    again = Hello("client", last.owner, PROTOCOL_VERSION, session=last.id, incarnation="x")
    node.receive(count, again, at)
    assert ticks(node, at)[-1] == 1
    assert last.link == count


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_session_of_many_subscriptions_leaves_the_tables_in_pieces(extra: int) -> None:
    count = STEPS + extra
    node, at = gathered(1)
    peer = node._core.sessions["session-1"].peer
    for key in range(2, count + 1):
        node.receive(0, Subscribe(key, key, f"x >= {key}"), at)
        node.receive(0, StreamAck(key), at)
    node.accept(1, at)
    node.receive(1, Hello("client", "other", PROTOCOL_VERSION, incarnation="x"), at)
    node.receive(1, Subscribe(1, 1, "x = 7"), at)
    due = node.wake_at
    node.receive(0, Bye("closed"), at)
    assert (node.status()["sessions"], node.status()["subscriptions"]) == (1, 1)
    batch = Publish(Parcel.of("", to_batch({"x": 7})), 1)
    sent = [each.message for each in node.receive(1, batch, at) if isinstance(each, Send)]
    assert [type(each) for each in sent] == [Deliver, Accepted]
    router = node._core.router
    assert isinstance(router, Acyclic)
    pieces = 0
    while node.wake_at <= at.now:
        assert peer in router.peers
        node.tick(at)
        pieces += 1
    assert pieces == (2 if extra > 0 else 0)
    assert peer not in router.peers
    assert node.wake_at == due


# --- neighbours ---

PATIENT: Final = Settings(heartbeat_s=60.0)
"""Brokers with the default, whose clients are asked once a minute."""


def told(world: World, event: str) -> list[tuple[str, str]]:
    """Who has reported an event, of which neighbour."""
    return [
        (name, each.details["peer"].removeprefix("broker "))
        for name, each in world.reports
        if each.event == event
    ]


def test_a_neighbour_from_which_nothing_comes_is_asked_and_then_given_up() -> None:
    world = world_of(2, PATIENT)
    alice = world.client("alice", "b1")
    world.run(5.0)  # it is asked, and answers
    world.delay("b1", "b2", 1_000.0)
    world.delay("alice", "b1", 1_000.0)
    world.run(1.5)
    assert told(world, "heartbeat_timeout") == []
    world.run(2.0)
    assert sorted(told(world, "heartbeat_timeout")) == [("b1", "b2"), ("b2", "b1")]
    assert alice.is_connected


def linked(settings: Settings = PATIENT) -> tuple[Node, list[Message]]:
    """A broker with a neighbour on connection 1, and what that was sent."""
    node, at = Node("b1", General("b1"), MemoryStore(), settings=settings), Moment(0.0, 0)
    node.start(at)
    node.accept(1, at)
    sent = node.receive(1, Hello("broker", "b2", PROTOCOL_VERSION), at)
    return node, [each.message for each in sent if isinstance(each, Send)]


def wait(node: Node, since: float, until: float) -> list[Message]:
    """Let time pass, with all the ticks that the broker wants; what it sends."""
    sent: list[Effect] = []
    while node.wake_at <= until:
        sent += node.tick(Moment(max(since, node.wake_at), 0))
    return [each.message for each in sent if isinstance(each, Send)]


def test_another_broker_is_told_the_heartbeat_of_brokers() -> None:
    (welcome,) = (each for each in linked()[1] if isinstance(each, Welcome))
    assert (welcome.heartbeat_s, welcome.grace_s) == (PEER_HEARTBEAT_S, PEER_GRACE_S)


def test_a_silent_neighbour_is_asked_once_until_it_answers() -> None:
    node, first = linked()
    for number in range(FIRST_SAMPLES - first.count(Ping())):  # how far is it?
        wait(node, 0.0, 0.5)
        node.receive(1, Pong(), Moment(0.5 + 0.01 * number, 0))
    assert Ping() not in wait(node, 0.6, 1.4)
    assert wait(node, 1.4, 2.0).count(Ping()) == 1
    node.receive(1, Pong(), Moment(2.0, 0))
    assert wait(node, 2.0, 3.0).count(Ping()) == 0
    assert wait(node, 3.0, 3.5).count(Ping()) == 1


def test_nobody_is_silent_while_this_broker_was_busy() -> None:
    node, _ = linked()
    due = node.wake_at
    late = due + 10 * SILENT_BEATS * PEER_HEARTBEAT_S
    assert not any(isinstance(each, Close) for each in node.tick(Moment(late, 0)))
    wait(node, late, late + SILENT_BEATS * PEER_HEARTBEAT_S - 0.6)
    assert node.status()["peers"]["b2"]["up"]
    wait(node, late, late + SILENT_BEATS * PEER_HEARTBEAT_S + 0.5)
    assert not node.status()["peers"]["b2"]["up"]


@pytest.mark.parametrize(
    ("shape", "router", "until_s"),
    [
        (ring(4), General, PEER_HEARTBEAT_S),
        *((line(3), router, PEER_GRACE_S) for router in (General, SourceTrees, Flooded)),
    ],
    ids=["another way", "general", "source-trees", "flooded"],
)
def test_a_neighbour_that_is_missed_keeps_its_session_where_no_other_way_leads_to_it(
    shape: Topology, router: NodeRouter, until_s: float
) -> None:
    world = World.of(shape, router, settings=PATIENT)
    world.run(5.0)
    world.cut("b1", "b2")
    world.run(until_s - 0.1)
    assert told(world, "peer_down") == []
    world.run(0.5)
    assert sorted(told(world, "peer_down")) == [("b1", "b2"), ("b2", "b1")]


def test_a_way_over_another_that_is_away_is_none() -> None:
    world = World.of(ring(3), General, settings=PATIENT)
    world.run(5.0)
    world.cut("b1", "b2")
    world.cut("b1", "b3")
    world.run(PEER_GRACE_S - 0.1)
    assert not any(name == "b1" for name, _ in told(world, "peer_down"))


def test_a_connection_that_is_back_within_a_heartbeat_was_not_missed() -> None:
    world = World.of(ring(3), General, settings=PATIENT)
    world.run(5.0)
    for _ in range(5):
        world.cut("b1", "b2")
        world.run(PEER_HEARTBEAT_S - 0.2)
        world.heal("b1", "b2")
        world.run(1.0)
    assert told(world, "peer_down") == []


def test_another_parent_or_root_is_told() -> None:
    new = find_algorithm("proxies").new
    world = World.of(line(4), lambda name: new(name, has_parent=name != "b2"), settings=QUICK)
    world.run(3.0)

    def told(broker: str) -> list[tuple[str, str]]:
        return [
            (report.details["parent"], report.details["root"])
            for name, report in world.reports
            if name == broker and report.event == "parent_changed"
        ]

    assert {name: told(name)[-1:] for name in world.nodes} == {
        "b1": [("b2", "b2")],
        "b2": [],
        "b3": [("b2", "b2")],
        "b4": [("b3", "b2")],
    }
    before = len(world.reports)
    world.run(3.0)
    assert len(world.reports) == before
    world.kill("b2")
    world.run(10.0)
    assert told("b3")[-1] in {("", "b3"), ("b4", "b4")}
