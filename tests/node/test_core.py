"""What an input touches: nothing but what it changes, however much else there is."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

import pytest
from hypothesis import given

from palio.model.events import to_batch
from palio.model.parcels import Parcel
from palio.node import consumers, core
from palio.node.durability import NO_DISK
from palio.node.effects import Effect, Moment, Report, Send
from palio.node.fact_verifier import LOG
from palio.node.limits import LINK_STATE_BURST
from palio.node.loss_markers import LossMarker
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import Append, Open, PutTime
from palio.node.settings import Settings
from palio.protocol.limits import PROTOCOL_VERSION, WINDOW_BYTES
from palio.protocol.messages import (
    UNCOUNTED,
    Accepted,
    Acknowledge,
    Bye,
    Carry,
    ClaimNumbers,
    Deliver,
    Digest,
    Done,
    Ended,
    Fact,
    Facts,
    Failed,
    Gaps,
    Hello,
    Message,
    Ping,
    Publish,
    Refused,
    Replace,
    Settle,
    StreamAck,
    Subscribe,
    Unsubscribe,
)
from palio.routing.acyclic import Acyclic
from palio.simulation.disks import Disk
from palio.simulation.topologies import line
from palio.simulation.world import World
from palio.testing import Network, run
from tests import strategies as our
from tests.node.alone import Alone, far, lives, subscribed
from tests.node.alone import event as to_event
from tests.node.events import begin

AT = Moment(0.0, 1)
CLIENT, FIRST_LINK = 1, 10


class Broker:
    """A node with a client, neighbours and durable subscriptions, whose disk writes at once."""

    def __init__(
        self, *, neighbours: int = 0, durables: int = 0, window_bytes: int = WINDOW_BYTES
    ) -> None:
        settings = Settings(window_bytes=window_bytes)
        self.node = Node("b", Acyclic("b"), MemoryStore(), settings=settings)
        begin(self.node, AT)
        self.sent = 0
        self.delivered: list[Deliver] = []
        self.connect(CLIENT, Hello("client", "alice", PROTOCOL_VERSION, incarnation="x"))
        for number in range(neighbours):
            hello = Hello("broker", f"n{number}", PROTOCOL_VERSION)
            self.connect(FIRST_LINK + number, hello)
            self.receive(Digest({}), FIRST_LINK + number)
        for key in range(durables):
            self.receive(Subscribe(key, key, f"x = {key}", {}, f"d{key}"))

    def connect(self, link: int, hello: Hello) -> None:
        self.node.accept(link, AT)
        self.receive(hello, link)

    def receive(self, message: Message, link: int = CLIENT) -> None:
        pending = self.node.receive(link, message, AT)
        for effect in pending:
            if isinstance(effect, Append):
                pending += self.node.stored(effect.ticket, AT)
            elif isinstance(effect, Send) and effect.link == CLIENT:
                self.sent += type(effect.message) not in UNCOUNTED
                if isinstance(effect.message, Deliver):
                    self.delivered.append(effect.message)


def calls_of(action: Callable[[], object]) -> int:
    """How many functions of this project an action calls."""
    calls = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and "palio" in frame.f_code.co_filename

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def event(seq: int, *, durable: bool = False) -> Publish:
    return Publish(Parcel.of("", to_batch({"x": 0})), seq, durable)


FEW: Final = LINK_STATE_BURST + 2
"""So many that some are yet to be told of, as of 100."""

INPUTS: dict[str, Callable[[Broker], None]] = {
    "ping": lambda broker: broker.receive(Ping()),
    "ping of a neighbour": lambda broker: broker.receive(Ping(), FIRST_LINK),
    "seen": lambda broker: broker.receive(StreamAck(1)),
    "event": lambda broker: broker.receive(event(9)),
    "durable event": lambda broker: broker.receive(event(9, durable=True)),
}


@pytest.mark.parametrize("name", INPUTS)
def test_an_input_touches_no_neighbour_whom_it_does_not_concern(name: str) -> None:
    few, many = Broker(neighbours=FEW, durables=1), Broker(neighbours=100, durables=1)
    for broker in (few, many):  # what is made once is there
        broker.receive(event(1))
        broker.receive(event(2, durable=True))
    assert calls_of(lambda: INPUTS[name](many)) == calls_of(lambda: INPUTS[name](few))


def test_what_was_seen_touches_no_durable_subscription_for_which_nothing_waits() -> None:
    few, many = Broker(durables=2), Broker(durables=100)
    assert calls_of(lambda: many.receive(StreamAck(1))) == calls_of(
        lambda: few.receive(StreamAck(1))
    )


def test_a_seen_neighbour_is_touched_alone() -> None:
    few, many = Broker(neighbours=FEW), Broker(neighbours=100)
    calls = calls_of(lambda: few.receive(StreamAck(1), FIRST_LINK))
    assert calls_of(lambda: many.receive(StreamAck(1), FIRST_LINK)) == calls


def test_stalled_durable_subscriptions_are_served_in_turn() -> None:
    broker = Broker(durables=2, window_bytes=1)  # a message at a time
    for seq in range(8):
        broker.receive(Publish(Parcel.of("", to_batch({"x": seq // 4})), seq, durable=True))
    for _ in range(50):
        broker.receive(StreamAck(broker.sent))
    assert sorted(each.entry for each in broker.delivered) == list(range(1, 9))
    keys = [each.key for each in broker.delivered]
    assert keys.index(1) < 4  # the second has not waited for all that the first had


@pytest.mark.parametrize("is_written", [True, False])
def test_a_promise_that_fails_is_told_and_keeps_nobody_from_the_others(*, is_written: bool) -> None:
    node = Broker().node
    kept: list[str] = []

    def fails(*_: str) -> None:
        raise ValueError("a bug")

    core = node._core
    core.append([PutTime(1)], fails, fails)
    core.append([], lambda: kept.append("written"), kept.append)
    appends = [each for each in core.out if isinstance(each, Append)]
    core.out.clear()
    effects: list[Effect] = []
    for append in appends:
        if is_written:
            effects += node.stored(append.ticket, AT)
        else:
            effects += node.failed(append.ticket, "the disk is full", AT)
    assert kept == ["written" if is_written else "the disk is full"]
    told = [each for each in effects if isinstance(each, Report) and each.event == "internal_error"]
    assert [each.details["error"] for each in told] == ["ValueError: a bug"]


def test_a_disk_that_goes_on_failing_is_told_of_at_once_and_then_together() -> None:
    node = Broker().node
    core = node._core
    told: list[Report] = []
    for second in range(20):
        at = Moment(float(second), 1 + second)
        core.append([PutTime(1)])
        (append,) = (each for each in core.out if isinstance(each, Append))
        core.out.clear()
        effects = [*node.failed(append.ticket, "the disk is full", at), *node.tick(at)]
        told += [each for each in effects if isinstance(each, Report)]
        core.out.clear()
        node.writable(at)
    failed = [each for each in told if each.event == "append_refused"]
    assert [each.details.get("count") for each in failed] == [1, 10]
    assert all(each.details["reason"] == "the disk is full" for each in failed)


def test_nothing_is_kept_for_a_session_that_ends_while_it_settles() -> None:
    broker = Broker(neighbours=1)  # which never answers
    for id in range(3):
        broker.receive(Settle(id))
    assert len(broker.node._core.settling) == 1 + 3
    broker.receive(Bye("closed"))
    assert len(broker.node._core.settling) == 1  # the broker itself asks for its neighbour


# --- the window of an owner ---


HALF_BYTES: Final = 1 << 18


def large(seq: int) -> Publish:
    """Half a window."""
    return Publish(Parcel.of("", to_batch({"x": 0, "y": "y" * HALF_BYTES})), seq, True)


def test_what_is_on_its_way_to_an_owner_has_a_window_that_what_it_holds_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumers, "WINDOW_BYTES", 2 * HALF_BYTES)
    broker = Broker(durables=1, window_bytes=1 << 30)
    for seq in range(1, 7):
        broker.receive(large(seq))

    def entries() -> list[int]:
        return [each.entry for each in broker.delivered]

    first, second = entries()
    broker.receive(Acknowledge(0, 0, held=first))  # it waits for a place in its owner's pattern
    assert len(entries()) == 3
    broker.receive(Acknowledge(0, second))
    assert len(entries()) == 4
    broker.receive(Acknowledge(0, second, held=1_000))  # of what was not sent, nothing
    assert len(entries()) == 6
    broker.receive(Unsubscribe(7, 0))
    broker.delivered.clear()
    broker.receive(Subscribe(8, 1, "x = 0", {}, "d0"))
    assert len(entries()) == 2, "what it had not dealt with comes again"
    assert entries()[0] > second
    assert broker.node.status()["custody_waiting"] == {"alice/d0": 4}


# --- a disk that is lost ---


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


def say(alone: Alone, *messages: Message) -> None:
    for each in messages:
        alone.tell(2, each)
    alone.sync()


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
    monkeypatch.setattr(core, "MAX_EARLY", 2)
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


# --- no disk ---


def test_a_broker_without_a_disk_refuses_what_is_durable_and_live_events_go_on() -> None:
    alone = Alone(settings=Settings(has_disk=False))
    alone.tell(1, Subscribe(1, 1, "x = 1"))
    alone.tell(1, Subscribe(2, 2, "x = 1", durable="d"))
    alone.tell(1, Publish(to_event(), 1, durable=True))
    alone.tell(1, Publish(to_event(), 2))
    alone.sync()
    (failed,) = alone.heard(Failed)
    (refused,) = alone.heard(Refused)
    for each in (failed, refused):
        assert each.failure.kind == "NotStored"
        assert NO_DISK in each.failure.message
    assert [tuple(each.parcel.seqs) for each in alone.heard(Deliver)] == [(1,), (2,)]
    assert alone.node.status()["durable_subscriptions"] == 0
    assert not alone.disk.held()


def test_a_claim_that_is_refused_is_told_of_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = subscribed()
    cluster_state = alone.node._core.durability.cluster_state
    monkeypatch.setattr(cluster_state, "may_receive", lambda origin, _filter: origin != "b3")
    say(alone, far(), lives("b3", 3, 2, claimed_us=9_000_000))
    assert alone.told("claim_rejected") == [{"source": "b3", "count": 1, "subscription": "alice/d"}]
    assert not alone.heard(Ended)
    alone.tell(1, Publish(to_event(), 1, durable=True))
    alone.sync()
    assert [tuple(each.parcel.seqs) for each in alone.heard(Deliver)] == [(1,)]


def test_a_claim_is_told_when_it_is_on_the_disk_and_not_before() -> None:
    """Else others give away what this broker may not have after a crash."""
    alone = Alone()

    def told() -> list[str]:
        said = (fact for each in alone.heard(Facts) for fact in each.facts)
        return [each.filter for each in said if each.subject == "alice/d"]

    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    assert told() == []
    alone.sync(steps=1)
    assert alone.heard(Done) == [Done(1)]
    assert told() == [], "the fact is yet to be written"
    alone.sync()
    alone.tick()
    assert told() == ["x = 1"]


async def hear_while_the_network_forms(seed: int) -> None:
    rng = random.Random(seed)
    async with Network(rng.choice(("line:3", "line:5", "star:5", "tree:7", "ring:4"))) as net:
        for edge in net.topology.edges:
            net.delay(*edge, rng.choice((0.001, 0.04, 0.12)))
        await asyncio.sleep(rng.choice((0.0, 0.05, 0.1, 0.2)))
        heard = await (await net.connect(rng.choice(net.topology.brokers))).subscribe("EXISTS n")
        await heard.settled()
        publishers = [await net.connect(broker) for broker in net.topology.brokers]
        for number in range(10):
            for each in publishers:
                await each.publish({"n": number})
        await asyncio.sleep(1)
        assert (heard.pending, list(heard.gaps)) == (10 * len(publishers), [])


@our.examples(40)
@given(our.SEEDS)
def test_what_is_settled_while_links_come_into_use_is_in_force_beyond_them(seed: int) -> None:
    run(asyncio.wait_for(hear_while_the_network_forms(seed), 600))
