"""The messages of routing, from brokers and clients, and when each is legal.

A `Batch` carries any number of *requests* and is applied as one: between two events a broker has
processed all of it or nothing, so no order of requests inside it can leave a gap, and 40,000
subscriptions are one message. Within one peer a subscription or advertisement has a *key* of the
sender's choosing. A broker's keys are its *broker variables* (parametric 4.3): they mean something
on one link only, and `Update(17, {"1": 5.0})` sets the second constant of what this link calls 17.

| message         | from     | when legal                                                        |
|-----------------|----------|-------------------------------------------------------------------|
| `Batch`         | any peer | after attach; a broker's first has `fresh` set                    |
| `Subscribe`     | any peer | always; a key in use has its filter replaced                      |
| `Update`        | any peer | the key is subscribed; every name is a variable or constant of it |
| `Unsubscribe`   | any peer | always; a key not in use is ignored                               |
| `Cancel`        | clients  | always                                                            |
| `Advertise`     | any peer | always; a key in use has its advertisement replaced               |
| `Unadvertise`   | any peer | always; a key not in use is ignored                               |
| `Withdraw`      | clients  | always                                                            |
| `Settled`       | brokers  | for a wave that was sent to that very peer and is still open      |
| `Flood`         | brokers  | flooded routing, from the direction of its origin; source trees   |
| `LinkState`     | brokers  | general routing, source trees                                     |
| `LinkTable`     | brokers  | likewise                                                          |
| `TreePlan`      | brokers  | general routing                                                   |
| `Join`, `Leave` | brokers  | general routing; `Join` once, until a `Leave`                     |
| `Reached`       | brokers  | general routing, on links of the tree                             |

`palio.routing.patterns.messages` describes those about patterns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.model.values import NO_VALUES
from palio.routing.patterns.messages import PatternControl

Values: TypeAlias = Mapping[str, Any]
"""`Bindings` as decoded from the wire, before their types are checked."""


class Subscribe(msgspec.Struct, frozen=True, tag=True):
    """SUB: the sender wants events that match the filter with these values of its variables.

    With a key in use it is a structural change: the new filter replaces the old one in one step.
    """

    key: int
    filter: Filter
    values: Values = NO_VALUES


class Update(msgspec.Struct, frozen=True, tag=True):
    """UPD: new values for variables of a subscription, by name, or for its constants, by position.

    `version` grows with each update of a key; a late one is ignored.
    """

    key: int
    values: Values
    version: int


class Unsubscribe(msgspec.Struct, frozen=True, tag=True):
    """USUB: the sender ends the subscription under this key."""

    key: int


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """siena's `unsubscribe`: end every subscription of the sender that `filter` covers."""

    filter: Filter
    values: Values = NO_VALUES


class Advertise(msgspec.Struct, frozen=True, tag=True):
    """AD: events from the sender's direction may be any that the advertisement announces."""

    key: int
    filter: Advertisement


class Unadvertise(msgspec.Struct, frozen=True, tag=True):
    """The advertisement under this key has ended."""

    key: int


class Withdraw(msgspec.Struct, frozen=True, tag=True):
    """siena's `unadvertise`: end every advertisement of the sender that `filter` covers."""

    filter: Advertisement


Request: TypeAlias = Subscribe | Update | Unsubscribe | Cancel | Advertise | Unadvertise | Withdraw


PORTION: Final = 256
"""Requests of one message over a link: to read and apply them takes about 20 ms."""

Requests: TypeAlias = Annotated[tuple[Request, ...], msgspec.Meta(max_length=PORTION)]
"""Requests of a message. A shell cuts what it sends; more are refused before they are read."""


class Batch(msgspec.Struct, frozen=True, tag=True):
    """Requests, applied in order and as one.

    With `fresh` they replace all earlier requests of the sender. With a `wave` the receiver answers
    `Settled` once all requests of the sender so far are in force wherever a publisher may be.
    """

    requests: Requests
    fresh: bool = False
    wave: int | None = None


class Settled(msgspec.Struct, frozen=True, tag=True):
    """The answer to a wave. `unreached` names brokers that were lost meanwhile: the wave reports
    nothing about brokers beyond them.

    `b2/b1` names b2 for waves of b1 only: it does not trust the facts that b1 states of itself.
    """

    wave: int
    unreached: tuple[str, ...] = ()


class Flood(msgspec.Struct, frozen=True, tag=True):
    """Flooded routing: a batch of one origin's own requests, which every broker forwards unchanged.

    On graphs an origin numbers its batches by `version`, and a broker forwards each version once. A
    batch that is too long for a message is sent in chunks of one version, all but the last marked
    `more`; it is applied when the last one has arrived.
    """

    origin: str
    requests: Requests
    fresh: bool = False
    wave: int | None = None
    version: int = 0
    more: bool = False


MOST_LINKS: Final = 10_000
"""Links of one link state or plan: checking their names one by one takes 10 ms."""


class LinkState(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A broker's own list of live links, flooded; the highest `version` of an origin counts."""

    origin: str
    version: int
    neighbours: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_LINKS)]
    costs: Annotated[tuple[int, ...], msgspec.Meta(max_length=MOST_LINKS)] = ()
    """The cost of each link; 1 for all if there are none."""
    has_parent: bool = False
    """In a hierarchy, whether the origin is to be below others: it becomes the root only if all
    others are."""


MOST_STATES: Final = 1_000
"""Link states of one message, with `MOST_LINKS` links together."""


class LinkTable(msgspec.Struct, frozen=True, tag=True):
    """Link states of several brokers, for times when many links change at once."""

    states: Annotated[tuple[LinkState, ...], msgspec.Meta(max_length=MOST_STATES)]

    def __post_init__(self) -> None:
        if sum(len(each.neighbours) for each in self.states) > MOST_LINKS:
            raise ValueError(f"more than {MOST_LINKS} links together")


class TreePlan(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The links that are to be the tree of all brokers that occur in it, as `origin` decided;
    flooded.

    Of the plans in which a broker occurs the one with the highest `version` counts. A `calm` plan
    replaces or turns a link in use, and no event may be in flight meanwhile.
    """

    origin: str
    version: int
    links: Annotated[tuple[tuple[str, str], ...], msgspec.Meta(max_length=MOST_LINKS)]
    calm: bool = False
    root: str = ""
    """In a hierarchy, the broker above all others; an end of a link."""


class Join(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The sender's plan of the tree holds this link.

    `calm`: no event is in flight, and none will be until all requests are sent. `upward`: whether
    the receiver is above the sender in that plan; None where no broker is above another.
    """

    calm: bool = False
    upward: bool | None = None


class Leave(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The sender's plan of the tree no longer holds this link.

    `calm`: no event is in flight, so none is lost by it.
    """

    calm: bool = False


LAST_ROUND: Final = 2
"""The last round of a change of the tree, counted from 0."""


class Reached(msgspec.Struct, frozen=True, tag=True):
    """All brokers on the sender's side of this link have reached a round of a change."""

    origin: str
    version: int
    round: Annotated[int, msgspec.Meta(ge=0, le=LAST_ROUND)]


Control: TypeAlias = (
    Batch
    | Settled
    | Flood
    | LinkState
    | LinkTable
    | TreePlan
    | Join
    | Leave
    | Reached
    | PatternControl
)
