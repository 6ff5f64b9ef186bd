"""Deliberate bugs of the client's end, each a change that a tired programmer could make."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from palio.protocol.client import ClientCore, Crossing
from palio.protocol.client_session import ClientSession
from palio.protocol.messages import Accepted
from palio.protocol.publications import Publications
from palio.protocol.receipts import Receipts
from palio.protocol.requests import Requests, Table
from tests.mutations import Mutation, all_fresh, nothing


def _nothing_again(right: Callable[..., Any]) -> Callable[..., Any]:
    """A session that is resumed sends nothing again."""

    def wrong(self: ClientSession, welcome: Any) -> list[Any]:
        right(self, welcome)
        return []

    return wrong


def _not_taken_but_arrived(right: Callable[..., Any]) -> Callable[..., Any]:
    """What cannot be read counts as arrived."""

    def wrong(self: ClientSession, error: Any, now: float) -> None:
        self.stream.received += 1
        right(self, error, now)

    return wrong


def _one_stream_for_ever(right: Callable[..., Any]) -> Callable[..., Any]:
    """A session that is renewed counts on from the one before."""

    def wrong(self: ClientSession, welcome: Any) -> list[Any]:
        before = self.stream
        again: list[Any] = right(self, welcome)
        self.stream = before
        return again

    return wrong


def _open_requests_are_forgotten(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Requests) -> list[Any]:
        right(self)
        return []

    return wrong


def _no_durable_events(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Publications) -> None:
        kept, self._flights[True] = self._flights[True], deque()
        right(self)
        self._flights[True] = kept

    return wrong


def _unanswered_is_accepted(right: Callable[..., Any]) -> Callable[..., Any]:
    """Events that are not durable count as accepted when the session is lost."""

    def wrong(self: Publications) -> None:
        if self._flights[False]:
            self.accepted(Accepted(self._flights[False][-1].last, "memory"))
        right(self)

    return wrong


def _any_level_will_do(right: Callable[..., Any]) -> Callable[..., Any]:
    """What is in memory counts as durable."""

    def wrong(self: Publications, message: Accepted, *, behind: bool) -> None:
        right(self, message, behind=behind)
        right(self, Accepted(message.seq, "durable"), behind=behind)

    return wrong


def _all_new(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _self, message: message


MUTATIONS: Final = (
    Mutation("a session resumes with nothing", ClientSession, "_welcomed", _nothing_again),
    Mutation("what is damaged has arrived", ClientSession, "_cannot_take", _not_taken_but_arrived),
    Mutation("one stream for all sessions", ClientSession, "_welcomed", _one_stream_for_ever),
    Mutation("arrivals are not acknowledged", ClientSession, "_acknowledge", nothing),
    Mutation("a lost connection is not dialled again", ClientSession, "_pause", nothing),
    Mutation("nothing is subscribed anew", Table, "_subscribe_all", nothing),
    Mutation("open requests are forgotten", Requests, "take_all", _open_requests_are_forgotten),
    Mutation("durable events do not go again", Publications, "renew", _no_durable_events),
    Mutation("what is unknown is accepted", Publications, "renew", _unanswered_is_accepted),
    Mutation("memory is called durable", Publications, "accepted", _any_level_will_do),
    Mutation("what was dealt with is fresh", Receipts, "came", all_fresh),
    Mutation("what both brokers say is heard twice", Crossing, "first_time", _all_new),
    Mutation("the old broker is not left", ClientCore, "moved", nothing),
)
"""What the storms must notice."""
