from __future__ import annotations

from math import inf

import pytest

from palio.multicast.datagrams import Datagram
from palio.node.operations import Append, Discard, PutTime
from palio.simulation.topologies import line
from palio.simulation.world import World
from tests.campaign.actors import Actor
from tests.campaign.faults import CAST_FAULTS, FAULTS, REFUSALS, TOLD_S, Faults

EDGES = (("b1", "b2"), ("b2", "b3"))


@pytest.fixture
def world() -> World:
    return World.of(line(3))


@pytest.fixture
def alice(world: World) -> Actor:
    found = world.clients["alice"] = Actor(world, "alice", "b1")
    found.connect()
    world.run(1.0)
    return found


@pytest.fixture
def faults(world: World, alice: Actor) -> Faults:
    del alice  # who is there
    return Faults(world, EDGES)


def linked(world: World) -> list[bool]:
    return [world.is_linked(*edge) for edge in EDGES]


def test_what_lasts_longer_is_broken_for_longer(world: World, faults: Faults) -> None:
    faults.cause("cut", ("b1", "b2", 3.0))
    faults.cause("cut", ("b2", "b1", 1.0))
    for broken in (True, False):
        world.run(2.0)
        assert faults.is_broken is broken
        assert linked(world) == [not broken, True]
    assert faults.healed_s == pytest.approx(world.now - 1.0, abs=1e-5)


@pytest.mark.parametrize("kind", ["partition", "swizzle"])
def test_links_that_go_come_back(world: World, faults: Faults, kind: str) -> None:
    words = (("b2",), 2.0) if kind == "partition" else ("b2", (2.0, 1.0))
    faults.cause(kind, words)
    assert linked(world) == [False, False]
    world.run(1.6)
    assert linked(world) == ([False, False] if kind == "partition" else [False, True])
    world.run(2.0)
    assert linked(world) == [True, True]


@pytest.mark.parametrize(("kind", "held"), [("silence", True), ("one way", False)])
def test_what_is_held_up_is_told_nobody(
    world: World, faults: Faults, kind: str, held: bool, alice: Actor
) -> None:
    bob = world.client("bob", "b3")
    world.run(1.0)
    key = bob.subscribe("x = 1")
    world.run(1.0)
    faults.cause(kind, (("b3",), 1.0))
    assert linked(world) == [True, True]
    world.run(0.1)
    alice.publish({"x": 1})
    world.run(0.5)
    assert [seq for _, seq, _ in bob.heard] == ([] if held else [1])
    world.run(1.0)
    assert [seq for _, seq, _ in bob.heard] == [1]
    assert key in bob.core.table.standing


@pytest.mark.parametrize("kind", ["crash", "wipe", "torn"])
def test_brokers_stop_and_start(world: World, faults: Faults, kind: str, alice: Actor) -> None:
    faults.cause(kind, ("b1", 1.0))
    alice.publish({"x": 1}, durable=True)
    alice.hear_of("kept", "x = 1", durable=True)
    world.run(0.5)
    assert "b1" not in world.nodes
    assert [each.broker for each in faults.blanks] == (["b1"] if kind == "wipe" else [])
    world.run(20.0)
    assert "b1" in world.nodes
    assert alice.is_connected


def test_a_disk_that_nobody_writes_to_tears_nothing_once_it_is_over(
    world: World, faults: Faults, alice: Actor
) -> None:
    faults.cause("torn", ("b3", 1.0))
    for expected in (True, False):
        world.run(0.6)
        assert faults.is_broken is expected
    alice.broker = "b3"
    alice.cut()
    world.run(1.0)
    alice.hear_of("kept", "x = 1", durable=True)
    world.run(1.0)
    assert "b3" in world.nodes


@pytest.mark.parametrize(("kind", "attribute"), [("fsync", "fails_to_sync"), ("full", "is_full")])
def test_disks_fail_for_a_while(world: World, faults: Faults, kind: str, attribute: str) -> None:
    faults.cause(kind, ("b1", 1.0))
    assert getattr(world.disks["b1"], attribute)
    world.run(1.1)
    assert not getattr(world.disks["b1"], attribute)


def test_a_disk_refuses_some_writes_for_a_while(world: World, faults: Faults) -> None:
    disk = world.disks["b1"]
    faults.cause("spotty", ("b1", (False, True, True, True), 1.0))
    assert [disk.write((PutTime(1),)) for _ in range(3)] == [True, False, False]
    assert disk.append(Append(0, 2, (), (Discard((1,)),))), "what makes room has some"
    world.run(1.1)
    assert disk.write((PutTime(1),)), "what was left of it is over"


def test_what_it_refuses_next_is_over_with_what_it_refused_first(
    world: World, faults: Faults
) -> None:
    faults.cause("spotty", ("b1", (True,), 1.0))
    faults.cause("spotty", ("b1", (True, True), 0.0))
    world.run(1.1)
    assert not faults.is_broken
    assert world.disks["b1"].write((PutTime(1),))


@pytest.mark.parametrize("kind", REFUSALS)
def test_nothing_live_breaks_for_a_disk(world: World, faults: Faults, kind: str) -> None:
    faults.cause(kind, ("b1", (True,), 1.0) if kind == "spotty" else ("b1", 1.0))
    assert faults.is_broken
    world.run(1.1)
    assert not faults.broke(0.0, world.now)


def test_who_stops_before_its_disk_took_what_others_said_does_not_know_of_it(
    world: World, faults: Faults
) -> None:
    bob = world.client("bob", "b3")
    for broker, expected in (("b2", []), ("b1", ["b1"])):
        if expected:
            faults.cause("fsync", (broker, 3.0))
            bob.subscribe("x = 1", durable="d")
            world.run(1.0)
        faults.cause("crash", (broker, 0.5))
        assert [each.broker for each in faults.blanks] == expected
        world.run(3.0)
    assert all(each.until_s < world.now for each in faults.blanks)


def test_a_disk_in_the_place_of_one_that_failed_heals_with_it(world: World, faults: Faults) -> None:
    faults.cause("fsync", ("b1", 3.0))
    faults.cause("wipe", ("b1", 0.1))
    world.run(0.5)
    faults.cause("fsync", ("b1", 1.0))
    world.run(4.0)
    assert not world.disks["b1"].fails_to_sync


def test_a_bit_flips_where_there_is_something(world: World, faults: Faults, alice: Actor) -> None:
    faults.cause("flip", ("b1", 5))
    assert not faults.flipped
    bob = world.client("bob", "b3")
    world.run(1.0)
    bob.subscribe("x = 1", durable="d")
    world.run(1.0)
    world.cut("b1", "b2")
    alice.publish({"x": 1}, {"x": 1}, durable=True)
    world.run(1.0)
    faults.cause("flip", ("b1", 5))
    assert faults.flipped == {("alice/1", 1), ("alice/1", 2)}


@pytest.mark.parametrize("kind", ["stall", "away"])
def test_clients_are_deaf_for_a_while(
    world: World, faults: Faults, kind: str, alice: Actor
) -> None:
    alice.hear_of("live", "x = 1", durable=False)
    bob = world.client("bob", "b3")
    world.run(1.0)
    faults.cause(kind, ("alice", 2.0))
    bob.publish({"x": 1})
    world.run(1.0)
    assert not alice.live
    world.run(2.0)
    assert [each.seq for each in alice.live] == [1]


@pytest.mark.parametrize("kind", CAST_FAULTS)
def test_datagrams_get_lost_for_a_while(world: World, faults: Faults, kind: str) -> None:
    heard: list[str] = []
    words = {"lossy": (1.0, 0.0, 0.0, 1.0), "deaf": ("b2", 1.0), "unheard": ("b1", "b2", 1.0)}
    near, far = world.medium.port("b1"), world.medium.port("b2")
    far.tune(7, (0,))
    far.listener = lambda datagram: heard.append(datagram.source)
    faults.cause(kind, words[kind])
    for expected in ([], ["b1"]):
        near.cast(Datagram("b1", 1, 7, 0, 1, bytes(8)))
        world.run(1.1)
        assert heard == expected


def test_a_broker_that_lost_its_disk_is_blank_until_it_is_linked(
    world: World, faults: Faults
) -> None:
    faults.cause("wipe", ("b1", 1.0))
    faults.cause("cut", ("b1", "b2", 3.0))
    (blank,) = faults.blanks
    began_s = world.now
    world.run(2.0)
    assert blank.until_s == inf
    world.run(3.0)
    assert blank.until_s == pytest.approx(began_s + 3.0, abs=0.5)


def test_a_link_that_is_gone_at_once_may_have_told_an_empty_broker_nothing(
    world: World, faults: Faults
) -> None:
    faults.cause("wipe", ("b1", 0.0))
    (blank,) = faults.blanks
    world.run(0.5)
    assert blank.until_s < world.now
    faults.cause("crash", ("b2", 5.0))
    assert blank.until_s == inf
    world.run(10.0)
    until_s = blank.until_s
    assert until_s < world.now - TOLD_S
    faults.cause("cut", ("b1", "b2", 3.0))
    assert blank.until_s == until_s


def test_an_empty_broker_hears_nothing_from_one_that_is_paused(
    world: World, faults: Faults
) -> None:
    faults.cause("pause", ("b2", 5.0))
    faults.cause("wipe", ("b1", 1.0))
    (blank,) = faults.blanks
    world.run(4.5)
    assert blank.until_s == inf
    world.run(2.0)
    assert blank.until_s < world.now


def test_it_is_known_when_something_was_broken(world: World, faults: Faults) -> None:
    at_s = world.now
    faults.cause("cut", ("b1", "b2", 3.0))
    faults.cause("reset", ("b2", "b3"))
    assert faults.broke(at_s + 2.9, at_s + 9.0)
    assert faults.broke(0.0, at_s)
    assert not faults.broke(at_s + 3.1, at_s + 9.0)
    assert not faults.broke(0.0, at_s - 0.1)


def test_faults_of_who_is_not_there_are_none(world: World, faults: Faults) -> None:
    for kind, words in (
        ("stall", ("nobody", 1.0)),
        ("away", ("nobody", 1.0)),
        ("unreadable", ("nobody", "poison", 1.0)),
        ("reset", ("nobody", "b1")),
        ("half-open", ("nobody", "b1")),
    ):
        faults.cause(kind, words)
    world.run(2.0)
    assert not faults.is_broken
    assert linked(world) == [True, True]


def test_each_has_words_for_people() -> None:
    assert all(FAULTS.values())
