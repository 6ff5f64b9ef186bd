"""Deliberate bugs of one broker, each a change that a tired programmer could make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

from msgspec.structs import replace

from palio.model.filters import FALSE, UnreadFilter
from palio.node import requests
from palio.node.carrying import Carried, Carrying
from palio.node.core import Core
from palio.node.custody import Custody
from palio.node.durability import Durability
from palio.node.effects import Forget
from palio.node.lapses import Lapses
from palio.node.registry import Registry
from palio.node.releases import Releases
from palio.node.requests import RequestHandler
from palio.node.sessions import PeerSession
from palio.protocol.messages import Facts, Visit
from palio.protocol.wire import Decoder
from tests.mutations import Mutation, nothing

__all__ = ["IN_NODES"]


def _promised_before_it_is_written(right: Callable[..., Any]) -> Callable[..., Any]:
    """Acknowledge from memory what was called durable."""

    def wrong(self: Core, operations: Any, then: Any = None, otherwise: Any = None) -> None:
        right(self, operations, None, otherwise)
        if then is not None:
            then()

    return wrong


# --- custody and the journal ---


def _nothing_stranded(right: Callable[..., Any]) -> Callable[..., Any]:
    """A neighbour's death takes with it what it had not taken."""

    def wrong(self: Custody, neighbour: str) -> None:
        right(self, neighbour)
        self._stranded.clear()

    return wrong


def _acknowledges_all(right: Callable[..., Any]) -> Callable[..., Any]:
    """The first word of a subscription clears its whole line."""

    def wrong(self: Custody, subscription: str, _entry: int, *args: Any) -> Any:
        return right(self, subscription, 1 << 60, *args)

    return wrong


def _taken_at_once(right: Callable[..., Any]) -> Callable[..., Any]:
    """Whoever took the events for one home has taken them for all."""

    def wrong(table: dict[int, Any], entry: int, _homes: Any) -> None:
        right(table, entry, table.get(entry, ()))

    return staticmethod(wrong)


def _needed_by_homes_only(_: Callable[..., Any]) -> Callable[..., Any]:
    """What waits for subscriptions of this broker is written off once other homes have it."""
    return lambda self, entry: entry in self._homes


def _one_too_far(right: Callable[..., Any]) -> Callable[..., Any]:
    """The journal forgets the entry after the one that was acknowledged, too."""

    def wrong(self: Releases, now: float, operations: Any) -> None:
        further = [
            each._replace(entry=each.entry + 1) if isinstance(each, Forget) else each
            for each in operations
        ]
        right(self, now, further)

    return wrong


# --- what brokers tell each other ---


def _nothing_is_lacking(right: Callable[..., Any]) -> Callable[..., Any]:
    """A new neighbour is told what is news, and not what it lacks."""

    def wrong(self: Registry, neighbour: str, versions: Any, at: Any) -> None:
        right(self, neighbour, versions, at)
        if self.outbox and self.outbox[-1][0] == neighbour:
            _, message = self.outbox[-1]
            if isinstance(message, Facts):
                self.outbox.pop()

    return wrong


def _all_is_whole(right: Callable[..., Any]) -> Callable[..., Any]:
    """Whoever was lost before its neighbour was asked is named by nobody."""

    def wrong(self: Registry, echo: Any) -> None:
        if echo.parent is not None:
            right(self, echo)

    return wrong


def _as_nothing(right: Callable[..., Any]) -> Callable[..., Any]:
    """What cannot be read is taken for nothing."""

    def wrong(self: Decoder, kind: type, text: str) -> Any:
        stated = right(self, kind, text)
        return FALSE if isinstance(stated, UnreadFilter) else stated

    return wrong


# --- clients and their subscriptions ---


def _changes_are_not_narrowed(right: Callable[..., Any]) -> Callable[..., Any]:
    """A grant is looked at when somebody subscribes, and not when the filter changes."""

    def wrong(self: RequestHandler, *args: Any) -> None:
        with patch.object(requests, "narrow", lambda filter, _values, _principal: filter):
            right(self, *args)

    return wrong


def _claimed_once(right: Callable[..., Any]) -> Callable[..., Any]:
    """Other brokers are told of a durable subscription, and not of its new filter or values."""

    def wrong(self: Durability, subject: str, *args: Any) -> Any:
        if subject not in self.here:
            return right(self, subject, *args)
        with patch.object(self, "_claim", lambda _durable: None):
            return right(self, subject, *args)

    return wrong


def _not_followed(right: Callable[..., Any]) -> Callable[..., Any]:
    """What is carried to where a subscription was is matched for it no longer."""
    return lambda self, fact: right(self, replace(fact, links=()))


def _by_the_clock(_: Callable[..., Any]) -> Callable[..., Any]:
    """Which of two visits is the later one is left to the clocks of their brokers."""
    return lambda _self, _other: None


def _shed_in_silence(right: Callable[..., Any]) -> Callable[..., Any]:
    """What did not fit into a queue is counted, and no gap is noted."""

    def wrong(self: PeerSession, message: Any) -> None:
        before = dict(self._gaps)
        right(self, message)
        self._gaps = before

    return wrong


def _past_the_queue(right: Callable[..., Any]) -> Callable[..., Any]:
    """Where there is room again, new events go before those that wait for it."""

    def wrong(self: PeerSession, out: Any, message: Any, limit: int) -> None:
        if self.has_room:
            self.say(out, message)
        else:
            right(self, out, message, limit)

    return wrong


def _begun_anew(_: Callable[..., Any]) -> Callable[..., Any]:
    """Where a disk refuses what a neighbour carries, the neighbour's session ends."""

    def wrong(_self: Carrying, carried: Carried) -> None:
        carried.neighbour.must_begin_anew = True

    return wrong


IN_NODES: Final = (
    Mutation("acknowledged before it is written", Core, "append", _promised_before_it_is_written),
    Mutation("what was not taken is dropped", Custody, "detach", _nothing_stranded),
    Mutation("one word clears the line", Custody, "acknowledge", _acknowledges_all),
    Mutation("a full disk ends sessions", Carrying, "refused", _begun_anew),
    Mutation("taken for one is taken for all", Custody, "_shrink", _taken_at_once),
    Mutation("what still waits is written off", Custody, "is_needed", _needed_by_homes_only),
    Mutation("the next entry is forgotten, too", Releases, "add", _one_too_far),
    Mutation("what a neighbour lacks is not sent", Registry, "_synchronize", _nothing_is_lacking),
    Mutation("the lost are not named", Registry, "_name_lost", _all_is_whole),
    Mutation("what cannot be read is nothing", Decoder, "_stated", _as_nothing),
    Mutation("losses are not told", Lapses, "note", nothing),
    Mutation("losses elsewhere are not told", Lapses, "hear", nothing),
    Mutation("changes are not narrowed", RequestHandler, "_update", _changes_are_not_narrowed),
    Mutation("changes are not claimed", Durability, "put", _claimed_once),
    Mutation("where one has gone is not followed", Durability, "_follow", _not_followed),
    Mutation("visits go by the clock", Visit, "follows", _by_the_clock),
    Mutation("what is shed is not told", PeerSession, "_lose", _shed_in_silence),
    Mutation("new events pass those that wait", PeerSession, "offer", _past_the_queue),
)
"""Of custody, journal, registry, what cannot be read, grants, moves and queues."""
