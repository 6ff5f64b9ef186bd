"""Brokers that leave: their clients go elsewhere, and what they have is handed over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from palio.node.limits import OFFER_AGAIN_S, STALLED_S
from palio.node.settings import Settings
from palio.protocol.messages import Adopt, Answer, Drain, Failed, SessionEpoch
from palio.routing.general import General
from palio.simulation.member import Member
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import ring
from palio.simulation.world import World
from tests.conftest import seeds
from tests.node.alone import Alone, far, lives

QUICK: Final = Settings(heartbeat_s=1.0, peer_grace_s=4.0, client_grace_s=4.0, discovery=True)


class Admin(Member):
    """Who sees to a broker, and stays with it."""

    def redirected(self, urls: Sequence[str]) -> None:
        pass


class House:
    """Four brokers in a ring, at each a listener and a publisher; `ann` keeps a durable
    subscription at the first, and is away.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.world = world = World.of(ring(4), General, seed=seed, settings=QUICK)
        self.names = sorted(world.nodes)
        self.listeners = [world.client(f"listener at {each}", each) for each in self.names]
        self.publishers = [world.client(f"publisher at {each}", each) for each in self.names]
        for listener in self.listeners:
            listener.subscribe("x >= 0")
        self.ann = world.client("ann", "b1")
        self.ann.subscribe("x >= 0", durable="kept")
        self.admin = Admin(world, "admin", "b1")
        world.clients["admin"] = self.admin
        self.admin.connect()
        world.run(3.0)
        self.ann.vanish()
        world.run(QUICK.client_grace_s + 2.0)
        self.published: dict[tuple[str, int], bool] = {}
        for each in self.listeners:
            each.gaps.clear()

    def load(self, count: int) -> None:
        """Publish at each in turn, every third durably."""
        for _ in range(count):
            ready = [each for each in self.publishers if each.core.may_publish()]
            if not ready:
                self.world.run(0.007)
                continue
            publisher = ready[len(self.published) % len(ready)]
            durable = len(self.published) % 3 == 0
            number = publisher.publish({"x": 1}, durable=durable)
            self.published[f"{publisher.name}/1", number] = durable
            self.world.run(0.007)

    def drain(self, *, undo: bool = False) -> dict[str, Any]:
        """What the first broker answers."""
        id = self.admin.ask(lambda id: Drain(id, "b1", undo))
        self.world.run(0.1)
        answer = self.admin.answers[id]
        assert isinstance(answer, Answer), answer
        return dict(answer.data)

    def until_drained(self) -> None:
        for _ in range(100):
            if self.drain()["done"]:
                return
            self.load(5)
        raise AssertionError(f"seed {self.seed}: {self.drain()}")

    def said(self, event: str) -> list[str]:
        """The brokers that have told something to people."""
        return [name for name, report in self.world.reports if report.event == event]

    @property
    def kept(self) -> set[tuple[str, int]]:
        return {each for each, durable in self.published.items() if durable}


def got(member: Member) -> list[tuple[str, int]]:
    return [(publisher, number) for publisher, number, _ in member.heard]


@pytest.mark.parametrize("seed", seeds(1, nightly=30))
def test_a_drained_broker_can_be_stopped_for_good_without_loss(seed: int) -> None:
    house = House(seed)
    world = house.world
    house.load(30)
    assert not house.drain()["done"]
    house.until_drained()
    assert house.said("drain_finished") == ["b1"]
    assert not world.nodes["b1"].status()["durable_subscriptions"]
    assert all(each.core.session.broker != "b1" for each in (*house.listeners, *house.publishers))
    house.load(20)
    assert house.drain()["entries"] == 0, "nothing leads over it any more"
    assert not [gap for each in house.listeners for gap in each.gaps]
    world.kill("b1")
    house.load(20)
    house.ann.resume("b3")
    world.run(5.0)
    for listener in house.listeners:
        assert sorted(got(listener)) == sorted(house.published), f"seed {seed}"
    assert set(got(house.ann)) == house.kept, f"seed {seed}"
    assert len(got(house.ann)) == len(house.kept)
    assert not [gap for gap in house.ann.gaps if gap.key != -1]
    assert not house.said("internal_error")


@pytest.mark.parametrize("seed", seeds(2, nightly=60))
def test_nothing_durable_is_lost_when_brokers_stop_while_one_is_drained(seed: int) -> None:
    house = House(seed)
    world, draw = house.world, Randomness(seed)
    house.load(30)
    world.latency_us = 30_000
    house.admin.ask(lambda id: Drain(id, "b1"))
    for _ in range(4):
        world.run(draw.uniform() * 0.7)
        name = draw.choice(["b1", "b2", "b4"])
        world.kill(name)
        house.load(3)
        world.start(name)
        house.load(3)
    world.run(10.0)
    house.ann.resume("b3")
    world.run(10.0)
    acknowledged = {
        (f"{each.name}/1", done.last)
        for each in house.publishers
        for done in each.publications
        if "durable" in done.levels
    }
    assert acknowledged <= set(got(house.ann)), f"seed {seed}"
    assert not house.said("internal_error")


def test_who_is_interrupted_leaves_the_broker_in_service() -> None:
    house = House(1)
    house.drain()
    assert world_knows(house, is_leaving=True)
    house.admin.vanish()
    for name in ("b2", "b3", "b4"):
        house.world.cut("b1", name)  # it cannot be done
    house.world.run(QUICK.client_grace_s + 3.0)
    assert "b1" in house.said("drain_cancelled")
    house.world.heal("b1", "b2")
    house.world.run(8.0)
    assert world_knows(house, is_leaving=False)


def test_what_was_drained_stays_so_until_that_is_undone_or_it_starts_anew() -> None:
    house = House(1)
    house.until_drained()
    house.admin.vanish()
    house.world.run(QUICK.client_grace_s + 3.0)
    assert world_knows(house, is_leaving=True)
    house.admin.resume("b1")
    house.world.run(1.0)
    house.drain(undo=True)
    assert world_knows(house, is_leaving=False)
    house.drain()
    house.world.kill("b1")
    house.world.start("b1")
    house.world.run(2.0)
    assert world_knows(house, is_leaving=False)


def world_knows(house: House, *, is_leaving: bool) -> bool:
    """Whether all others say of the first broker that it is about to go, or not."""
    others = [house.world.nodes[each] for each in house.names[1:]]
    return all(each.status()["leaving"] == ["b1"] * is_leaving for each in others)


def test_what_cannot_be_handed_over_is_told() -> None:
    house = House(1)
    for name in ("b2", "b3", "b4"):
        house.world.cut("b1", name)
    house.world.run(6.0)
    house.drain()
    house.world.run(8.0)
    left = house.drain()
    assert (left["done"], left["neighbours"], left["durable_subscriptions"]) == (False, 0, 1)
    assert left["clients"] == 2, "they have nowhere to go"


def test_a_neighbour_with_a_full_disk_takes_nothing_over() -> None:
    house = House(1)
    for name in ("b2", "b4"):
        house.world.disks[name].is_full = True
    house.drain()
    house.world.run(3 * OFFER_AGAIN_S)
    assert house.drain()["durable_subscriptions"] == 1
    house.load(30)
    house.world.disks["b4"].is_full = False
    house.until_drained()
    house.ann.resume("b3")
    house.world.run(5.0)
    assert house.kept - refused(house) <= set(got(house.ann))


def refused(house: House) -> set[tuple[str, int]]:
    return {
        (f"{each.name}/1", number)
        for each in house.publishers
        for part in each.refused
        for number in range(part.first_seq, part.last_seq + 1)
    }


def test_clients_with_nowhere_to_go_keep_a_broker_for_two_seconds() -> None:
    world = World.of(ring(3), General, settings=Settings(heartbeat_s=1.0))  # no addresses
    world.client("ann", "b1").subscribe("x = 1")
    world.run(2.0)
    began, host = world.now, world.host("b1")
    host.leave()
    while not host.machine.is_free_to_go:
        world.run(0.1)
    assert STALLED_S <= world.now - began <= STALLED_S + 1.0


def test_a_broker_by_itself_waits_for_nobody() -> None:
    world = World()
    world.add_broker("b1", General)
    world.client("ann", "b1").subscribe("x = 1")
    world.run(2.0)
    world.host("b1").leave()
    assert world.host("b1").machine.is_free_to_go


@pytest.mark.parametrize("seed", seeds(1, nightly=30))
def test_a_rolling_restart_costs_nobody_an_event(seed: int) -> None:
    """Each broker of a ring in turn, under load; clients are moved, publishers among them."""
    house = House(seed)
    world, draw = house.world, Randomness(seed)
    house.ann.resume("b1")
    world.latency_us = 2_000 + round(draw.uniform() * 20_000)
    world.run(10.0)
    for name in house.names:
        host = world.host(name)
        host.leave()
        while not host.machine.is_free_to_go:
            house.load(1)
        clients = (*house.listeners, *house.publishers, house.ann)
        assert all(each.core.session.broker != name for each in clients), f"seed {seed}"
        host.close("it stops")
        house.load(3)
        world.kill(name)
        house.load(20)
        world.start(name)
        house.load(20)
        world.run(QUICK.peer_grace_s + 2.0)
    for listener in house.listeners:
        assert sorted(got(listener)) == sorted(house.published), f"seed {seed}"
    assert house.kept <= set(got(house.ann)), f"seed {seed}"
    for each in house.publishers:
        assert all(done.levels in (["memory"], ["durable"]) for done in each.publications)
    assert not house.said("internal_error")


@pytest.mark.parametrize("seed", seeds(1, nightly=30))
def test_ways_lead_rather_through_a_drained_broker_than_through_one_that_stops(seed: int) -> None:
    """They are opposite each other in a ring, so the others reach each other by no third way."""
    house = House(seed)
    world, host = house.world, house.world.host("b3")
    house.until_drained()
    host.leave()
    while not host.machine.is_free_to_go:
        house.load(1)
    host.close("it stops")
    house.load(3)
    world.kill("b3")
    house.load(20)
    world.run(QUICK.peer_grace_s)
    for listener in house.listeners:
        assert sorted(got(listener)) == sorted(house.published), f"seed {seed}"


def test_a_durable_subscription_that_is_about_to_end_is_offered_to_nobody() -> None:
    world = World.of(ring(4), General, settings=QUICK, sync_s=0.5)
    ann, admin = Admin(world, "ann", "b1"), Admin(world, "admin", "b1")
    for member in (ann, admin):
        world.clients[member.name] = member
        member.connect()
    key = ann.subscribe("x >= 0", durable="kept")
    world.run(3.0)
    admin.ask(lambda id: Drain(id, "b1"))
    world.run(1.0)
    ann.unsubscribe(key, forget=True)
    world.run(3.0)
    kept = {name: node.status()["durable_subscriptions"] for name, node in world.nodes.items()}
    assert not any(kept.values()), kept


def test_a_full_disk_elsewhere_keeps_no_client_from_moving_there() -> None:
    """What it could not write of one client's is told later, and nobody else waits for that."""
    world = World.of(ring(3), General, settings=QUICK)
    admin = Admin(world, "admin", "b1")
    world.clients["admin"] = admin
    admin.connect()
    publisher, unlucky = world.client("p", "b1"), world.client("c", "b2")
    world.run(3.0)
    world.disks["b2"].is_full = True
    unlucky.subscribe("x > 0", durable="d")
    world.run(2.0)
    (refused,) = unlucky.answers.values()
    assert isinstance(refused, Failed)
    publisher.publish({"x": 1}, durable=True)
    publisher.move_over("b2")
    admin.ask(lambda id: Drain(id, "b1"))
    world.run(20.0)
    asked = admin.ask(lambda id: Drain(id, "b1"))
    world.run(1.0)
    answer = admin.answers[asked]
    assert isinstance(answer, Answer)
    assert answer.data["done"], answer.data


# --- what a neighbour offers ---


def offered(alone: Alone, *, bookmark: bytes = b"") -> Adopt:
    """The neighbour b2 is about to go, and offers what was claimed there."""
    offer = Adopt("alice/d", 60.0, SessionEpoch("alice/9", 3), bookmark)
    alone.tell(2, offer)
    alone.rest()
    return offer


def test_what_a_neighbour_offers_lives_here_from_then_on() -> None:
    alone = Alone()
    alone.tell(2, lives("b2", 9, session_epoch=SessionEpoch("alice/9", 3)))
    alone.sync()
    offered(alone, bookmark=b"here")
    assert alone.told("durable_adopted") == [{"subscription": "alice/d", "of": "b2"}]
    (stored,) = alone.disk.load().subscriptions
    assert (stored.subject, stored.filter, stored.lease_s) == ("alice/d", "x = 1", 60.0)
    assert alone.disk.load().bookmarks == {"alice/d": b"here"}
    (said,) = (each for each in alone.disk.facts() if each.origin == "b1" and each.filter)
    assert (said.claim.number, said.session_epoch) == (2, SessionEpoch("alice/9", 3)), (
        "as its owner came there"
    )
    offered(alone)
    assert len(alone.told("durable_adopted")) == 1, "it lives there no longer"


@pytest.mark.parametrize("why", ["elsewhere", "over", "unknown", "unreadable", "leaving", "full"])
def test_what_a_neighbour_offers_stays_where_it_is(why: str) -> None:
    alone = Alone()
    filter = {"over": "", "unreadable": "x is whatever"}.get(why, "x = 1")
    if why != "unknown":
        alone.tell(2, far())
        alone.tell(2, lives("b3" if why == "elsewhere" else "b2", 19, filter=filter))
        alone.sync()
    if why == "leaving":
        alone.do(alone.node.leave(alone.at))
        alone.sync()
    alone.disk.is_full = why == "full"
    offered(alone)
    assert not alone.told("durable_adopted")
    assert alone.node.status()["durable_subscriptions"] == 0
    assert not alone.disk.load().subscriptions
