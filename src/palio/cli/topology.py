"""`palio topology`: the brokers of a network and their links, as a tree."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from palio.cli.connecting import BrokerDoor
from palio.cli.reporting import show
from palio.client.connection import Client

if TYPE_CHECKING:
    from palio.client.answers import PlanInUse

__all__ = ["STANDINGS", "described", "topology"]

STANDINGS: Final = {
    "": "",
    "joined": "joined",
    "links": "by links",
    "moved": "moved to links",
    "waiting": "has not joined",
}
"""What is said of a broker, by what it does with the plan in use."""


def topology(door: BrokerDoor, *, as_json: bool) -> int:
    """Print the brokers that one of them knows of, as a tree from that one."""
    found = asyncio.run(door.ask(Client.topology))
    if as_json:
        show(found)
    else:
        for line in _tree(found["asked"], found["brokers"]):
            show(line)
        if found["root"]:
            show(f"root: {found['root']}")
        if found["plan"] is not None:
            show(f"plan: {described(found['plan'])}")
    return 0


def described(plan: PlanInUse) -> str:
    """A plan in use, in a line.

    >>> plan = {"id": 7, "epoch_us": 1_800_000_000_000_000, "origin": "b1"}
    >>> described(plan | {"method": "flooding", "groups": 1, "brokers": ["b1", "b2"]})
    'flooding, 1 groups for 2 brokers, applied at b1, epoch 2027-01-15T08:00:00+00:00'
    """
    epoch = datetime.fromtimestamp(plan["epoch_us"] / 1_000_000, UTC)
    return (
        f"{plan['method']}, {plan['groups']:,} groups for {len(plan['brokers']):,} brokers, "
        f"applied at {plan['origin']}, epoch {epoch.isoformat()}"
    )


def _tree(root: str, brokers: Mapping[str, Any]) -> Iterator[str]:
    """Each broker below the one through which it is reached first, then what is in no tree."""
    parents: dict[str, str] = {root: ""}
    queue = [root]
    for name in queue:
        for other in _neighbours(name, brokers):
            if other not in parents and brokers[other]["reachable"]:
                parents[other] = name
                queue.append(other)
    yield from _branch(root, "", "", brokers, parents)
    links = {
        (min(name, other), max(name, other))
        for name in parents
        for other in _neighbours(name, brokers)
        if other in parents and name not in (parents[other], other) and parents[name] != other
    }
    if links:
        yield f"also linked: {', '.join(f'{one} - {other}' for one, other in sorted(links))}"
    found = [(name, other) for name in sorted(brokers) for other in brokers[name]["found"]]
    if found:
        listed = ", ".join(f"{one} - {other}" for one, other in found)
        yield f"found for links that are lost: {listed}"
    for name in sorted(brokers.keys() - parents.keys()):
        yield f"{name}  not reachable"
        yield from _keeps(brokers[name], "    ")


def _branch(
    name: str,
    lead: str,
    below: str,
    brokers: Mapping[str, Any],
    parents: Mapping[str, str],
) -> Iterator[str]:
    is_leaving = "leaving" if brokers[name]["leaving"] else ""
    parent = brokers[name]["parent"]
    said = STANDINGS[brokers[name]["multicast"]], is_leaving, parent and f"below {parent}"
    yield "  ".join(filter(None, (f"{lead}{name}", *said)))
    children = [each for each in sorted(parents) if parents[each] == name]
    yield from _keeps(brokers[name], below + ("│     " if children else "      "))
    for child in children:
        is_last = child == children[-1]
        corner, bar = ("└── ", "    ") if is_last else ("├── ", "│   ")
        yield from _branch(child, below + corner, below + bar, brokers, parents)


def _neighbours(name: str, brokers: Mapping[str, Any]) -> list[str]:
    return [each for each in sorted(brokers[name]["links"]) if each in brokers]


def _keeps(broker: Mapping[str, Any], lead: str) -> Iterator[str]:
    for subscription in broker["durable_subscriptions"]:
        yield f"{lead}keeps events for {subscription}"
