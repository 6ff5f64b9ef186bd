"""What the brokers of a hierarchy of proxies have to know, beside a mesh in the same scenario.

    python -m benchmarks.healing_state [--proxies 1 10 100 1000] [--docs docs]

Virtual brokers, by a seed: the counts are the same on every machine. Each second broker has a
client that publishes a type of its own, each fourth one that wants a type, mostly one from nearby,
and each tenth one that wants a type which nobody publishes yet (PRE). An *entry* is one filter or
advertisement in the tables of a broker, whoever asked for it; a *line* is an entry and a peer that
asked for it. `acyclic` goes by the same tree, and `general`, on which every broker
knows the links of all besides, by that tree with a fifth more links, up to 100 brokers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any, Final, NamedTuple

from benchmarks.matching_results import replace
from benchmarks.routing_algorithms import as_markdown
from palio.routing.acyclic import Acyclic
from palio.routing.general import General
from palio.routing.protocol import Peer, Router
from palio.routing.proxies import Proxies
from palio.simulation import Randomness
from palio.simulation.topologies import Topology, tree
from palio_studies.proxy_network import state_of
from palio_studies.simulator import Network

Row = dict[str, Any]

SEED: Final = 16
FANOUT: Final = 4
NEARBY: Final = 0.75
"""The share of wishes for a type from the branch of the broker two levels above."""
MOST_IN_MESH: Final = 100
"""Of brokers that tell each other of all links."""
BEGIN: Final = "<!-- measured: python -m benchmarks.healing_state --docs docs -->"

ROUTERS: Final[Mapping[str, Callable[[str], Router]]] = {
    "proxies": Proxies,
    "acyclic": Acyclic,
    "general": General,
}


class Scenario(NamedTuple):
    """Who publishes and who wants which types, by broker."""

    shape: Topology
    mesh: Topology
    """With more links."""
    offered: Mapping[str, str]
    wanted: Mapping[str, str]
    unborn: Mapping[str, str]
    """Wanted, and published by nobody."""

    def below(self, types: Mapping[str, str]) -> dict[str, set[str]]:
        """The types at each broker and in its branch."""
        found = {name: {types[name]} if name in types else set() for name in self.shape.brokers}
        for above, name in reversed(self.shape.edges):
            found[above] |= found[name]
        return found


class BrokerState(NamedTuple):
    """What one broker knows, and what is below it."""

    depth: int
    entries: int
    lines: int
    tree_links: int
    """Links of the tree that it knows."""
    offered_below: int
    wanted_below: int
    types_below: int
    """Offered or wanted below."""
    pre_below: int
    """Of these, wanted by somebody and offered by nobody."""


def scenario(count: int, seed: int = SEED) -> Scenario:
    """The same whoever asks."""
    random = Randomness(seed)
    shape = tree(count, FANOUT)
    names = shape.brokers
    above = {child: parent for parent, child in shape.edges}
    offered = {name: f"t{number}" for number, name in enumerate(names) if number % 2 == 0}
    every = sorted(offered.values())
    near: dict[str, list[str]] = {}
    for name, kind in offered.items():
        place = name
        for _ in range(3):  # from its own broker up to the one two levels above
            near.setdefault(place, []).append(kind)
            place = above.get(place, "")
    wanted = {}
    for number, name in enumerate(names):
        if number % 4 == 0:
            parent = above.get(name, name)
            nearby = near.get(above.get(parent, parent), every)
            wanted[name] = random.choice(nearby if random.chance(NEARBY) else every)
    unborn = {name: f"u{number}" for number, name in enumerate(names) if number % 10 == 0}
    more = {
        (random.choice(names[:number]), names[number])
        for number in range(1, count)
        if random.chance(1 / 5)
    }
    mesh = Topology(names, tuple(sorted({*shape.edges, *more})))
    return Scenario(shape, mesh, offered, wanted, unborn)


def states(given: Scenario, routing: str) -> dict[str, BrokerState]:
    """Every broker, once all are told."""
    shape = given.mesh if routing == "general" else given.shape
    above = {child: parent for parent, child in given.shape.edges}

    def new_router(name: str) -> Router:
        router = ROUTERS[routing](name)
        if isinstance(router, Proxies) and name in above:
            router.above = Peer.broker(above[name])
        return router

    network = Network.of(shape, new_router, seed=SEED)
    network.run()
    for name in shape.brokers:
        client = network.client(f"c-{name}", name)
        if name in given.offered and routing == "proxies":
            client.advertise(f"type = '{given.offered[name]}'")
        for types in (given.wanted, given.unborn):
            if name in types:
                client.subscribe(f"type = '{types[name]}'")
    network.run()
    offered, wanted, unborn = map(given.below, (given.offered, given.wanted, given.unborn))
    depths: dict[str, int] = {}
    for name in shape.brokers:
        depths[name] = depths[above[name]] + 1 if name in above else 0
    return {
        name: BrokerState(
            depths[name],
            *state_of(router),
            len(offered[name]),
            len(wanted[name] | unborn[name]),
            len(offered[name] | wanted[name] | unborn[name]),
            len(unborn[name]),
        )
        for name, router in network.routers.items()
    }


def rows_of(count: int, routing: str) -> list[Row]:
    """One row for each depth of the tree; the root is depth 0."""
    found = list(states(scenario(count), routing).values())
    rows = []
    for depth in range(max(each.depth for each in found) + 1):
        some = [each for each in found if each.depth == depth]
        means = {
            name: round(mean(getattr(each, name) for each in some), 1)
            for name in BrokerState._fields
            if name != "depth"
        }
        rows.append(
            {"brokers": count, "routing": routing, "depth": depth, "at depth": len(some), **means}
        )
    return rows


def summary(rows: list[Row]) -> list[Row]:
    """A row for each number of brokers: entries at the root, and of all brokers on average."""
    found = []
    for count in dict.fromkeys(row["brokers"] for row in rows):
        mine = [row for row in rows if row["brokers"] == count]
        told: Row = {"brokers": count}
        for routing in dict.fromkeys(row["routing"] for row in mine):
            some = [row for row in mine if row["routing"] == routing]
            told[f"{routing}: root"] = some[0]["entries"]
            told[f"{routing}: mean"] = round(
                sum(row["entries"] * row["at depth"] for row in some) / count, 1
            )
        for name in ("types_below", "pre_below"):
            some = [row for row in mine if row["routing"] == "proxies"]
            told[f"{name.replace('_', ' ')}: mean"] = round(
                sum(row[name] * row["at depth"] for row in some) / count, 1
            )
        found.append(told)
    columns = dict.fromkeys(name for row in found for name in row)
    return [{name: row.get(name, "") for name in columns} for row in found]


def main() -> None:
    """Print the tables, or put them into the documentation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--proxies", type=int, nargs="*", default=[1, 10, 100, 1_000])
    parser.add_argument("--docs", type=Path, help="the folder of the documentation, to be renewed")
    given = parser.parse_args()
    rows = [
        row
        for count in given.proxies
        for routing in ROUTERS
        if routing != "general" or count <= MOST_IN_MESH
        for row in rows_of(count, routing)
    ]
    print(as_markdown(summary(rows)))
    print()
    print(as_markdown(rows))
    if given.docs is not None:
        text = json.dumps(rows, indent=1) + "\n"
        (given.docs / "measured" / "healing-state.json").write_text(text, encoding="utf-8")
        page = given.docs / "concepts" / "routing-proxies.md"
        replace(as_markdown(summary(rows)), page, BEGIN)


if __name__ == "__main__":
    main()
