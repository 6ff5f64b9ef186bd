"""The nouns of routing and the `Router` protocol that every algorithm implements.

A router is a broker's brain: tables in, messages out. It knows no clock, no socket and no
randomness, and whatever it answers depends only on the calls made so far, in their order. The
shell around it (the simulator, a node) tells it of peers coming and going, hands it their messages
and asks where events go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec
import numpy as np

from palio.errors import IllegalMessage
from palio.matching.protocol import Matcher, RowMask
from palio.model.constraints import COMPARISONS
from palio.model.filters import Filter
from palio.model.parcels import ONE_ROW, Parcel
from palio.model.values import Bindings
from palio.routing.messages import Control
from palio.routing.reference_selector import ReferenceSelector

__all__ = [
    "Addressing",
    "Destined",
    "Hierarchy",
    "IllegalMessage",
    "Peer",
    "PlainRouter",
    "Ranked",
    "Role",
    "Router",
    "Routes",
    "Selector",
    "SelectorFactory",
    "Send",
    "narrowed",
    "routed",
    "wanting",
]


FEW_FILTERS: Final = 8
"""So few are tried one after the other."""

FEW_COMPARISONS: Final = 4
"""Comparisons in each of these filters."""

MOST_NAMED: Final = 64
"""So many subscriptions of a session are named with an event: 512 bytes, which are on no account.
Of more the session finds out itself."""

MOST_MATCHES: Final = 1_024
"""An event that matches more subscriptions is only routed; its matches are not named."""


class Role(IntEnum):
    """The role of a peer for this broker."""

    CLIENT = 0
    """An identity of siena's: it subscribes, advertises and publishes under one name."""
    BROKER = 1
    """A neighbouring broker (in a hierarchy: one whose master this broker is)."""
    MASTER = 2
    """The broker above this one in a hierarchy."""
    SIDE = 3
    """The other half of a gateway (see `gateway`): a neighbour within the same broker."""
    SESSION = 4
    """A client whose subscriptions are an identity each: siena's rules do not join them."""


_CLIENTS: Final = (Role.CLIENT, Role.SESSION)
_SESSION: Final = Role.SESSION


class Peer(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Somebody at the other end of a connection. Two peers of one broker differ in role or name.

    >>> Peer(Role.CLIENT, "alice") < Peer(Role.BROKER, "b2")
    True
    """

    role: Role
    name: str

    @classmethod
    def client(cls, name: str) -> Peer:
        """A client, that is, one identity."""
        return cls(Role.CLIENT, name)

    @classmethod
    def session(cls, name: str) -> Peer:
        """A client whose subscriptions stand side by side, whatever they cover."""
        return cls(Role.SESSION, name)

    @classmethod
    def broker(cls, name: str) -> Peer:
        """A neighbouring broker."""
        return cls(Role.BROKER, name)

    @classmethod
    def beyond(cls, name: str) -> Peer:
        """A gateway as its outside sees it: what came round to it there continues under this
        name.
        """
        return cls(Role.SIDE, f"{name} beyond")

    @classmethod
    def master(cls, name: str) -> Peer:
        """The broker above in a hierarchy."""
        return cls(Role.MASTER, name)

    @property
    def is_client(self) -> bool:
        """True if it is a client rather than a broker."""
        return self.role in _CLIENTS

    def __str__(self) -> str:
        return f"{self.role.name.lower()} {self.name}"


class Routes(dict[Peer, RowMask]):
    """Destinations of a single event, and for which subscriptions of each session, by their keys.

    A router of many events, or of events matched elsewhere, answers with a plain dictionary.
    """

    def __init__(self) -> None:
        super().__init__()
        self.named: dict[Peer, list[int]] = {}

    def add(self, peer: Peer, key: int) -> None:
        """A subscription of a peer matches."""
        self[peer] = ONE_ROW
        if peer.role is _SESSION:
            self.named.setdefault(peer, []).append(key)


def wanting(routes: Mapping[Peer, RowMask], peer: Peer) -> tuple[int, ...] | None:
    """The keys of a session's subscriptions that match, if it was found out which."""
    keys = routes.named.get(peer) if isinstance(routes, Routes) else None
    return None if keys is None or len(keys) > MOST_NAMED else tuple(keys)


class Send(NamedTuple):
    """An instruction to the shell: deliver a message to a peer, in order with its others."""

    to: Peer
    message: Control


class Router(Protocol):
    """One routing algorithm at one broker: all that nodes and simulations ask of it.

    A `Batch` with a `wave` is answered by `Settled` once it is in force (`palio.routing.waves`).
    """

    name: str

    @property
    def is_advertised(self) -> bool:
        """True if events count only where their publisher advertised them."""

    @property
    def takes_advertisements(self) -> bool:
        """True if advertisements mean anything."""

    @property
    def follows_sources(self) -> bool:
        """True if it must know where events were published (`Parcel.source`)."""

    @property
    def routing_version(self) -> int:
        """Grows when known events take other ways, if no `Join` and no `Leave` reports that."""

    @property
    def is_changing(self) -> bool:
        """True if it is on its way to another tree, and some events must wait (`holds`)."""

    @property
    def is_in_order(self) -> bool:
        """True if ways are as they are to be, as far as is known here."""

    def has_alternate_path(self, neighbour: Peer) -> bool:
        """Return whether events that the link to a neighbour has not carried may come to it by
        others.
        """

    def holds(self, sender: Peer) -> bool:
        """Return whether what a peer publishes must wait, and not be routed, until this is over."""

    def give_up(self) -> list[Send]:
        """A change takes too long: go over to the other tree at once, whatever is lost."""

    def cork(self) -> None:
        """Keep reports of links that come and go for `uncork`."""

    @property
    def has_pending_updates(self) -> bool:
        """True if something waits for that."""

    def uncork(self) -> list[Send]:
        """Report all links that have come and gone, together, and go by them."""

    def attach(self, peer: Peer) -> list[Send]:
        """A connection to a peer is up: start from nothing, and tell it what it must know."""

    def detach(self, peer: Peer) -> list[Send]:
        """A connection is down: forget the peer, and tell the others what that changes."""

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Act on a message. An illegal one raises `IllegalMessage` and changes nothing."""

    def unsettle(self) -> None:
        """Something that is not for routers goes through the network: the next wave follows it to
        all neighbours.
        """

    def set_link_cost(self, peer: Peer, cost: int) -> list[Send]:
        """Set the cost of the link to a neighbour, attached or not; at least 1."""

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """To which peers, never back to the sender, which events of a parcel go.

        What was held (`holds`) is sent under the broker's own name.
        """

    def sources(self, filter: Filter) -> bool | Peer:
        """Return whether anybody is known to offer what a filter wants, or may do so; or whom to
        ask.
        """

    def announced(self, sender: Peer, parcel: Parcel) -> RowMask | None:
        """Select the events that count, as their publisher advertised them; None if all do."""


class Destined(msgspec.Struct, frozen=True):
    """Recipients of events, as the broker where they are published knows it."""

    peers: dict[Peer, RowMask]
    """Peers that are connected here: clients, and neighbours if no brokers are named..."""
    brokers: dict[str, RowMask]
    """...and other brokers at which somebody wants some of them."""


@runtime_checkable
class Addressing(Protocol):
    """A router that knows which brokers an event is for, and the ways to them.

    With multicast groups events are addressed where they are published, and nobody on the way
    matches them.
    """

    def destined(self, sender: Peer, parcel: Parcel) -> Destined:
        """Name the recipients of events that a peer publishes here; asked once, as `route`."""

    def local(self, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the clients here that want events addressed to this broker; asked once."""

    def hop(self, source: str, broker: str) -> str | None:
        """The neighbour on the way on which events go from a source to a broker, from here."""


@runtime_checkable
class Ranked(Router, Protocol):
    """A router of a hierarchy that is informed which peer is above it."""

    above: Peer | None
    """The peer above, from before it is attached until it is detached."""


@runtime_checkable
class Hierarchy(Protocol):
    """A router that finds out who is above whom."""

    @property
    def root(self) -> str:
        """The broker above all others, as far as is known; empty if nobody is above another."""

    @property
    def parent(self) -> str:
        """The broker above this one; empty at the root."""

    def parents(self) -> dict[str, str]:
        """For each broker but the root, the one above it."""


class PlainRouter:
    """Answers of a router whose paths never wait to change, and that takes no advertisements."""

    follows_sources = False
    routing_version = 0
    is_changing = False
    is_in_order = True
    is_advertised = False
    takes_advertisements = False

    def has_alternate_path(self, neighbour: Peer) -> bool:
        """Deny it: there is one path to each neighbour."""
        del neighbour
        return False

    @property
    def has_pending_updates(self) -> bool:
        """Deny it: this router reports no links."""
        return False

    def cork(self) -> None:
        """Do nothing: this router reports no links."""

    def uncork(self) -> list[Send]:
        """Report no links."""
        return []

    def holds(self, sender: Peer) -> bool:
        """Hold nothing of any publisher."""
        del sender
        return False

    def give_up(self) -> list[Send]:
        """Give nothing up: no change is under way."""
        return []

    def set_link_cost(self, peer: Peer, cost: int) -> list[Send]:
        """Ignore the cost of a link: on a tree there is one path."""
        del peer, cost
        return []

    def sources(self, filter: Filter) -> bool | Peer:
        """Assume sources of every filter: anybody may publish anything."""
        del filter
        return True

    def announced(self, sender: Peer, parcel: Parcel) -> RowMask | None:
        """Let all events count, whether they were advertised or not."""
        del sender, parcel
        return None


def narrowed(found: Mapping[Peer, RowMask], kept: RowMask) -> dict[Peer, RowMask]:
    """Restrict where events go to those that are kept."""
    masks = {peer: mask & kept for peer, mask in found.items()}
    return {peer: mask for peer, mask in masks.items() if mask.any()}


class Selector(Protocol):
    """Finds the destinations of events for a router."""

    def add(self, key: int, filter: Filter, values: Bindings, destination: int) -> None:
        """Add a filter without or with variables for a destination."""

    def remove(self, key: int) -> None:
        """Forget a filter."""

    def bind(self, key: int, values: Bindings, filled: Filter) -> None:
        """Change values of a filter's variables; `filled` is the filter with all its values."""

    def route(self, parcel: Parcel) -> dict[int, RowMask]:
        """For each destination with any match, which rows go there."""

    def match_event(self, event: Mapping[str, Any]) -> list[int]:
        """The keys of the filters that one event matches."""

    def __len__(self) -> int:
        """Return the number of filters."""


SelectorFactory: TypeAlias = Callable[[], Selector]


class Matching:
    """A `Selector` over any engine of the matching room.

    As long as there are few filters of a few comparisons each, an event by itself is tried on one
    after the other: 1 to 3 us, where the engine takes 5 to 6, and 20 after a pause.

    >>> from palio.matching.reference import Reference
    >>> selector = Matching(Reference())
    """

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._few: ReferenceSelector | None = ReferenceSelector()
        """The same filters, unless they are or were too many."""

    def add(self, key: int, filter: Filter, values: Bindings, destination: int) -> None:
        """Add a filter for a destination."""
        self._matcher.add(key, filter, values, destination=destination)
        if self._few is not None:
            self._few.add(key, filter, values, destination)
            if len(self._matcher) > FEW_FILTERS or not _is_short(filter):
                self._few = None

    def remove(self, key: int) -> None:
        """Forget a filter."""
        self._matcher.remove(key)
        if self._few is not None:
            self._few.remove(key)
        elif not len(self._matcher):
            self._few = ReferenceSelector()

    def bind(self, key: int, values: Bindings, filled: Filter) -> None:
        """Change values of a filter."""
        self._matcher.bind(key, values)
        if self._few is not None:
            self._few.bind(key, values, filled)

    def route(self, parcel: Parcel) -> dict[int, RowMask]:
        """Select the destinations of events."""
        return routed(self._matcher, parcel)

    def match_event(self, event: Mapping[str, Any]) -> list[int]:
        """Return the keys of the filters that an event matches."""
        if self._few is not None:
            return self._few.match_event(event)
        keys: list[int] = self._matcher.match_event(event).tolist()
        return keys

    def __len__(self) -> int:
        return len(self._matcher)


def _is_short(filter: Filter) -> bool:
    """Return whether a filter is a few comparisons, which take about as long whatever its author
    wants.
    """
    if len(filter.conjunctions) != 1:
        return False
    (only,) = filter.conjunctions
    constraints = only.constraints
    return (
        len(constraints) <= FEW_COMPARISONS
        and not only.residuals
        and all(each.op in COMPARISONS for each in constraints)
    )


def routed(matcher: Matcher, parcel: Parcel) -> dict[int, RowMask]:
    """For each destination with any match, which events of a parcel go there. An event by itself is
    matched as it is: to make a batch of it costs more than all else.
    """
    if parcel.event is not None:
        return dict.fromkeys(matcher.route_event(parcel.event), ONE_ROW)
    batches = parcel.batches
    if len(batches) == 1:
        return matcher.route(batches[0])
    found: dict[int, RowMask] = {}
    start = 0
    for batch in batches:
        for destination, mask in matcher.route(batch).items():
            whole = found.setdefault(destination, np.zeros(len(parcel), np.bool_))
            whole[start : start + batch.num_rows] = mask
        start += batch.num_rows
    return found
