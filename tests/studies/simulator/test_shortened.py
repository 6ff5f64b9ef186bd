"""Shortcuts of a hierarchy: what they bring sooner, and that nothing depends on them."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest

from palio.model.row_parcels import RowParcel
from palio.routing.messages import (
    Batch,
    Control,
    Join,
    Leave,
    LinkState,
    Settled,
    Subscribe,
    TreePlan,
    Unsubscribe,
    Update,
)
from palio.routing.protocol import IllegalMessage, Peer, Send
from palio.simulation import Randomness, Topology, connected_random, random_tree
from palio_studies.simulator import Link, Network, shortcuts, shortened
from palio_studies.simulator.shortcuts import (
    ASK,
    END_SERVED,
    END_TAKEN,
    AskShortcut,
    EndShortcut,
    Price,
    ShortcutControl,
)
from palio_studies.simulator.shortened import AGAIN_AFTER, Shortened
from tests.conftest import seeds
from tests.routing.helpers import ALICE, parse
from tests.routing.scenarios import Storm

FEW = seeds(4, nightly=2_000)

FREE = Price(0.0, 0.0, 0.0)
DEAR = Price(inf, inf, 0.0)


def free(name: str) -> Shortened:
    return Shortened(name, price=FREE)


class ShortStorm(Storm):
    """A storm in which shortcuts begin and end as well."""

    def look(self) -> None:
        for name, router in self.network.routers.items():
            assert isinstance(router, Shortened)
            router.price = DEAR if self.random.chance(0.1) else FREE
            self.network.look(name)

    def step(self) -> None:
        """Now and then nothing breaks for a while, and somebody has much to say."""
        super().step()
        if self.random.chance(0.2):
            self.repair()
            self.network.run()
            client = self.random.choice(self.clients)
            for _ in range(4):
                self.publish(client)
                self.network.run(self.network.now_ms + self.random.choice((5, 60)))
                self.look()

    def check_probe(self) -> None:
        super().check_probe()
        self.look()


@pytest.mark.parametrize("seed", FEW)
def test_every_event_comes_once_and_in_order(seed: int) -> None:
    ShortStorm(seed, free, graph=True).run(60)


class Streams:
    """Publishers that say much while shortcuts come and go, and the tree changes calmly: whoever
    wanted it all along hears all of it.
    """

    price = FREE

    def __init__(self, seed: int, *, calm_changes: bool) -> None:
        self.random = random = Randomness(seed)
        size = random.between(5, 9)
        tree = random_tree(size, random)
        topology = connected_random(size, size, random)
        crossing = {*topology.edges} - {*tree.edges}
        self.network = network = Network(seed)
        for name in topology.brokers:
            network.add_broker(name, free)
        jitter = random.choice((0, 8))
        for edge in tree.edges:
            network.connect(*edge, Link(latency_ms=random.choice((20, 80)), price=4.0))
        for edge in sorted(crossing):
            latency = random.choice((1, 1, 5, 150))
            network.connect(*edge, Link(latency_ms=latency, jitter_ms=jitter, price=5.0))
        network.run()
        self.topology = Topology(tree.brokers, (*tree.edges, *crossing))
        self.calm_changes = calm_changes
        self.published = Counter[str]()
        self.due: dict[str, list[tuple[str, int]]] = {}
        clients = [network.client(f"c{n}", random.choice(topology.brokers)) for n in range(5)]
        self.wants = {each.name: random.sample(range(3), random.between(1, 2)) for each in clients}
        for client in clients:
            for kind in self.wants[client.name]:
                client.subscribe(f"kind = {kind}")
            if random.chance(0.6):
                client.advertise("kind >= 0")
        network.run()

    def run(self, steps: int = 120) -> None:
        random, network = self.random, self.network
        for step in range(steps):
            dice = random.uniform()
            if self.calm_changes and step == steps // 2:
                self.change()
            elif dice < 0.6:
                self.publish()
            elif dice < 0.9:
                self.look()
            elif dice < 0.94:
                self.wish()
            gap = random.choice((0.0, 0.0, 1.0, 10.0, 60.0))
            network.run(network.now_ms + gap)
        network.run()
        for name, client in network.clients.items():
            kinds = self.wants[name]
            heard = [
                (each.publisher, each.seq)
                for each in client.received
                if each.event["kind"] in kinds
            ]
            assert sorted(heard) == sorted(self.due.get(name, [])), name

    def change(self) -> None:
        """A link is to go, so that another takes its place."""
        one, other = self.random.choice(self.topology.edges)
        self.network.avoid(one, other)
        self.network.avoid(other, one)

    def publish(self) -> None:
        client = self.random.choice(list(self.network.clients.values()))
        for _ in range(self.random.between(1, 4)):
            kind, number = self.random.below(3), self.published[client.name]
            self.published[client.name] += 1
            client.publish({"kind": kind})
            for name, kinds in self.wants.items():
                if kind in kinds and name != client.name:
                    self.due.setdefault(name, []).append((client.name, number))

    def wish(self) -> None:
        """Something else is wanted for a while, of which nothing is promised."""
        client = self.random.choice(list(self.network.clients.values()))
        client.subscribe(f"kind = {self.random.below(3)} AND x > {self.random.below(9)}")

    def look(self) -> None:
        for name, router in self.network.routers.items():
            assert isinstance(router, Shortened)
            router.price = DEAR if self.random.chance(0.06) else self.price
            self.network.look(name)


class Plain(Streams):
    price = DEAR


@pytest.mark.parametrize("seed", FEW)
def test_nothing_is_lost_when_shortcuts_come_and_go(seed: int) -> None:
    Streams(seed, calm_changes=seed % 2 == 1).run()


@pytest.mark.parametrize("seed", [84, *FEW])
def test_nothing_is_lost_in_a_calm_change_without_any(seed: int) -> None:
    """By seed 84 a broker in the middle has another parent, of which those below know nothing
    before they have offered there again.
    """
    Plain(seed, calm_changes=True).run()


@pytest.mark.parametrize("seed", FEW)
def test_once_settled_nothing_is_missed_with_shortcuts_either(seed: int) -> None:
    streams = Streams(seed, calm_changes=False)
    network, random = streams.network, streams.random
    clients = list(network.clients.values())
    for round_ in range(4):
        for _ in range(random.between(2, 5)):
            streams.publish()
            network.run(network.now_ms + 60)
            streams.look()
        subscriber = random.choice(clients)
        wave = len(subscriber.settled)
        subscriber.subscribe(f"round = {round_}", wave=True)
        while wave not in subscriber.settled:
            streams.publish()
            if random.chance(0.2):
                streams.look()
            network.run(network.now_ms + random.choice((1, 7)))
        before = len(subscriber.received)
        for client in clients:
            client.publish({"kind": 9, "round": round_})
        network.run()
        heard = [each.event["kind"] for each in subscriber.received[before:]]
        assert heard.count(9) == len(clients) - 1


# --- one broker ---

Q = Peer.broker("q")
ABOVE = Peer.broker("a")


def beside(price: Price | None = FREE) -> Shortened:
    """A broker m below a, with an idle link to q, which is below a as well."""
    broker = Shortened("m", price=price)
    for peer in (ABOVE, Q):
        broker.attach(peer)
    broker.receive(ABOVE, LinkState("a", 1, ("m", "q")))
    broker.receive(Q, LinkState("q", 1, ("a", "m")))
    broker.receive(ABOVE, TreePlan("a", 1, (("a", "m"), ("a", "q")), root="a"))
    broker.receive(ABOVE, Join(upward=False))
    broker.receive(ABOVE, Batch((), fresh=True))
    broker.attach(ALICE)
    broker.receive(ALICE, Batch((Subscribe(0, parse("a = 1")),)))
    return broker


def events(source: str, *numbers: int) -> RowParcel:
    return RowParcel("p", [{"a": 1}] * len(numbers), seqs=numbers, source=source)


def asking() -> Shortened:
    """It has asked q for a shortcut."""
    broker = beside()
    assert broker.look(0.0) == []
    broker.route(ABOVE, events("q", 0))
    sends = broker.look(1.0)
    said = Batch((Subscribe(0, parse("a = 1")),), fresh=True, wave=0)
    assert sends == [Send(Q, ASK), Send(Q, said)]
    return broker


def taking() -> Shortened:
    broker = asking()
    assert broker.shortcuts == []
    assert broker.receive(Q, Settled(0)) == []
    assert broker.shortcuts == ["q"]
    return broker


def test_the_rate_and_the_state_decide() -> None:
    for wishes, opens in ((1, True), (4, True), (5, False)):
        broker = beside(Price(1.0, 0.25, 1.0))
        for key in range(1, wishes):
            broker.receive(ALICE, Batch((Subscribe(key, parse(f"b = {key}")),)))
        broker.look(0.0)
        broker.route(ABOVE, events("q", *range(8)))
        assert bool(broker.look(2.0)) == opens  # 4 a second, each of which skips one link


def test_one_that_refuses_is_asked_again_after_a_while() -> None:
    broker = asking()
    assert broker.receive(Q, EndShortcut(asked=False)) == [Send(Q, END_TAKEN)]
    asked = []
    for number in range(AGAIN_AFTER + 1):
        broker.route(ABOVE, events("q", number + 1))
        asked.append(bool(broker.look(2.0 + number)))
    assert asked == [False] * (AGAIN_AFTER - 1) + [True, False]


def test_who_may_not_hear_and_bring_all_has_none() -> None:
    broker = beside()
    broker.bar(Q)
    broker.look(0.0)
    broker.route(ABOVE, events("q", 0))
    assert broker.look(1.0) == []
    assert broker.receive(Q, AskShortcut()) == [Send(Q, END_SERVED)]


def serving() -> Shortened:
    broker = beside()
    assert broker.receive(Q, AskShortcut()) == []
    wish = Batch((Subscribe(0, parse("a = 1")),), fresh=True, wave=3)
    assert broker.receive(Q, wish) == [Send(Q, Settled(3))]
    return broker


@pytest.mark.parametrize("price", [None, FREE])
def test_whoever_has_none_serves_none(price: Price | None) -> None:
    broker = beside(price)
    refused = [Send(Q, END_SERVED)]
    assert broker.receive(Q, AskShortcut()) == ([] if price else refused)
    assert broker.follows_sources == (price is not None)
    assert beside(None).look(1.0) == []


def test_no_more_are_served_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortened, "MOST_SERVED", 0)
    assert beside().receive(Q, AskShortcut()) == [Send(Q, END_SERVED)]


def test_no_more_are_taken_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortened, "MOST_TAKEN", 0)
    broker = beside()
    broker.look(0.0)
    broker.route(ABOVE, events("q", 0))
    assert broker.look(1.0) == []


def test_who_wants_too_much_is_served_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcuts, "MOST_WISHES", 1)
    broker = serving()
    assert broker.receive(Q, Batch((Subscribe(1, parse("a = 2")),))) == [Send(Q, END_SERVED)]
    assert broker.receive(Q, EndShortcut(asked=True)) == []


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ((EndShortcut(asked=True),), "none"),
        ((EndShortcut(asked=False),), "none"),
        ((AskShortcut(), AskShortcut()), "twice"),
        ((AskShortcut(), EndShortcut(asked=False)), "none"),
        ((Batch((), fresh=True),), "not in the tree"),
    ],
)
def test_what_is_out_of_place_is_refused(said: tuple[Control, ...], reason: str) -> None:
    broker = beside()
    for each in said[:-1]:
        broker.receive(Q, each)
    with pytest.raises(IllegalMessage, match=reason):
        broker.receive(Q, said[-1])


def test_a_stranger_and_a_client_have_no_shortcuts() -> None:
    broker = beside()
    for peer in (ALICE, Peer.broker("nobody")):
        with pytest.raises(IllegalMessage):
            broker.receive(peer, AskShortcut())


def hostile(random: Randomness) -> Control | ShortcutControl:
    """Something that a neighbour may say of shortcuts, and at any time it should not."""
    wish = Subscribe(random.below(3), parse(f"a = {random.below(3)}"))
    wishes = (wish, Update(random.below(3), {"1": 1}, 1), Unsubscribe(random.below(3)))
    wave = random.choice((None, random.below(4)))
    plan = random.choice(((("a", "m"), ("a", "q")), (("a", "m"), ("m", "q")), (("m", "q"),)))
    said: tuple[Control | ShortcutControl, ...] = (
        AskShortcut(),
        AskShortcut(),
        EndShortcut(asked=random.chance(0.5)),
        Batch(tuple(random.sample(wishes, 2)), random.chance(0.5), wave),
        Settled(random.below(3)),
        Join(upward=random.chance(0.5)),
        Leave(),
        LinkState("q", random.below(9), random.choice((("a", "m"), ("m",), ()))),
        TreePlan("a", random.below(9), plan, root=random.choice(("a", "q", "m"))),
    )
    return random.choice(said)


@pytest.mark.parametrize("seed", FEW)
def test_whatever_a_neighbour_says_is_taken_or_refused_and_nothing_is_left_of_it(seed: int) -> None:
    random, broker = Randomness(seed), beside()
    for step in range(200):
        try:
            broker.receive(Q, hostile(random))
        except IllegalMessage:
            broker.detach(Q)
            broker.attach(Q)
        broker.route(Q, events("q", step))
        broker.route(ABOVE, events(random.choice(("q", "a", "nobody")), step))
        broker.look(float(step))
    broker.detach(Q)
    assert broker.shortcuts == []
    assert len(broker.served) == 0
    assert not broker.served.ledger.table.nodes
