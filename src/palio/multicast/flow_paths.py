"""`FlowPaths`: finds the groups and links that carry an event from one broker to its receivers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from struct import Struct
from typing import Final, NamedTuple

from palio.bounded import Bounded
from palio.multicast.datagrams import COUNT_BITS
from palio.multicast.epochs import Carriage, Epoch
from palio.multicast.limits import MAX_ROUTES
from palio.multicast.outflow import Outflow

_MASK: Final = (1 << COUNT_BITS) - 1


class GroupRoute(NamedTuple):
    """The route of an event to receivers in one group."""

    group: int
    receivers: tuple[Outflow, ...]
    members: tuple[tuple[Outflow | None, int], ...]
    """All members; each with 1 if the event belongs to its flow."""
    layout: Struct

    def counts(self) -> bytes:
        """Encode the counts of the members.

        A member that is served by links gets its last acked number: those in flight over links
        would look lost to it, and it would ask for them.
        """
        return self.layout.pack(
            *[
                0
                if flow is None
                else ((flow.number if flow.is_cast else flow.acked) & _MASK) << 1 | is_of
                for flow, is_of in self.members
            ]
        )


class FlowRoute(NamedTuple):
    """The route of an event to a set of receivers."""

    flows: tuple[Outflow, ...]
    groups: tuple[GroupRoute, ...]
    by_links: tuple[Outflow, ...]


class FlowPaths:
    """The routes to sets of receivers, cached until flows or the plan change.

    >>> flows = {"b2": Outflow("b2", incarnation=1, number=0)}
    >>> flows["b2"].stage = 1
    >>> [flow.name for flow in FlowPaths(flows).to(("b2", "b3")).by_links]
    ['b2']
    """

    def __init__(self, flows: dict[str, Outflow]) -> None:
        self.epoch: Epoch | None = None
        """The plan in use."""
        self._flows = flows
        self._routes = Bounded[tuple[str, ...], FlowRoute](MAX_ROUTES)
        self.split = Bounded[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]](MAX_ROUTES)
        """By a set of brokers, those that flows reach, and the others."""

    def forget(self) -> None:
        """Drop all routes, as flows or the plan in use have changed."""
        self._routes.clear()
        self.split.clear()

    def carriage(self, brokers: Iterable[str]) -> Carriage:
        """Choose what carries a small event to receivers now; see `Epoch.carriage`."""
        names = list(brokers)
        cast = [name for name in names if name in self._flows and self._flows[name].is_cast]
        found = Carriage((), ()) if self.epoch is None else self.epoch.carriage(cast)
        groups = tuple(each for each in found.groups if len(each[1]) > 1)
        by_group = {name for _, receivers in groups for name in receivers}
        return Carriage(groups, tuple(name for name in names if name not in by_group))

    def to(self, brokers: tuple[str, ...]) -> FlowRoute:
        """Return the route of an event to some receivers."""
        route = self._routes.get(brokers)
        if route is not None:
            return route
        flows = [flow for flow in map(self._flows.get, brokers) if flow is not None and flow.stage]
        carried = self.carriage(flow.name for flow in flows)
        groups = tuple(self.to_group(group, names) for group, names in carried.groups)
        by_links = tuple(self._flows[name] for name in carried.by_link)
        route = self._routes[brokers] = FlowRoute(tuple(flows), groups, by_links)
        return route

    def to_group(self, group: int, names: Collection[str]) -> GroupRoute:
        """Return the route of an event of these flows, or of a report, to a group."""
        members = () if self.epoch is None else self.epoch.members(group)
        return GroupRoute(
            group,
            tuple(self._flows[name] for name in names),
            tuple((self._flows.get(name), int(name in names)) for name in members),
            Struct(f"<{len(members)}I"),
        )
