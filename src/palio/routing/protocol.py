"""The nouns of routing, and the `Router` protocol that every algorithm implements.

A router is a broker's brain: it keeps tables and emits messages. It has no clock, no socket and no
randomness, and its answers depend only on the calls so far, in their order. The shell around it (a
simulator or a node) reports peers that connect and disconnect, passes on their messages, and asks
where events go.
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
from palio.model.masks import ONE_ROW
from palio.model.parcels import Parcel
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
    "matched_keys",
    "narrowed",
    "routed",
]


FEW_FILTERS: Final = 8
"""Filters up to which a single event is tested one by one."""

FEW_COMPARISONS: Final = 4
"""Comparisons in each of these filters."""

MOST_NAMED: Final = 64
"""Matching subscriptions of a session that are named with an event: 512 bytes, which no limit
counts. If more match, the client matches the event itself."""

MOST_MATCHES: Final = 1_024
"""An event that matches more subscriptions is only routed; its matches are not named."""


class Role(IntEnum):
    """The role of a peer for this broker."""

    CLIENT = 0
    """An identity of siena's: it subscribes, advertises and publishes under one name."""
    BROKER = 1
    """A neighbouring broker; in a hierarchy one below this broker."""
    MASTER = 2
    """The broker above this one in a hierarchy."""
    SIDE = 3
    """The other half of a gateway (see `gateway`): a neighbour within the same broker."""
    SESSION = 4
    """A client whose subscriptions are an identity each: siena's rules do not merge them."""


_CLIENTS: Final = (Role.CLIENT, Role.SESSION)
_SESSION: Final = Role.SESSION


class Peer(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A client or broker at the other end of a connection, unique at one broker by role and name.

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
        """A client whose subscriptions stay separate, whatever they cover."""
        return cls(Role.SESSION, name)

    @classmethod
    def broker(cls, name: str) -> Peer:
        """A neighbouring broker."""
        return cls(Role.BROKER, name)

    @classmethod
    def beyond(cls, name: str) -> Peer:
        """A gateway as a sender on its outside, for events that reached it there by a detour."""
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
    """The destinations of a single event, and the keys of the matching subscriptions of sessions.

    For many events, or events matched elsewhere, routers return a plain dictionary.
    """

    def __init__(self) -> None:
        super().__init__()
        self.named: dict[Peer, list[int]] = {}

    def add(self, peer: Peer, key: int) -> None:
        """Add a matching subscription of a peer."""
        self[peer] = ONE_ROW
        if peer.role is _SESSION:
            self.named.setdefault(peer, []).append(key)


def matched_keys(routes: Mapping[Peer, RowMask], peer: Peer) -> tuple[int, ...] | None:
    """Return the keys of a session's matching subscriptions; None if they are not named."""
    keys = routes.named.get(peer) if isinstance(routes, Routes) else None
    return None if keys is None or len(keys) > MOST_NAMED else tuple(keys)


class Send(NamedTuple):
    """An instruction to the shell: send a message to a peer, in order with its others."""

    to: Peer
    message: Control


class Router(Protocol):
    """One routing algorithm at one broker, as nodes and simulations use it.

    It answers a `Batch` with a `wave` by `Settled` once it is in force (`palio.routing.waves`).
    """

    name: str

    @property
    def is_advertised(self) -> bool:
        """True if only events that their publisher advertised count."""

    @property
    def takes_advertisements(self) -> bool:
        """True if advertisements have an effect."""

    @property
    def follows_sources(self) -> bool:
        """True if it needs the broker where events were published (`Parcel.source`)."""

    @property
    def routing_version(self) -> int:
        """Grows when paths of events change without a `Join` or `Leave` that reports it."""

    @property
    def is_changing(self) -> bool:
        """True while it changes to another tree, and some events must wait (`holds`)."""

    @property
    def is_in_order(self) -> bool:
        """True if paths are final, by the link states received here."""

    def has_alternate_path(self, neighbour: Peer) -> bool:
        """Return whether events may reach a neighbour over other links than its own."""

    def holds(self, sender: Peer) -> bool:
        """Return whether events of a peer must wait, unrouted, until a change is over."""

    def give_up(self) -> list[Send]:
        """End a change that takes too long: use the other tree at once, even if events are lost."""

    def cork(self) -> None:
        """Keep changes of links for `uncork`."""

    @property
    def has_pending_updates(self) -> bool:
        """True if changes of links are pending until `uncork`."""

    def uncork(self) -> list[Send]:
        """Report all changes of links together, and route by them."""

    def attach(self, peer: Peer) -> list[Send]:
        """Add a peer that has connected, with empty state; return what it must be sent."""

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that has disconnected; return what others must be sent."""

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Act on a message. An illegal one raises `IllegalMessage` and changes nothing."""

    def unsettle(self) -> None:
        """Have the next wave go to all neighbours, behind a message that is not for routers."""

    def set_link_cost(self, peer: Peer, cost: int) -> list[Send]:
        """Set the cost of the link to a neighbour, attached or not; at least 1."""

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers, never the sender, that events of a parcel go to.

        The sender of events that were held (`holds`) is this broker itself.
        """

    def sources(self, filter: Filter) -> bool | Peer:
        """Return whether a known advertisement, or an unknown publisher, may match a filter; or the
        peer to ask.
        """

    def announced(self, sender: Peer, parcel: Parcel) -> RowMask | None:
        """Select the events that their publisher advertised; None if all events count."""


class Destined(msgspec.Struct, frozen=True):
    """The recipients of events, as the broker where they are published computes them."""

    peers: dict[Peer, RowMask]
    """Peers connected here: clients, and neighbours if no brokers are named."""
    brokers: dict[str, RowMask]
    """Other brokers whose clients want some of the events."""


@runtime_checkable
class Addressing(Protocol):
    """A router that can name the brokers an event is for, and the paths to them.

    With multicast groups the first broker addresses events, and no broker on the path matches them.
    """

    def destined(self, sender: Peer, parcel: Parcel) -> Destined:
        """Name the recipients of events that a peer publishes here. Called once, as `route`: a
        second call sees duplicates.
        """

    def local(self, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the clients here that want events addressed to this broker. Called once."""

    def hop(self, source: str, broker: str) -> str | None:
        """Return the next neighbour on the path of events from a source to a broker."""


@runtime_checkable
class Ranked(Router, Protocol):
    """A router of a hierarchy whose user sets the peer above it."""

    above: Peer | None
    """The peer above; set before it is attached, until it is detached."""


@runtime_checkable
class Hierarchy(Protocol):
    """A router that decides with others which broker is above which."""

    @property
    def root(self) -> str:
        """The broker above all others; empty without a hierarchy."""

    @property
    def parent(self) -> str:
        """The broker above this one; empty at the root."""

    def parents(self) -> dict[str, str]:
        """Map each broker but the root to the one above it."""


class PlainRouter:
    """The defaults of a router whose paths never change in rounds, without advertisements."""

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


def narrowed(routes: Mapping[Peer, RowMask], kept: RowMask) -> dict[Peer, RowMask]:
    """Restrict routes to some of the events."""
    masks = {peer: mask & kept for peer, mask in routes.items()}
    return {peer: mask for peer, mask in masks.items() if mask.any()}


class Selector(Protocol):
    """Finds the destinations of events for a router."""

    def add(self, key: int, filter: Filter, values: Bindings, destination: int) -> None:
        """Add a filter without or with variables for a destination."""

    def remove(self, key: int) -> None:
        """Forget a filter."""

    def bind(self, key: int, values: Bindings, filled: Filter) -> None:
        """Change values of a filter's variables; `filled` is the filter with all values bound."""

    def route(self, parcel: Parcel) -> dict[int, RowMask]:
        """Map each destination with a match to the rows that go there."""

    def match_event(self, event: Mapping[str, Any]) -> list[int]:
        """Return the keys of the filters that an event matches."""

    def __len__(self) -> int:
        """Return the number of filters."""


SelectorFactory: TypeAlias = Callable[[], Selector]


class Matching:
    """A `Selector` over any engine of `palio.matching`.

    While there are few filters, of a few comparisons each, a single event is tested by one after
    the other: 1 to 3 us, where the engine takes 5 to 6, and 20 after a pause.

    >>> from palio.matching.reference import Reference
    >>> selector = Matching(Reference())
    """

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._few: ReferenceSelector | None = ReferenceSelector()  # None once they are too many

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
    """Return whether a filter is a few comparisons, whose time its author cannot make long."""
    if len(filter.conjunctions) != 1:
        return False
    (only,) = filter.conjunctions
    constraints = only.constraints
    return (
        len(constraints) <= FEW_COMPARISONS
        and not only.residuals
        and all(constraint.op in COMPARISONS for constraint in constraints)
    )


def routed(matcher: Matcher, parcel: Parcel) -> dict[int, RowMask]:
    """Map each destination with a match to the events of a parcel that go there.

    A single event is matched as it is: making a batch of it would cost more than everything else.
    """
    if parcel.event is not None:
        return dict.fromkeys(matcher.route_event(parcel.event), ONE_ROW)
    batches = parcel.batches
    if len(batches) == 1:
        return matcher.route(batches[0])
    routes: dict[int, RowMask] = {}
    start = 0
    for batch in batches:
        for destination, mask in matcher.route(batch).items():
            whole = routes.setdefault(destination, np.zeros(len(parcel), np.bool_))
            whole[start : start + batch.num_rows] = mask
        start += batch.num_rows
    return routes
