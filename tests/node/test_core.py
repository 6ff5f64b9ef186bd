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
from palio.node import consumers
from palio.node.durability import NO_DISK
from palio.node.effects import Effect, Moment, Report, Send
from palio.node.limits import LINK_STATE_BURST
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import Append, PutTime
from palio.node.settings import Settings
from palio.protocol.limits import PROTOCOL_VERSION, WINDOW_BYTES
from palio.protocol.messages import (
    UNCOUNTED,
    Acknowledge,
    Bye,
    Deliver,
    Digest,
    Done,
    Ended,
    Facts,
    Failed,
    Hello,
    Message,
    Ping,
    Publish,
    Refused,
    Settle,
    StreamAck,
    Subscribe,
    Unsubscribe,
)
from palio.routing.acyclic import Acyclic
from palio.testing import Network, run
from tests import strategies as our
from tests.node.alone import Alone, far, lives, say, subscribed
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
