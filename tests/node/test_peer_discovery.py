"""Brokers that have lost a neighbour find others."""

from __future__ import annotations

import pytest

from palio.node import peer_discovery
from palio.node.effects import Dial, Effect, Moment, Send, StopDialing
from palio.node.fact_verifier import ADDRESS, LINKS
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import PutFacts
from palio.node.settings import Settings
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Advertise, Fact, Hello, Message
from palio.routing.acyclic import Acyclic
from palio.routing.algorithms import find_algorithm
from palio.routing.general import General
from palio.simulation.cluster import NodeRouter, address_of
from palio.simulation.topologies import Topology, line, ring, star
from palio.simulation.world import World
from tests.node.events import links_of

SETTINGS = Settings(routing="general", discovery=True)

NOW_US = 1_700_000_000_000_000


def world_of(topology: Topology, routing: str = "general") -> World:
    router: NodeRouter = find_algorithm(routing).new
    settings = Settings(routing=routing, discovery=True)
    return World.of(topology, router, settings=settings)


def said(world: World, event: str, by: str = "") -> list[object]:
    return [
        report.details.get("broker")
        for name, report in world.reports
        if report.event == event and by in ("", name)
    ]


@pytest.mark.parametrize("routing", ["general", "general-advertised", "source-trees", "proxies"])
def test_the_ends_of_a_line_find_each_other_until_its_middle_is_back(routing: str) -> None:
    world = world_of(line(3), routing)
    alice, bob = world.client("alice", "b1"), world.client("bob", "b3")
    alice.subscribe("x > 1")
    if routing == "general-advertised":
        bob.ask(lambda id: Advertise(id, 1, "x > 0"))
    world.run(1.0)
    world.kill("b2")
    world.run(2.5)  # a heartbeat until it is missed, a look, and a round of handshake
    assert links_of(world, "b1") == ["b3"]
    bob.publish({"x": 1}, {"x": 2})
    world.run(1.0)
    assert [row["x"] for _, _, row in alice.heard] == [2]
    world.start("b2")
    world.run(10.0)
    assert links_of(world, "b1") == links_of(world, "b3") == ["b2"]
    assert len(said(world, "fallback_link_closed")) == 1
    bob.publish({"x": 3})
    world.run(1.0)
    assert [row["x"] for _, _, row in alice.heard] == [2, 3]


def test_the_leaves_of_a_star_find_each_other_without_all_dialling_one() -> None:
    world = world_of(star(13))
    world.kill("b1")
    world.run(4.0)
    leaves = list(world.nodes)
    assert len(said(world, "fallback_link_opened")) < 2 * len(leaves)
    assert max(len(links_of(world, name)) for name in leaves) < 6
    listener = world.client("alice", leaves[0])
    listener.subscribe("TRUE")
    world.run(1.0)
    for number, name in enumerate(leaves):
        world.client(f"p{number}", name).publish({"x": number})
    world.run(1.0)
    assert sorted(row["x"] for _, _, row in listener.heard) == list(range(len(leaves)))
    world.start("b1")
    world.run(60.0)
    assert {name: links_of(world, name) for name in leaves} == {name: ["b1"] for name in leaves}


def test_who_has_another_way_to_all_others_looks_for_nobody() -> None:
    world = world_of(ring(4))
    world.cut("b1", "b2")
    world.run(20.0)
    assert said(world, "discovery_started") == []
    world.kill("b3")
    world.run(20.0)  # b3 itself is dialled, as one does
    assert set(said(world, "discovery_started", "b4")) == {"b3"}
    assert links_of(world, "b2") == ["b4"]


def test_a_link_that_breaks_again_and_again_and_is_back_at_once_is_not_missed() -> None:
    world = world_of(line(3))
    for _ in range(12):
        world.drop("b1", "b2")
        world.run(0.23)  # it is dialled again after 0.2 s
    assert said(world, "discovery_started") == []
    assert "peer_down" not in {report.event for _, report in world.reports}


def test_who_is_missed_keeps_no_more_stand_ins_than_lead_to_it() -> None:
    world = world_of(star(4))
    world.cut("b1", "b2")
    world.run(15.0)  # b1 keeps the session until its grace is over
    assert links_of(world, "b2") == ["b3"]
    world.cut("b1", "b3")
    world.run(15.0)
    assert links_of(world, "b2") == ["b3", "b4"]
    world.heal("b1", "b3")  # b2 misses b1 still, and either of the two leads there
    world.run(10.0)
    assert links_of(world, "b2") == ["b3"]
    assert said(world, "fallback_link_closed") == ["b4"]
    world.heal("b1", "b2")
    world.run(10.0)
    assert links_of(world, "b2") == ["b1"]


def test_a_stand_in_that_starts_again_is_found_again() -> None:
    world = world_of(line(3))
    world.kill("b2")
    world.run(3.0)
    finder = "b1" if said(world, "fallback_link_opened", "b1") else "b3"
    world.kill(finder)
    world.run(5.0)
    world.start(finder)
    world.run(5.0)
    assert links_of(world, "b1") == ["b3"]
    world.start("b2")
    world.run(15.0)
    assert links_of(world, "b1") == links_of(world, "b3") == ["b2"]


def test_a_broker_that_reaches_nobody_as_it_starts_dials_whom_it_remembers() -> None:
    world = world_of(line(3))
    for name in ("b2", "b1"):
        world.kill(name)
    world.start("b1")
    world.run(4.0)
    assert links_of(world, "b1") == ["b3"]


def test_whoever_answers_must_be_whom_was_looked_for_and_a_lie_is_dialled_less_and_less() -> None:
    world = world_of(Topology(("b1", "b2", "b3", "b4"), (("b1", "b2"), ("b2", "b3"))))
    world.kill("b3")
    world.addresses["b3"] = address_of("b4")  # which is in no network
    world.start("b3")
    world.cut("b3", "b1")
    world.run(5.0)
    world.kill("b2")
    world.run(300.0)
    assert links_of(world, "b1") == links_of(world, "b4") == []
    reasons = [
        str(each.details["reason"])
        for _, each in world.reports
        if each.event == "connection_rejected"
    ]
    lies = [each for each in reasons if "'b3' is expected there" in each]
    assert 3 <= len(lies) <= 12
    assert len(said(world, "discovery_started", "b1")) < 30


def test_where_a_tree_is_needed_nobody_is_looked_for() -> None:
    world = World.of(line(3), Acyclic, settings=Settings(routing="acyclic", discovery=True))
    world.kill("b2")
    world.run(10.0)
    assert said(world, "discovery_started") == []


# --- one node, and what it dials ---


def knowing(*facts: Fact, settings: Settings = SETTINGS) -> Node:
    """A broker that remembers facts, alone."""
    store = MemoryStore()
    store.write((PutFacts(facts),))
    node = Node("b1", General("b1"), store, settings=settings)
    node.start(Moment(0.0, NOW_US))
    return node


def calls_of(node: Node, seconds: float, own: str = "palio://b1:1") -> list[str]:
    """What it dials, if nobody ever answers."""
    dialled: list[str] = []
    open_now: dict[str, None] = {}

    def perform(effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Dial):
                dialled.append(effect.url)
                open_now[effect.url] = None
            elif isinstance(effect, StopDialing):
                del open_now[effect.url]
        assert len(open_now) <= peer_discovery.CALLS

    perform(node.reachable_at(own, Moment(0.0, NOW_US)))
    for step in range(round(seconds * 10)):
        at = Moment(step / 10, NOW_US + step * 100_000)
        perform(node.tick(at))
        for url in list(open_now):
            perform(node.unreachable(url, "refused", at))
    return dialled


def told(name: str, url: str) -> Fact:
    return Fact(name, 1, ADDRESS, filter=url)


def test_of_many_that_nobody_can_reach_few_are_dialled_in_a_time() -> None:
    made_up = [told(f"x{n}", f"palio://x{n}:7400") for n in range(500)]
    dialled = calls_of(knowing(*made_up), 60.0)
    assert (
        peer_discovery.FAST_CALLS
        <= len(dialled)
        <= peer_discovery.FAST_CALLS + 60 / peer_discovery.PACE_S
    )
    assert len(set(dialled)) == len(dialled)


def test_one_that_never_answers_is_dialled_less_and_less_often() -> None:
    dialled = calls_of(knowing(told("b2", "palio://b2:7400")), 600.0)
    least = 600.0 / (peer_discovery.MAX_REST_S + 2)
    assert least <= len(dialled) <= least + 8


def test_neighbours_of_who_is_lost_come_first_and_that_one_last() -> None:
    names = ["b2", *(f"x{n}" for n in range(8))]
    facts = [told(name, f"palio://{name}:7400") for name in names]
    facts.append(Fact("b1", 1, LINKS, ("b2",)))
    facts.append(Fact("b2", 2, LINKS, ("b1", "x6", "x3")))
    dialled = [url.split(":")[1].strip("/") for url in calls_of(knowing(*facts), 7.0)]
    assert {*dialled[:2]} == {"x3", "x6"}
    assert dialled[len(names) - 1] == "b2"


@pytest.mark.parametrize(
    ("own", "url", "peers"),
    [
        ("palios://b1:1", "palio://b2:7400", ()),  # TLS would be left out
        ("palio://b1:1", "palio://b1:1", ()),  # itself
        ("palio://b1:1", "palio://b2:7400", ("palio://b2",)),  # dialled anyway
        ("palio://b1:1", "nonsense", ()),
        ("palio://b1:1", "", ()),
    ],
)
def test_some_addresses_are_not_dialled(own: str, url: str, peers: tuple[str, ...]) -> None:
    settings = Settings(routing="general", discovery=True, peers=peers)
    assert calls_of(knowing(told("b2", url), settings=settings), 10.0, own) == []
    assert calls_of(knowing(told("b2", "palios://b2:2")), 10.0, own)


def test_who_is_not_to_look_dials_nobody() -> None:
    settings = Settings(routing="general", discovery=False)
    assert calls_of(knowing(told("b2", "palio://b2:1"), settings=settings), 10.0) == []


def test_of_those_who_look_for_a_way_few_are_taken_and_none_that_is_reached() -> None:
    world = world_of(line(3))
    node = world.nodes["b1"]

    def call(link: int, name: str, *, seeks: bool) -> str:
        node.accept(link, world.at)
        hello = Hello("broker", name, PROTOCOL_VERSION, nonce="n", seeks=seeks)
        sent = [each for each in node.receive(link, hello, world.at) if isinstance(each, Send)]
        return type(next(each.message for each in sent if each.link == link)).__name__

    assert call(900, "b3", seeks=True) == "Bye"
    calls = [
        call(901 + n, f"x{n}", seeks=True) for n in range(peer_discovery.MAX_ACCEPTED_CALLS + 1)
    ]
    assert calls == ["Welcome"] * peer_discovery.MAX_ACCEPTED_CALLS + ["Bye"]
    assert call(910, "y1", seeks=False) == "Welcome"
    world.run(1.1)  # a heartbeat
    assert call(911, "y2", seeks=True) == "Welcome"
    assert call(912, "b3", seeks=False) == "Welcome"


def test_who_dials_says_whether_it_looks_for_a_way() -> None:
    world = world_of(line(3))
    said: list[tuple[str, bool]] = []

    def note(sender: str, message: Message) -> bool:
        if isinstance(message, Hello):
            said.append((sender, message.seeks))
        return False

    world.spoils = note
    world.drop("b1", "b2")
    world.run(1.0)
    assert {seeks for _, seeks in said} == {False}
    said.clear()
    world.kill("b2")
    world.run(3.0)
    assert ("b1", True) in said or ("b3", True) in said
