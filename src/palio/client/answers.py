"""The answers of brokers to questions about them (`Client.topology`, `trace`, `catalogue`)."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class BrokerInTopology(TypedDict):
    """A broker that is known in the network."""

    links: list[str]
    parent: str
    """The broker above it, where brokers elect a root; empty at the root."""
    found: list[str]
    """Its fallback links, which replace lost ones."""
    url: str
    """The address that it announces for others; empty if it announces none."""
    reachable: bool
    durable_subscriptions: list[str]
    multicast: str
    """Its state in the plan: it has `joined` its groups, was `moved` to links as it could not keep
    up, receives by `links` as it has no multicast, or is still `waiting`. Empty without a plan."""
    leaving: bool
    """True if it is about to shut down, or was drained."""


class PlanInUse(TypedDict):
    """The plan of multicast groups that a network uses."""

    id: int
    epoch_us: int
    """The time at which it was applied: microseconds since 1970."""
    origin: str
    """The broker at which it was applied."""
    method: str
    groups: int
    brokers: list[str]
    replans: int
    """How often brokers have changed it as traffic drifted, since it was applied."""


class Topology(TypedDict):
    """The brokers by name, as the queried broker knows them."""

    asked: str
    root: str
    """The broker above all others, where brokers elect a root; else empty."""
    brokers: dict[str, BrokerInTopology]
    plan: PlanInUse | None


class DrainStatus(TypedDict):
    """The rest that a broker which is drained has yet to hand over."""

    clients: int
    durable_subscriptions: int
    entries: int
    """Durable events that it stores, for others or for its own durable subscriptions."""
    neighbours: int
    """Brokers next to it that can take something over."""
    unreached: list[str]
    """Brokers that do not know yet that nothing is there."""
    done: bool
    """Whether all is handed over: the broker may be stopped, and nothing is lost."""


class AddedPeer(TypedDict):
    """A broker that another was linked to."""

    peer: str
    url: str
    remembered: bool
    """Whether the broker links to it again after a restart. False without a data directory."""


class RemovedPeer(TypedDict):
    """A broker that another has parted from."""

    peer: str
    configured: list[str]
    """Its addresses in the configuration of that broker, which count again after a restart."""


class PeerInfo(TypedDict):
    """A neighbour of a broker, or an address that it dials."""

    peer: str
    """Its name; empty if nobody has answered there yet."""
    url: str
    """Where it is dialled; empty if it dials."""
    kind: str
    """Why: it is `configured`, was `added`, was `found` in the place of another; or it `dials`."""
    up: bool


class MatchedSubscription(TypedDict):
    """A subscription that an event matches."""

    subscriber: str
    filter: str
    parameters: dict[str, Any]
    durable: str


class CatalogueEntry(TypedDict):
    """A subscription of a client of the broker."""

    id: str
    subscriber: str
    filter: str
    parameters: dict[str, Any]


class GroupInTrace(TypedDict):
    """A multicast group that would carry an event."""

    group: int
    to: list[str]
    """Members of the group that want the event."""
    in_vain: list[str]
    """Members that would receive it in vain."""


class MulticastHop(TypedDict):
    """The first hop of an event by multicast, from its broker to all others."""

    groups: list[GroupInTrace]
    by_links: list[str]


class Hop(TypedDict):
    """One broker's part in a trace. A broker that did not answer has a name alone."""

    broker: str
    path: NotRequired[list[str]]
    """The brokers from the first to this one."""
    sessions: NotRequired[list[str]]
    """Clients of this broker that would receive the event."""
    matched: NotRequired[list[MatchedSubscription]]
    """The subscriptions of those clients that the event matches."""
    forwards: NotRequired[list[str]]
    """Neighbours that this broker would send the event to."""
    durable: NotRequired[list[str]]
    """Home brokers that would store it."""
    kept_for: NotRequired[list[str]]
    """Durable subscriptions that it would be stored for."""
    multicast: NotRequired[MulticastHop | None]
    """Of the first hop: None where events go from broker to broker by what each of them matches."""
    loop: NotRequired[bool]
    """True if the trace came back to a broker that it had passed."""
    unreachable: NotRequired[bool]
    withheld: NotRequired[bool]
    """True if the broker refused to answer: the broker before it has no grant `monitor` there."""
    withheld_from: NotRequired[list[str]]
    """Neighbours that the event would not be sent to, as their grant does not cover it."""


class Trace(TypedDict):
    """The path of an event. `limited` is the reason why a part is missing, if one is."""

    hops: list[Hop]
    limited: NotRequired[str]
