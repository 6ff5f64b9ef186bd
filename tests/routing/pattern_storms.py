"""Random storms of patterns, and a global reference: the model's `Monitor` over all events.

A *steady* storm has no faults, and the reference is exact throughout: whatever moves while events
are on their way, each occurrence is found once. Patterns are subscribed and given up between
storms of events, since one that is still on its way to a broker is not in force there; and nobody
publishes what was advertised only just now.

A *wild* storm has faults: links and brokers fail while events, requests and monitors are on their
way. During it nobody may be told of what did not happen, or of anything twice. When it is over the
reference goes on from where the network is, and is exact from then on.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, Final

from palio.language.parsing import parse_advertisement
from palio.model.advertisements import Advertisement
from palio.model.filters import Conjunction, Filter
from palio.model.patterns import Monitor, Occurrence, Pattern, Place, place_of
from palio.model.relations import covers_subscription
from palio.routing.advertised import Advertised
from palio.routing.general import General
from palio.routing.patterns.assembly import is_occurrence
from palio.routing.patterns.messages import Resume, Returned
from palio.routing.patterns.router import Patterned
from palio.routing.patterns.subscriptions import (
    AssemblyPlace,
    PatternSubscription,
)
from palio.routing.protocol import Peer
from palio.simulation import Randomness, connected_random, random_tree
from palio_studies.simulator import Client, Link, Network
from tests.routing.scenarios import (
    MOST_ACTIONS,
    NAMES,
    Event,
    Reference,
    random_advertisement,
    random_constraint,
    random_event,
    random_filter,
)

WINDOW: Final = timedelta(milliseconds=250)
"""Several times the longest way there is."""

SETTLE_MS: Final = 600.0
"""After which an advertisement is known wherever it matters, moves that it led to included."""

ANYTHING: Final = parse_advertisement(" AND ".join(f"{name} IS NOT NULL" for name in NAMES))

Subscription = tuple[str, int]


def random_pattern(random: Randomness) -> Pattern:
    within = timedelta(milliseconds=random.between(20, 300)) if random.chance(0.3) else None
    return Pattern(tuple(_random_step(random) for _ in range(random.between(2, 4))), within)


def _random_step(random: Randomness) -> Filter:
    """A filter that many events match: a sequence of them should come about."""
    if random.chance(0.3):
        return random_filter(random)
    return Filter.of([Conjunction.of([random_constraint(random)])])


def _random_offer(random: Randomness) -> Advertisement:
    """Often of anything at all."""
    return ANYTHING if random.chance(0.4) else random_advertisement(random)


class PatternStorm:
    """One random run."""

    def __init__(self, seed: int, *, graph: bool = False) -> None:
        self.random = Randomness(seed)
        size = self.random.between(1, 8)
        tree = partial(General, inner=Advertised) if graph else Advertised
        self.topology = (
            connected_random(size, self.random.below(size + 1), self.random)
            if graph
            else random_tree(size, self.random)
        )
        loss = 0.05 if self.random.chance(0.3) else 0.0
        self.network = Network.of(
            self.topology,
            partial(Patterned, inner=tree, window=WINDOW),
            seed=seed,
            link=Link(latency_ms=5, jitter_ms=5, loss=loss),
        )
        self.moves = 0
        """How often a monitor went from one broker to the next."""
        self.network.on_crossing = self._note_crossing
        self.network.agenda.limit = 10 * MOST_ACTIONS
        self.network.run()
        self.offers = Reference()
        self.offered_ms: dict[tuple[str, int], float] = {}
        self.monitors: dict[Subscription, Monitor] = {}
        self.expected: dict[Subscription, list[tuple[Place, ...]]] = {}
        self.patterns: dict[Subscription, Pattern] = {}
        self.seen: dict[str, int] = {}
        self.recent: list[Occurrence] = []
        self.published: dict[Place, Occurrence] = {}
        self.gone: list[Client] = []
        self._cut: list[tuple[str, str]] = []
        self._seqs: dict[str, int] = {}
        for _ in range(self.random.between(2, 5)):
            self.advertise(self.arrive())
        self.network.run()

    @property
    def clients(self) -> list[Client]:
        return list(self.network.clients.values())

    @property
    def routers(self) -> list[Patterned]:
        found = list(self.network.routers.values())
        assert all(isinstance(each, Patterned) for each in found)
        return [each for each in found if isinstance(each, Patterned)]

    def _note_crossing(self, _source: str, _target: str, message: object) -> None:
        self.moves += isinstance(message, Resume | Returned)

    # --- what may happen at any time ---

    def arrive(self) -> Client:
        name = f"c{len(self._seqs)}"
        self._seqs[name] = 0
        self.offers.advertisements[name] = {}
        return self.network.client(name, self.random.choice(self.topology.brokers))

    def depart(self, client: Client) -> None:
        self.network.leave(client)
        self._forget(client)

    def _forget(self, client: Client) -> None:
        self.gone.append(client)
        self.offers.advertisements[client.name] = {}
        for subscription in [each for each in self.monitors if each[0] == client.name]:
            del self.monitors[subscription]

    def advertise(self, client: Client) -> None:
        offer = _random_offer(self.random)
        key = client.advertise(offer)
        self.offers.advertise(client.name, key, offer)
        self.offered_ms[client.name, key] = self.network.now_ms

    def unadvertise(self, client: Client) -> None:
        known = self.offers.advertisements[client.name]
        if not known:
            return
        key = self.random.choice(list(known))
        if self.random.chance(0.5):
            del known[key]
            client.unadvertise(key)
        else:
            offer = known[key]
            self.offers.withdraw(client.name, offer)
            client.withdraw(offer)

    def publish(self, client: Client) -> None:
        """Publish what is advertised for long enough, or now and then not at all."""
        for _ in range(6):
            event = random_event(self.random)
            ages_ms = [
                self.network.now_ms - self.offered_ms[client.name, key]
                for key, offer in self.offers.advertisements[client.name].items()
                if offer.announces(event)
            ]
            if any(age_ms >= SETTLE_MS for age_ms in ages_ms):
                return self._publish(client, event, counts=True)
            if not ages_ms and self.random.chance(0.05):
                return self._publish(client, event, counts=False)
        return None

    def _publish(self, client: Client, event: Event, *, counts: bool) -> None:
        occurrence = Occurrence(self.network.now, client.name, self._seqs[client.name], event)
        self._seqs[client.name] += 1
        self.published[place_of(occurrence)] = occurrence
        if counts:
            self.recent.append(occurrence)
        client.publish(event)

    def crash(self) -> None:
        """A broker forgets everything and starts again; its clients are gone."""
        broker = self.random.choice(self.topology.brokers)
        for client in [each for each in self.clients if each.broker == broker]:
            self._forget(client)
        self.network.crash(broker)
        self.gap()
        self.network.restart(broker)
        if not self.clients:
            self.arrive()

    def fault(self) -> None:
        """Cut a link, or heal one; now and then a broker fails."""
        if self.random.chance(0.2):
            self.crash()
            return
        if self._cut and self.random.chance(0.6):
            self.network.heal(*self._cut.pop(self.random.below(len(self._cut))))
            return
        standing = [each for each in self.topology.edges if each not in self._cut]
        if standing:
            edge = self.random.choice(standing)
            self._cut.append(edge)
            self.network.cut(*edge)

    # --- what changes who asks for what ---

    def subscribe(self, client: Client) -> None:
        pattern = random_pattern(self.random)
        if self.patterns and self.random.chance(0.2):  # the same that somebody asked for
            pattern = self.random.choice(list(self.patterns.values()))
        key = client.subscribe_pattern(pattern)
        self.patterns[client.name, key] = pattern
        self.monitors[client.name, key] = Monitor(pattern)
        self.expected[client.name, key] = []

    def unsubscribe(self, client: Client) -> None:
        mine = [each for each in self.monitors if each[0] == client.name]
        if not mine:
            return
        subscription = self.random.choice(mine)
        pattern = self.patterns[subscription]
        if self.random.chance(0.5):
            del self.monitors[subscription]
            client.unsubscribe_pattern(subscription[1])
            return
        for each in mine:
            if covers_subscription(pattern, self.patterns[each]):
                del self.monitors[each]
        client.cancel_pattern(pattern)

    # --- runs ---

    def gap(self) -> None:
        gap_ms = 0.0 if self.random.chance(0.3) else self.random.exponential(5)
        if self.random.chance(0.04):
            gap_ms += SETTLE_MS
        self.network.run(self.network.now_ms + gap_ms)

    def steady(self, steps: int) -> None:
        """Events, and changes of what is offered, one upon the other; then look."""
        for _ in range(steps):
            client = self.random.choice(self.clients)
            dice = self.random.uniform()
            if dice < 0.03:
                self.arrive()
            elif dice < 0.05 and len(self.clients) > 1:
                self.depart(client)
            elif dice < 0.12:
                self.advertise(client)
            elif dice < 0.19:
                self.unadvertise(client)
            else:
                self.publish(client)
            self.gap()
        self.network.run()
        self.check()

    def run(self, rounds: int = 4, steps: int = 60) -> None:
        """Steady storms, and between them other patterns; when all have gone nothing is left."""
        for _ in range(rounds):
            for _ in range(self.random.between(1, 3)):
                client = self.random.choice(self.clients)
                self.random.choice([self.subscribe, self.subscribe, self.unsubscribe])(client)
            self.network.run()
            self.steady(steps)
        self.check_empty()

    def run_wild(self, steps: int = 60) -> None:
        """Anything at any time, then calm, then a steady storm."""
        for _ in range(steps):
            client = self.random.choice(self.clients)
            acts: list[Any] = [self.subscribe, self.unsubscribe, self.advertise, self.unadvertise]
            self.random.choice([*acts, *[self.publish] * 8, lambda _: self.fault()])(client)
            if self.random.chance(0.04) and len(self.clients) > 1:
                self.depart(self.random.choice(self.clients))
            if self.random.chance(0.04):
                self.arrive()
            self.gap()
        while self._cut:
            self.network.heal(*self._cut.pop())
        self.network.run()
        self.check_safety()
        self.adopt()
        self.run(rounds=2, steps=30)

    # --- what must hold ---

    def check(self) -> None:
        """Each occurrence that the reference finds was delivered, once and in order."""
        for monitor_of, monitor in self.monitors.items():
            found = monitor.push(sorted(self.recent, key=place_of))
            self.expected[monitor_of] += [tuple(map(place_of, parts)) for parts in found]
        self.recent.clear()
        for name, key in self.monitors:
            assert self.delivered(name, key) == self.expected[name, key], (name, key)
        self.check_safety()
        self.check_places()
        assert all(router.late == 0 for router in self.routers)

    def delivered(self, name: str, key: int) -> list[tuple[Place, ...]]:
        client = self.network.clients[name]
        all_of_it = [
            tuple(map(place_of, found.parts)) for found in client.found if found.key == key
        ]
        return all_of_it[self.seen.get(f"{name} {key}", 0) :]

    def check_safety(self) -> None:
        """What anybody was told of did happen, was asked for, and was told once."""
        for client in (*self.clients, *self.gone):
            ended: dict[int, Place] = {}
            for found in client.found:
                assert is_occurrence(self.patterns[client.name, found.key], found.parts)
                for part in found.parts:
                    event = {k: v for k, v in part.event.items() if not k.startswith("$")}
                    assert self.published[place_of(part)].event == event
                first, last = place_of(found.parts[0]), place_of(found.parts[-1])
                assert found.key not in ended or ended[found.key] < first
                ended[found.key] = last

    def subscription(self, name: str, key: int) -> tuple[Patterned, PatternSubscription]:
        """Where the one assembly of a subscription is."""
        broker, subscriber = self.network.clients[name].broker, Peer.client(name)
        while True:
            router = self.network.routers[broker]
            assert isinstance(router, Patterned)
            (found,) = [
                each
                for each in router.subscriptions
                if each.subscriber == subscriber and each.key == key
            ]
            if found.stage is not AssemblyPlace.THERE:
                return router, found
            assert found.provider is not None
            broker, subscriber, key = found.provider.name, Peer.broker(broker), found.number

    def check_places(self) -> None:
        """Once quiet nothing is under way, and each assembly is where the table wants it."""
        chained = 0
        for router in self.routers:
            for subscription in router.subscriptions:
                factors = router.delegation.providers.factors(subscription)
                providers = {peer for each in factors for peer in each.providers}
                if subscription.stage is AssemblyPlace.THERE:
                    assert not providers or providers == {subscription.provider}
                else:
                    assert subscription.stage in (AssemblyPlace.IDLE, AssemblyPlace.HERE)
                    is_ours = len(providers) > 1 or any(peer.is_client for peer in providers)
                    assert is_ours or not providers
                    chained += 1
        assert chained == len(self.monitors)

    def adopt(self) -> None:
        """Let the reference go on from where the network is."""
        self.recent.clear()
        for name, key in self.monitors:
            _, subscription = self.subscription(name, key)
            monitor = self.monitors[name, key] = Monitor(self.patterns[name, key])
            if subscription.assembly is not None:
                progress = subscription.assembly.stop()
                assert not progress.held
                monitor.push(progress.taken)
            self.seen[f"{name} {key}"] = 0
            self.seen[f"{name} {key}"] = len(self.delivered(name, key))
            self.expected[name, key] = []

    def check_empty(self) -> None:
        for client in self.clients:
            self.depart(client)
        self.network.run()
        for router in self.routers:
            assert not router.subscriptions
            assert not router.tree.subscriptions.table.nodes
            assert not router.tree.advertisements.table.nodes
