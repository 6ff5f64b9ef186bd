"""Random storms on a virtual network, and the dumbest possible reference of what must be delivered.

A storm is a sequence of requests, publications, comings and goings with random gaps, most of them
far shorter than a message takes. During it nobody may receive what it never asked for, hear it
twice, or hear a publisher out of order. Once the network is quiet, probes must reach exactly whom
the reference says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from palio.language.parsing import parse_advertisement
from palio.model.advertisements import Advertisement
from palio.model.expressions import Variable
from palio.model.filters import TRUE, Conjunction, Constraint, Filter
from palio.model.relations import covers, covers_advertisement
from palio.model.values import Bindings
from palio.routing.advertised import Advertised
from palio.routing.forwarding_router import ForwardingRouter
from palio.routing.general import General
from palio.routing.messages import Flood, Subscribe
from palio.routing.proxies import Proxies
from palio.routing.source_trees import SourceTrees
from palio.routing.trees import edge_of
from palio.simulation import Randomness, Topology, connected_random, random_tree
from palio_studies.simulator import Client, Link, Network
from palio_studies.simulator.network import RouterFactory

Event = Mapping[str, Any]

NAMES: Final = ("a", "b", "c", "d")
TEXTS: Final = ("", "x", "xy", "y", "yx")
HIGH: Final = 8
MOST_ACTIONS: Final = 20_000
"""Far more than any storm takes: one that takes them never ends."""


def random_constraint(random: Randomness, variables: dict[str, Any] | None = None) -> Constraint:
    name = random.choice(NAMES)
    if name == "d":
        op = random.choice(("=", "!=", "STARTS WITH", "ENDS WITH", "IN", "IS NULL"))
        if op == "IS NULL":
            return Constraint.of(name, op)
        if op == "IN":
            return Constraint.of(name, op, random.sample(TEXTS, 2))
        return Constraint.of(name, op, random.choice(TEXTS[1:]))
    op = random.choice(("<", "<=", ">", ">=", ">=", "<=", "=", "!=", "IN", "IS NOT NULL"))
    if op == "IS NOT NULL":
        return Constraint.of(name, op)
    if op == "IN":
        return Constraint.of(name, op, random.sample(range(HIGH), 3))
    value = random.below(HIGH)
    if variables is not None and random.chance(0.7):
        variable = f"v{len(variables)}"
        variables[variable] = value
        return Constraint.of(name, op, Variable(variable))
    return Constraint.of(name, op, value)


def random_filter(random: Randomness, variables: dict[str, Any] | None = None) -> Filter:
    """One to three alternatives of one to three constraints."""
    alternatives = 1 + (random.chance(0.2) and random.below(3))
    return Filter.of(
        Conjunction.of([random_constraint(random, variables) for _ in range(random.between(1, 3))])
        for _ in range(alternatives)
    )


def random_event(random: Randomness) -> Event:
    event: dict[str, Any] = {}
    for name in NAMES:
        if random.chance(0.85):
            event[name] = random.choice(TEXTS) if name == "d" else random.below(HIGH)
    return event


class Reference:
    """What each client has asked for and offered, by siena's rules for one identity."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, dict[int, tuple[Filter, Bindings]]] = {}
        self.advertisements: dict[str, dict[int, Advertisement]] = {}
        self.ever: dict[str, list[Filter]] = {}

    def subscribe(self, client: str, key: int, filter: Filter, values: Bindings) -> None:
        mine = self.subscriptions[client]
        self.ever[client].append(filter.bind(values))
        mine.pop(key, None)
        if not filter.variables:
            fixed = {k: f for k, (f, _) in mine.items() if not f.variables}
            if any(covers(f, filter) for f in fixed.values()):
                return
            for k, f in fixed.items():
                if covers(filter, f):
                    del mine[k]
        mine[key] = (filter, values)

    def update(self, client: str, key: int, values: Bindings) -> None:
        filter, known = self.subscriptions[client][key]
        self.subscriptions[client][key] = (filter, {**known, **values})
        self.ever[client].append(filter.bind({**known, **values}))

    def cancel(self, client: str, filter: Filter) -> None:
        mine = self.subscriptions[client]
        for key, (known, values) in list(mine.items()):
            if covers(filter, known.bind(values)):
                del mine[key]

    def advertise(self, client: str, key: int, offer: Advertisement) -> None:
        mine = self.advertisements[client]
        mine.pop(key, None)
        if any(covers_advertisement(known, offer) for known in mine.values()):
            return
        for k, known in list(mine.items()):
            if covers_advertisement(offer, known):
                del mine[k]
        mine[key] = offer

    def withdraw(self, client: str, offer: Advertisement) -> None:
        mine = self.advertisements[client]
        for key, known in list(mine.items()):
            if covers_advertisement(offer, known):
                del mine[key]

    def receivers(self, publisher: str, event: Event, *, advertised: bool) -> set[str]:
        offers = self.advertisements[publisher].values()
        if advertised and not any(each.announces(event) for each in offers):
            return set()
        return {
            client
            for client, mine in self.subscriptions.items()
            if client != publisher and any(f.matches(event, v) for f, v in mine.values())
        }


class Storm:
    """One random run of one algorithm."""

    def __init__(
        self,
        seed: int,
        routing: RouterFactory,
        *,
        graph: bool = False,
        parameters: bool = True,
        most_brokers: int = 9,
    ) -> None:
        self.random = Randomness(seed)
        size = self.random.between(1, most_brokers)
        self.topology = self._topology(size, graph)
        link = Link(latency_ms=10, jitter_ms=8, loss=0.05 if self.random.chance(0.3) else 0.0)
        self.network = Network.of(self.topology, routing, seed=seed, link=link)
        self.network.agenda.limit = MOST_ACTIONS
        self.network.run()
        self.parameters = parameters
        self.advertised = routing is Advertised or any(
            isinstance(each, Advertised) or isinstance(getattr(each, "inner", None), Advertised)
            for each in self.network.routers.values()
        )
        self.offers = self.advertised or any(
            isinstance(getattr(each, "inner", None), Proxies)
            for each in self.network.routers.values()
        )
        self.reference = Reference()
        self.faults: list[Callable[[], None]] = []
        self.graph = graph
        self.gone: list[Client] = []
        self.pool: list[Filter] = []
        self._names = 0
        for _ in range(self.random.between(2, 6)):
            self.arrive()

    def _topology(self, size: int, graph: bool) -> Topology:
        if graph:
            return connected_random(size, self.random.below(size + 1), self.random)
        return random_tree(size, self.random)

    @property
    def clients(self) -> list[Client]:
        return list(self.network.clients.values())

    # --- what may happen ---

    def arrive(self) -> None:
        name = f"c{self._names}"
        self._names += 1
        self.network.client(name, self.random.choice(self.topology.brokers))
        self.reference.subscriptions[name] = {}
        self.reference.advertisements[name] = {}
        self.reference.ever[name] = []

    def depart(self, client: Client) -> None:
        self.network.leave(client)
        self.gone.append(client)
        self.reference.subscriptions[client.name] = {}
        self.reference.advertisements[client.name] = {}

    def subscribe(self, client: Client) -> None:
        values: dict[str, Any] | None = {} if self.parameters and self.random.chance(0.4) else None
        filter = random_filter(self.random, values)
        if values is None:
            if self.pool and self.random.chance(0.4):  # what others asked for is asked for again
                filter = self.random.choice(self.pool)
            self.pool.append(filter)
        known = self.reference.subscriptions[client.name]
        if known and self.random.chance(0.15):  # a structural change under the same key
            key = self.random.choice(list(known))
            self.reference.subscribe(client.name, key, filter, values or {})
            client.request(Subscribe(key, filter, values or {}))
            return
        key = client.subscribe(filter, values or {})
        self.reference.subscribe(client.name, key, filter, values or {})

    def update(self, client: Client) -> None:
        known = self.reference.subscriptions[client.name]
        keys = [key for key, (filter, _) in known.items() if filter.variables]
        if not keys:
            return self.subscribe(client)
        key = self.random.choice(keys)
        filter, _ = known[key]
        names = sorted(filter.variables)
        values = {self.random.choice(names): self.random.below(HIGH)}
        self.reference.update(client.name, key, values)
        client.change(key, values)
        return None

    def unsubscribe(self, client: Client) -> None:
        known = self.reference.subscriptions[client.name]
        if not known:
            return self.subscribe(client)
        key = self.random.choice(list(known))
        if self.random.chance(0.7):
            del known[key]
            client.unsubscribe(key)
        else:
            filter = self.wider(known[key][0].bind(known[key][1]))
            self.reference.cancel(client.name, filter)
            client.cancel(filter)
        return None

    def wider(self, filter: Filter) -> Filter:
        """The filter, or one with fewer constraints."""
        if self.random.chance(0.5):
            return filter
        return Filter.of(
            Conjunction(each.constraints[1:], each.residuals) for each in filter.conjunctions
        )

    def advertise(self, client: Client) -> None:
        known = self.reference.advertisements[client.name]
        if known and self.random.chance(0.3):
            key = self.random.choice(list(known))
            offer = known[key]
            if self.random.chance(0.5):
                del known[key]
                client.unadvertise(key)
            else:
                self.reference.withdraw(client.name, offer)
                client.withdraw(offer)
            return
        offer = random_advertisement(self.random)
        key = client.advertise(offer)
        self.reference.advertise(client.name, key, offer)

    def publish(self, client: Client) -> None:
        client.publish(*(random_event(self.random) for _ in range(self.random.between(1, 3))))

    def fault(self) -> None:
        """Cut a link for a while."""
        if not self.topology.edges:
            return
        one, other = self.random.choice(self.topology.edges)
        self.network.cut(one, other)
        self.faults.append(lambda: self.network.heal(one, other))

    def fail_for_good(self) -> None:
        """Cut a link that the network can do without; what follows must hold all the same."""
        if not self.graph or self.random.chance(0.5):
            return
        edges = list(self.topology.edges)
        self.random.shuffle(edges)
        for edge in edges:
            rest = Topology(self.topology.brokers, tuple(set(edges) - {edge}))
            if rest.is_connected:
                self.network.cut(*edge)
                return

    def repair(self) -> None:
        while self.faults:
            self.faults.pop()()

    def step(self) -> None:
        dice = self.random.uniform()
        if dice < 0.05:
            self.arrive()
        elif dice < 0.08 and len(self.clients) > 1:
            self.depart(self.random.choice(self.clients))
        elif dice < 0.2 and self.graph:
            self.fault()
        elif dice < 0.26 and self.graph:
            self.repair()
        else:
            client = self.random.choice(self.clients)
            acts = [self.subscribe, self.unsubscribe, self.publish, self.publish]
            acts += [self.subscribe, self.update] if self.parameters else [self.subscribe]
            if self.offers:
                acts += [self.advertise, self.advertise]
            self.random.choice(acts)(client)

    # --- what must hold ---

    def run(self, steps: int = 30) -> None:
        """The storm, the calm, the probes, and the end: when all have gone nothing is left."""
        if self.advertised:
            for client in self.clients:
                self.advertise(client)
        for _ in range(steps):
            self.step()
            gap = 0.0 if self.random.chance(0.3) else self.random.exponential(15)
            self.network.run(self.network.now_ms + gap)
        self.repair()
        self.network.run()
        self.fail_for_good()
        self.network.run()
        self.check_storm()
        self.check_tables()
        self.check_summaries()
        for _ in range(8):
            self.check_probe()
        for client in self.clients:
            self.depart(client)
        self.network.run()
        self.check_empty()

    def check_storm(self) -> None:
        for client in (*self.clients, *self.gone):
            last: dict[str, int] = {}
            for delivery in client.received:
                assert delivery.seq > last.get(delivery.publisher, -1), (client.name, delivery)
                last[delivery.publisher] = delivery.seq
                ever = self.reference.ever[client.name]
                assert any(each.matches(delivery.event) for each in ever), (client.name, delivery)

    def check_probe(self) -> None:
        publisher = self.random.choice(self.clients)
        event = random_event(self.random)
        before = {client.name: len(client.received) for client in self.clients}
        spurious = self.network.costs.spurious
        publisher.publish(event)
        self.network.run()
        got = {
            each.name: len(each.received) - before[each.name]
            for each in self.clients
            if len(each.received) > before[each.name]
        }
        wanted = self.reference.receivers(publisher.name, event, advertised=self.advertised)
        assert got == dict.fromkeys(wanted, 1), (publisher.name, event)
        assert self.network.costs.spurious == spurious

    def check_tables(self) -> None:
        check_ranks(self.network)
        for router in self.network.routers.values():
            broker = router.inner if isinstance(router, General) else router
            if isinstance(broker, ForwardingRouter):
                broker.subscriptions.table.check()
            if isinstance(broker, Advertised | Proxies):
                broker.advertisements.table.check()

    def check_summaries(self) -> None:
        """Of source trees: every broker knows the very summary that every other one has said."""
        routers = [r for r in self.network.routers.values() if isinstance(r, SourceTrees)]
        for origin in routers:
            said = {_facts(each._summary(origin.name)) for each in routers}
            assert len(said) == 1, (origin.name, said)

    def check_empty(self) -> None:
        for router in self.network.routers.values():
            broker = router.inner if isinstance(router, General) else router
            if isinstance(broker, ForwardingRouter):
                assert set(broker.subscriptions.table.nodes) <= {TRUE}  # a gateway's own
            if isinstance(broker, Advertised | Proxies):
                assert not broker.advertisements.table.nodes


def check_ranks(network: Network) -> dict[str, str]:
    """In a hierarchy: of those that reach each other one is the root, ways up lead to it, and both
    ends of each link in use agree on who is above. The one above each, and nobody above roots.
    """
    masters: dict[str, str] = {}
    for name, router in network.routers.items():
        if isinstance(router, General) and isinstance(router.inner, Proxies):
            above = router.inner.above
            assert above is None or above in router.inner.peers
            masters[name] = "" if above is None else above.name
    for name, master in masters.items():
        router = network.routers[name]
        assert isinstance(router, General)
        assert isinstance(router.inner, Proxies)
        top = name
        for _ in masters:
            top = masters[top] or top
        assert router.root == top, (name, router.root, masters)
        near = {each.name for each in router.inner.peers if not each.is_client}
        assert near == {master} - {""} | {below for below in masters if masters[below] == name}
        assert {edge for edge in router.tree if name in edge} == {
            edge_of(name, each) for each in near
        }
    return masters


def _facts(summary: Flood) -> tuple[int, frozenset[tuple[int, Filter]]]:
    asked = [each for each in summary.requests if isinstance(each, Subscribe)]
    return summary.version, frozenset((each.key, each.filter) for each in asked)


def random_advertisement(random: Randomness) -> Advertisement:
    """Every attribute may be named, each loosely or tightly; now and then with an alternative."""
    text = _random_offer(random)
    if random.chance(0.2):
        text = f"{text} OR {text} AND {_random_offer(random)}"
    return parse_advertisement(text)


def _random_offer(random: Randomness) -> str:
    parts = []
    for name in NAMES:
        if random.chance(0.2):
            continue
        if random.chance(0.6):
            parts.append(f"{name} IS NOT NULL")
        elif name == "d":
            parts.append(f"d STARTS WITH '{random.choice(('x', 'y'))}'")
        elif random.chance(0.3):
            parts.append(f"{name} BETWEEN {random.below(HIGH)} AND {random.below(HIGH)}")
        else:
            parts.append(f"{name} {random.choice(('<=', '>=', '!='))} {random.below(HIGH)}")
    return " AND ".join(parts) or "a IS NOT NULL"
