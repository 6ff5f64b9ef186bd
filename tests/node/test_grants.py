"""Grants between honest brokers: what is carried, and what is not, over whole networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from palio.errors import IllegalMessage
from palio.model.filters import TRUE, Filter
from palio.node.authority import NamedAuthority, Principal
from palio.node.custody import Custody
from palio.node.memory import MemoryStore
from palio.node.messages import Done
from palio.node.settings import Settings
from palio.simulation.doors import Doors
from palio.simulation.topologies import line
from palio.simulation.world import Member, World
from tests.matching.test_index import parsed
from tests.node.events import parcel

QUICK = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)


def everything(name: str) -> Principal:
    return Principal(name, TRUE, TRUE, may_link=True)


def network(size: int, **grants: Mapping[str, Principal]) -> World:
    """A line of brokers that know each other by certificates; by broker, whose grants differ."""
    names = [f"b{number + 1}" for number in range(size)] + ["ann", "bob"]

    def authority(broker: str) -> NamedAuthority:
        principals = {name: everything(name) for name in names}
        return NamedAuthority({**principals, **grants.get(broker, {})})

    return World.of(line(size), settings=QUICK, doors=Doors(authority, certificates=True))


def hears(name: str, text: str) -> dict[str, Principal]:
    return {name: Principal(name, TRUE, parsed(text), may_link=True)}


def brings(name: str, filter: Filter) -> dict[str, Principal]:
    return {name: Principal(name, filter, TRUE, may_link=True)}


def subscribed(world: World, at: str) -> Member:
    bob = world.client("bob", at)
    bob.subscribe("EXISTS x", durable="d")
    id = bob.settle()
    world.run(3.0)
    assert bob.answers[id] == Done(id)
    return bob


def heard(member: Member) -> list[Any]:
    return [row["x"] for _, _, row in member.heard]


def reports(world: World, event: str) -> list[tuple[str, dict[str, Any]]]:
    return [(name, each.details) for name, each in world.reports if each.event == event]


def held(world: World) -> int:
    return sum(node.status()["custody_entries"] for node in world.nodes.values())


@pytest.mark.parametrize("batch", [True, False], ids=["batch", "alone"])
def test_durable_events_are_carried_only_to_brokers_that_may_hear_them(batch: bool) -> None:
    world = network(3, b2=hears("b3", "a = 1"))
    bob = subscribed(world, "b3")
    ann = world.client("ann", "b1")
    events = [{"x": x, "a": x % 2} for x in range(6)]
    for some in [events] if batch else [[each] for each in events]:
        ann.publish(*some, durable=True)
    world.run(5.0)
    assert heard(bob) == [1, 3, 5]
    assert ann.accepted_durable == 6
    assert held(world) == 0
    told = reports(world, "withheld")
    assert {(name, each["neighbour"]) for name, each in told} == {("b2", "b3")}
    world.run(15.0)
    assert sum(each["count"] for _, each in reports(world, "withheld")) == 3


def test_what_a_broker_may_not_bring_is_kept_nowhere_and_raises_no_alarm() -> None:
    world = network(3, b2=brings("b1", parsed("a = 1")))
    bob = subscribed(world, "b3")
    ann = world.client("ann", "b1")
    for x in range(20):
        ann.publish({"x": x, "a": 0}, durable=True)
    ann.publish({"x": 20, "a": 1}, {"x": 21, "a": 0}, durable=True)
    world.run(20.0)
    assert heard(bob) == [20]
    assert not reports(world, "entry_lost")
    assert held(world) == 0
    assert world.disks["b2"].load().last_entry == 1
    denied = reports(world, "beyond_grant")
    assert sum(each["count"] for _, each in denied) == 42  # the live way and in custody
    assert len(denied) < 6


def test_nobody_takes_what_was_not_sent() -> None:
    custody = Custody("b1", MemoryStore(), MemoryStore().load())
    entry, _ = custody.take(parcel({"x": 1}), ("b2",), {}, 1)
    custody.release(entry, ())
    custody.dispatch(entry, lambda _: "b2")
    with pytest.raises(IllegalMessage, match="not sent"):
        custody.took("b2", (1,))
    assert custody.is_needed(entry)
    carry = custody.next_carry("b2")
    assert carry is not None
    assert custody.took("b2", (carry.flight, 99)) == [entry]
    assert not custody.is_needed(entry)


@pytest.mark.parametrize("written", [True, False])
def test_an_empty_parcel_is_not_a_damaged_one(written: bool) -> None:
    custody = Custody("b1", MemoryStore(), MemoryStore().load())
    empty = parcel({"x": 1}).select(np.array([False]))
    entry, _ = custody.take(empty, ("b2",), {}, 1)
    if written:
        custody.release(entry, ())
    custody.dispatch(entry, lambda _: "b2")
    carry = custody.next_carry("b2")
    assert carry is not None
    assert len(carry.parcel) == 0
    assert custody.damaged == []
