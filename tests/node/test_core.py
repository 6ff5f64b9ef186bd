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
from palio.node.effects import Effect, Moment, Report, Send
from palio.node.limits import NEWS_AT_ONCE
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import Append, PutTime
from palio.node.settings import Settings
from palio.protocol.limits import PROTOCOL_VERSION, WINDOW_BYTES
from palio.protocol.messages import (
    UNCOUNTED,
    Bye,
    Deliver,
    Hello,
    Message,
    Ping,
    Publish,
    Seen,
    Settle,
    Subscribe,
)
from palio.routing.acyclic import Acyclic
from palio.testing import Network, run
from tests import strategies as our
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


FEW: Final = NEWS_AT_ONCE + 2
"""So many that some are yet to be told of, as of 100."""

INPUTS: dict[str, Callable[[Broker], None]] = {
    "ping": lambda broker: broker.receive(Ping()),
    "ping of a neighbour": lambda broker: broker.receive(Ping(), FIRST_LINK),
    "seen": lambda broker: broker.receive(Seen(1)),
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
    few, many = Broker(durables=1), Broker(durables=100)
    assert calls_of(lambda: many.receive(Seen(1))) == calls_of(lambda: few.receive(Seen(1)))


def test_a_seen_neighbour_is_touched_alone() -> None:
    few, many = Broker(neighbours=FEW), Broker(neighbours=100)
    calls = calls_of(lambda: few.receive(Seen(1), FIRST_LINK))
    assert calls_of(lambda: many.receive(Seen(1), FIRST_LINK)) == calls


def test_stalled_durable_subscriptions_are_served_in_turn() -> None:
    broker = Broker(durables=2, window_bytes=1)  # a message at a time
    for seq in range(8):
        broker.receive(Publish(Parcel.of("", to_batch({"x": seq // 4})), seq, durable=True))
    for _ in range(50):
        broker.receive(Seen(broker.sent))
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
    told = [each for each in effects if isinstance(each, Report) and each.event == "failed"]
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
    failed = [each for each in told if each.event == "journal_failed"]
    assert [each.details.get("count") for each in failed] == [1, 10]
    assert all(each.details["reason"] == "the disk is full" for each in failed)


def test_nothing_is_kept_for_a_session_that_ends_while_it_settles() -> None:
    broker = Broker(neighbours=1)  # which never answers
    for id in range(3):
        broker.receive(Settle(id))
    assert len(broker.node._core.settling) == 6  # each asks the registry, and then the tables
    broker.receive(Bye("closed"))
    assert len(broker.node._core.settling) == 0


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
        assert (heard.waiting, list(heard.gaps)) == (10 * len(publishers), [])


@our.examples(40)
@given(our.SEEDS)
def test_what_is_settled_while_links_come_into_use_is_in_force_beyond_them(seed: int) -> None:
    run(asyncio.wait_for(hear_while_the_network_forms(seed), 600))
