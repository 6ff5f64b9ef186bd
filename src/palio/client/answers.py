"""What brokers answer to questions about them (`Client.topology`, `trace`, `catalogue`)."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

__all__ = [
    "BrokerInTopology",
    "CatalogueEntry",
    "Hop",
    "MatchedSubscription",
    "PlanInUse",
    "Topology",
    "Trace",
]


class BrokerInTopology(TypedDict):
    """A broker that was heard of."""

    links: list[str]
    reachable: bool
    durable_subscriptions: list[str]


class PlanInUse(TypedDict):
    """The plan of multicast groups that a network uses."""

    id: int
    epoch_us: int
    """When it was applied: microseconds since 1970."""
    origin: str
    """The broker at which it was applied."""
    method: str
    groups: int
    brokers: list[str]


class Topology(TypedDict):
    """The brokers by their names, as the one that was asked knows them."""

    asked: str
    brokers: dict[str, BrokerInTopology]
    plan: PlanInUse | None


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


class Hop(TypedDict):
    """What one broker would do with an event. One that did not answer has a name alone."""

    broker: str
    path: NotRequired[list[str]]
    sessions: NotRequired[list[str]]
    matched: NotRequired[list[MatchedSubscription]]
    forwards: NotRequired[list[str]]
    durable: NotRequired[list[str]]
    kept_for: NotRequired[list[str]]
    loop: NotRequired[bool]
    unreachable: NotRequired[bool]
    withheld: NotRequired[bool]


class Trace(TypedDict):
    """Where an event would go. `limited` says why there is less than all of it, if so."""

    hops: list[Hop]
    limited: NotRequired[str]
