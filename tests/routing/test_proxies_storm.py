"""Random storms over random proxy trees, against what everybody knows to be in force.

A receiver knows what it asked for, and it is told when its subscription is dropped; so at any
time `Client.wanted` is what is in force for it at its primary proxy, and each delivery is checked
against it (once, in order, wanted, within the count). When the network is quiet, probes must
reach exactly whom they concern over exactly the links between, and the tables must hold exactly
what the paper asks for.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Final

import pytest

from palio.language.parsing import parse_filter
from palio.model.filters import Filter
from palio.routing.proxies.messages import Alive, EventType
from tests.routing.proxy_network import Client, Event, Network

NIGHTLY: Final = os.environ.get("PALIO_PROFILE") == "nightly"
SEEDS: Final = 50_000 if NIGHTLY else 1_000
PART: Final = 250
"""Seeds of one test."""

TYPES: Final[tuple[EventType, ...]] = (("a",), ("a", "b"), ("c",))
HIGH: Final = 6
SILENCE: Final = 3.0


class Storm:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        size = self.random.randint(1, 9)
        parents: dict[str, str | None] = {"P0": None}
        for number in range(1, size):
            parents[f"P{number}"] = f"P{self.random.randrange(number)}"
        self.network = Network(parents, silence=SILENCE)
        self.names = list(parents)
        self.anchored = self.random.random() < 0.3
        """Every type has a source from beginning to end, so nothing may ever be dropped."""
        self.anchors: list[Client] = []
        self._born = 0
        for each in TYPES if self.anchored else ():
            anchor = self.arrive()
            anchor.register(*each)
            self.anchors.append(anchor)
        self.network.run()
        for _ in range(self.random.randint(2, 6)):
            self.arrive()

    def arrive(self) -> Client:
        self._born += 1
        return self.network.client(f"C{self._born}", self.random.choice(self.names))

    @property
    def clients(self) -> list[Client]:
        return list(self.network.clients.values())

    # --- what may happen ---

    def specification(self, names: EventType) -> Filter:
        texts = []
        for name in names:
            value = self.random.randrange(HIGH)
            shape = self.random.choice(("{} < {}", "{} >= {}", "{} = {}", "{} IN ({}, 9)"))
            texts.append(shape.format(name, value))
        joint = self.random.choice((" AND ", " AND ", " OR "))
        return parse_filter(joint.join(texts))

    def event(self, names: EventType) -> Event:
        return {name: self.random.randrange(HIGH) for name in names}

    def register(self, client: Client) -> None:
        names = self.random.choice(TYPES)
        if names in client.offered:
            client.deregister(*names)
        else:
            client.is_alive = True
            client.register(*names)

    def subscribe(self, client: Client) -> None:
        names = self.random.choice(TYPES)
        if names in client.wanted and self.random.random() < 0.4:
            client.unsubscribe(*names)
            return
        lifetime = self.random.choice((None, None, 2.5, 8.0, float("inf")))
        count = self.random.choice((None, None, None, 1, 3))
        client.subscribe(names, self.specification(names), lifetime, count)

    def publish(self, client: Client) -> None:
        if not client.offered:
            client.publish_sporadic(self.event(self.random.choice(TYPES)))
            return
        offered = list(client.offered)
        events = [self.event(self.random.choice(offered)) for _ in range(self.random.randint(1, 3))]
        client.publish(*events)

    def tick(self) -> None:
        for client in self.clients:
            if client.is_alive:
                client.say(Alive())
        self.network.advance(1.0)

    def step(self) -> None:
        dice = self.random.random()
        client = self.random.choice(self.clients)
        if dice < 0.05:
            self.arrive()
        elif dice < 0.08 and client not in self.anchors and len(self.clients) > 1:
            self.network.leave(client)
        elif dice < 0.13:
            self.tick()
        elif dice < 0.16 and client not in self.anchors:
            client.is_alive = False
        elif dice < 0.18 and not self.anchored and len(self.names) > 1:
            child = self.random.choice(self.names[1:])
            self.network.detach(child)
            self.network.attach(child)
        elif dice < 0.40 and client not in self.anchors:
            self.register(client)
        elif dice < 0.70:
            self.subscribe(client)
        else:
            self.publish(client)

    # --- what must hold ---

    def run(self, steps: int = 40) -> None:
        for _ in range(steps):
            self.step()
            while self.random.random() < 0.6:
                if not self.network.step(self.random.choice):
                    break
        self.calm()
        self.check_tables()
        for _ in range(6):
            self.check_probe()
        for _ in range(4):
            self.check_sporadic()
        for client in self.clients:
            self.network.leave(client)
        self.network.run()
        for proxy in self.network.proxies.values():
            assert not proxy.table()
            assert not any(proxy._peers.values())  # nor is anything kept on the side

    def calm(self) -> None:
        """Everything arrives, and who fell silent has been given up."""
        for _ in range(int(SILENCE) + 1):
            self.tick()
        self.network.run()
        for client in self.clients:
            assert client.is_alive or not client.offered
            assert not (self.anchored and client.dropped)

    def sources(self, names: EventType) -> list[Client]:
        return [client for client in self.clients if names in client.offered]

    def subtree(self, top: str) -> set[str]:
        found = {top}
        for name in self.names:  # parents come before their children
            if self.network.parents[name] in found:
                found.add(name)
        return found

    def check_tables(self) -> None:
        """Source state is what IV-C.1 asks for, no more; without a source only PRE is kept."""
        for names in TYPES:
            homes = {client.proxy for client in self.sources(names)}
            for name in self.names:
                below = self.subtree(name)
                children = [each for each in self.names if self.network.parents[each] == name]
                wanted = {each for each in children if homes & self.subtree(each)}
                wanted |= {client.name for client in self.sources(names) if client.proxy == name}
                parent = self.network.parents[name]
                if homes & below and homes - below:
                    assert parent is not None
                    wanted.add(parent)
                found, _ = self.network.line(name, names) or (set(), set())
                # The parent may be there by default, as long as anybody below wants something.
                interested = any(
                    names in client.wanted and client.proxy in below for client in self.clients
                )
                assert found == wanted or (interested and found == wanted | {parent})
            if not homes and not any(each.is_standing(names) for each in self.clients):
                assert not any(names in client.wanted for client in self.clients)

    def probe(self, publisher: Client, event: Event, *, sporadic: bool) -> set[Client]:
        """Who heard an event, each of them once."""
        before = {client: len(client.heard) for client in self.clients}
        self.network.crossed = Counter()
        if sporadic:
            publisher.publish_sporadic(event)
        else:
            publisher.publish(event)
        self.network.run()
        grown = {client: len(client.heard) - before[client] for client in self.clients}
        assert set(grown.values()) <= {0, 1}
        return {client for client, more in grown.items() if more}

    def check_probe(self) -> None:
        names = self.random.choice(TYPES)
        sources = self.sources(names)
        if not sources:
            return
        publisher, event = self.random.choice(sources), self.event(names)
        wanted = {each for each in self.clients if each is not publisher and each.wants(event)}
        assert self.probe(publisher, event, sporadic=False) == wanted
        links = {link for each in wanted for link in self.network.path(publisher.proxy, each.proxy)}
        assert self.network.crossed == Counter(links)

    def check_sporadic(self) -> None:
        """All standing subscriptions are served; others if they lie where the event passes."""
        names = self.random.choice(TYPES)
        publisher, event = self.random.choice(self.clients), self.event(names)
        others = [each for each in self.clients if each is not publisher and each.wants(event)]
        standing = {each for each in others if each.is_standing(names)}
        heard = self.probe(publisher, event, sporadic=True)
        assert standing <= heard <= set(others)
        needed = {link for each in heard for link in self.network.path(publisher.proxy, each.proxy)}
        climb = set(self.network.path(publisher.proxy, "P0"))
        assert set(self.network.crossed) <= needed | climb
        assert set(self.network.crossed.values()) <= {1}


@pytest.mark.parametrize("part", range(SEEDS // PART))
def test_whoever_asked_hears_it_and_nobody_else(part: int) -> None:
    for seed in range(part * PART, (part + 1) * PART):
        try:
            Storm(seed).run()
        except BaseException as error:
            error.add_note(f"Storm({seed}).run()")
            raise
