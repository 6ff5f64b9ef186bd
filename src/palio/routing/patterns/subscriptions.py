"""`PatternSubscription`: a subscription to a pattern at one broker, and the stage of its assembly.

| stage      | event                                  | sent                          | then       |
|------------|----------------------------------------|-------------------------------|------------|
| `IDLE`     | the first offers, of one neighbour     | `SubscribePattern`            | `THERE`    |
|            | the first offers, of others            | the steps are subscribed      | `HERE`     |
| `HERE`     | all offers are of one neighbour        | `SubscribePattern(running)`   | `MOVING`   |
| `MOVING`   | `Ready`, and they still are            | `Resume`; steps unsubscribed  | `THERE`    |
|            | `Ready`, and they no longer are        | `UnsubscribePattern`          | `HERE`     |
| `AWAITED`  | `Resume`                               |                               | `HERE`     |
| `THERE`    | offers are no longer of one neighbour  | steps subscribed; `Recall`    | `RECALLED` |
|            | the subscriber's `Recall`              | `Recall`                      | `RECALLED` |
| `RECALLED` | `Returned`                             |                               | `HERE`     |
|            | `Returned`, the subscriber recalled it | `Returned`                    | gone       |
| others     | the subscriber's `Recall`              | `Returned`                    | gone       |
| any        | it is unsubscribed, or the peer gone   | `UnsubscribePattern`          | gone       |
|            | the provider disconnects               |                               | see below  |

When the provider disconnects, the stage becomes `HERE` if there is an assembly, else `IDLE`, and
the first row that applies follows. A running pattern that a neighbour hands over begins as
`AWAITED` with `Ready`, any other as `IDLE`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from palio.model.patterns import Pattern, Place
from palio.routing.patterns.assembly import Assembly
from palio.routing.protocol import Peer

MAX_DELEGATED_CHARS: Final = 16 << 10
"""Text of a pattern that is delegated: to parse filters takes up to 3 ms a kilobyte, and a broker
serves other connections only between two frames."""


class AssemblyPlace(Enum):
    """The place of a pattern subscription's one assembly, seen from one broker."""

    IDLE = auto()
    """Nowhere: no peer has offered any step yet."""
    HERE = auto()
    """At this broker."""
    MOVING = auto()
    """At this broker, and a provider was asked to take it over."""
    AWAITED = auto()
    """Still at the subscriber, a broker; this broker has sent `Ready` and collects events."""
    THERE = auto()
    """At the provider, or beyond it."""
    RECALLED = auto()
    """At the provider; this broker has sent `Recall`."""


class PatternSubscription:
    """One pattern that one peer subscribed. `number` is its key towards providers."""

    __slots__ = (
        "assembly", "ends_after", "is_asked_back", "is_long", "key", "number", "pattern",
        "provider", "stage", "subscriber",
    )  # fmt: skip

    def __init__(self, subscriber: Peer, key: int, pattern: Pattern, number: int) -> None:
        self.subscriber = subscriber
        self.key = key
        self.pattern = pattern
        self.number = number
        self.is_long = len(str(pattern)) > MAX_DELEGATED_CHARS
        """True if it is never delegated."""
        self.stage = AssemblyPlace.IDLE
        self.provider: Peer | None = None
        self.assembly: Assembly | None = None
        self.is_asked_back = False
        """True if the subscriber recalled it while this broker was recalling it itself."""
        self.ends_after: Place | None = None
        """The end of the last occurrence sent to a client; the next one begins later."""
