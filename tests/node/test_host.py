from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest

from palio.errors import IllegalMessage
from palio.multicast.datagrams import Datagram
from palio.node.authority import Principal
from palio.node.effects import Answered, Close, Effect, Moment, Report, Send
from palio.node.host import Host, numbered_ids
from palio.node.operations import Append, DropRecord, PutRecord, PutTime, Record
from palio.node.readiness import Readiness
from palio.protocol.messages import Bye, Message, Ping, Pong


class Scripted:
    """A node that answers every call with the effects that its test has put down."""

    name = "b1"

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.wake_at = inf
        self.calls: list[tuple[Any, ...]] = []

    def _answer(self, *call: Any) -> Sequence[Effect]:
        self.calls.append(call)
        effects, self.effects = self.effects, []
        return effects

    def start(self, at: Moment) -> Sequence[Effect]:
        return self._answer("start", at.now)

    def accept(self, link: int, at: Moment, principal: str = "") -> Sequence[Effect]:
        return self._answer("accept", at.now, link, principal)

    def dial(self, link: int, at: Moment, peer: str = "", url: str = "") -> Sequence[Effect]:
        return self._answer("dial", at.now, link, peer, url)

    def unreachable(self, url: str, reason: str, at: Moment) -> Sequence[Effect]:
        return self._answer("unreachable", at.now, url, reason)

    def reachable_at(self, url: str, at: Moment) -> Sequence[Effect]:
        return self._answer("reachable_at", at.now, url)

    def receive(
        self, link: int, message: Message, at: Moment, *, up_to: int | None = None
    ) -> Sequence[Effect]:
        return self._answer("receive", at.now, link, message, *([] if up_to is None else [up_to]))

    def illegal(self, link: int, error: IllegalMessage, at: Moment) -> Sequence[Effect]:
        return self._answer("illegal", at.now, link, error.reason)

    def lost(self, link: int, at: Moment) -> Sequence[Effect]:
        return self._answer("lost", at.now, link)

    def principal(self, link: int) -> Principal:
        return Principal(f"principal of {link}")

    def stored(self, ticket: int, at: Moment) -> Sequence[Effect]:
        return self._answer("stored", at.now, ticket)

    def failed(self, ticket: int, reason: str, at: Moment) -> Sequence[Effect]:
        return self._answer("failed", at.now, ticket, reason)

    def writable(self, at: Moment) -> Sequence[Effect]:
        return self._answer("writable", at.now)

    def tick(self, at: Moment) -> Sequence[Effect]:
        self.wake_at = inf
        return self._answer("tick", at.now)

    is_leaving = False
    is_free_to_go = True

    def keep(self, record: Record, answered: Answered, at: Moment) -> Sequence[Effect]:
        answered(None)
        return self._answer("keep", at.now, record)

    def leave(self, at: Moment) -> Sequence[Effect]:
        return self._answer("leave", at.now)

    def receive_datagram(self, datagram: Datagram, at: Moment) -> Sequence[Effect]:
        return self._answer("receive_datagram", at.now, datagram)

    def close(self, at: Moment) -> Sequence[Effect]:
        return self._answer("close", at.now)

    def status(self) -> dict[str, Any]:
        return {}

    def readiness(self) -> Readiness:
        return Readiness()


class Ports:
    """A store and a clock that note what they are asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.appended: list[Append] = []
        self.alarms: list[float] = []
        self.reports: list[Report] = []
        self.node = Scripted()
        self.host = Host(self.node, self, self, self.reports.append)

    def append(self, append: Append) -> None:
        self.appended.append(append)

    def moment(self) -> Moment:
        return Moment(self.now, 0)

    def wake_at(self, at: float) -> None:
        self.alarms.append(at)

    def link(self) -> tuple[int, Link]:
        """A link that the node knows."""
        number, link = self.host.new_link(), Link()
        self.host.accept(number, link)
        self.node.calls.clear()
        return number, link


class Link:
    """A connection that notes what is done to it."""

    def __init__(self) -> None:
        self.done: list[Message | str] = []

    def send(self, message: Message) -> None:
        self.done.append(message)

    def close(self, reason: str, /) -> None:
        self.done.append(reason)


def test_a_link_that_the_node_closed_is_gone_and_not_lost() -> None:
    ports = Ports()
    number, link = ports.link()
    ports.node.effects = [Close(number, "over"), Send(number, Ping())]
    ports.host.receive(number, Bye("closed"))
    assert link.done == ["over"]
    assert not ports.host.lost(number)
    ports.host.illegal(number, IllegalMessage("b2", "no frame"))
    assert [call[0] for call in ports.node.calls] == ["receive"]


def test_a_link_is_lost_once() -> None:
    ports = Ports()
    number, _ = ports.link()
    assert ports.host.lost(number)
    assert not ports.host.lost(number)
    assert ports.node.calls == [("lost", 0.0, number)]


def test_the_clock_is_asked_again_only_for_something_earlier() -> None:
    ports = Ports()
    ports.node.wake_at = 5.0
    ports.host.start()
    ports.host.answered(1, None)
    ports.node.wake_at = 9.0
    ports.host.answered(2, None)
    assert ports.alarms == [5.0]
    ports.node.wake_at = 2.0
    ports.host.answered(3, None)
    assert ports.alarms == [5.0, 2.0]


def test_the_node_is_woken_in_time_and_never_too_early() -> None:
    ports = Ports()
    ports.node.wake_at = 2.0
    ports.host.start()
    ports.now = 1.9999  # the clock rings a step too early
    ports.host.tick(2.0)
    assert ports.alarms == [2.0, 2.0]
    ports.now = 2.0
    ports.node.wake_at = 7.0
    ports.host.tick(2.0)  # the node wants it later by now
    ports.now = 7.0
    ports.node.wake_at = 6.5
    ports.host.tick(7.0)
    assert ports.node.calls == [("start", 0.0), ("tick", 7.0)]


def test_an_alarm_that_was_replaced_rings_in_vain() -> None:
    ports = Ports()
    ports.node.wake_at = 5.0
    ports.host.start()
    ports.node.wake_at = 2.0
    ports.host.answered(1, None)
    ports.now = 5.0
    ports.host.tick(5.0)
    assert [call[0] for call in ports.node.calls] == ["start", "stored"]


def test_a_closed_host_closes_what_the_node_leaves_open_and_is_woken_no_more() -> None:
    ports = Ports()
    number, link = ports.link()
    _, other = ports.link()
    ports.node.effects = [Send(number, Bye("closed")), Close(number, "closed")]
    ports.node.wake_at = 1.0
    ports.host.close("the server is stopping")
    assert link.done == [Bye("closed"), "closed"]
    assert other.done == ["the server is stopping"]
    assert ports.alarms == []
    assert not ports.host.links


def test_nothing_reaches_a_node_whose_host_was_stopped() -> None:
    ports = Ports()
    number, link = ports.link()
    ports.node.wake_at = 1.0
    ports.host.start()
    ports.node.calls.clear()
    ports.host.stop()
    ports.now = 1.0
    ports.host.receive(number, Ping())
    ports.host.illegal(number, IllegalMessage("b2", "no frame"))
    ports.host.lost(number)
    ports.host.answered(1, None)
    ports.host.unreachable("palio://b2", "too late")
    ports.host.tick(1.0)
    assert ports.node.calls == []
    assert link.done == []


def test_sessions_of_two_lives_have_different_names() -> None:
    first, second = numbered_ids("b1-1"), numbered_ids("b1-2")
    assert len({first(), first(), second(), second()}) == 4


def test_what_a_front_keeps_is_refused_once_the_broker_has_stopped() -> None:
    ports = Ports()
    answers: list[str | None] = []
    ports.host.keep(DropRecord("k"), answers.append)
    ports.host.stop()
    ports.host.keep(PutRecord("k", b"v"), answers.append)
    assert answers == [None, "the broker is stopping"]


def test_an_effect_that_fails_takes_nothing_from_the_others() -> None:
    ports = Ports()
    one, link = ports.link()
    two, other = ports.link()

    def fails(_: Message) -> None:
        raise ValueError("a bug")

    link.send = fails  # type: ignore[method-assign, assignment]  # the fault
    append = Append(1, 0, (PutTime(7),))
    ports.node.effects = [Send(one, Ping()), append, Send(two, Pong()), Close(one, "over")]
    ports.node.wake_at = 5.0
    with pytest.raises(ValueError, match="a bug"):
        ports.host.receive(one, Ping())
    assert (ports.appended, other.done, link.done) == ([append], [Pong()], ["over"])
    assert ports.alarms == [5.0]
