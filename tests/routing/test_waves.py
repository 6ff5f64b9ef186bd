"""Settled: told exactly when a change is in force wherever a publisher may be."""

from __future__ import annotations

import pytest

from palio.routing.acyclic import Acyclic
from palio.routing.messages import Batch, Settled, Subscribe
from palio.routing.protocol import IllegalMessage, Send
from palio.routing.waves import Waves
from palio.simulation import Link, Network, Randomness, line, random_tree
from tests.routing.helpers import ALICE, BOB, ONE, TWO, UA, UA_TO_DEN, ask, attached, parse


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


def test_with_nobody_to_tell_it_settles_at_once() -> None:
    broker = attached(Acyclic("s0"), ALICE)
    assert ask(broker, ALICE, Subscribe(0, UA), wave=5) == [Send(ALICE, Settled(5))]


def test_the_answer_waits_for_all_neighbours() -> None:
    broker = settled_broker()
    sends = ask(broker, ALICE, Subscribe(0, UA), wave=5)
    numbers = waves(sends)
    assert broker.receive(ONE, Settled(numbers["s1"])) == []
    assert broker.receive(TWO, Settled(numbers["s2"])) == [Send(ALICE, Settled(5))]


def test_a_covered_request_waits_for_the_wave_of_its_coverer() -> None:
    broker = settled_broker()
    numbers = waves(ask(broker, ALICE, Subscribe(0, UA), wave=5))
    assert ask(broker, BOB, Subscribe(0, UA_TO_DEN), wave=7) == []
    broker.receive(ONE, Settled(numbers["s1"]))
    assert broker.receive(TWO, Settled(numbers["s2"])) == [
        Send(ALICE, Settled(5)),
        Send(BOB, Settled(7)),
    ]


def test_a_request_covered_by_a_settled_one_settles_at_once() -> None:
    broker = settled_broker()
    numbers = waves(ask(broker, ALICE, Subscribe(0, UA), wave=5))
    broker.receive(ONE, Settled(numbers["s1"]))
    broker.receive(TWO, Settled(numbers["s2"]))
    assert ask(broker, BOB, Subscribe(0, UA_TO_DEN), wave=7) == [Send(BOB, Settled(7))]


def test_a_request_covered_by_one_without_a_wave_sends_a_wave_after_it() -> None:
    broker = settled_broker()
    ask(broker, ALICE, Subscribe(0, UA))
    sends = ask(broker, BOB, Subscribe(0, UA_TO_DEN), wave=7)
    assert [(send.to, send.message.requests) for send in sends] == [(ONE, ()), (TWO, ())]  # type: ignore[union-attr]  # batches


def test_a_neighbour_that_leaves_is_unreached_and_nothing_is_taken_for_settled() -> None:
    broker = settled_broker()
    numbers = waves(ask(broker, ALICE, Subscribe(0, UA), wave=5))
    broker.receive(ONE, Settled(numbers["s1"], unreached=("s7",)))
    assert broker.detach(TWO) == [Send(ALICE, Settled(5, ("s2", "s7")))]
    assert list(waves(ask(broker, BOB, Subscribe(0, UA_TO_DEN), wave=7))) == ["s1"]


def test_a_requester_that_leaves_is_not_answered() -> None:
    broker = settled_broker()
    numbers = waves(ask(broker, ALICE, Subscribe(0, UA), wave=5))
    broker.detach(ALICE)
    for peer in (ONE, TWO):
        assert broker.receive(peer, Settled(numbers[peer.name])) == []


def test_an_echo_of_no_wave_is_illegal() -> None:
    broker = settled_broker()
    with pytest.raises(IllegalMessage, match="wave 12 is not open"):
        broker.receive(ONE, Settled(12))


@pytest.mark.parametrize("seed", range(20))
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


def test_a_neighbour_that_is_yet_to_hear_something_else_has_not_been_reached() -> None:
    broker = settled_broker()
    wide, narrow = parse("a BETWEEN 0 AND 9"), parse("a = 1")
    numbers = waves(ask(broker, ALICE, Subscribe(0, wide)) and ask(broker, BOB, wave=5))
    ask(broker, BOB, Subscribe(0, narrow))
    sends = broker.refused(ONE, Batch((Subscribe(0, wide),)))
    assert sends == [Send(ONE, Batch((Subscribe(1, narrow),)))]
    assert broker.receive(ONE, Settled(numbers["s1"])) == []
    assert broker.receive(TWO, Settled(numbers["s2"])) == [Send(BOB, Settled(5, ("s1",)))]
    again = waves(ask(broker, BOB, wave=6))
    assert broker.receive(ONE, Settled(again["s1"])) == [Send(BOB, Settled(6))]
    assert ask(broker, ALICE, wave=7) == [Send(ALICE, Settled(7, ("s1",)))]
    assert broker.refused(ONE, Batch((Subscribe(0, wide),))) == []


def test_who_waits_for_one_that_matters_no_more_waits_for_the_others() -> None:
    waves = Waves()
    for neighbour in (ONE, TWO):
        waves.connect(neighbour)
        waves.said(neighbour)
    sent, answers = waves.begin(ALICE, 5, [ONE, TWO])
    assert answers == waves.excuse(ONE) == []
    assert waves.echo(TWO, Settled(sent[TWO])) == [Send(ALICE, Settled(5))]
    waves.connect(ONE)
    waves.said(ONE)
    waves.begin(ALICE, 6, [ONE])
    assert waves.excuse(ONE) == [Send(ALICE, Settled(6))]
