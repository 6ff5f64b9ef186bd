"""Which messages of the proxy hierarchy are legal: who may send them, and what they may say.

Whether a message is legal depends on nothing but who sends it and which numbers were given, so a
bundle can be checked as a whole before any part of it is acted on. What is legal and does not fit
the table (a de-registration of what is not registered) is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palio.model.limits import MAX_ATTRIBUTES
from palio.routing.protocol import IllegalMessage, Peer, Role
from palio.routing.proxies.messages import (
    MAX_BUNDLE,
    Alive,
    Bundle,
    Dereg,
    Drop,
    Encapsulated,
    EventType,
    Merged,
    ProxyControl,
    Reg,
    Sub,
    Unsub,
    Wish,
    type_of,
    type_with,
)

__all__ = ["check"]


def check(sender: Peer, messages: Sequence[ProxyControl], last_number: int) -> None:
    """Raise `IllegalMessage` unless all of the messages are legal from this sender."""
    if len(messages) > MAX_BUNDLE:
        raise IllegalMessage(sender, f"its bundle exceeds MAX_BUNDLE = {MAX_BUNDLE}")
    for message in messages:
        if sender.role not in _SENDERS.get(type(message), ()):
            raise IllegalMessage(sender, f"it may not send {type(message).__name__} here")
        problem = _problem(message)
        if problem is not None:
            raise IllegalMessage(sender, f"{type(message).__name__}: {problem}")
        number = getattr(message, "number", 0)
        if sender.role is Role.MASTER and number > last_number:
            raise IllegalMessage(sender, f"number {number} was never given")


_SENDERS: Final[dict[type, frozenset[Role]]] = {
    Reg: frozenset(Role),
    Dereg: frozenset(Role),
    Sub: frozenset({Role.CLIENT}),
    Merged: frozenset({Role.BROKER, Role.MASTER}),
    Unsub: frozenset(Role),
    Drop: frozenset({Role.MASTER}),
    Encapsulated: frozenset(Role),
    Alive: frozenset({Role.CLIENT}),
}


def _problem(message: ProxyControl) -> str | None:
    """The reason why a message is illegal from any sender; None if it is not."""
    if isinstance(message, Alive | Bundle):
        return None
    if isinstance(message, Encapsulated):
        kind = type_of(message.event)
        problem = None if all(kind) else "an attribute has an empty name"
    else:
        kind = message.event_type
        well_formed = all(kind) and kind == type_with(kind)
        problem = None if well_formed else "an event type is a sorted tuple of distinct names"
    if problem is not None:
        return problem
    if len(kind) > MAX_ATTRIBUTES:
        return f"its event type exceeds MAX_ATTRIBUTES = {MAX_ATTRIBUTES}"
    match message:
        case Sub(specification=specification, lifetime=lifetime, count=count):
            if lifetime is not None and not lifetime > 0:
                return f"a lifetime is a positive number of seconds, not {lifetime}"
            return _problem_of_wish(kind, Wish(specification, count=count))
        case Merged(wishes=wishes):
            if not wishes:
                return "it asks for nothing; that is what Unsub is for"
            unlimited = [each.pre for each in wishes if each.count is None]
            if len(set(unlimited)) < len(unlimited):
                return "wishes without a count and with the same PRE bit are merged into one"
            return next(filter(None, (_problem_of_wish(kind, each) for each in wishes)), None)
    return None


def _problem_of_wish(kind: EventType, wish: Wish) -> str | None:
    specification = wish.specification
    if specification.variables:
        return f"{specification} has variables; bind them first"
    if wish.count is not None and wish.count < 1:
        return f"a count is at least 1, not {wish.count}"
    foreign = [name for name in specification.attributes if name[0] != "$" and name not in kind]
    if foreign:
        return f"{specification} reads {min(foreign)}, which events of type {kind} do not have"
    return None
