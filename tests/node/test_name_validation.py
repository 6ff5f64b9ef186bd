"""Names that other brokers tell: what is none ends the link, and goes no further."""

from __future__ import annotations

import pytest

from palio.model.events import stamped, to_batch
from palio.node.effects import Close
from palio.node.fact_verifier import LINKS, REMOVED, TOKEN
from palio.node.name_validation import check_names
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    Carry,
    Detour,
    Digest,
    EntriesStored,
    Fact,
    Facts,
    Forward,
    Hello,
    Message,
    Parcel,
    Probe,
    Route,
    Share,
    Welcome,
)
from palio.routing.messages import Batch, Flood, LinkState, LinkTable, Reached, Settled
from palio.simulation.topologies import line
from palio.simulation.world import World

EVENTS = Parcel("p/1", stamped(to_batch({"x": 1}), 1, 1_000))

EVIL = "a\x1b[2J/../b"


def told(name: str) -> list[Message]:
    """Everything in which a broker names something, with this name in each place."""
    return [
        Facts((Fact(name, 1, LINKS, ("b1",)),)),
        Facts((Fact("b2", 1, LINKS, ("b1", name)),)),
        Facts((Fact("b2", 1, REMOVED + name, (), "", 3),)),
        Facts((Fact("b2", 1, f"alice/{name}", (), "x = 1", 3),)),
        Facts((Fact("b2", 1, f"{name}/orders", (), "x = 1", 3),)),
        Facts((Fact("b2", 1, f"/removed/{name}", (), "", 3),)),
        Facts((Fact("b2", 1, "alice/orders", (name,), "", 3),)),
        Digest({"b1": 1, name: 2}),
        Carry(EVENTS, name, 1, "b1", 1, 2, 0, ()),
        Carry(EVENTS, "b2", 1, name, 1, 2, 0, ()),
        Carry(EVENTS, "b2", 1, "b1", 1, 2, 0, (Share(f"alice/{name}", 1, None),)),
        EntriesStored(name, 1, "b1", 1, 2),
        EntriesStored("b1", 1, name, 1, 2),
        Forward(EVENTS, detour=Detour(("b1", name), "s")),
        Route(Reached(name, 1, 0)),
        Probe(1, EVENTS, (name,)),
        Route(Settled(1, (name,))),
        Route(Settled(1, (f"b1/{name}",))),
        Route(Settled(1, (f"{name}/b1",))),
        Route(LinkState(name, 1, ("b1",))),
        Route(LinkState("b2", 1, (name,))),
        Route(LinkTable((LinkState("b2", 1, ()), LinkState(name, 1, ())))),
        Route(LinkTable((LinkState("b2", 1, ("b1", name)),))),
        Route(Flood(name, ())),
    ]


@pytest.mark.parametrize("message", told("b3"), ids=lambda each: type(each).__name__)
def test_names_are_let_through(message: Message) -> None:
    check_names("b2", message)


def test_a_token_among_facts_is_no_name() -> None:
    check_names("b2", Facts((Fact("b2", 1, TOKEN, ("a.b/c" * 100,)),)))


def test_what_names_nothing_is_not_looked_at() -> None:
    for message in (Forward(EVENTS), Route(Batch(()))):
        check_names("b2", message)


@pytest.mark.parametrize("message", told(EVIL), ids=lambda each: type(each).__name__)
def test_a_neighbour_that_tells_such_a_name_is_cut_and_nothing_is_kept(message: Message) -> None:
    node = World.of(line(1)).nodes["b1"]
    world_at = World().at
    node.accept(900, world_at)
    node.receive(900, Hello("broker", "b2", PROTOCOL_VERSION), world_at)
    node.receive(900, Digest({}), world_at)
    effects = node.receive(900, message, world_at)
    assert any(isinstance(each, Close) and each.link == 900 for each in effects)
    assert not any("\x1b" in fact.origin + fact.subject for fact in facts(node))


def facts(node: object) -> list[Fact]:
    found: list[Fact] = node._core.durability.cluster_state.facts()  # type: ignore[attr-defined]  # of a node
    return found


@pytest.mark.parametrize("name", ["", "..", "a/b", EVIL, "n" * 201])
def test_a_broker_that_answers_under_no_name_is_left(name: str) -> None:
    node = World.of(line(1)).nodes["b1"]
    at = World().at
    node.dial(900, at)
    effects = node.receive(900, Welcome(name, "s", resumed=False, received=0), at)
    assert any(isinstance(each, Close) and each.link == 900 for each in effects)
    assert name not in node.status()["peers"]
