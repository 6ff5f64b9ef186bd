"""What a broker has to know: the entries of its tables, and who asked for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from palio.routing.forwarding_router import ForwardingRouter
from palio.routing.general import General
from palio.routing.messages import Flood, Subscribe
from palio.routing.peer_requests import Ledger
from palio.routing.protocol import Router
from palio.routing.proxies import Proxies
from palio.simulation.network import Message
from palio.simulation.shortened import Shortened

__all__ = ["FloodedState", "TableState", "state_of"]


class TableState(NamedTuple):
    """How much one broker knows."""

    entries: int
    """Filters and advertisements in its tables, whoever asked for them. What shortcuts add to
    these counts by itself.
    """
    lines: int
    """An entry and a peer that asked for it: the lists of (E, IPL, OPL) together (proxy IV)."""
    tree_links: int = 0
    """Links of the tree that it knows."""


def state_of(router: Router) -> TableState:
    """The tables of a router that forwards along a tree.

    >>> state_of(Proxies("b1"))
    TableState(entries=0, lines=0, tree_links=0)
    """
    links = len(router.tree) if isinstance(router, General) else 0
    inner = router.inner if isinstance(router, General) else router
    assert isinstance(inner, ForwardingRouter)
    ledgers = list(_ledgers(inner))
    entries = len({str(filter) for ledger in ledgers for filter in ledger.table.nodes})
    if isinstance(router, Shortened):  # what those at the other ends want is in a table of its own
        ledgers.append(router.served.ledger)
        entries += len(router.served.ledger.table.nodes)
    lines = sum(len(node.subscribers) for each in ledgers for node in each.table.nodes.values())
    return TableState(entries, lines, links)


def _ledgers(router: ForwardingRouter) -> Iterator[Ledger]:
    yield router.subscriptions
    if isinstance(router, Proxies):
        yield router.advertisements


class FloodedState:
    """The tables of brokers that are told the summaries of all, from what crosses their links.

    It is right as long as nothing is taken back.
    """

    def __init__(self) -> None:
        self._known: dict[str, set[tuple[str, str]]] = {}

    def note(self, broker: str, message: Message) -> None:
        """A broker is told something."""
        if isinstance(message, Flood):
            for request in message.requests:
                if isinstance(request, Subscribe):
                    self.add(broker, message.origin, str(request.filter))

    def add(self, broker: str, origin: str, filter: str) -> None:
        """A broker knows what is wanted at another, or at itself."""
        self._known.setdefault(broker, set()).add((origin, filter))

    def of(self, broker: str) -> TableState:
        """What a broker knows."""
        known = self._known.get(broker, set())
        return TableState(len({filter for _, filter in known}), len(known))
