"""Check messages about patterns: the rules behind the table of `patterns.messages`."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from palio.errors import InvalidEvent, InvalidInput, LimitExceeded
from palio.model.events import TIME, TIMESTAMP
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
from palio.routing.patterns.standing import AssemblyPlace, PatternSubscription
from palio.routing.protocol import IllegalMessage, Peer

FromProvider: TypeAlias = Ready | Returned | HeldBack | Composite | TooLate
"""Messages of a provider about a pattern that it was given."""


def bound(sender: Peer, message: SubscribePattern | CancelPattern) -> Pattern:
    """The pattern of a message, with its values. A step that cannot be read does not stand for
    everything, as a subscription does: what would be found is not what was asked for.
    """
    unread = [each.text for each in message.pattern.steps if isinstance(each, UnreadFilter)]
    if unread:
        raise IllegalMessage(sender, f"a pattern with a step that cannot be read: {unread[0]:.200}")
    try:
        return message.pattern.bind(message.values)
    except InvalidInput as error:
        raise IllegalMessage(sender, f"{type(message).__name__}: {error}") from None


def check_room(sender: Peer, count: int) -> None:
    """Refuse one pattern more of a peer at its limit."""
    if count < MAX_DELEGATED:
        return
    if sender.is_client:
        raise LimitExceeded(
            "a session's number of patterns that brokers assemble",
            limit="MAX_DELEGATED",
            maximum=MAX_DELEGATED,
        )
    raise IllegalMessage(sender, f"more than {MAX_DELEGATED} patterns (MAX_DELEGATED)")


def check_times(parcel: Parcel) -> None:
    """Refuse events that no broker has dated.

    >>> from datetime import UTC
    >>> check_times(RowParcel("p", [{"$time": datetime(2026, 1, 1, tzinfo=UTC)}]))
    """
    if parcel.values is None and not isinstance(parcel, RowParcel):
        place = parcel.batch.schema.get_field_index(TIME)
        column = None if place < 0 else parcel.batch.column(place)
        is_dated = column is not None and column.type == TIMESTAMP and not column.null_count
    else:
        times = (row.get(TIME) for row in parcel.rows)
        is_dated = all(isinstance(time, datetime) and time.tzinfo is not None for time in times)
    if not is_dated:
        raise InvalidEvent(
            f"an event of {parcel.publisher!r} has no {TIME} with a zone; "
            "the broker that it is published at stamps it"
        )


def check_turn(sender: Peer, message: FromProvider, standing: PatternSubscription) -> None:
    """Refuse a provider's message that is out of turn."""
    due: tuple[AssemblyPlace, ...] = (AssemblyPlace.THERE, AssemblyPlace.RECALLED)
    if isinstance(message, Ready):
        due = (AssemblyPlace.MOVING,)
    elif isinstance(message, Returned | HeldBack):
        due = (AssemblyPlace.RECALLED,)
    if standing.provider != sender or standing.stage not in due:
        kind = type(message).__name__
        raise IllegalMessage(sender, f"{kind} of pattern {message.key} out of turn")
