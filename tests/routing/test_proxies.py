"""The proxy hierarchy: its rules on single brokers, who is told how much, and storms."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

import palio.testing
from palio.language.parsing import parse_advertisement
from palio.model.row_parcels import RowParcel
from palio.routing import proxies
from palio.routing.general import General
from palio.routing.messages import (
    Advertise,
    Batch,
    Control,
    Request,
    Settled,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from palio.routing.protocol import Peer, Send
from palio.routing.proxies import MAX_TESTED, WIDE_AT, Proxies
from palio.simulation import Topology
from palio_studies.simulator import Network
from tests.client.virtual import in_virtual_time
from tests.conftest import seeds
from tests.routing.helpers import ALICE, BOB, MASTER, ONE, TWO, ask, attached, parse, said
from tests.routing.scenarios import (
    Event,
    Storm,
    random_advertisement,
    random_event,
    random_filter,
)

PRICED = Advertise(0, parse_advertisement("price > 0 AND symbol IS NOT NULL"))
CHEAP = parse("price < 10")


def proxy(*peers: Peer) -> Proxies:
    """With the peer `MASTER` above it, if that is one of its peers."""
    broker = Proxies("P2")
    broker.above = MASTER
    return attached(broker, *peers)


def found_out(name: str) -> General:
    """A proxy that finds out who is above; of many those that are not P1 have a parent."""
    broker = General(name, Proxies)
    broker.has_parent = name != "P1"
    return broker


def goes(broker: Proxies, sender: Peer, **event: object) -> set[str]:
    return {peer.name for peer in broker.route(sender, RowParcel("alice", [event]))}


def answered(broker: Proxies, peer: Peer, *requests: Request) -> Proxies:
    """The broker, once its master has answered what a peer's requests led to."""
    (told,) = ask(broker, peer, *requests)
    assert isinstance(told.message, Batch)
    assert told.message.wave is not None
    broker.receive(MASTER, Settled(told.message.wave))
    return broker


def test_what_was_offered_goes_where_it_is_wanted_once_the_master_has_answered() -> None:
    """Until then what others above want may still be on its way."""
    broker = proxy(MASTER, ALICE)
    (told,) = ask(broker, ALICE, PRICED)
    assert isinstance(told.message, Batch)
    wave = told.message.wave
    assert wave is not None
    assert goes(broker, ALICE, price=9) == {"s0"}
    assert broker.receive(MASTER, Settled(wave)) == []
    assert goes(broker, ALICE, price=9) == set()
    assert goes(broker, ALICE, price=9, volume=1) == {"s0"}
    ask(broker, MASTER, Subscribe(0, CHEAP))
    assert goes(broker, ALICE, price=9) == {"s0"}
    assert goes(broker, ALICE, price=11) == set()
    many = RowParcel("alice", [{"price": 8 + row} for row in range(20)] + [{"x": 1}])
    assert broker.route(ALICE, many)[MASTER].tolist() == [True, True, *[False] * 18, True]
    ask(broker, ALICE, Unadvertise(0))
    assert goes(broker, ALICE, price=11) == {"s0"}


def test_a_master_that_comes_back_is_asked_again() -> None:
    broker = proxy(MASTER, ALICE)
    (told,) = ask(broker, ALICE, PRICED)
    assert isinstance(told.message, Batch)
    assert told.message.wave is not None
    broker.receive(MASTER, Settled(told.message.wave))
    assert broker.detach(MASTER) == []
    assert goes(broker, ALICE, price=9) == set()
    broker.above = MASTER
    (again,) = broker.attach(MASTER)
    assert isinstance(again.message, Batch)
    assert again.message.fresh
    assert again.message.wave is not None
    assert goes(broker, ALICE, price=9) == {"s0"}
    broker.detach(MASTER)  # before it has answered
    broker.above = MASTER
    assert said(broker.attach(MASTER)) == [("s0", "Advertise")]
    assert goes(broker, ALICE, price=9) == {"s0"}


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_of_who_offers_very_much_some_events_go_up(beyond: int) -> None:
    offers = [
        Advertise(key, parse_advertisement(f"price = {key}")) for key in range(MAX_TESTED + beyond)
    ]
    broker = answered(proxy(MASTER, ONE), ONE, *offers)
    assert goes(broker, ONE, price=0) == set()
    last = goes(broker, ONE, price=MAX_TESTED + beyond - 1)
    assert last == ({"s0"} if beyond > 0 else set())


def test_sources_are_those_below_and_perhaps_beyond_the_master() -> None:
    broker = proxy(ONE, ALICE)
    assert broker.sources(CHEAP) is False
    ask(broker, ALICE, PRICED)
    assert broker.sources(CHEAP) is True
    broker = proxy(MASTER, ONE)
    assert broker.sources(CHEAP) == MASTER
    ask(broker, ONE, PRICED)
    assert broker.sources(CHEAP) is True


# --- figures 3 and 4, on whole brokers, by what an application calls ---

FIGURE_3 = Topology(
    ("P1", "P2", "P3", "P4", "P5"), (("P1", "P2"), ("P1", "P3"), ("P3", "P4"), ("P3", "P5"))
)
FIGURE_4 = Topology(("P1", "P2", "P3", "P4"), (("P1", "P2"), ("P1", "P3"), ("P1", "P4")))
ABOVE = {"P2": "P1", "P3": "P1", "P4": "P3", "P5": "P3"}
WORDS = {Advertise: "REG", Subscribe: "SUB"}
TYPE = "price > 0 AND symbol IS NOT NULL"


class Proxied:
    """A network of whole brokers, and in the words of the paper what they send and store."""

    def __init__(self, net: palio.testing.Network, monkeypatch: pytest.MonkeyPatch) -> None:
        self.net = net
        self.sent: list[str] = []
        self.clients: dict[str, str] = {}
        self.routers: dict[str, General] = {}
        receive = General.receive

        def noted(router: General, sender: Peer, message: Control) -> list[Send]:
            self.routers[router.name] = router
            if isinstance(message, Batch) and message.requests:  # others are waves
                name = self._name(sender, router.name)
                self.sent += [f"{WORDS[type(r)]} {name}>{router.name}" for r in message.requests]
            return receive(router, sender, message)

        monkeypatch.setattr(General, "receive", noted)

    def _name(self, peer: Peer, broker: str) -> str:
        return self.clients[broker] if peer.is_client else peer.name

    async def asked(self, what: str, client: str, proxy: str) -> list[str]:
        """Have a new client register or subscribe; return all messages that follow, in order."""
        self.clients[proxy] = client
        self.sent.clear()
        connected = await self.net.connect(proxy, name=client)
        await (connected.advertise(TYPE) if what == "REG" else connected.subscribe("price < 10"))
        await connected.settled()
        await asyncio.sleep(1)
        return list(self.sent)

    def tables(self) -> dict[str, tuple[set[str], set[str]]]:
        """Return (IPL, OPL) of each broker that has either."""
        found = {}
        for name, router in sorted(self.routers.items()):
            assert isinstance(router.inner, Proxies)
            offers, wanted = router.inner.advertisements, router.inner.subscriptions
            incoming, outgoing = (
                {self._name(peer, name) for peer, requests in each.entries.items() if requests}
                for each in (offers, wanted)
            )
            above = router.inner.above
            if above is not None and wanted.table.sent(above):
                incoming.add(above.name)
            if incoming or outgoing:
                found[name] = incoming, outgoing
        return found


class Step(NamedTuple):
    """One picture of the paper: who comes, what is sent, and the tables, as drawn."""

    comes: tuple[str, str, str]
    sent: list[str]
    tables: dict[str, tuple[set[str], set[str]]]


STEPS_3 = [
    Step(
        ("REG", "S1", "P2"),
        ["REG S1>P2", "REG P2>P1"],
        {"P1": ({"P2"}, set()), "P2": ({"S1"}, set())},
    ),
    Step(
        ("REG", "S2", "P4"),
        ["REG S2>P4", "REG P4>P3", "REG P3>P1", "REG P1>P2", "REG P1>P3", "REG P3>P4"],
        {
            "P1": ({"P2", "P3"}, set()),
            "P2": ({"S1", "P1"}, set()),
            "P3": ({"P1", "P4"}, set()),
            "P4": ({"S2", "P3"}, set()),
        },
    ),
    Step(
        ("REG", "S3", "P5"),
        ["REG S3>P5", "REG P5>P3", "REG P3>P5"],
        {
            "P1": ({"P2", "P3"}, set()),
            "P2": ({"S1", "P1"}, set()),
            "P3": ({"P1", "P4", "P5"}, set()),
            "P4": ({"S2", "P3"}, set()),
            "P5": ({"P3", "S3"}, set()),
        },
    ),
]
STEPS_4 = [
    Step(
        ("REG", "S1", "P2"),
        ["REG S1>P2", "REG P2>P1"],
        {"P1": ({"P2"}, set()), "P2": ({"S1"}, set())},
    ),
    Step(
        ("SUB", "R", "P3"),
        ["SUB R>P3", "SUB P3>P1", "SUB P1>P2"],
        {"P1": ({"P2"}, {"P3"}), "P2": ({"S1"}, {"P1"}), "P3": ({"P1"}, {"R"})},
    ),
    Step(
        ("REG", "S2", "P4"),
        ["REG S2>P4", "REG P4>P1", "SUB P1>P4"],
        {
            "P1": ({"P2", "P4"}, {"P3"}),
            "P2": ({"S1"}, {"P1"}),
            "P3": ({"P1"}, {"R"}),
            "P4": ({"S2"}, {"P1"}),
        },
    ),
]


def is_downward(message: str) -> bool:
    what, _, ends = message.partition(" ")
    sender, _, target = ends.partition(">")
    return what == "REG" and ABOVE.get(target) == sender


@in_virtual_time
async def test_figure_3_registrations_go_up_as_drawn_and_none_goes_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the paper has besides, a parent among the incoming, would lose sporadic events."""
    async with palio.testing.Network(FIGURE_3, routing="proxies") as net:
        proxies = Proxied(net, monkeypatch)
        for comes, sent, tables in STEPS_3:
            assert await proxies.asked(*comes) == [each for each in sent if not is_downward(each)]
            assert proxies.tables() == {
                name: (incoming - {ABOVE.get(name)}, outgoing)
                for name, (incoming, outgoing) in tables.items()
            }


@in_virtual_time
async def test_figure_4_a_later_source_is_asked_as_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with palio.testing.Network(FIGURE_4, routing="proxies") as net:
        proxies = Proxied(net, monkeypatch)
        for comes, sent, tables in STEPS_4:
            assert await proxies.asked(*comes) == sent
            assert proxies.tables() == tables


@in_virtual_time
@pytest.mark.parametrize("offer", [None, "price > 0 AND volume > 0"])
async def test_a_subscription_near_a_source_receives_from_others_far_away(
    offer: str | None,
) -> None:
    """By IV-C.1 it stops at the source of its broker, and the root drops what others publish: a
    sporadic event, and one of another type that the filter matches.
    """
    async with palio.testing.Network(FIGURE_3, routing="proxies") as net:
        near, far = await net.connect("P5"), await net.connect("P2")
        await near.advertise(TYPE)
        subscription = await near.subscribe("price < 10")
        await near.settled()
        if offer is not None:
            await far.advertise(offer)
        await far.publish({"price": 9, "volume": 1})
        assert (await subscription.receive())["price"] == 9


def known(network: Network) -> dict[str, set[str]]:
    """Of each broker, the peers that lead to a source."""
    found = {}
    for name, router in network.routers.items():
        assert isinstance(router, General)
        assert isinstance(router.inner, Proxies)
        entries = router.inner.advertisements.entries.items()
        found[name] = {peer.name for peer, offers in entries if offers}
    return found


# --- failures (proxy IV-F) ---


def test_what_one_below_said_is_taken_back_above_and_beside() -> None:
    broker = proxy(MASTER, ONE, TWO)
    ask(broker, ONE, PRICED, Subscribe(1, CHEAP))
    ask(broker, TWO, PRICED)
    assert said(broker.detach(ONE)) == [("s0", "Unsubscribe"), ("s2", "Unsubscribe")]
    assert said(broker.detach(TWO)) == [("s0", "Unadvertise")]


def test_what_one_above_said_is_taken_back_below() -> None:
    broker = proxy(MASTER, ONE, TWO)
    ask(broker, ONE, PRICED)
    ask(broker, MASTER, Subscribe(0, CHEAP))
    assert said(broker.detach(MASTER)) == [("s1", "Unsubscribe")]


def test_one_that_is_another_master_is_told_all() -> None:
    broker = proxy(MASTER, ONE, TWO)
    ask(broker, ONE, PRICED, Subscribe(1, CHEAP))
    broker.detach(MASTER)
    broker.detach(TWO)
    broker.above = TWO
    assert said(broker.attach(TWO)) == [("s2", "Advertise"), ("s2", "Subscribe")]


def test_a_proxy_that_lost_everything_has_it_from_above_and_below() -> None:
    network = Network.of(FIGURE_3, found_out, seed=1)
    clients = [network.client(f"at-{name}", name) for name in ("P1", "P2", "P4", "P5")]
    for client in clients:
        client.advertise(PRICED.filter)
        client.subscribe("price < 10")
    network.run()
    before = known(network)
    network.crash("P3")
    network.run()
    assert known(network)["P1"] == {"at-P1", "P2"}
    network.restart("P3")
    network.run()
    assert known(network) == before
    for client in clients:
        client.publish({"price": 9, "symbol": "x"})
    network.run()
    assert [len(client.received) for client in clients] == [3, 3, 3, 3]


# --- many wishes for one direction ---


def wishes(number: int) -> list[Request]:
    return [Subscribe(each, parse(f"price = {each + 1}")) for each in range(number)]


def standing(broker: Proxies, peer: Peer) -> list[str]:
    return [str(each) for each in broker.subscriptions.table.sent(peer)]


@pytest.mark.parametrize("offers_first", [True, False])
@pytest.mark.parametrize(("beyond", "told"), [(-1, WIDE_AT - 1), (0, WIDE_AT), (1, 1)])
def test_of_too_many_wishes_a_broker_below_is_told_one_for_all(
    beyond: int, told: int, offers_first: bool
) -> None:
    broker = proxy(MASTER, ONE, ALICE)
    steps: list[tuple[Peer, list[Request]]] = [(ONE, [PRICED]), (ALICE, wishes(WIDE_AT + beyond))]
    for peer, requests in steps if offers_first else steps[::-1]:
        ask(broker, peer, *requests)
    assert len(standing(broker, ONE)) == told
    assert len(standing(broker, MASTER)) == WIDE_AT + beyond
    broker.subscriptions.table.check()


def test_who_wants_all_itself_is_told_up_of() -> None:
    broker = proxy(MASTER, ONE, ALICE, BOB)
    ask(broker, ONE, PRICED)
    ask(broker, ALICE, *wishes(WIDE_AT + 1))
    ask(broker, BOB, Subscribe(0, parse("TRUE")))
    assert standing(broker, MASTER) == ["TRUE"]
    ask(broker, BOB, Unsubscribe(0))
    assert len(standing(broker, MASTER)) == WIDE_AT + 1
    assert standing(broker, ONE) == ["TRUE"]
    broker.detach(ONE)
    broker.subscriptions.table.check()
    assert parse("TRUE") not in broker.subscriptions.table.nodes


def messages_of_a_storm(children: int) -> int:
    """A root starts anew. Each child offers one kind, and wants another part of it."""
    root, messages = Proxies("P1"), 0
    for number in range(children):
        peer = Peer.broker(f"P{number + 2}")
        wish = Subscribe(0, parse(f"price = {number + 1}"))
        sends = root.attach(peer)
        sends += root.receive(peer, Batch((PRICED, wish), fresh=True, wave=0))
        messages += 1 + len(sends)
    return messages


def test_a_root_that_starts_anew_is_no_storm() -> None:
    """Once each of n children was told of n wishes, one by one."""
    few, more, many = map(messages_of_a_storm, (50, 200, 500))
    assert few < 50 * 50
    assert many < 5_000
    assert many - more <= 4 * (500 - 200)


@pytest.mark.parametrize("seed", seeds(12, nightly=10_000))
def test_storm_with_brokers_that_are_asked_for_all(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxies, "WIDE_AT", 2)
    monkeypatch.setattr(proxies, "NARROW_AT", 1)
    Storm(seed, found_out, graph=True).run()


def heard_of_all_wanted(seed: int) -> tuple[list[Event], list[Event]]:
    """What one hears whose subscription stands, of one who now and then offers what it publishes
    and withdraws that, while others ask and offer as they like; and what it should.
    """
    storm = Storm(seed, found_out)
    random, network, others = storm.random, storm.network, storm.clients
    publisher, listener = (
        network.client(name, random.choice(storm.topology.brokers)) for name in ("from", "to")
    )
    wanted = random_filter(random)
    listener.subscribe(wanted)
    network.run()
    published: list[Event] = []
    offers: list[int] = []
    acts = [storm.subscribe, storm.unsubscribe, storm.update, storm.advertise, storm.publish]
    for _ in range(60):
        dice = random.uniform()
        if dice < 0.5:
            published.append(random_event(random))
            publisher.publish(published[-1])
        elif dice < 0.6 and offers:
            publisher.unadvertise(offers.pop())
        elif dice < 0.6:
            offers.append(publisher.advertise(random_advertisement(random)))
        else:
            random.choice(acts)(random.choice(others))
        network.run(network.now_ms + (0.0 if random.chance(0.3) else random.exponential(15)))
    network.run()
    heard = [each.event for each in listener.received if each.publisher == "from"]
    return heard, [each for each in published if wanted.matches(each)]


@pytest.mark.parametrize("seed", seeds(12, nightly=10_000))
def test_who_wants_the_same_all_along_hears_all_of_it(seed: int) -> None:
    heard, due = heard_of_all_wanted(seed)
    assert heard == due


def test_that_would_show_if_offers_counted_before_the_master_has_answered() -> None:
    right = Proxies._flush

    def wrong(self: Proxies, *given: Any, **named: Any) -> list[Send]:
        sends = right(self, *given, **named)
        self._answered = self._asked
        return sends

    with patch.object(Proxies, "_flush", wrong):
        heard = (heard_of_all_wanted(seed) for seed in seeds(60, nightly=10_000))
        assert any(len(some) != len(due) for some, due in heard)
