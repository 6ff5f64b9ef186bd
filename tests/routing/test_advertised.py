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
from palio.simulation import line, star
from palio_studies.simulator import Network
from tests.conftest import seeds
from tests.model.offers import announced, every_event, random_offer
from tests.routing.helpers import ALICE, BOB, ONE, UA, ask, attached, parse

FLIGHTS = parse_advertisement("airline IS NOT NULL AND dest IS NOT NULL")


def broker_with(*peers: Peer) -> Advertised:
    return attached(Advertised("s0"), *peers)


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


@pytest.mark.parametrize("seed", seeds(3, nightly=300))
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
    announced_in = Announcements.announced_in

    def counted(self: Announcements, parcel: Parcel) -> RowMask:
        asked.append(len(parcel))
        return announced_in(self, parcel)

    monkeypatch.setattr(Announcements, "announced_in", counted)
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
