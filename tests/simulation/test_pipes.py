from __future__ import annotations

import pytest

from palio.errors import IllegalMessage
from palio.protocol.messages import Bye, Message, Ping, Query
from palio.simulation.agenda import Agenda
from palio.simulation.pipes import Pipe, Surface


class Ear:
    """Notes what comes out at an end, and when."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda
        self.heard: list[tuple[int, Message | str]] = []

    def arrived(self, message: Message) -> None:
        self.heard.append((self.agenda.now_us, message))

    def lost(self, reason: str) -> None:
        self.heard.append((self.agenda.now_us, reason))

    def illegal(self, error: IllegalMessage) -> None:
        self.heard.append((self.agenda.now_us, type(error).__name__))


class Connection:
    """A pipe with someone at both ends."""

    def __init__(self) -> None:
        self.agenda = Agenda()
        self.delay_us = 10
        self.spoilt: list[Message] = []
        self.changes: list[tuple[bool, bool]] = []
        surface = Surface(
            self.agenda,
            lambda _one, _other: self.delay_us,
            lambda sender, message: sender == "alice" and message in self.spoilt,
            lambda pipe: self.changes.append((pipe.is_used, pipe.is_open)),
        )
        self.pipe = Pipe("alice", "b1", surface)
        self.ends = self.pipe.ends
        self.ears = (Ear(self.agenda), Ear(self.agenda))
        for end, ear in zip(self.ends, self.ears, strict=True):
            end.reader = ear


@pytest.fixture
def connection() -> Connection:
    return Connection()


def test_messages_arrive_in_order_after_the_delay(connection: Connection) -> None:
    connection.ends[0].send(Ping())
    connection.delay_us = 3  # overtakes nothing
    connection.ends[0].send(Query(1, "status"))
    connection.ends[1].send(Ping())
    connection.agenda.run()
    assert connection.ears[1].heard == [(10, Ping()), (10, Query(1, "status"))]
    assert connection.ears[0].heard == [(3, Ping())]
    assert connection.changes == [(False, True), (True, True)]


def test_what_was_sent_before_an_end_closed_still_arrives(connection: Connection) -> None:
    connection.ends[1].send(Ping())
    connection.ends[0].send(Bye("closed"))
    connection.ends[0].close()
    connection.ends[0].send(Ping())  # the other end is gone before it comes
    connection.agenda.run()
    assert connection.ears[1].heard == [
        (10, Bye("closed")),
        (10, "the other end closed the connection"),
    ]
    assert connection.ears[0].heard == []  # it closed itself
    assert connection.changes == [(False, True), (True, True), (True, False)]


def test_what_is_under_way_when_a_connection_breaks_is_lost(connection: Connection) -> None:
    connection.ends[0].send(Ping())
    connection.pipe.break_off()
    connection.pipe.break_off()
    connection.ends[0].send(Ping())
    connection.agenda.run()
    assert [ear.heard for ear in connection.ears] == [[(0, "the connection was cut")]] * 2
    assert connection.changes == [(False, False)]


def test_after_what_cannot_be_read_nothing_more_is(connection: Connection) -> None:
    connection.spoilt.append(Ping())
    connection.ends[0].send(Ping())
    connection.ends[0].send(Query(1, "status"))
    connection.ends[1].send(Ping())  # what the other one sends can be
    connection.agenda.run()
    ((at, error),) = connection.ears[1].heard
    assert (at, error) in {(10, "IllegalMessage"), (10, "DamagedFrame")}
    assert connection.ears[0].heard == [(10, Ping())]


def test_a_pipe_knows_whom_it_joins(connection: Connection) -> None:
    assert connection.pipe.joins("b1", "alice")
    assert not connection.pipe.joins("b1", "b2")


def test_a_half_open_pipe_carries_nothing_and_one_end_knows() -> None:
    connection = Connection()
    alice, broker = connection.ears
    connection.ends[0].reader, connection.ends[1].reader = alice, broker
    connection.ends[0].send(Ping())
    connection.pipe.half_open(1)
    connection.ends[0].send(Ping())
    connection.agenda.run(1_000)
    assert [what for _, what in broker.heard] == ["the connection was reset"]
    assert alice.heard == []
    connection.ends[0].close()
    connection.agenda.run(2_000)
    assert alice.heard == []
