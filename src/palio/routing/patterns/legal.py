"""What may be said about a pattern when: the checks behind the table of `patterns.messages`."""

from __future__ import annotations

from typing import TypeAlias

from palio.errors import InvalidInput, LimitExceeded
from palio.model.patterns import Pattern
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

__all__ = ["FromProvider", "bound", "check_room", "check_turn"]

FromProvider: TypeAlias = Ready | Returned | HeldBack | Composite | TooLate
"""What a provider says about a pattern that it was given."""


def bound(sender: Peer, message: SubscribePattern | CancelPattern) -> Pattern:
    """The pattern of a message, with its values."""
    try:
        return message.pattern.bind(message.values)
    except InvalidInput as error:
        raise IllegalMessage(sender, f"{type(message).__name__}: {error}") from None


def check_room(sender: Peer, count: int) -> None:
    """Refuse one pattern more of who has so many."""
    if count < MAX_DELEGATED:
        return
    if sender.is_client:
        raise LimitExceeded(
            "a session's number of patterns that brokers assemble",
            limit="MAX_DELEGATED",
            maximum=MAX_DELEGATED,
        )
    raise IllegalMessage(sender, f"more than {MAX_DELEGATED} patterns (MAX_DELEGATED)")


def check_turn(sender: Peer, message: FromProvider, standing: PatternSubscription) -> None:
    """Refuse what a provider has no reason to say now."""
    due: tuple[AssemblyPlace, ...] = (AssemblyPlace.THERE, AssemblyPlace.RECALLED)
    if isinstance(message, Ready):
        due = (AssemblyPlace.MOVING,)
    elif isinstance(message, Returned | HeldBack):
        due = (AssemblyPlace.RECALLED,)
    if standing.provider != sender or standing.stage not in due:
        said = type(message).__name__
        raise IllegalMessage(sender, f"{said} of pattern {message.key} out of turn")
