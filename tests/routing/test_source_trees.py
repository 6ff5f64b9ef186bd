"""Source trees: shortest paths on any graph, and whatever fails, the rest is served."""

from __future__ import annotations

from itertools import count

import pytest

from palio.model.row_parcels import RowParcel
from palio.routing import source_trees
from palio.routing.graphs import MAX_VERSION
from palio.routing.messages import Batch, Flood, LinkState, Settled, Subscribe
from palio.routing.protocol import Destined, IllegalMessage
from palio.routing.source_trees import SourceTrees
from palio.simulation import Topology, ring
from palio_studies.simulator import Network
from tests.routing.helpers import ALICE, BOB, ONE, UA


def network_of(topology: Topology) -> Network:
    network = Network.of(topology, SourceTrees, seed=1)
    for broker in topology.brokers:
        network.client(f"at-{broker}", broker)
    network.run()
    return network


def test_events_take_the_shortest_path() -> None:
    network = Network.of(ring(6), SourceTrees, seed=1)
    bob = network.client("bob", "b6")
    network.client("alice", "b1").subscribe("a = 1")
    network.run()
    bob.publish({"a": 1}, {"a": 2})
    network.run()
    assert network.costs.notifications == 1


def test_a_wave_is_answered_when_all_know() -> None:
    network = network_of(ring(5))
    alice = network.client("alice", "b1")
    alice.subscribe("a = 1", wave=True)
    assert alice.settled == {}
    network.run()
    assert alice.settled == {0: ()}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Flood("s9", (), version=3), "never introduced"),
        (Flood("s1", (), version=3), "follows 0"),
        (Settled(7), "not open"),
        (Batch(()), "no meaning"),
    ],
)
def test_an_illegal_message_changes_nothing(message: Flood | Settled | Batch, reason: str) -> None:
    broker = SourceTrees("s0")
    broker.attach(ONE)
    broker.receive(ONE, Flood("s1", (), fresh=True))
    with pytest.raises(IllegalMessage, match=reason):
        broker.receive(ONE, message)
    assert broker.destined(BOB, RowParcel("p", [{"a": 1}])) == Destined({}, {})


# --- what comes in parts, and what an earlier incarnation said ---


def part(
    version: int, *keys: int, more: bool, fresh: bool = False, wave: int | None = None
) -> Flood:
    requests = tuple(Subscribe(key, UA) for key in keys)
    return Flood("s1", requests, fresh=fresh, version=version, more=more, wave=wave)


def neighbour() -> SourceTrees:
    broker = SourceTrees("s0")
    broker.attach(ONE)
    broker.receive(ONE, LinkState("s1", 1, ("s0",)))
    return broker


PUBLISHERS = count()


def is_wanted(broker: SourceTrees) -> bool:
    """Asked with an event of somebody new: numbers count once."""
    publisher = f"p{next(PUBLISHERS)}"
    return bool(broker.destined(BOB, RowParcel(publisher, [{"airline": "UA"}])).brokers)


def test_parts_are_applied_when_the_last_one_has_come() -> None:
    broker = neighbour()
    assert broker.receive(ONE, part(7, 1, fresh=True, more=True)) == []
    assert broker.receive(ONE, part(7, 2, more=True)) == []
    assert not is_wanted(broker)
    (answer,) = broker.receive(ONE, part(7, 3, more=False, wave=4))
    assert answer.message == Settled(4)
    assert is_wanted(broker)
    broker.receive(ONE, Flood("s1", (), version=8))  # the next version follows on the whole


def test_parts_of_a_link_that_went_down_are_forgotten() -> None:
    broker = neighbour()
    broker.receive(ONE, part(7, 1, fresh=True, more=True))
    broker.detach(ONE)
    broker.attach(ONE)
    with pytest.raises(IllegalMessage, match="s1 was never introduced"):
        broker.receive(ONE, part(7, 2, more=False))


def test_a_summary_that_begins_anew_ends_the_one_before() -> None:
    broker = neighbour()
    broker.receive(ONE, part(7, 1, fresh=True, more=True))
    broker.receive(ONE, part(9, fresh=True, more=False))
    assert not is_wanted(broker)


def test_parts_of_two_versions_are_illegal() -> None:
    broker = neighbour()
    broker.receive(ONE, part(7, 1, fresh=True, more=True))
    with pytest.raises(IllegalMessage, match="a part of version 8, not 7"):
        broker.receive(ONE, part(8, 2, more=False))


def test_parts_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_trees, "MAX_PARTIAL", 3)
    broker = neighbour()
    broker.receive(ONE, part(7, 1, 2, 3, fresh=True, more=True))
    with pytest.raises(IllegalMessage, match="more than 3 requests"):
        broker.receive(ONE, part(7, 4, more=True))


def test_what_an_earlier_life_said_by_a_clock_that_was_ahead_is_outdone() -> None:
    broker = neighbour()
    broker.begin(100)
    broker.attach(ALICE)
    broker.receive(ALICE, Batch((Subscribe(0, UA),)))
    sent = broker.receive(ONE, Flood("s0", (), fresh=True, version=5_000))
    (said,) = [send.message for send in sent if isinstance(send.message, Flood)]
    assert (said.version, said.fresh, len(said.requests)) == (5_001, True, 1)
    assert broker.receive(ONE, Flood("s0", (), fresh=True, version=40)) == []


def test_versions_and_origins_that_cannot_be_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = neighbour()
    assert broker.receive(ONE, part(MAX_VERSION, 1, fresh=True, more=False)) == []
    monkeypatch.setattr(source_trees, "MAX_ORIGINS", 1)
    assert broker.receive(ONE, part(7, 1, fresh=True, more=False)) == []
    assert not is_wanted(broker)


def test_events_of_a_source_that_nobody_has_heard_of_make_no_tree() -> None:
    broker = neighbour()
    for number in range(5):
        assert broker.route(ONE, RowParcel("p", [{"a": 1}], source=f"made-up-{number}")) == {}
    assert not broker._trees


def test_ways_are_others_only_if_events_went_elsewhere_before() -> None:
    broker = neighbour()
    broker.route(ONE, RowParcel("p", [{"a": 1}], source="s1"))
    before = broker.routing_version
    broker.receive(ONE, LinkState("s2", 1, ("s1",)))
    broker.receive(ONE, LinkState("s1", 2, ("s0", "s2")))
    assert broker.routing_version == before  # one more beyond
    broker.route(ONE, RowParcel("q", [{"a": 1}], source="s2"))
    broker.receive(ONE, LinkState("s1", 3, ("s0",)))
    assert broker.routing_version == before + 1  # s2 is no longer to be reached
    broker.route(ONE, RowParcel("r", [{"a": 1}], source="s1"))
    before = broker.routing_version
    broker.detach(ONE)
    assert broker.routing_version == before + 1
