"""Shortcuts of whole brokers: they begin where they pay, and people and brokers are told."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pytest

from palio.language.parsing import parse_filter
from palio.model.filters import TRUE
from palio.node.authority import NamedAuthority, Principal
from palio.protocol.messages import Answer, Ask
from palio.routing.algorithms import find_algorithm
from palio.routing.protocol import Router
from palio.routing.shortcuts import Price
from palio.simulation.doors import Doors
from palio.simulation.member import Member
from palio.simulation.topologies import ring
from palio.simulation.world import World
from tests.node.test_grants import everything

PRICE: Final = Price(window_s=2.0)


def new_router(name: str, *, price: Price | None = PRICE) -> Router:
    """The root of the ring is b1, so that the tree does without the link between b2 and b3."""
    return find_algorithm("proxies").new(name, has_parent=name != "b1", shortcuts=price)


def said(world: World) -> list[tuple[str, str, str]]:
    return [
        (name, each.event, each.details["broker"])
        for name, each in world.reports
        if each.event.startswith("shortcut")
    ]


def member(world: World, name: str) -> Member:
    found = world.clients[name]
    assert isinstance(found, Member)
    return found


def told(world: World) -> dict[str, list[str]]:
    """The shortcuts that a broker far from them knows of."""
    asker = member(world, "asker") if "asker" in world.clients else world.client("asker", "b1")
    world.run(1.0)
    id = asker.ask(lambda id: Ask(id, "topology"))
    world.run(1.0)
    answer = asker.answers[id]
    assert isinstance(answer, Answer)
    brokers: dict[str, dict[str, Any]] = answer.data["brokers"]
    return {name: each["shortcuts"] for name, each in brokers.items() if each["shortcuts"]}


def traffic(world: World, seconds: int) -> None:
    publisher = member(world, "publisher")
    for _ in range(5 * seconds):
        publisher.publish({"x": len(member(world, "listener").heard)})
        world.run(0.2)


def of_ring(**options: Any) -> World:
    world = World.of(ring(6), partial(new_router), **options)
    world.client("listener", "b3").subscribe("EXISTS x")
    world.client("publisher", "b2")
    world.run(5.0)
    return world


def test_a_shortcut_is_there_as_long_as_it_pays() -> None:
    world = of_ring()
    listener = member(world, "listener")
    assert told(world) == {}
    traffic(world, 5)
    assert said(world) == [("b3", "shortcut_opened", "b2")]
    assert told(world) == {"b3": ["b2"]}
    count = len(listener.heard)
    member(world, "publisher").publish({"x": count})
    world.run(0.035)  # two clients and a link, and not five links
    assert len(listener.heard) == count + 1
    world.run(5.0)
    assert said(world)[1:] == [("b3", "shortcut_closed", "b2")]
    assert told(world) == {}
    assert [row["x"] for _, _, row in listener.heard] == list(range(26))


def test_none_is_there_without_a_price() -> None:
    world = World.of(ring(6), partial(new_router, price=None))
    world.client("listener", "b3").subscribe("EXISTS x")
    world.client("publisher", "b2")
    world.run(5.0)
    traffic(world, 5)
    assert said(world) == []


@pytest.mark.parametrize(
    "limited",
    [
        ("b2", Principal("b3", TRUE, parse_filter("x < 5"), may_link=True)),
        ("b3", Principal("b2", parse_filter("x < 5"), TRUE, may_link=True)),
    ],
    ids=["may not hear all", "may not bring all"],
)
def test_with_a_neighbour_of_less_rights_there_is_none(limited: tuple[str, Principal]) -> None:
    """What it may not hear or bring comes over the tree, behind what would have come straight."""
    where, principal = limited

    def authority(broker: str) -> NamedAuthority:
        names = [*(f"b{number + 1}" for number in range(6)), "listener", "publisher", "asker"]
        grants = {name: everything(name) for name in names}
        return NamedAuthority(grants | ({principal.name: principal} if broker == where else {}))

    world = of_ring(doors=Doors(authority, certificates=True))
    traffic(world, 5)
    assert said(world) == []
    assert [row["x"] for _, _, row in member(world, "listener").heard] == list(range(25))
