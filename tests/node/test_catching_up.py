"""When a broker begins durable service, and of which losses it tells."""

from __future__ import annotations

from typing import Final

import pytest

from palio.node import catching_up
from palio.node.fact_verifier import LOG
from palio.node.loss_markers import LossMarker
from palio.node.operations import Open
from palio.node.settings import Settings
from palio.protocol.messages import (
    Accepted,
    Carry,
    ClaimNumbers,
    Digest,
    Done,
    Fact,
    Facts,
    Failed,
    Gaps,
    Message,
    Publish,
    Refused,
    Replace,
    Settle,
    Subscribe,
)
from palio.simulation.disks import Disk
from palio.simulation.topologies import line
from palio.simulation.world import World
from tests.node.alone import Alone, far, lives, say
from tests.node.alone import event as to_event

LOST_LOG: Final = 500_000


def earlier_life(log: int = LOST_LOG) -> list[Message]:
    """What b2 knows of the network, and of an incarnation of b1 before its disk was lost."""
    mine = (
        Fact("b1", 10, LOG, claimed_us=log),
        Fact("b1", 11, "alice/d", (), "x = 1", 1, claim=ClaimNumbers(1, 0, 1)),
    )
    return [Facts(mine), far(), lives("b3", 3, subject="far/d")]


def losses(alone: Alone) -> list[str]:
    """Those who are told of a loss by what is carried to b3 and what waits here."""
    (mine,) = alone.disk.held()
    notice = LossMarker.of(mine.parcel)
    assert notice is not None
    assert notice.publisher == "*"
    for each in alone.heard(Carry):
        assert LossMarker.of(each.parcel) == notice
    return [share.subject for each in alone.heard(Carry) for share in each.shares]


def test_a_broker_that_lost_its_disk_tells_all_that_are_durable_once() -> None:
    alone = Alone(settings=Settings(peers=("palio://b2",)), known=Digest({"b1": 11, "b3": 3}))
    alone.tell(1, Publish(to_event(), 1, durable=True))
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="e"))
    assert not alone.heard(Accepted), "it waits until the broker knows for whom it is"
    say(alone, *earlier_life())
    alone.rest()
    assert alone.heard(Accepted) == [Accepted(1, "durable")]
    assert [each.id for each in alone.heard(Done)] == [1]
    assert alone.log > LOST_LOG
    assert alone.told("journal_lost") == [{"broker": "b1"}]
    assert "far/d" in {share.subject for each in alone.heard(Carry) for share in each.shares}
    alone.tell(1, Subscribe(2, 2, "x = 1", durable="d"))
    alone.sync()
    (gaps,) = alone.heard(Gaps)
    assert [(gap.publisher, gap.key) for gap in gaps.gaps] == [("*", 2)]
    again = Alone(alone.disk, known=Digest({"b1": 11, "b3": 3}))
    say(again, *earlier_life()[1:])
    assert again.log == alone.log
    assert not again.told("journal_lost")


def test_what_waits_for_a_broker_is_written_behind_what_the_network_told_it() -> None:
    alone = Alone(settings=Settings(peers=("palio://b2",)), known=Digest({"b1": 11, "b3": 3}))
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="e"))
    for each in (*earlier_life(), lives("b3", 4, subject="far/e")):  # the last comes too late
        alone.tell(2, each)
    alone.sync()
    opened = [each for each in alone.disk.load().operations if isinstance(each, Open)]
    assert [each.claim.subject for each in opened] == ["alice/d", "far/d", "far/e", "alice/e"]


def test_what_a_client_asks_while_its_broker_starts_is_answered_in_order() -> None:
    alone = Alone(settings=Settings(peers=("palio://b2",)), known=Digest({"b1": 11, "b3": 3}))
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="e"))
    alone.tell(1, Replace(2, 1, "x = 2"))
    alone.tell(1, Settle(3))
    assert not alone.heard(Done)
    say(alone, *earlier_life())
    alone.rest()
    assert not alone.heard(Failed)
    assert [each.id for each in alone.heard(Done)][:2] == [1, 2]
    (stored,) = alone.disk.load().subscriptions
    assert stored.filter == "x = 2"


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_so_much_waits_for_a_broker_that_has_just_started(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "MAX_EARLY", 2)
    alone = Alone(settings=Settings(peers=("palio://b2",)), known=Digest({"b1": 11, "b3": 3}))
    for number in range(1, 3 + more):
        alone.tell(1, Publish(to_event(), number, durable=True))
    refused = [each.failure for each in alone.heard(Refused)]
    assert [each.kind for each in refused] == ["NotStored"] * (more > 0)
    assert all("not yet received its network's subscriptions" in each.message for each in refused)


def test_a_broker_that_hears_late_that_it_lost_its_disk_tells_it_then() -> None:
    """It had nobody to wait for, and tells all of whom its neighbour knows."""
    alone = Alone(known=Digest({"b1": 11, "b3": 3}))
    log = alone.log
    say(alone, *earlier_life())
    say(alone, *earlier_life())
    assert alone.told("journal_lost") == [{"broker": "b1"}]
    assert alone.log == log > LOST_LOG
    assert losses(alone) == ["far/d"]


@pytest.mark.parametrize("waits", [True, False])
def test_with_its_clock_put_back_it_has_another_log_all_the_same(waits: bool) -> None:
    """Others believe that they have things of a log with a greater number."""
    ahead = 9_000_000
    settings = Settings(peers=("palio://b2",) if waits else ())
    alone = Alone(settings=settings, known=Digest({"b1": 11, "b3": 3}))
    say(alone, *earlier_life(ahead))
    assert alone.log == ahead + 1
    assert alone.told("journal_lost") == [{"broker": "b1"}]
    said = [each for each in alone.disk.facts() if (each.origin, each.subject) == ("b1", LOG)]
    assert [each.claimed_us for each in said] == [ahead + 1]
    (carry,) = alone.heard(Carry)
    assert (carry.log, carry.previous) == (ahead + 1, 0)
    assert losses(alone) == ["far/d"]
    again = Alone(alone.disk)
    assert again.log == ahead + 1


@pytest.mark.parametrize("waits", [True, False])
def test_a_loss_that_the_disk_refuses_is_told_once_it_takes_writes(waits: bool) -> None:
    ahead = 9_000_000
    settings = Settings(peers=("palio://b2",) if waits else ())
    alone = Alone(settings=settings, known=Digest({"b1": 11, "b3": 3}))
    for each in earlier_life(ahead):
        alone.tell(2, each)
    alone.sync(fails=True)
    alone.tick()
    assert not alone.heard(Carry)
    alone.recover()
    alone.sync()
    assert alone.log == ahead + 1
    assert losses(alone) == ["far/d"]


@pytest.mark.parametrize("waits", [True, False])
def test_a_log_that_is_heard_of_while_another_begins_is_outdone_after_that(waits: bool) -> None:
    settings = Settings(peers=("palio://b2",) if waits else ())
    alone = Alone(settings=settings, known=Digest({"b1": 11, "b3": 3}))
    for each in (*earlier_life(9_000_000), Facts((Fact("b1", 12, LOG, claimed_us=9_500_000),))):
        alone.tell(2, each)
    alone.sync()
    alone.rest()
    assert alone.log == 9_500_001
    again = Alone(alone.disk)
    assert again.log == alone.log


def test_a_broker_that_finds_nobody_serves_after_a_while() -> None:
    settings = Settings(peers=("palio://b2",), peer_grace_s=2.0)
    alone = Alone(settings=settings, known=Digest({"b3": 3}))  # of which nothing comes
    alone.tell(1, Publish(to_event(), 1, durable=True))
    for _ in range(3):
        alone.tick()
        alone.sync()
    alone.tell(1, Publish(to_event(), 2, durable=True))
    alone.sync()
    assert alone.heard(Accepted) == [Accepted(1, "durable"), Accepted(2, "durable")]
    assert not alone.told("journal_lost")


def test_what_is_sent_to_a_broker_that_lost_its_disk_is_sent_again() -> None:
    alone = Alone()
    say(alone, far(), lives("b3", 3))
    alone.tell(1, Publish(to_event(), 1, durable=True))
    alone.sync()
    (first,) = alone.heard(Carry)
    say(alone, Facts((Fact("b3", 4, LOG, claimed_us=first.home_log + 5),)))
    _, second = alone.heard(Carry)
    assert (second.parcel, second.offset, second.previous) == (first.parcel, first.offset, 0)
    assert second.home_log == first.home_log + 5
    alone.has_stored(first)
    alone.rest()
    assert alone.disk.held(), "that was said of the lost one"
    alone.has_stored(second)
    alone.rest()
    assert not alone.disk.held()


@pytest.mark.parametrize("keeps", [True, False])
def test_a_disk_that_is_lost_costs_no_more_than_was_on_it(keeps: bool) -> None:
    """And is told to each durable subscription, wherever it lives."""
    settings = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)
    world = World.of(line(3), settings=settings)
    owner, publisher = world.client("owner", "b3"), world.client("p", "b1")
    key = owner.subscribe("x > 0", durable="d")
    world.run(3.0)
    publisher.publish({"x": 1}, durable=True)
    world.run(1.0)
    world.cut("b2", "b3")
    world.run(1.0)
    publisher.publish({"x": 2}, durable=True)
    world.run(1.0)
    world.kill("b1")
    if not keeps:
        world.disks["b1"] = Disk()
    world.start("b1")
    world.run(3.0)
    world.heal("b2", "b3")
    world.run(10.0)
    publisher.publish({"x": 3}, durable=True)
    world.run(5.0)
    assert [row["x"] for _, _, row in owner.heard] == ([1, 2, 3] if keeps else [1, 3])
    told = [gap for gap in owner.gaps if gap.key == key]
    assert [gap.publisher for gap in told] == ([] if keeps else ["*"])
    assert sum(each.event == "journal_lost" for _, each in world.reports) == (not keeps)
    assert not any(node.status()["custody_entries"] for node in world.nodes.values())
