"""Deliberate bugs of one broker, each a change that a tired programmer could make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

from msgspec.structs import replace

from palio.model.filters import FALSE, UnreadFilter
from palio.node import claims, requests
from palio.node.cluster_state import ClusterState
from palio.node.durability import Durability
from palio.node.durable import DurableEvents
from palio.node.loss_reports import Absences, Affected, LossReports
from palio.node.operations import Kept, Open
from palio.node.queues import Queues
from palio.node.requests import RequestHandler
from palio.node.sessions import PeerSession
from palio.node.streams import Streams
from palio.protocol.messages import Facts
from palio.protocol.wire import Decoder
from tests.mutations import Mutation, nothing


def _nobody_is_missed(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _self: (Affected.NONE, [])


def _promised_before_it_is_written(right: Callable[..., Any]) -> Callable[..., Any]:
    """Acknowledge from memory what was called durable."""

    def wrong(self: DurableEvents, now: float, operations: Any, token: Any) -> Any:
        follows = right(self, now, operations, None)
        return follows if token is None else [*follows, Kept(token)]

    return wrong


# --- durable events ---


def _one_way_only(_: Callable[..., Any]) -> Callable[..., Any]:
    """What was sent by a way that is gone does not go by another."""

    def wrong(self: Streams, _now: float, way: Any) -> list[Any]:
        self._path_to = way
        return []

    return wrong


def _acknowledges_all(right: Callable[..., Any]) -> Callable[..., Any]:
    """The first word of a subscription clears its whole queue."""

    def wrong(self: DurableEvents, now: float, subject: str, _upto: int, *args: Any) -> Any:
        return right(self, now, subject, self.log.last_offset, *args)

    return wrong


def _one_too_far(right: Callable[..., Any]) -> Callable[..., Any]:
    """The entry after the one that was acknowledged is over, too."""

    def wrong(self: DurableEvents, now: float, subject: str, upto: int, *args: Any) -> Any:
        return right(self, now, subject, min(upto + 1, self.log.last_offset), *args)

    return wrong


def _stored_as_sent(right: Callable[..., Any]) -> Callable[..., Any]:
    """A home that has stored something has stored all that was sent to it."""

    def wrong(self: Streams, now: float, message: Any) -> Any:
        flow = self._flows.get(message.home)
        offset = message.offset if flow is None else max(message.offset, flow.sent)
        return right(self, now, replace(message, offset=offset))

    return wrong


def _over_for_all(_: Callable[..., Any]) -> Callable[..., Any]:
    """What one durable subscription has dealt with is written off for all."""

    def wrong(self: Queues, entries: Any) -> list[int]:
        return [each for each in entries if self._uses.pop(each, None) is not None]

    return wrong


def _takes_early(right: Callable[..., Any]) -> Callable[..., Any]:
    """A home takes an entry though it lacks the one before it."""

    def wrong(self: DurableEvents, now: float, wall_us: int, message: Any) -> Any:
        stored = self.overlay.cursor(message.origin) or self.queues.cursors.get(message.origin)
        if stored is not None and stored.log == message.log and message.offset > stored.offset:
            message = replace(message, previous=stored.offset)
        return right(self, now, wall_us, message)

    return wrong


def _stays_behind(_: Callable[..., Any]) -> Callable[..., Any]:
    """What waits for a durable subscription does not follow it."""
    return lambda _self, claim: [Open(claim)]


# --- what brokers tell each other ---


def _nothing_is_lacking(right: Callable[..., Any]) -> Callable[..., Any]:
    """A new neighbour is told what is news, and not what it lacks."""

    def wrong(self: ClusterState, neighbour: str, versions: Any, at: Any) -> None:
        right(self, neighbour, versions, at)
        if self.outbox and self.outbox[-1][0] == neighbour:
            _, message = self.outbox[-1]
            if isinstance(message, Facts):
                self.outbox.pop()

    return wrong


def _all_is_whole(_: Callable[..., Any]) -> Callable[..., Any]:
    """Brokers to which no way leads are named by nobody."""
    return lambda _self: []


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

    def wrong(self: Durability, claim: Any) -> None:
        if not claim.revision:
            right(self, claim)

    return wrong


def _by_the_clock(_: Callable[..., Any]) -> Callable[..., Any]:
    """Which of two visits is the later one is left to the clocks of their brokers."""
    return lambda _one, _other: False


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
            self.send(out, message)
        else:
            right(self, out, message, limit)

    return wrong


IN_NODES: Final = (
    Mutation(
        "acknowledged before it is written", DurableEvents, "append", _promised_before_it_is_written
    ),
    Mutation("what is lost does not go again", Streams, "paths_changed", _one_way_only),
    Mutation("nothing is asked for again", Streams, "tick", lambda _: lambda _self, _now: []),
    Mutation("one word clears the queue", DurableEvents, "acknowledge", _acknowledges_all),
    Mutation("the next entry is over, too", DurableEvents, "acknowledge", _one_too_far),
    Mutation("stored is what was sent", Streams, "has_stored", _stored_as_sent),
    Mutation("over for one is over for all", Queues, "_used", _over_for_all),
    Mutation("an early entry is taken", DurableEvents, "carry", _takes_early),
    Mutation(
        "what a neighbour lacks is not sent", ClusterState, "_synchronize", _nothing_is_lacking
    ),
    Mutation("the lost are not named", ClusterState, "unreachable", _all_is_whole),
    Mutation("what cannot be read is nothing", Decoder, "_stated", _as_nothing),
    Mutation("losses are not told", LossReports, "note", nothing),
    Mutation("losses elsewhere are not told", LossReports, "note_here", nothing),
    Mutation("who was away is not missed", Absences, "judge", _nobody_is_missed),
    Mutation("changes are not narrowed", RequestHandler, "_update", _changes_are_not_narrowed),
    Mutation("changes are not claimed", Durability, "announce", _claimed_once),
    Mutation("what waits stays behind", DurableEvents, "_opening", _stays_behind),
    Mutation("visits go by the clock", claims, "is_later", _by_the_clock),
    Mutation("what is shed is not told", PeerSession, "_lose", _shed_in_silence),
    Mutation("new events pass those that wait", PeerSession, "offer", _past_the_queue),
)
"""Of durable events, cluster_state, what cannot be read, grants, moves and queues."""
