"""All subscriptions everywhere: destinations known where an event is published."""

from __future__ import annotations

import pytest

from palio.language.parsing import parse_advertisement
from palio.model.row_parcels import RowParcel
from palio.routing.flooded import Flooded
from palio.routing.messages import Advertise, Batch, Flood, Subscribe
from palio.routing.protocol import Destined, IllegalMessage, Peer
from palio.simulation import line, star
from palio_studies.simulator import Network
from tests.routing.helpers import ALICE, ONE, TWO, UA, attached, parse


def test_every_broker_knows_every_destination() -> None:
    network = Network.of(star(5), Flooded, seed=1)
    network.client("x", "b2").subscribe("a > 1")
    network.client("y", "b3").subscribe("a > 5")
    network.client("z", "b3").subscribe("b = 1")
    network.run()
    for router in network.routers.values():
        assert isinstance(router, Flooded)
        events = RowParcel("p", [{"a": 3}, {"a": 9}, {"b": 1}])
        found = router.destined(Peer.client("p"), events).brokers
        wanted = {"b2": [True, True, False], "b3": [False, True, True]}
        wanted.pop(router.name, None)
        assert {name: mask.tolist() for name, mask in found.items()} == wanted


def test_advertisements_of_clients_mean_nothing() -> None:
    broker = attached(Flooded("s0"), ALICE)
    broker.receive(ALICE, Batch((Advertise(0, parse_advertisement("airline = 'UA'")),)))
    assert broker.destined(TWO, RowParcel("p", [{"airline": "UA"}])) == Destined({}, {})


def test_a_broker_that_comes_later_is_told_everything() -> None:
    network = Network.of(line(2), Flooded, seed=1)
    network.client("x", "b1").subscribe("a > 1")
    network.run()
    late = network.add_broker("b3", Flooded)
    network.connect("b2", "b3")
    network.run()
    assert isinstance(late, Flooded)
    assert list(late.destined(TWO, RowParcel("p", [{"a": 3}])).brokers) == ["b1"]


def test_what_came_through_a_neighbour_goes_with_it() -> None:
    broker = Flooded("s0")
    for peer in (ONE, TWO):
        broker.attach(peer)
    broker.receive(ONE, Flood("s1", (Subscribe(0, UA),), fresh=True))
    (send,) = broker.detach(ONE)
    assert send.message == Flood("s1", (), fresh=True)
    assert broker.destined(TWO, RowParcel("p", [{"airline": "UA"}])) == Destined({}, {})


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Flood("s9", ()), "never introduced"),
        (Flood("s0", (), fresh=True), "not in its direction"),
        (Flood("s9", (Subscribe(0, parse("a < :x")),), fresh=True), "Subscribe"),
        (
            Flood("s9", (Advertise(0, parse_advertisement("airline = 'UA'")),), fresh=True),
            "only subscriptions",
        ),
        (Batch(()), "no meaning"),
    ],
)
def test_an_illegal_message_changes_nothing(message: Flood | Batch, reason: str) -> None:
    broker = attached(Flooded("s0"), ALICE)
    broker.attach(ONE)
    with pytest.raises(IllegalMessage, match=reason):
        broker.receive(ONE, message)
    assert Peer.broker("s9") not in broker.peers
    assert broker.destined(TWO, RowParcel("p", [{"a": 1}])) == Destined({}, {})
