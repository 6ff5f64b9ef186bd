"""Advertisement forwarding: subscriptions only towards publishers, events only as advertised."""

from __future__ import annotations

import random

import pytest

from palio.language.parsing import parse_advertisement
from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.model.row_parcels import RowParcel
from palio.routing.advertised import Advertised
from palio.routing.announcements import Announcements
from palio.routing.messages import Advertise, Batch, Subscribe, Unadvertise, Withdraw
from palio.routing.protocol import IllegalMessage, Peer
from palio.simulation import Network, line, star
from tests.model.offers import announced, every_event, random_offer
from tests.routing.helpers import ALICE, BOB, ONE, TWO, UA, ask, attached, parse, said
from tests.routing.scenarios import Storm
from tests.routing.seeds import SEEDS

FLIGHTS = parse_advertisement("airline IS NOT NULL AND dest IS NOT NULL")
QUOTES = parse_advertisement("symbol IS NOT NULL AND price > 0")


def broker_with(*peers: Peer) -> Advertised:
    return attached(Advertised("s0"), *peers)


def test_without_advertisements_a_subscription_stays() -> None:
    broker = broker_with(ALICE, ONE, TWO)
    assert ask(broker, ALICE, Subscribe(0, UA)) == []


def test_a_subscription_goes_only_towards_overlapping_advertisements() -> None:
    broker = broker_with(ALICE, ONE, TWO)
    assert said(ask(broker, ONE, Advertise(0, FLIGHTS))) == [("s2", "Advertise")]
    ask(broker, TWO, Advertise(0, QUOTES))
    assert said(ask(broker, ALICE, Subscribe(0, UA))) == [("s1", "Subscribe")]


def test_a_new_advertisement_draws_the_subscriptions_that_overlap_it() -> None:
    broker = broker_with(ALICE, ONE, TWO)
    ask(broker, ALICE, Subscribe(0, UA), Subscribe(1, parse("price > 10")))
    assert said(ask(broker, ONE, Advertise(0, FLIGHTS))) == [
        ("s1", "Subscribe"),
        ("s2", "Advertise"),
    ]


def test_the_last_withdrawal_takes_the_subscription_back() -> None:
    broker = broker_with(ALICE, ONE, TWO)
    ask(broker, ALICE, Subscribe(0, UA))
    ask(broker, ONE, Advertise(0, FLIGHTS), Advertise(1, parse_advertisement("airline = 'UA'")))
    assert ask(broker, ONE, Unadvertise(1)) == []
    assert said(ask(broker, ONE, Unadvertise(0))) == [("s1", "Unsubscribe"), ("s2", "Unadvertise")]


def test_a_covered_advertisement_is_not_forwarded() -> None:
    broker = broker_with(ALICE, BOB, ONE)
    ask(broker, ALICE, Advertise(0, FLIGHTS))
    assert ask(broker, BOB, Advertise(0, parse_advertisement("airline = 'UA'"))) == []


def test_withdraw_is_for_clients() -> None:
    broker = broker_with(ONE)
    with pytest.raises(IllegalMessage, match="Withdraw is for clients"):
        broker.receive(ONE, Batch((Withdraw(FLIGHTS),)))


def test_an_event_that_was_not_advertised_goes_nowhere() -> None:
    network = Network.of(line(2), Advertised, seed=1)
    alice, bob = network.client("alice", "b1"), network.client("bob", "b2")
    bob.advertise(FLIGHTS)
    alice.subscribe("airline = 'UA'")
    network.run()
    bob.publish({"airline": "UA", "gate": 7}, {"airline": "UA"})
    network.run()
    assert [each.event for each in alice.received] == [{"airline": "UA"}]


def test_subscriptions_cross_only_the_links_towards_publishers() -> None:
    network = Network.of(star(6), Advertised, seed=1)
    network.client("publisher", "b2").advertise(FLIGHTS)
    network.run()
    subscriber = network.client("subscriber", "b3")
    subscriber.subscribe(UA)
    network.run()
    assert network.costs.advertises == 5
    assert network.costs.subscribes == 2  # b3 to b1 to b2


def test_settled_means_that_the_publisher_is_reached() -> None:
    network = Network.of(line(4), Advertised, seed=1)
    publisher = network.client("publisher", "b1")
    subscriber = network.client("subscriber", "b4")
    subscriber.subscribe(UA)
    publisher.advertise(FLIGHTS, wave=True)
    while not publisher.settled:
        network.run(network.now_ms + 1)
    publisher.publish({"airline": "UA"})
    network.run()
    assert len(subscriber.received) == 1


def test_what_an_alternative_adds_is_delivered() -> None:
    """As a subscription the text is `x = 1`: its second alternative asks for nothing more."""
    network = Network.of(line(2), Advertised, seed=1)
    alice, bob = network.client("alice", "b1"), network.client("bob", "b2")
    alice.subscribe("x = 1")
    bob.advertise("x = 1 OR (x = 1 AND y = 2)")
    network.run()
    events = [{"x": 1}, {"x": 1, "y": 2}, {"x": 1, "y": 3}]
    bob.publish(*events)
    network.run()
    assert [each.event for each in alice.received] == events[:2]


@pytest.mark.parametrize("seed", range(12))
def test_exactly_what_the_texts_announce_is_delivered(seed: int) -> None:
    """Two texts by their meaning, a subscription to everything, and all small events."""
    rng = random.Random(seed)
    network = Network.of(line(2), Advertised, seed=seed)
    alice, bob = network.client("alice", "b1"), network.client("bob", "b2")
    alice.subscribe("TRUE")
    offers = [random_offer(rng) for _ in range(2)]
    for text, _ in offers:
        bob.advertise(text)
    network.run()
    bob.publish(*every_event())
    network.run()
    assert [each.event for each in alice.received] == [
        event for event in every_event() if any(announced(means, event) for _, means in offers)
    ]


def test_what_is_announced_is_asked_once_for_each_publication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    among = Announcements.among

    def counted(self: Announcements, parcel: Parcel) -> RowMask:
        asked.append(len(parcel))
        return among(self, parcel)

    monkeypatch.setattr(Announcements, "among", counted)
    broker = broker_with(ALICE, BOB)
    ask(broker, BOB, Subscribe(0, parse("EXISTS x")))
    ask(broker, ALICE, Advertise(0, parse_advertisement("x > 0")))
    good, mixed = RowParcel("alice", [{"x": 1}]), RowParcel("alice", [{"x": 1}, {"x": -1}])
    assert broker.announced(ALICE, good) is None
    assert broker.route(ALICE, good)
    assert asked == [1]
    found = broker.announced(ALICE, mixed)
    assert found is not None
    assert found.tolist() == [True, False]
    assert broker.announced(ALICE, good) is None
    ask(broker, ALICE, Unadvertise(0))  # what was found before counts no longer
    assert broker.route(ALICE, good) == {}
    assert broker.announced(ONE, mixed) is None  # a neighbour has looked


def test_many_events_are_held_against_what_is_advertised_now() -> None:
    """Advertisements may come and go between two publications, and their publisher, too."""
    broker = broker_with(ALICE, BOB)
    ask(broker, BOB, Subscribe(0, parse("price > 0")))
    events = RowParcel("alice", [{"price": at % 7} for at in range(70)])

    def sent() -> int:
        return int(sum(mask.sum() for mask in broker.route(ALICE, events).values()))

    assert sent() == 0
    ask(broker, ALICE, Advertise(0, parse_advertisement("price < 3")))
    assert sent() == 20
    ask(broker, ALICE, Advertise(1, parse_advertisement("price > 5")))
    assert sent() == 30
    ask(broker, ALICE, Unadvertise(0))
    assert sent() == 10
    broker.detach(ALICE)
    broker.attach(ALICE)
    assert sent() == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_storm(seed: int) -> None:
    Storm(seed, Advertised).run()
