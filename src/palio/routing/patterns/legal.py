"""Checks of messages about patterns: the rules behind the table of `patterns.messages`."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from palio.errors import InvalidEvent, InvalidInput, LimitExceeded
from palio.model.events import TIME, timestamp_type
from palio.model.filters import UnreadFilter
from palio.model.parcels import Parcel
from palio.model.patterns import Pattern
from palio.model.row_parcels import RowParcel
from palio.routing.patterns.messages import (
    CancelPattern,
    Composite,
    HeldBack,
    Ready,
    Returned,
    SubscribePattern,
    TooLate,
)
from palio.routing.patterns.providers import MAX_DELEGATED
from palio.routing.patterns.subscriptions import AssemblyPlace, PatternSubscription
from palio.routing.protocol import IllegalMessage, Peer

FromProvider: TypeAlias = Ready | Returned | HeldBack | Composite | TooLate
"""Messages of a provider about a pattern that was delegated to it."""


def bound(sender: Peer, message: SubscribePattern | CancelPattern) -> Pattern:
    """Return the pattern of a message with its values.

    A subscription that could not be parsed counts as TRUE. A step must not: with it, the pattern
    would have other occurrences.
    """
    unread = [step.text for step in message.pattern.steps if isinstance(step, UnreadFilter)]
    if unread:
        raise IllegalMessage(sender, f"a pattern with a step that cannot be read: {unread[0]:.200}")
    try:
        return message.pattern.bind(message.values)
    except InvalidInput as error:
        raise IllegalMessage(sender, f"{type(message).__name__}: {error}") from None


def check_room(sender: Peer, count: int) -> None:
    """Refuse one more pattern of a peer at its limit."""
    if count < MAX_DELEGATED:
        return
    # A client's request fails; a broker that exceeds the limit is broken, and loses its link.
    if sender.is_client:
        raise LimitExceeded(
            "a session's number of patterns that brokers assemble",
            limit="MAX_DELEGATED",
            maximum=MAX_DELEGATED,
        )
    raise IllegalMessage(sender, f"more than {MAX_DELEGATED} patterns (MAX_DELEGATED)")


def check_times(parcel: Parcel) -> None:
    """Refuse events without a time, which brokers stamp.

    >>> from datetime import UTC
    >>> check_times(RowParcel("p", [{"$time": datetime(2026, 1, 1, tzinfo=UTC)}]))
    """
    # A column is checked at once; rows that are at hand are not made columns for it.
    if parcel.values is None and not isinstance(parcel, RowParcel):
        index = parcel.batch.schema.get_field_index(TIME)
        column = None if index < 0 else parcel.batch.column(index)
        is_dated = column is not None and column.type == timestamp_type() and not column.null_count
    else:
        times = (row.get(TIME) for row in parcel.rows)
        is_dated = all(isinstance(time, datetime) and time.tzinfo is not None for time in times)
    if not is_dated:
        raise InvalidEvent(
            f"an event of {parcel.publisher!r} has no {TIME} with a zone; "
            "the broker that it is published at stamps it"
        )


def check_turn(sender: Peer, message: FromProvider, subscription: PatternSubscription) -> None:
    """Refuse a provider's message that the stage of its pattern does not allow."""
    due: tuple[AssemblyPlace, ...] = (AssemblyPlace.THERE, AssemblyPlace.RECALLED)
    # `RECALLED` too: reports and occurrences may be in flight while the recall is.
    if isinstance(message, Ready):
        due = (AssemblyPlace.MOVING,)
    elif isinstance(message, Returned | HeldBack):
        due = (AssemblyPlace.RECALLED,)
    if subscription.provider != sender or subscription.stage not in due:
        kind = type(message).__name__
        raise IllegalMessage(sender, f"{kind} of pattern {message.key} out of turn")
