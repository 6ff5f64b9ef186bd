from __future__ import annotations

from itertools import count

import pyarrow as pa
import pytest

from palio.model.events import TIME
from palio.node.effects import Effect, Moment, Report, Send
from palio.node.limits import TIME_AHEAD_US, TIME_KEPT_S
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import Append
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Deliver, Hello, Parcel, Publish, Subscribe
from palio.routing.acyclic import Acyclic

HOUR_US = 3_600_000_000
LIVES = count(1)
WALL_US = 1_700_000_000_000_000


class Life:
    """One life of a broker whose disk is quick, with a client that hears itself."""

    def __init__(self, store: MemoryStore, wall_us: int) -> None:
        self.store = store
        self.wall_us = wall_us
        self.now = 0.0
        self.appends = 0
        self.times: list[int] = []
        self.reports: list[Report] = []
        self._number = 0
        self.node = Node("b1", Acyclic("b1"), store)
        self.do(self.node.start(self.at))
        self.do(self.node.accept(1, self.at))
        incarnation = str(next(LIVES))
        self.publisher = f"alice/{incarnation}"
        hello = Hello("client", "alice", PROTOCOL_VERSION, incarnation=incarnation)
        self.do(self.node.receive(1, hello, self.at))
        self.do(self.node.receive(1, Subscribe(1, 1, "x >= 0", durable="d"), self.at))
        self.do(self.node.receive(1, Subscribe(2, 2, "x < 0"), self.at))

    @property
    def at(self) -> Moment:
        return Moment(self.now, self.wall_us)

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append(ticket, _, operations, released):
                    self.appends += 1
                    self.store.write((*operations, *released))
                    self.do(self.node.stored(ticket, self.at))
                case Send(_, Deliver(parcel)) if parcel.publisher == self.publisher:
                    self.times += [each.value for each in parcel.batch.column(TIME)]
                case Report():
                    self.reports.append(effect)

    def publish(self, *, durable: bool) -> int:
        """Publish one event; its time."""
        self._number += 1
        parcel = Parcel("", pa.RecordBatch.from_pydict({"x": [1 if durable else -1]}))
        self.do(self.node.receive(1, Publish(parcel, self._number, durable=durable), self.at))
        return self.times[-1]

    def told(self, event: str) -> list[dict[str, object]]:
        return [each.details for each in self.reports if each.event == event]


def test_times_do_not_go_back_after_a_restart_with_the_clock_put_right() -> None:
    store = MemoryStore()
    wrong = Life(store, WALL_US + HOUR_US)
    last = [wrong.publish(durable=True) for _ in range(3)][-1]
    right = Life(store, WALL_US)
    assert [right.publish(durable=each) for each in (True, False, True)] == [
        last + 1,
        last + 2,
        last + 3,
    ]
    assert right.told("time_waits") == [{"ahead_s": pytest.approx(3_600.0)}]
    right.wall_us = WALL_US + 2 * HOUR_US
    assert right.publish(durable=True) == right.wall_us


@pytest.mark.parametrize(
    ("ahead_us", "goes_back"), [(TIME_AHEAD_US, False), (TIME_AHEAD_US + 1, True)]
)
def test_times_that_are_too_far_ahead_begin_anew_at_the_wall(
    ahead_us: int, *, goes_back: bool
) -> None:
    store = MemoryStore()
    last = Life(store, WALL_US + ahead_us).publish(durable=True)
    right = Life(store, WALL_US)
    assert right.publish(durable=True) == (WALL_US if goes_back else last + 1)
    told = [{"from_us": last, "to_us": WALL_US}] if goes_back else []
    assert right.told("time_went_back") == told
    assert not Life(store, WALL_US + 1).told("time_went_back")  # it is told once


def test_times_of_live_events_are_remembered_now_and_then() -> None:
    store = MemoryStore()
    life = Life(store, WALL_US + HOUR_US)
    before = life.appends
    for _ in range(50):
        life.publish(durable=False)
    life.now = TIME_KEPT_S - 0.1
    life.do(life.node.tick(life.at))
    assert life.appends == before
    life.now = TIME_KEPT_S
    life.do(life.node.tick(life.at))
    assert life.appends == before + 1
    life.now = 3 * TIME_KEPT_S  # nothing is new
    life.do(life.node.tick(life.at))
    assert life.appends == before + 1
    assert Life(store, WALL_US).publish(durable=False) == life.times[-1] + 1


def test_a_broker_that_stops_remembers_the_last_time() -> None:
    store = MemoryStore()
    life = Life(store, WALL_US + HOUR_US)
    last = life.publish(durable=False)
    life.do(life.node.close(life.at))
    assert Life(store, WALL_US).publish(durable=False) == last + 1


def test_a_clock_that_is_right_is_not_told_of() -> None:
    store = MemoryStore()
    Life(store, WALL_US).publish(durable=True)
    assert not Life(store, WALL_US + 1).reports[1:]
