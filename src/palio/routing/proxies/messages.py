"""The messages of proxies, and of sources and receivers to their primary proxy (proxy IV).

A child numbers its registrations and its subscriptions. Whatever the parent says is said in view
of one of them and carries its number, so that what crosses a withdrawal is recognized as stale
and ignored.

| message        | from                    | when legal                                         |
|----------------|-------------------------|----------------------------------------------------|
| `Reg`          | source, child, parent   | from the parent with a number it was given         |
| `Dereg`        | source, child, parent   | as `Reg`; ignored where nothing is registered      |
| `Sub`          | receiver                | always; in place of what it said of the type before |
| `Merged`       | child, parent           | from the parent with a number it was given         |
| `Unsub`        | receiver, child, parent | as `Merged`; ignored where nothing is subscribed   |
| `Drop`         | parent                  | with a number it was given                         |
| `Encapsulated` | source, child, parent   | always                                             |
| `Alive`        | source                  | always                                             |
| `Bundle`       | anyone                  | if each of its messages is, and none is a bundle   |

To a source a proxy says only `Dereg`, when it gives it up as silent; to a receiver `Drop`
and `Encapsulated`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from palio.model.events import is_system_name
from palio.model.filters import Filter

__all__ = [
    "MAX_BUNDLE",
    "Alive",
    "Bundle",
    "Dereg",
    "Drop",
    "Encapsulated",
    "EventType",
    "Merged",
    "ProxyControl",
    "Reg",
    "Sub",
    "Unsub",
    "Wish",
    "type_of",
    "type_with",
]

MAX_BUNDLE: Final = 4_096
"""Messages of one bundle: enough that a frame's cost does not count, few enough to be one frame."""

EventType: TypeAlias = tuple[str, ...]
"""Names of attributes, sorted and distinct. System attributes (`$seq`) are part of no type."""


@lru_cache(1 << 12)
def _sorted(names: tuple[str, ...]) -> EventType:
    return tuple(sorted({name for name in names if not is_system_name(name)}))


def type_with(names: Iterable[str]) -> EventType:
    """The event type of some attribute names.

    >>> type_with(["symbol", "price", "$seq"])
    ('price', 'symbol')
    """
    return _sorted(tuple(names))


def type_of(event: Mapping[str, Any]) -> EventType:
    """The event type of an event: the attributes it has.

    >>> type_of({"symbol": "IBM", "price": 9.5, "volume": None})
    ('price', 'symbol')
    """
    return _sorted(tuple(name for name, value in event.items() if value is not None))


class Reg(msgspec.Struct, frozen=True, tag=True):
    """REG(E): in the sender's direction there is a source of the event type."""

    event_type: EventType
    number: int = 0
    """A child's: its own. A parent's: of the child's registration in view of which it speaks."""


class Dereg(msgspec.Struct, frozen=True, tag=True):
    """De-registration: in the sender's direction there is no source of the event type any more."""

    event_type: EventType
    number: int = 0
    """As in `Reg`."""


class Sub(msgspec.Struct, frozen=True, tag=True):
    """SUB(E_i) of a receiver: it wants the events of a type that match an event specification."""

    event_type: EventType
    specification: Filter
    lifetime: float | None = None
    """The PRE bit and L in one: the seconds for which it stays in force without a source."""
    count: int | None = None
    """The number of forwarded events after which it ends (IV-E); None for any number."""
    number: int = 0
    """Of the receiver's choosing; a `Drop` repeats it."""


class Wish(msgspec.Struct, frozen=True):
    """One part of a merged subscription."""

    specification: Filter
    pre: bool = False
    """Whether a subscriber wants it kept while there is no source."""
    count: int | None = None
    """The number of further events that can be needed at most; None for any number."""


class Merged(msgspec.Struct, frozen=True, tag=True):
    """SUB(E_i) of a proxy: all that the receivers in its direction want of a type, merged.

    It takes the place of the one before, so it widens, narrows or changes in one step.
    """

    event_type: EventType
    wishes: tuple[Wish, ...]
    number: int
    """A child's: its own. A parent's: of the child's registration in view of which it speaks."""


class Unsub(msgspec.Struct, frozen=True, tag=True):
    """UNSUB(E): no receiver in the sender's direction wants the event type any more."""

    event_type: EventType
    number: int = 0
    """As in `Merged`; a receiver needs none."""


class Drop(msgspec.Struct, frozen=True, tag=True):
    """UNSUB(E) sent back down: no source is known, so only PRE wishes of a subscription stay."""

    event_type: EventType
    number: int
    """Of the subscription that is dropped."""


class Encapsulated(msgspec.Struct, frozen=True, tag=True):
    """An event of a sporadic source inside a registration (IV-D)."""

    publisher: str
    seq: int
    event: Mapping[str, Any]


class Alive(msgspec.Struct, frozen=True, tag=True):
    """A source's heartbeat. Whatever else it says or publishes counts as one too."""


class Bundle(msgspec.Struct, frozen=True, tag=True):
    """Messages that are applied in order and as one; at most `MAX_BUNDLE`."""

    messages: tuple[Reg | Dereg | Sub | Merged | Unsub | Drop | Encapsulated | Alive, ...]


ProxyControl: TypeAlias = Reg | Dereg | Sub | Merged | Unsub | Drop | Encapsulated | Alive | Bundle
