"""A tiny network of proxies: links are first in, first out; clients are next to their proxy."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from palio.language.parsing import parse_filter
from palio.model.filters import Filter
from palio.model.row_parcels import RowParcel
from palio.routing.protocol import Peer
from palio.routing.proxies.messages import (
    Bundle,
    Dereg,
    Drop,
    Encapsulated,
    EventType,
    ProxyControl,
    Reg,
    Sub,
    Unsub,
    type_of,
)
from palio.routing.proxies.router import Proxies, ProxySend

Event = Mapping[str, Any]

E: Final = ("x",)
ALL: Final = parse_filter("x IS NOT NULL")

FIGURE_3: Final = {"P1": None, "P2": "P1", "P3": "P1", "P4": "P3", "P5": "P3"}
FIGURE_4: Final = {"P1": None, "P2": "P1", "P3": "P1", "P4": "P1"}


def above(low: int) -> Filter:
    return parse_filter(f"x > {low}")


def said(**counts: int) -> dict[str, int]:
    """`P2_P1_Reg=1` as the network counts it."""
    return {"{}>{} {}".format(*name.split("_")): count for name, count in counts.items()}


class Heard(NamedTuple):
    publisher: str
    seq: int
    event: Event


class Client:
    """A source and a receiver in one, which knows what is in force for it."""

    def __init__(self, network: Network, name: str, proxy: str) -> None:
        self.network = network
        self.name = name
        self.proxy = proxy
        self.peer = Peer.client(name)
        self.heard: list[Heard] = []
        self.offered: dict[EventType, None] = {}
        self.wanted: dict[EventType, Sub] = {}
        self.left: dict[EventType, int | None] = {}
        self.ends: dict[EventType, float] = {}
        self.dropped: list[EventType] = []
        self.is_alive = True
        self._number = 0
        self._seq = 0

    def register(self, *names: str) -> None:
        self.offered[names] = None
        self.say(Reg(names))

    def deregister(self, *names: str) -> None:
        self.offered.pop(names, None)
        self.say(Dereg(names))

    def subscribe(
        self,
        names: EventType,
        specification: Filter,
        lifetime: float | None = None,
        count: int | None = None,
    ) -> None:
        self._number += 1
        sub = Sub(names, specification, lifetime, count, self._number)
        self.wanted[names] = sub
        self.left[names] = count
        self.ends[names] = self.network.now + (lifetime or 0.0)
        self.say(sub)

    def unsubscribe(self, *names: str) -> None:
        self.wanted.pop(names, None)
        self.say(Unsub(names))

    def publish(self, *events: Event) -> None:
        batch = RowParcel(self.name, events, self._seq)
        self._seq += len(events)
        self.network.route(self.proxy, self.peer, batch)

    def publish_sporadic(self, event: Event) -> None:
        self._seq += 1
        self.say(Encapsulated(self.name, self._seq - 1, event))

    def say(self, message: ProxyControl) -> None:
        self.network.receive(self.proxy, self.peer, message)

    def is_standing(self, names: EventType) -> bool:
        """Whether its subscription is kept even without a source."""
        sub = self.wanted.get(names)
        return sub is not None and sub.lifetime is not None and self.network.now < self.ends[names]

    def wants(self, event: Event) -> bool:
        sub = self.wanted.get(type_of(event))
        return sub is not None and sub.specification.matches(event)

    def hear(self, publisher: str, seq: int, event: Event) -> None:
        assert self.wants(event), (self.name, event, self.wanted)
        last = [each.seq for each in self.heard if each.publisher == publisher][-1:]
        assert not last or last[0] < seq, (self.name, publisher, seq)
        self.heard.append(Heard(publisher, seq, event))
        names = type_of(event)
        left = self.left[names]
        if left is not None:
            self.left[names] = left - 1
            if left == 1:
                del self.wanted[names]

    def take(self, message: ProxyControl) -> None:
        match message:
            case Bundle(messages):
                for each in messages:
                    self.take(each)
            case Drop(names, number):
                if names in self.wanted and self.wanted[names].number == number:
                    del self.wanted[names]
                    self.dropped.append(names)
            case Dereg(names):
                self.offered.pop(names, None)
            case Encapsulated(publisher, seq, event):
                self.hear(publisher, seq, event)
            case _:
                raise AssertionError(f"{self.name} cannot take {message}")


class Network:
    """Proxies below a root. `parents` maps each proxy to its parent, the root to None."""

    def __init__(self, parents: Mapping[str, str | None], *, silence: float | None = None) -> None:
        self.parents = dict(parents)
        self.now = 0.0
        self.proxies = {
            name: Proxies(name, root=parent is None, silence=silence)
            for name, parent in parents.items()
        }
        self.clients: dict[str, Client] = {}
        self.links: dict[tuple[str, str], deque[ProxyControl | RowParcel]] = {}
        self.said: Counter[str] = Counter()
        """Messages between proxies, each of a bundle by itself: `P2>P1 Reg`."""
        self.crossed: Counter[tuple[str, str]] = Counter()
        """Events between proxies."""
        for name, parent in parents.items():
            if parent is not None:
                self.links[name, parent] = deque()
                self.links[parent, name] = deque()
                self.attach(name)

    def attach(self, name: str) -> None:
        """A proxy's link to its parent comes up."""
        parent = self.parents[name]
        assert parent is not None
        self.carry(name, self.proxies[name].attach(Peer.master(parent)))
        self.carry(parent, self.proxies[parent].attach(Peer.broker(name)))

    def detach(self, name: str) -> None:
        """It goes down, and what was on it is lost."""
        parent = self.parents[name]
        assert parent is not None
        self.links[name, parent].clear()
        self.links[parent, name].clear()
        self.carry(name, self.proxies[name].detach(Peer.master(parent)))
        self.carry(parent, self.proxies[parent].detach(Peer.broker(name)))

    def client(self, name: str, proxy: str) -> Client:
        client = self.clients[name] = Client(self, name, proxy)
        self.carry(proxy, self.proxies[proxy].attach(client.peer))
        return client

    def leave(self, client: Client) -> None:
        del self.clients[client.name]
        self.carry(client.proxy, self.proxies[client.proxy].detach(client.peer))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for name, proxy in self.proxies.items():
            self.carry(name, proxy.advance(self.now))

    def receive(self, proxy: str, sender: Peer, message: ProxyControl) -> None:
        self.carry(proxy, self.proxies[proxy].receive(sender, message))

    def route(self, proxy: str, sender: Peer, events: RowParcel) -> None:
        for peer, mask in self.proxies[proxy].route(sender, events).items():
            self.deliver(proxy, peer, events.select(mask))
        self.carry(proxy, self.proxies[proxy].advance(self.now))

    def carry(self, proxy: str, sends: Iterable[ProxySend]) -> None:
        for peer, message in sends:
            self.deliver(proxy, peer, message)

    def deliver(self, proxy: str, peer: Peer, message: ProxyControl | RowParcel) -> None:
        if not peer.is_client:
            self.count(proxy, peer.name, message)
            self.links[proxy, peer.name].append(message)
        elif isinstance(message, RowParcel):
            for seq, row in zip(message.seqs, message.rows, strict=True):
                self.clients[peer.name].hear(message.publisher, seq, row)
        else:
            self.clients[peer.name].take(message)

    def count(self, source: str, target: str, message: ProxyControl | RowParcel) -> None:
        if isinstance(message, RowParcel):
            self.crossed[source, target] += len(message)
            return
        for each in message.messages if isinstance(message, Bundle) else (message,):
            if isinstance(each, Encapsulated):
                self.crossed[source, target] += 1
            self.said[f"{source}>{target} {type(each).__name__}"] += 1

    def step(self, choose: Callable[[list[tuple[str, str]]], tuple[str, str]]) -> bool:
        """Let the oldest message of some link arrive."""
        busy = [ends for ends, queue in self.links.items() if queue]
        if not busy:
            return False
        source, target = choose(busy)
        message = self.links[source, target].popleft()
        is_parent = self.parents[target] == source
        sender = Peer.master(source) if is_parent else Peer.broker(source)
        if isinstance(message, RowParcel):
            self.route(target, sender, message)
        else:
            self.receive(target, sender, message)
        return True

    def run(self) -> Counter[str]:
        """Let everything arrive; what was said between proxies since the last run."""
        while self.step(lambda busy: busy[0]):
            pass
        said, self.said = self.said, Counter()
        return said

    def line(self, proxy: str, names: EventType) -> tuple[set[str], set[str]] | None:
        """The names in the IPL and the OPL of a proxy."""
        for line in self.proxies[proxy].table():
            if line.type == names:
                return {each.name for each in line.incoming}, {e.name for e in line.outgoing}
        return None

    def path(self, one: str, other: str) -> list[tuple[str, str]]:
        """The links from one proxy to another."""
        up, down = self._above(one), self._above(other)
        while len(up) > 1 and len(down) > 1 and up[-2] == down[-2]:
            up.pop()
            down.pop()
        nodes = [*up, *reversed(down[:-1])]
        return list(pairwise(nodes))

    def _above(self, name: str) -> list[str]:
        found = [name]
        while (parent := self.parents[found[-1]]) is not None:
            found.append(parent)
        return found
