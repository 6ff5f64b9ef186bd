"""The paper's rules for registrations and subscriptions (proxy IV-C), to be compared with Palio's.

By these rules a registration also goes down, to the one neighbour that knew of no second source,
and a subscription stops where it meets sources. Palio's subscriptions go up to the root instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from palio_studies.proxy_network import TableState


class Sent(NamedTuple):
    """A message between two, clients among them."""

    what: str
    kind: str
    sender: str
    target: str


class _Proxy:
    """The table of one proxy: by type of event, neighbours towards sources and receivers."""

    def __init__(self) -> None:
        self.incoming: dict[str, list[str]] = {}
        self.outgoing: dict[str, list[str]] = {}


class PaperHierarchy:
    """Proxies that go by IV-C, of which each but the root has a parent.

    >>> proxies = PaperHierarchy({"P2": "P1", "P3": "P1"})
    >>> for place, source in (("P2", "S1"), ("P3", "S2")):
    ...     proxies.send("REG", "E", source, place)
    >>> proxies.table("P2", "E"), proxies.table("P3", "E")
    ((['S1', 'P1'], []), (['S2', 'P1'], []))
    """

    def __init__(self, parents: Mapping[str, str]) -> None:
        self.parents = parents
        self.proxies = {name: _Proxy() for name in (*parents, *parents.values())}
        self.sent: list[Sent] = []
        """All messages, the first first."""

    def table(self, proxy: str, kind: str) -> tuple[list[str], list[str]]:
        """Return (IPL, OPL) of a type at a proxy."""
        at = self.proxies[proxy]
        return at.incoming.get(kind, []), at.outgoing.get(kind, [])

    def state(self, proxy: str) -> TableState:
        """Count what a proxy knows: types, and neighbours in the lists of all types."""
        at = self.proxies[proxy]
        lists = (*at.incoming.values(), *at.outgoing.values())
        return TableState(len(at.incoming.keys() | at.outgoing.keys()), sum(map(len, lists)))

    def send(self, what: str, kind: str, client: str, proxy: str) -> None:
        """Have a client register (`REG`) or subscribe (`SUB`), and all that follows from it."""
        waiting = deque([Sent(what, kind, client, proxy)])
        while waiting:
            message = waiting.popleft()
            self.sent.append(message)
            act = self._register if message.what == "REG" else self._subscribe
            for other, about in act(kind, message.sender, message.target):
                if other in self.proxies:  # clients need not be told
                    waiting.append(Sent(about, kind, message.target, other))

    def _register(self, kind: str, sender: str, proxy: str) -> Iterable[tuple[str, str]]:
        at = self.proxies[proxy]
        incoming = at.incoming.setdefault(kind, [])
        if sender in incoming:
            return
        if not incoming:
            yield self.parents.get(proxy, ""), "REG"
        elif sender != self.parents.get(proxy):
            yield sender, "REG"
        if len(incoming) == 1:
            yield incoming[0], "REG"
        incoming.append(sender)
        if set(at.outgoing.get(kind, ())) - {sender}:
            yield sender, "SUB"

    def _subscribe(self, kind: str, sender: str, proxy: str) -> Iterable[tuple[str, str]]:
        at = self.proxies[proxy]
        outgoing = at.outgoing.setdefault(kind, [])
        if sender in outgoing:
            return
        before = set(outgoing)
        outgoing.append(sender)
        if kind not in at.incoming and proxy in self.parents:
            at.incoming[kind] = [self.parents[proxy]]
        for source in at.incoming.get(kind, ()):
            # The paper stops at any earlier subscription. One of this very source does not count
            # here: the source was never asked for what others want.
            if source != sender and not before - {source}:
                yield source, "SUB"

    def reached(self, kind: str, proxy: str) -> set[str]:
        """Return the clients that a sporadic event of a type reaches from a proxy (IV-D)."""
        found: set[str] = set()
        waiting = [("", proxy)]
        while waiting:
            sender, here = waiting.pop()
            wanted = [each for each in self.table(here, kind)[1] if each != sender]
            if not wanted and self.parents.get(here, sender) != sender:
                wanted = [self.parents[here]]
            found.update(each for each in wanted if each not in self.proxies)
            waiting += [(here, each) for each in wanted if each in self.proxies]
        return found
