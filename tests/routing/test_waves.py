"""Settled: told exactly when a change is in force wherever a publisher may be."""

from __future__ import annotations

import pytest

from palio.routing.acyclic import Acyclic
from palio.routing.messages import Batch, Settled, Subscribe
from palio.routing.protocol import IllegalMessage, Send
from palio.simulation import Link, Network, Randomness, line, random_tree
from tests.conftest import seeds
from tests.routing.helpers import ALICE, BOB, ONE, TWO, UA, UA_TO_DEN, ask, attached


def waves(sends: list[Send]) -> dict[str, int]:
    return {
        peer.name: message.wave
        for peer, message in sends
        if isinstance(message, Batch) and message.wave is not None
    }


def settled_broker() -> Acyclic:
    """A broker whose first words to its neighbours are known to have arrived."""
    broker = attached(Acyclic("s0"), ALICE, BOB, ONE, TWO)
    for peer, wave in ((ONE, 0), (TWO, 1)):
        ask(broker, ALICE, wave=99) if peer == ONE else None
        broker.receive(peer, Settled(wave))
    return broker


def test_a_covered_request_waits_for_the_wave_of_its_coverer() -> None:
    broker = settled_broker()
    numbers = waves(ask(broker, ALICE, Subscribe(0, UA), wave=5))
    assert ask(broker, BOB, Subscribe(0, UA_TO_DEN), wave=7) == []
    broker.receive(ONE, Settled(numbers["s1"]))
    assert broker.receive(TWO, Settled(numbers["s2"])) == [
        Send(ALICE, Settled(5)),
        Send(BOB, Settled(7)),
    ]


def test_a_neighbour_that_leaves_is_unreached_and_nothing_is_taken_for_settled() -> None:
    broker = settled_broker()
    numbers = waves(ask(broker, ALICE, Subscribe(0, UA), wave=5))
    broker.receive(ONE, Settled(numbers["s1"], unreached=("s7",)))
    assert broker.detach(TWO) == [Send(ALICE, Settled(5, ("s2", "s7")))]
    assert list(waves(ask(broker, BOB, Subscribe(0, UA_TO_DEN), wave=7))) == ["s1"]


def test_an_echo_of_no_wave_is_illegal() -> None:
    broker = settled_broker()
    with pytest.raises(IllegalMessage, match="wave 12 is not open"):
        broker.receive(ONE, Settled(12))


@pytest.mark.parametrize("seed", seeds(5, nightly=500))
def test_once_settled_no_event_is_missed(seed: int) -> None:
    """The promise itself: at the moment of the echo, publish everywhere, and all of it arrives."""
    random = Randomness(seed)
    topology = random_tree(random.between(2, 10), random)
    network = Network.of(topology, Acyclic, seed=seed, link=Link(latency_ms=10, jitter_ms=20))
    clients = [network.client(f"at-{broker}", broker) for broker in topology.brokers]
    for round_ in range(4):
        subscriber = random.choice(clients)
        before = len(subscriber.received)
        random.choice(clients).subscribe(f"a >= {random.below(4)}")
        wave = len(subscriber.settled)
        subscriber.subscribe(f"a >= {random.below(4)} AND round = {round_}", wave=True)
        while wave not in subscriber.settled:
            network.run(network.now_ms + 1)
        for client in clients:
            client.publish({"a": 4, "round": round_})
        network.run()
        assert len(subscriber.received) - before >= len(clients) - 1


def test_a_wave_takes_one_round_trip_of_the_longest_way() -> None:
    network = Network.of(line(5), Acyclic, seed=1)
    network.run()
    start = network.now_ms
    client = network.client("alice", "b1")
    client.subscribe("a = 1", wave=True)
    network.run()
    assert client.settled == {0: ()}
    assert network.now_ms - start == 80
