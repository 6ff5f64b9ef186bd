"""Messages about patterns, between a client and its broker and between neighbouring brokers.

The end that asks is the *subscriber*, the other one the *provider*; a broker is often both. A
pattern has a key of the subscriber's choosing, which no other pattern of its ever had on that link.

| message              | from              | when legal                                           |
|----------------------|-------------------|------------------------------------------------------|
| `SubscribePattern`   | any subscriber    | always; `running` is for brokers; a key in use is    |
|                      |                   | given up first                                       |
| `UnsubscribePattern` | any subscriber    | always; a key not in use is ignored                  |
| `CancelPattern`      | clients           | always                                               |
| `Ready`              | provider          | once, in answer to a `running` subscription          |
| `Resume`             | subscriber broker | once, in answer to `Ready`                           |
| `HeldBack`           | any broker        | before `Resume` or `Returned`                        |
| `Recall`             | subscriber broker | once, unless a `Resume` is due                       |
| `Returned`           | provider          | once, in answer to `Recall`; then the key is free    |
| `TooLate`            | provider          | while it has the pattern                             |
| `Composite`          | provider          | while it has the pattern                             |

A provider's message about a pattern that the subscriber gave up meanwhile is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from palio.model.limits import MAX_PATTERN_STEPS
from palio.model.patterns import Occurrence, Pattern, Place
from palio.model.values import NO_VALUES

Parts: TypeAlias = Annotated[tuple[Occurrence, ...], msgspec.Meta(max_length=MAX_PATTERN_STEPS)]
"""Events of one occurrence of a pattern, or of the beginning of one."""

MOST_HELD: Final = 256
"""Events that one message brings of those that are held back. A shell cuts what it sends; more are
refused before they are read."""

HeldEvents: TypeAlias = Annotated[tuple[Occurrence, ...], msgspec.Meta(max_length=MOST_HELD)]


class AssemblyProgress(msgspec.Struct, frozen=True):
    """All that a monitor knows, so that another one can continue from there.

    `taken` is the partial match; `held` are events that still wait out the reorder window; whatever
    stands at `after` or before has had its chance.
    """

    taken: Parts = ()
    held: HeldEvents = ()
    after: Place | None = None


class SubscribePattern(msgspec.Struct, frozen=True, tag=True):
    """The sender wants each occurrence of the pattern as one `Composite`.

    `running`: the sender assembles it now and would rather have the provider do so. The provider
    begins to hold events back and answers `Ready`.
    """

    key: int
    pattern: Pattern
    values: Mapping[str, Any] = NO_VALUES
    running: bool = False


class UnsubscribePattern(msgspec.Struct, frozen=True, tag=True):
    """The sender no longer wants the pattern under this key."""

    key: int


class CancelPattern(msgspec.Struct, frozen=True, tag=True):
    """siena's `unsubscribe` of a pattern: end those of the sender's that this one covers.

    That is, patterns of the same length that are covered position by position (siena 3.3).
    """

    pattern: Pattern
    values: Mapping[str, Any] = NO_VALUES


class Ready(msgspec.Struct, frozen=True, tag=True):
    """From here on the provider holds every event back, so what the subscriber knows is enough."""

    key: int


class Resume(msgspec.Struct, frozen=True, tag=True):
    """The subscriber's monitor, which has stopped: the provider's continues from there."""

    key: int
    progress: AssemblyProgress


class HeldBack(msgspec.Struct, frozen=True, tag=True):
    """Events that the sender's monitor holds back, before the message with its state:
    `Returned` if `is_back`, else `Resume`.
    """

    key: int
    events: HeldEvents
    is_back: bool


class Recall(msgspec.Struct, frozen=True, tag=True):
    """The sender takes the pattern back. It has asked for the single events before."""

    key: int


class Returned(msgspec.Struct, frozen=True, tag=True):
    """The provider's monitor, which has stopped: the subscriber's continues from there."""

    key: int
    progress: AssemblyProgress


class Composite(msgspec.Struct, frozen=True, tag=True):
    """A composite notification: the events of one occurrence of a pattern, in their order."""

    key: int
    parts: Parts


class TooLate(msgspec.Struct, frozen=True, tag=True):
    """Events of a publisher came too late to take part in the pattern; `*` stands for several."""

    key: int
    publisher: str
    first_seq: int
    last_seq: int
    count: int


PatternControl: TypeAlias = (
    SubscribePattern
    | UnsubscribePattern
    | CancelPattern
    | Ready
    | Resume
    | HeldBack
    | Recall
    | Returned
    | Composite
    | TooLate
)

WithEvents: TypeAlias = Composite | Resume | HeldBack | Returned
"""Those that bear events."""


def events_of(message: WithEvents) -> tuple[Occurrence, ...]:
    """The events that a message bears.

    >>> events_of(Returned(7, AssemblyProgress()))
    ()
    """
    if isinstance(message, Composite):
        return message.parts
    if isinstance(message, HeldBack):
        return message.events
    return (*message.progress.taken, *message.progress.held)
