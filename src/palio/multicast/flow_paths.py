"""`FlowPaths`: which groups and links carry an event from one broker to its receivers."""

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


class GroupWay(NamedTuple):
    """Path of an event to receivers of one group."""

    group: int
    heard_by: tuple[Outflow, ...]
    members: tuple[tuple[Outflow | None, int], ...]
    """All members, each with 1 if the event is of its flow."""
    layout: Struct

    def counts(self) -> bytes:
        """Encode the counts of the members. A receiver on links is not informed of numbers that
        are on their way to it by links, or it would ask for them.
        """
        return self.layout.pack(
            *[
                0
                if flow is None
                else ((flow.number if flow.is_cast else flow.heard) & _MASK) << 1 | is_of
                for flow, is_of in self.members
            ]
        )


class FlowWay(NamedTuple):
    """Path of an event to a set of receivers."""

    flows: tuple[Outflow, ...]
    groups: tuple[GroupWay, ...]
    by_links: tuple[Outflow, ...]


class FlowPaths:
    """The paths to sets of receivers, each found once while flows and plan stay as they are.

    >>> flows = {"b2": Outflow("b2", incarnation=1, number=0)}
    >>> flows["b2"].stage = 1
    >>> [flow.name for flow in FlowPaths(flows).to(("b2", "b3")).by_links]
    ['b2']
    """

    def __init__(self, flows: dict[str, Outflow]) -> None:
        self.epoch: Epoch | None = None
        """The plan in use."""
        self._flows = flows
        self._ways = Bounded[tuple[str, ...], FlowWay](MAX_ROUTES)
        self.parted = Bounded[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]](MAX_ROUTES)
        """By brokers, those of them that flows reach, and the others."""

    def forget(self) -> None:
        """Find all paths again: flows, or the plan in use, have changed."""
        self._ways.clear()
        self.parted.clear()

    def carriage(self, brokers: Iterable[str]) -> Carriage:
        """Choose what carries a small event to receivers now; see `Epoch.carriage`."""
        names = list(brokers)
        cast = [name for name in names if name in self._flows and self._flows[name].is_cast]
        found = Carriage((), ()) if self.epoch is None else self.epoch.carriage(cast)
        groups = tuple(each for each in found.groups if len(each[1]) > 1)
        by_group = {name for _, receivers in groups for name in receivers}
        return Carriage(groups, tuple(name for name in names if name not in by_group))

    def to(self, brokers: tuple[str, ...]) -> FlowWay:
        """Return the path of an event to some receivers."""
        way = self._ways.get(brokers)
        if way is not None:
            return way
        flows = [flow for flow in map(self._flows.get, brokers) if flow is not None and flow.stage]
        carried = self.carriage(flow.name for flow in flows)
        groups = tuple(self.to_group(group, names) for group, names in carried.groups)
        by_links = tuple(self._flows[name] for name in carried.by_link)
        way = self._ways[brokers] = FlowWay(tuple(flows), groups, by_links)
        return way

    def to_group(self, group: int, names: Collection[str]) -> GroupWay:
        """Return the path of an event of these flows, or of none, to a group."""
        members = () if self.epoch is None else self.epoch.members(group)
        return GroupWay(
            group,
            tuple(self._flows[name] for name in names),
            tuple((self._flows.get(name), int(name in names)) for name in members),
            Struct(f"<{len(members)}I"),
        )
