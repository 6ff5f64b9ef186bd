"""Messages about patterns, between a client and its broker and between neighbouring brokers.

The end that subscribes is the *subscriber*, the other one the *provider*; a broker is often both.
The subscriber chooses a key for each pattern, and never uses it for another one on that link.

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
"""Held events in one message. The shell divides longer ones; more are refused before decoding."""

HeldEvents: TypeAlias = Annotated[tuple[Occurrence, ...], msgspec.Meta(max_length=MOST_HELD)]


class AssemblyProgress(msgspec.Struct, frozen=True):
    """The state of a monitor, so that another one can continue from there.

    `taken` is the partial match, `held` are events within the reorder window. Events at `after` or
    before have been released.
    """

    taken: Parts = ()
    held: HeldEvents = ()
    after: Place | None = None


class SubscribePattern(msgspec.Struct, frozen=True, tag=True):
    """A subscription to a pattern: each occurrence comes as one `Composite`.

    `running`: the sender assembles it now, and the provider is to take over. The provider begins to
    hold events back and answers `Ready`.
    """

    key: int
    pattern: Pattern
    values: Mapping[str, Any] = NO_VALUES
    running: bool = False


class UnsubscribePattern(msgspec.Struct, frozen=True, tag=True):
    """The sender no longer wants the pattern under this key."""

    key: int


class CancelPattern(msgspec.Struct, frozen=True, tag=True):
    """siena's `unsubscribe`: end the sender's patterns that this one covers, that is, patterns of
    the same length that are covered position by position (siena 3.3).
    """

    pattern: Pattern
    values: Mapping[str, Any] = NO_VALUES


class Ready(msgspec.Struct, frozen=True, tag=True):
    """From here on the provider holds every event back, so the subscriber's state is complete."""

    key: int


class Resume(msgspec.Struct, frozen=True, tag=True):
    """The subscriber's monitor, which has stopped: the provider's continues from there."""

    key: int
    progress: AssemblyProgress


class HeldBack(msgspec.Struct, frozen=True, tag=True):
    """Events that the sender's monitor holds back, ahead of its `Returned` if `is_back`, else of
    its `Resume`.
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
"""Messages that contain events."""


def events_of(message: WithEvents) -> tuple[Occurrence, ...]:
    """Return the events in a message.

    >>> events_of(Returned(7, AssemblyProgress()))
    ()
    """
    if isinstance(message, Composite):
        return message.parts
    if isinstance(message, HeldBack):
        return message.events
    return (*message.progress.taken, *message.progress.held)
