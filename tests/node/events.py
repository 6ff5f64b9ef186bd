"""Events for tests of whole brokers, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palio.model.events import stamped, to_batches
from palio.node.effects import Moment
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import Append
from palio.protocol.messages import Parcel
from palio.simulation.member import Member
from palio.simulation.world import World


def parcel(*rows: Mapping[str, Any], publisher: str = "p", first_seq: int = 1) -> Parcel:
    """Rows of one shape, stamped."""
    (batch,) = to_batches(rows)
    return Parcel(publisher, stamped(batch, first_seq, 1_000_000))


def heard(member: Member) -> list[Any]:
    """The attribute `x` of all that a client heard."""
    return [row["x"] for _, _, row in member.heard]


def reports(world: World, event: str) -> list[tuple[str, dict[str, Any]]]:
    """What brokers said to people of one kind: who said it, and its details."""
    return [(name, each.details) for name, each in world.reports if each.event == event]


def links_of(world: World, name: str) -> list[str]:
    """The neighbours to which the links of a broker are up."""
    peers = world.nodes[name].status()["peers"]
    return sorted(each for each, state in peers.items() if state["up"])


def begin(node: Node, at: Moment, store: MemoryStore | None = None) -> None:
    """Start a node whose disk has written what it writes first."""
    pending = list(node.start(at))
    for each in pending:
        if isinstance(each, Append):
            if store is not None:
                store.write((*each.released, *each.operations))
            pending += node.stored(each.ticket, at)
