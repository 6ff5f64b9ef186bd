from __future__ import annotations

from collections import Counter, deque
from typing import Any

import pytest

from palio.node import backlogs
from palio.node.durability import Durability, Taken
from palio.node.settings import Settings
from palio.protocol.messages import Carry, Message
from palio.simulation.member import Member
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import line
from palio.simulation.world import World
from tests.conftest import SEED

QUICK = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)


class House:
    """A publisher at one end of a line, a durable and a live listener at the other."""

    def __init__(self, size: int = 2) -> None:
        self.world = World.of(line(size), settings=QUICK)
        self.home = f"b{size}"
        self.owner = self.world.client("owner", self.home)
        self.owner.subscribe("d > 0", durable="d")
        self.live = self.world.client("live", self.home)
        self.live.subscribe("x > 0")
        self.publisher = self.world.client("p", "b1")
        self.world.run(1.0)

    def publish(self, count: int, first: int = 1) -> None:
        for number in range(first, first + count):
            self.publisher.publish({"d": number}, durable=True)
            self.publisher.publish({"x": number})
            self.world.run(0.05)

    def count(self, event: str) -> int:
        return Counter(each.event for _, each in self.world.reports)[event]

    @property
    def durable(self) -> list[int]:
        return heard(self.owner, "d")


def heard(member: Member, name: str) -> list[int]:
    return [row[name] for _, _, row in member.heard]


@pytest.mark.parametrize("size", [2, 3])
def test_what_a_full_disk_refuses_waits_and_no_live_event_is_lost(size: int) -> None:
    house = House(size)
    house.world.disks["b2"].is_full = True
    house.publish(60)
    house.world.run(0.2)
    # What is on its way elsewhere goes on from memory.
    assert house.durable == ([] if size == 2 else list(range(1, 61)))
    assert house.world.nodes["b1"].status()["custody_entries"] == (60 if size == 2 else 0)
    assert heard(house.live, "x") == list(range(1, 61))
    house.world.disks["b2"].is_full = False
    house.world.run(2.0)
    assert house.durable == list(range(1, 61))
    assert house.count("peer_down") == 0
    assert house.world.nodes["b1"].status()["custody_entries"] == 0


def test_all_comes_once_whatever_a_disk_refuses() -> None:
    """Not always in order: some are being written when what came before is refused."""
    random = Randomness(SEED)
    for _ in range(20):
        house = House()
        house.world.sync_us = random.choice([500, 30_000, 200_000])
        refusals = [random.chance(0.5) for _ in range(30)]
        house.world.disks["b2"].refusals = deque(refusals)
        house.publish(30)
        house.world.run(60.0)
        assert heard(house.live, "x") == list(range(1, 31)), (SEED, refusals)
        assert sorted(house.durable) == list(range(1, 31)), (SEED, refusals)


@pytest.mark.parametrize("fits", [True, False])
def test_what_is_too_much_comes_again_in_one_new_session(
    monkeypatch: pytest.MonkeyPatch, *, fits: bool
) -> None:
    house = House()
    house.world.disks["b2"].is_full = True
    monkeypatch.setattr(backlogs, "UNWRITTEN_BYTES", 1 << 20 if fits else 3_000)
    house.publish(100)
    house.world.run(10.0)
    assert heard(house.live, "x") == list(range(1, 101))
    assert house.count("peer_down") == 0
    house.world.disks["b2"].is_full = False
    house.world.run(5.0)
    assert house.durable == list(range(1, 101))
    assert house.count("peer_down") == (0 if fits else 2)  # each of the two says so


def test_what_is_under_way_to_a_failing_disk_is_bounded_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House()
    monkeypatch.setattr(backlogs, "UNWRITTEN_BYTES", 20_000)
    house.world.sync_us = 1_000_000
    house.world.disks["b2"].fails_to_sync = True
    house.publish(100)
    house.world.run(4.0)
    assert 0 < house.world.nodes["b2"].status()["unwritten_bytes"] <= 20_000
    house.world.disks["b2"].fails_to_sync = False
    house.world.run(20.0)
    assert house.durable == list(range(1, 101))


def test_what_goes_on_from_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to its home is gone, and the disk is full."""
    house = House(3)
    monkeypatch.setattr(backlogs, "UNWRITTEN_BYTES", 20_000)
    house.world.disks["b2"].is_full = True
    house.world.cut("b2", "b3")
    house.world.run(5.0)
    house.publish(100)
    assert house.world.nodes["b2"].status()["custody_entries"] < 40
    house.world.heal("b2", "b3")
    house.world.run(5.0)
    house.world.disks["b2"].is_full = False
    house.world.run(5.0)
    assert house.durable == list(range(1, 101))
    assert {each.status()["custody_entries"] for each in house.world.nodes.values()} == {0}


def test_of_what_went_on_from_memory_nothing_is_kept_for_who_is_gone() -> None:
    house = House(3)
    house.world.disks["b2"].is_full = True
    house.world.hold("b2", "b3", 20.0)
    house.publish(10)
    assert house.world.nodes["b2"].status()["custody_entries"] == 10
    house.world.cut("b1", "b2")
    house.world.run(5.0)
    assert house.world.nodes["b2"].status()["custody_entries"] == 0
    house.world.heal("b1", "b2")
    house.world.run(20.0)
    assert house.durable == list(range(1, 11))


def test_nothing_is_sent_on_each_time_it_is_tried() -> None:
    """It is for somebody here, too, where the disk is full."""
    house = House(3)
    near = house.world.client("near", "b2")
    near.subscribe("d > 0", durable="d")
    house.world.run(1.0)
    sent: list[Message] = []

    def spoils(who: str, message: Message) -> bool:
        if who == "b2" and isinstance(message, Carry):
            sent.append(message)
        return False

    house.world.spoils = spoils
    house.world.disks["b2"].is_full = True
    house.publish(1)
    house.world.run(10.0)
    assert house.durable == [1]
    assert len(sent) == 1
    house.world.disks["b2"].is_full = False
    house.world.run(1.0)
    assert (heard(near, "d"), house.durable) == ([1], [1])
    assert {each.status()["custody_entries"] for each in house.world.nodes.values()} == {0}


def test_what_is_for_others_goes_past_what_waits_here() -> None:
    """Also the part of what is for both."""
    house = House(3)
    near = house.world.client("near", "b2")
    near.subscribe("d < 20", durable="d")
    house.world.run(1.0)
    house.world.disks["b2"].is_full = True
    house.publish(40)
    house.world.run(0.2)
    assert house.durable == list(range(1, 41))
    assert heard(near, "d") == []
    assert house.world.nodes["b1"].status()["custody_entries"] == 19
    house.world.disks["b2"].is_full = False
    house.world.run(1.0)
    assert (heard(near, "d"), house.durable) == (list(range(1, 20)), list(range(1, 41)))
    assert {each.status()["custody_entries"] for each in house.world.nodes.values()} == {0}


@pytest.mark.parametrize("is_tried", [False, True])
def test_what_a_broker_fails_on_is_carried_again(
    monkeypatch: pytest.MonkeyPatch, *, is_tried: bool
) -> None:
    house = House()
    calls: list[str] = []
    take = Durability.take

    def taking(self: Durability, *args: Any) -> Taken:
        if self.name == "b2":
            calls.append(self.name)
            if len(calls) == 1 + is_tried:
                raise RuntimeError("a fault of ours")
        return take(self, *args)

    house.world.disks["b2"].is_full = is_tried
    monkeypatch.setattr(Durability, "take", taking)
    house.publish(3)
    house.world.disks["b2"].is_full = False
    house.world.run(8.0)
    assert house.durable == [1, 2, 3]
    house.world.disks["b2"].is_full = True
    house.publish(3, first=4)
    house.world.disks["b2"].is_full = False
    house.world.run(2.0)
    assert house.durable == [1, 2, 3, 4, 5, 6]
    assert house.world.nodes["b2"].status()["unwritten_bytes"] == 0
