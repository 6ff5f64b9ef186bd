"""Deliberate bugs of one broker, each a change that a tired programmer could make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from palio.node.core import Core
from palio.node.custody import Custody
from palio.node.durability import Addressees, Durability
from palio.node.lapses import Lapses
from palio.node.publishing import Publishing
from palio.node.refusals import Refusals
from palio.node.registry import Registry
from palio.protocol.messages import Route
from palio.protocol.seen_numbers import SeenNumbers
from palio.protocol.streams import Stream
from palio.simulation.agenda import MESSAGE
from palio.simulation.pipes import Pipe
from tests.mutations import Mutation, all_fresh, nothing

__all__ = ["MUTATIONS"]


def _no_operations(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(*args: Any) -> list[Any]:
        right(*args)
        return []

    return wrong


def _promised_before_it_is_written(right: Callable[..., Any]) -> Callable[..., Any]:
    """Acknowledge from memory what was called durable."""

    def wrong(self: Core, operations: Any, then: Any = None, otherwise: Any = None) -> None:
        right(self, operations, None, otherwise)
        if then is not None:
            then()

    return wrong


def _nothing_stranded(right: Callable[..., Any]) -> Callable[..., Any]:
    """A neighbour's death takes with it what it had not taken."""

    def wrong(self: Custody, neighbour: str) -> None:
        right(self, neighbour)
        self._stranded.clear()

    return wrong


def _never_resumes(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Stream, count: int) -> list[Any]:
        right(self, count)
        return []

    return wrong


def _resumes_all(right: Callable[..., Any]) -> Callable[..., Any]:
    """Send again what had arrived."""

    def wrong(self: Stream, count: int) -> list[Any]:
        kept = [message for message, _ in self._unseen]
        right(self, count)
        return kept

    return wrong


def _one_home_only(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Durability, parcel: Any) -> Addressees:
        found = right(self, parcel)
        return Addressees(dict(list(found.homes.items())[:1]), found.here)

    return wrong


def _acknowledges_all(right: Callable[..., Any]) -> Callable[..., Any]:
    """The first word of a subscription clears its whole line."""

    def wrong(self: Custody, subscription: str, _entry: int) -> Any:
        return right(self, subscription, 1 << 60)

    return wrong


def _newest_first(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Custody, entry: int, next_hop: Any) -> None:
        before = {hop: len(queue) for hop, queue in self._queues.items()}
        right(self, entry, next_hop)
        for hop, queue in self._queues.items():
            if len(queue) > before.get(hop, 0):
                queue.rotate(1)

    return wrong


def _homes_forgotten_at_the_start(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Custody, name: str, store: Any, stored: Any) -> None:
        right(self, name, store, stored._replace(pending=[]))

    return wrong


def _windows_forgotten_at_the_start(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: SeenNumbers, _stored: Any = ()) -> None:
        right(self)

    return wrong


def _taken_at_once(right: Callable[..., Any]) -> Callable[..., Any]:
    """Whoever took the events for one home has taken them for all."""

    def wrong(table: dict[int, Any], entry: int, _homes: Any) -> None:
        right(table, entry, table.get(entry, ()))

    return staticmethod(wrong)


def _overtakes(right: Callable[..., Any]) -> Callable[..., Any]:
    """One frame of forty is there before those that were sent before it."""
    count = 0

    def wrong(self: Pipe, side: int, data: bytes | None) -> None:
        nonlocal count
        count += 1
        if count % 40 == 0 and data is not None:
            planner = self.surface.planner
            planner.at(planner.now_us, MESSAGE, lambda: self.ends[side].take(data))
        else:
            right(self, side, data)

    return wrong


def _tried_again_as_it_is(_: Callable[..., Any]) -> Callable[..., Any]:
    """What a neighbour cannot read is put in its own place."""
    return lambda _self, _neighbour, control: [Route(control)]


def _all_is_whole(right: Callable[..., Any]) -> Callable[..., Any]:
    """Whoever was lost before its neighbour was asked is named by nobody."""

    def wrong(self: Registry, echo: Any) -> None:
        if echo.parent is not None:
            right(self, echo)

    return wrong


MUTATIONS: Final = (
    Mutation("acknowledged before it is written", Core, "append", _promised_before_it_is_written),
    Mutation("numbers that came are not known", SeenNumbers, "fresh", all_fresh),
    Mutation("windows are not written", SeenNumbers, "add", _no_operations),
    Mutation("windows are forgotten", SeenNumbers, "__init__", _windows_forgotten_at_the_start),
    Mutation("custody is forgotten", Custody, "__init__", _homes_forgotten_at_the_start),
    Mutation("what was not taken is dropped", Custody, "detach", _nothing_stranded),
    Mutation("new ways are not taken", Custody, "reroute", nothing),
    Mutation("unacknowledged is not sent again", Custody, "rewind", nothing),
    Mutation("one word clears the line", Custody, "acknowledge", _acknowledges_all),
    Mutation("the newest goes first", Custody, "dispatch", _newest_first),
    Mutation("taken for one is taken for all", Custody, "_shrink", _taken_at_once),
    Mutation("nothing leaves the disk", Core, "dismiss", nothing),
    Mutation("only one home", Durability, "addressees", _one_home_only),
    Mutation("a session resumes with nothing", Stream, "resume", _never_resumes),
    Mutation("a session resumes with too much", Stream, "resume", _resumes_all),
    Mutation("what is refused is sent for ever", Stream, "returned", nothing),
    Mutation("what is taken is not said", Publishing, "took", nothing),
    Mutation("facts are not passed on", Registry, "_flood", nothing),
    Mutation("the lost are not named", Registry, "_name_lost", _all_is_whole),
    Mutation("an unreadable filter is sent for ever", Refusals, "_requests", _tried_again_as_it_is),
    Mutation("a frame overtakes", Pipe, "carry", _overtakes),
    Mutation("losses are not told", Lapses, "note", nothing),
)
"""What the storms must notice."""
