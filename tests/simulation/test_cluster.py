from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import pytest

from palio.errors import InvalidInput
from palio.matching.reference import Reference
from palio.multicast.datagrams import Datagram
from palio.node.effects import Cast, Dial, Effect, Moment, StopDialing, Tune
from palio.node.membership import Membership
from palio.node.node import Node
from palio.node.settings import Settings
from palio.routing.acyclic import Acyclic
from palio.simulation.agenda import US, Agenda
from palio.simulation.cluster import REDIAL_US, Cluster, address_of
from palio.simulation.computers import AccessPolicy
from palio.simulation.disks import Disk


class Line:
    """Three brokers in a line, and the times at which connections changed."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.agenda = Agenda()
        self.cluster = Cluster(
            self.agenda,
            settings=settings,
            latency_s=0.01,
            sync_s=0.002,
            epoch_us=0,
            matcher=Reference,
            access=AccessPolicy(),
        )
        self.changes: list[int] = []
        self.cluster.changed = lambda: self.changes.append(self.agenda.now_us)
        names = ("b1", "b2", "b3")
        for name in names:
            self.cluster.install(name, Acyclic, Disk())
        for one, other in pairwise(names):
            self.cluster.connect(one, other)

    def start(self) -> None:
        for name in self.cluster.disks:
            self.cluster.start(name)
        self.run(0.1)

    def run(self, seconds: float) -> None:
        self.agenda.run(self.agenda.now_us + round(seconds * US))

    def is_up(self, one: str, other: str) -> bool:
        """Whether two brokers have a session and a connection."""
        nodes = self.cluster.nodes
        peers = nodes[one].status()["peers"], nodes[other].status()["peers"]
        return bool(peers[0][other]["up"] and peers[1][one]["up"])


@pytest.fixture
def line() -> Line:
    line = Line()
    line.start()
    return line


def test_brokers_find_each_other_as_they_start(line: Line) -> None:
    cluster = line.cluster
    assert cluster.is_linked("b1", "b2")
    assert cluster.is_linked("b3", "b2")
    assert not cluster.is_linked("b1", "b3")


def test_a_link_that_breaks_is_dialled_again(line: Line) -> None:
    cluster = line.cluster
    cluster.drop("b2", "b1")
    assert not cluster.is_linked("b1", "b2")
    assert cluster.is_linked("b2", "b3")
    line.run(REDIAL_US / US - 0.001)
    assert not cluster.is_linked("b1", "b2")
    line.run(0.1)
    assert cluster.is_linked("b1", "b2")


def test_a_link_that_is_cut_is_not_dialled_until_it_is_healed(line: Line) -> None:
    cluster = line.cluster
    cluster.cut("b2", "b1")
    line.run(5.0)
    assert cluster.is_cut("b1", "b2")
    assert not cluster.is_linked("b1", "b2")
    cluster.heal("b1", "b2")
    line.run(0.1)
    assert cluster.is_linked("b1", "b2")
    cluster.heal("b1", "b2")  # nothing was wrong with it
    cluster.heal("b1", "b3")  # and these were never linked
    line.run(0.1)
    assert not cluster.is_linked("b1", "b3")


def test_a_broker_that_is_killed_is_dialled_when_it_starts_again(line: Line) -> None:
    cluster = line.cluster
    cluster.kill("b2")
    line.run(5.0)
    assert not cluster.is_linked("b1", "b2")
    with pytest.raises(InvalidInput, match="start it"):
        cluster.host("b2")
    cluster.start("b2")
    line.run(0.1)
    assert cluster.is_linked("b1", "b2")
    assert cluster.is_linked("b2", "b3")
    with pytest.raises(InvalidInput, match="b2 is running already"):
        cluster.start("b2")


def test_a_link_that_a_broker_itself_closes_is_dialled_again(line: Line) -> None:
    """b1 has dialled, and closes, as it cannot read that it is welcome."""
    cluster = line.cluster
    assert line.is_up("b1", "b2")
    cluster.spoils = lambda sender, _message: sender == "b2"
    cluster.drop("b1", "b2")
    line.run(5.0)
    assert not line.is_up("b1", "b2")
    cluster.spoils = lambda _sender, _message: False
    line.run(1.0)
    assert line.is_up("b1", "b2")


def test_nobody_answers_where_no_broker_runs_or_the_link_is_cut(line: Line) -> None:
    cluster = line.cluster
    cluster.cut("alice", "b1")
    assert cluster.open_end("alice", "b1") is None
    assert cluster.open_end("alice", "b2") is not None
    cluster.kill("b2")
    assert cluster.open_end("alice", "b2") is None


def test_delays_are_those_of_the_link(line: Line) -> None:
    cluster = line.cluster
    cluster.delay("b2", "b1", 0.5)
    assert cluster.delay_us("b1", "b2") == 500_000
    assert cluster.delay_us("b2", "b3") == 10_000
    line.changes.clear()
    cluster.drop("b1", "b2")
    line.run(3.0)
    cut, called, answered = line.changes
    assert called - cut == REDIAL_US + 500_000
    assert answered - called == 500_000


def test_what_is_asked_of_a_broker_that_is_not_there_is_refused(line: Line) -> None:
    cluster = line.cluster
    with pytest.raises(InvalidInput, match="'b9' does not run"):
        cluster.kill("b9")
    with pytest.raises(InvalidInput, match="no broker 'b9'"):
        cluster.start("b9")
    cluster.kill("b2")
    with pytest.raises(InvalidInput, match="'b2' does not run"):
        cluster.kill("b2")


@pytest.mark.parametrize("multicast", [False, True])
def test_datagrams_reach_nodes_that_have_tuned_in_if_there_is_a_multicast_way(
    multicast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, int]] = []

    def note(node: Node, datagram: Datagram, _at: Moment) -> list[Effect]:
        heard.append((node.name, datagram.number))
        return []

    monkeypatch.setattr(Node, "receive_datagram", note)
    monkeypatch.setattr(Node, "start", _tune_and_cast)
    line = Line(Settings(multicast=multicast))
    for name in ("b3", "b2", "b1"):
        line.cluster.start(name)
    line.run(0.1)
    assert heard == ([("b3", 1), ("b2", 1)] if multicast else [])
    line.cluster.kill("b1")
    line.cluster.kill("b2")
    line.cluster.start("b1")
    line.run(0.1)
    assert heard[2:] == ([("b3", 1)] if multicast else [])


def _tune_and_cast(node: Node, at: Moment) -> list[Effect]:
    casts = [Cast(Datagram("b1", at.wall_us, 7, 0, 1, bytes(12)))] if node.name == "b1" else []
    return [Tune(7, (0,)), *casts]


def test_what_is_held_up_comes_when_that_is_over_and_nobody_connects_meanwhile(line: Line) -> None:
    cluster = line.cluster
    cluster.hold("b1", "b2", 2.0)
    cluster.hold("b1", "b2", 1.0)  # the longer one counts
    assert cluster.is_cut("b2", "b1")
    assert cluster.is_linked("b1", "b2")
    cluster.drop("b1", "b2")
    line.run(1.9)
    assert not cluster.is_linked("b1", "b2")
    line.run(0.5)
    assert cluster.is_linked("b1", "b2")


def test_a_half_open_connection_is_known_to_be_broken_by_one_end_only(line: Line) -> None:
    cluster = line.cluster
    before = cluster.nodes["b2"].status()["peers"]["b1"]["up"]
    cluster.half_open("b1", "b2")
    assert not cluster.is_linked("b1", "b2")
    assert before is cluster.nodes["b2"].status()["peers"]["b1"]["up"] is True
    assert not cluster.nodes["b1"].status()["peers"]["b2"]["up"]
    line.run(1.0)
    assert cluster.is_linked("b1", "b2")
    assert line.is_up("b1", "b2")


def test_a_broker_that_pauses_answers_afterwards(line: Line) -> None:
    cluster = line.cluster
    cluster.pause("b2", 3.0)
    cluster.drop("b1", "b2")
    line.run(2.9)
    assert not cluster.nodes["b1"].status()["peers"]["b2"]["up"]
    line.run(1.0)
    assert line.is_up("b1", "b2")


def test_the_clock_of_one_broker_jumps(line: Line) -> None:
    cluster = line.cluster
    cluster.set_clock("b2", -3.5)
    assert cluster.wall_of("b2") == cluster.wall_us - 3_500_000
    assert cluster.wall_of("b1") == cluster.wall_us


def test_a_node_has_an_address_dialled_until_it_wants_that_no_more(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Membership, "dials", lambda *_: True)  # nothing in it wishes that

    class Dialling(Node):
        told: ClassVar[list[tuple[str, ...]]] = []

        def unreachable(self, url: str, reason: str, at: Moment) -> list[Effect]:
            self.told.append((url, reason))
            return super().unreachable(url, reason, at)

        def tick(self, at: Moment) -> list[Effect]:
            return [*super().tick(at), *(wishes.pop() for _ in wishes[:])]

    wishes: list[Effect] = []
    cluster = line.cluster
    cluster.nodes["b1"].__class__ = Dialling
    cluster.cut("b2", "b3")
    cluster.cut("b1", "b3")
    wishes.append(Dial(address_of("b3"), "b3"))
    line.run(5)
    assert len(set(Dialling.told)) == 1
    assert "b3" not in cluster.nodes["b1"].status()["peers"]
    cluster.heal("b1", "b3")
    line.run(5)
    assert line.is_up("b1", "b3")
    wishes.append(StopDialing(address_of("b3")))
    line.run(5)
    cluster.drop("b1", "b3")
    line.run(5)
    assert not line.is_up("b1", "b3")
