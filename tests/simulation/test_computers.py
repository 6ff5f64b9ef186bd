from __future__ import annotations

from collections.abc import Callable

import pytest

from palio.multicast.datagrams import Datagram
from palio.node.effects import Report, Tune
from palio.node.operations import Append, Discard, PutTime
from palio.simulation.agenda import US, Agenda
from palio.simulation.computers import SimulatedMachine
from palio.simulation.disks import Disk
from palio.simulation.medium import Medium
from palio.simulation.randomness import Randomness
from tests.node.test_host import Scripted


class Room:
    """A computer, and whatever runs on it."""

    def __init__(self) -> None:
        self.agenda = Agenda()
        self.disk = Disk()
        self.medium = Medium(self.agenda, Randomness(1), latency_s=0.001)
        self.computer = SimulatedMachine(
            "b1",
            self.agenda,
            self.disk,
            sync_us=lambda: self.sync_us,
            epoch_us=1_000,
            medium=self.medium,
        )
        self.sync_us = 2_000
        self.ids: list[str] = []
        self.reports: list[Report] = []

    def start(self, *appends: Append, wake_at: float = 60.0) -> Scripted:
        """Start a node, which appends something at once."""

        def named(new_id: Callable[[], str]) -> Scripted:
            self.ids.append(new_id())
            return node

        node = Scripted()
        node.wake_at = wake_at
        node.effects = [*appends]
        return self.computer.start(named, self.reports.append)


STEP = Append(1, 0, (PutTime(7),))


@pytest.mark.parametrize("wanted", [0.0, 0.25, 1 / 3, 0.1 + 0.2, 0.7, 1e-7, 1234.5678901])
def test_a_node_is_woken_at_the_first_microsecond_that_is_not_too_early(wanted: float) -> None:
    room = Room()
    node = room.start(wake_at=wanted)
    room.agenda.limit = 3  # who is woken too early asks again and again
    room.agenda.run()
    (_, (name, at)) = node.calls
    assert name == "tick"
    assert wanted <= at < wanted + 2 / US


def test_time_is_that_of_the_planner() -> None:
    room = Room()
    room.agenda.run(1_500_000)
    assert room.computer.moment() == (1.5, 1_501_000)


def test_what_is_appended_is_safe_after_the_time_of_a_sync() -> None:
    room = Room()
    node = room.start(STEP)
    room.agenda.run(1_999)
    assert room.disk.load().time_us == 0
    room.agenda.run(2_000)
    assert room.disk.load().time_us == 7
    assert node.calls[1:] == [("stored", 0.002, 1)]


def test_a_disk_that_gets_faster_answers_in_order() -> None:
    room = Room()
    node = room.start(STEP)
    room.sync_us = 1
    room.computer.append(Append(2, 0, (PutTime(8),)))
    room.agenda.run(2_000)
    assert node.calls[1:] == [("stored", 0.002, 1), ("stored", 0.002, 2)]
    assert room.disk.load().time_us == 8


def test_a_full_disk_is_told_in_its_turn() -> None:
    room = Room()
    room.disk.is_full = True
    node = room.start(STEP)
    assert node.calls == [("start", 0.0)]
    room.agenda.run(2_000)
    assert node.calls[1:] == [("failed", 0.002, 1, "the disk is full")]
    assert room.disk.load().time_us == 0


def test_what_was_not_synced_is_lost_and_no_later_life_hears_of_it() -> None:
    room = Room()
    first = room.start(STEP)
    room.computer.kill()
    room.computer.kill()  # as dead as before
    second = room.start()
    room.agenda.run(10_000)
    assert room.disk.load().time_us == 0
    assert [call[0] for call in first.calls + second.calls] == ["start", "start"]


def test_lives_are_told_apart() -> None:
    room = Room()
    room.start()
    room.computer.kill()
    room.start()
    assert room.ids == ["b1-1-1", "b1-2-1"]


def test_a_step_that_cannot_be_synced_is_gone_and_told() -> None:
    room = Room()
    room.disk.fails_to_sync = True
    node = room.start(STEP)
    room.agenda.run(2_000)
    assert node.calls[1:] == [("failed", 0.002, 1, "the disk failed")]
    room.disk.fails_to_sync = False
    room.computer.append(Append(2, 1, ()))
    room.agenda.run(4_000)
    assert node.calls[2:] == [("stored", 0.004, 2)]
    assert room.disk.load().time_us == 0


def test_behind_what_was_refused_nothing_is_taken_that_does_not_know_of_that() -> None:
    """What is on a disk is a prefix of what was handed over."""
    room = Room()
    room.disk.refusals.append(True)
    node = room.start(STEP, Append(2, 0, (PutTime(8),)))
    room.computer.append(Append(3, 1, (PutTime(9),)))
    room.agenda.run(2_000)
    assert [call[0] for call in node.calls[1:]] == ["failed", "failed", "stored"]
    assert room.disk.load().time_us == 9


def test_a_disk_that_refuses_is_tried_once_a_second_until_it_takes_writes() -> None:
    room = Room()
    room.disk.is_full = True
    node = room.start(STEP)
    room.agenda.run(3 * US)
    assert [call[0] for call in node.calls] == ["start", "failed"]
    room.disk.is_full = False
    room.agenda.run(4 * US)
    assert node.calls[2:] == [("writable", 3.002)]
    room.agenda.run(9 * US)
    assert len(node.calls) == 3


def test_what_is_over_is_written_on_a_full_disk() -> None:
    room = Room()
    room.disk.is_full = True
    node = room.start(Append(1, 0, (), (Discard((5,)),)))
    room.agenda.run(2_000)
    assert node.calls[1:] == [("stored", 0.002, 1)]
    assert Discard((5,)) in room.disk.load().operations


def test_a_disk_tells_that_a_step_is_written_before_it_is_safe() -> None:
    room = Room()
    seen: list[int] = []
    room.disk.written = lambda: seen.append(room.disk.synced.load().time_us)
    room.start(STEP)
    assert seen == [0]


def test_what_happens_in_a_pause_is_told_after_it_in_order() -> None:
    room = Room()
    node = room.start(STEP, wake_at=0.001)
    room.computer.pause(0.5)
    room.computer.pause(0.1)  # as long as the longer one
    room.agenda.run(499_999)
    assert [call[0] for call in node.calls] == ["start"]
    room.agenda.run(500_000)
    assert [call[0] for call in node.calls] == ["start", "tick", "stored"]


def test_datagrams_too_are_heard_after_a_pause() -> None:
    room = Room()
    node = room.start()
    node.effects = [Tune(7, (0,))]
    room.computer.append(Append(1, 0, ()))  # it tunes in as this is answered
    room.agenda.run(2_000)
    room.computer.pause(0.5)
    room.medium.port("b2").cast(Datagram("b2", 1, 7, 0, 1, bytes(8)))
    room.agenda.run(502_000)
    assert [call[:2] for call in node.calls[2:]] == [("receive_datagram", 0.502)]


def test_a_broker_that_is_killed_in_a_pause_does_nothing_more() -> None:
    room = Room()
    first = room.start(STEP)
    room.computer.pause(0.5)
    room.agenda.run(10_000)
    room.computer.kill()
    second = room.start()
    room.agenda.run(1_000_000)
    assert [call[0] for call in first.calls + second.calls] == ["start", "start"]


def test_the_clock_on_the_wall_may_be_wrong() -> None:
    room = Room()
    room.computer.ahead_us = -400
    assert room.computer.moment() == (0.0, 600)
