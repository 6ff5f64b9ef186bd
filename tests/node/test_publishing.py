"""An event that comes by itself goes the very way of a batch of one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.language.parsing import parse_filter
from palio.model.events import STAMP_BYTES, TIME, to_batch
from palio.model.filters import Filter
from palio.model.limits import MAX_EVENT_TEXT_BYTES
from palio.model.masks import pack_mask
from palio.model.shapes import Shape
from palio.node.authority import NamedAuthority, Principal
from palio.node.effects import Effect, Moment, Report, Send
from palio.node.limits import TIME_AHEAD_US, TIME_KEPT_S
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import Append
from palio.protocol.batches import check_size
from palio.protocol.limits import (
    MAX_BATCH_BYTES,
    MAX_BATCH_CELLS,
    MAX_BATCH_ROWS,
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
)
from palio.protocol.messages import Accepted, Deliver, Hello, Parcel, Publish, Refused, Subscribe
from palio.protocol.wire import Encoder
from palio.routing.acyclic import Acyclic
from palio.routing.protocol import SelectorFactory
from palio.routing.reference_selector import ReferenceSelector
from tests.node.served import AT, SELECTORS, Served
from tests.strategies import SEEDS, examples, filters, nearby


@pytest.mark.parametrize("selector", SELECTORS, ids=["rows", "index"])
@given(st.lists(filters(), min_size=2, max_size=6), SEEDS)
@examples(40)
def test_by_itself_or_as_a_batch_it_goes_the_same_way(
    selector: SelectorFactory, asked: list[Filter], seed: int
) -> None:
    texts = [str(each) for each in asked]
    alone, together = Served(selector, texts), Served(selector, texts)
    for event in nearby(*asked, seed=seed, count=8):
        batch = to_batch(event)
        expected = together.publish(Parcel("", batch))
        found = alone.publish(Parcel.of("", batch))
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
    for counted in ("published", "routed", "delivered"):
        assert alone.node.status()[counted] == together.node.status()[counted]


def test_what_a_publisher_may_not_publish_is_refused_by_itself_too() -> None:
    granted = Principal("p", parse_filter("x > 0"), parse_filter("x > 0"))
    node = Node("b1", Acyclic("b1"), MemoryStore(), authority=NamedAuthority({"p": granted}))
    node.start(AT)
    node.accept(1, AT, "p")
    node.receive(1, Hello("client", "p", PROTOCOL_VERSION, incarnation="x"), AT)
    node.receive(1, Subscribe(1, 1, "x < 10"), AT)

    def said(x: int, seq: int) -> list[type]:
        effects = node.receive(1, Publish(Parcel.of("", to_batch({"x": x})), seq), AT)
        return [type(each.message) for each in effects if isinstance(each, Send)]

    assert said(-1, 1) == [Refused, Accepted]
    assert said(1, 2) == [Deliver, Accepted]


def test_system_names_are_refused_by_itself_too() -> None:
    served = Served(ReferenceSelector, ["EXISTS x"])
    (_, refused), _ = served.publish(Parcel.of("", pa.record_batch({"x": [1], "$y": [2]})))
    assert isinstance(refused, Refused)
    assert "begin with $" in refused.failure.message


@pytest.mark.parametrize("extra", [0, 1])
def test_an_event_with_too_much_text_is_refused_and_the_session_goes_on(extra: int) -> None:
    served = Served(ReferenceSelector, ["EXISTS s"])
    event = {"s": "a" * (MAX_EVENT_TEXT_BYTES + extra)}
    batch = to_batch(event)
    lone = Parcel.lone("", Shape.of(batch.schema), tuple(event.values()))
    for parcel in (Parcel("", batch), lone):
        said = [each for _, each, *_ in served.publish(parcel)]
        if extra:
            assert "MAX_EVENT_TEXT_BYTES" in said[0].failure.message
        else:
            assert said[0] is Deliver
        assert any(isinstance(each, Accepted) for each in said)


def test_a_batch_that_numbers_and_times_make_too_large_is_refused() -> None:
    served = Served(ReferenceSelector, ["EXISTS x"])
    count = MAX_BATCH_ROWS
    size = MAX_BATCH_BYTES // count - STAMP_BYTES + 2
    batch = pa.record_batch({"x": ["a" * size] * count})
    assert batch.nbytes < MAX_BATCH_BYTES
    (_, refused), (_, accepted), *_ = served.publish(Parcel("", batch))
    assert isinstance(refused, Refused)
    assert (refused.first_seq, refused.last_seq) == (1, count)
    assert "MAX_BATCH_BYTES" in refused.failure.message
    assert isinstance(accepted, Accepted)


def test_the_largest_batch_fits_into_a_frame_when_it_is_handed_on() -> None:
    count = MAX_BATCH_ROWS
    size = MAX_BATCH_BYTES // count - STAMP_BYTES - 5
    parcel = Parcel("", pa.record_batch({"x": ["a" * size] * count}))
    check_size(count, 1, parcel.nbytes)
    delivered = Deliver(parcel.stamped("p" * 200, 1, 1), pack_mask(np.arange(count) % 2 == 0))
    frames = Encoder().encode(delivered)
    assert sum(memoryview(part).nbytes for part in frames) <= MAX_FRAME_BYTES


def test_a_batch_of_too_many_cells_is_refused() -> None:
    served = Served(ReferenceSelector, ["EXISTS c0"])
    column = pa.array(np.ones(8_192, np.bool_))
    wide = MAX_BATCH_CELLS // 8_192
    for columns in (wide, wide + 1):
        batch = pa.record_batch({f"c{number}": column for number in range(columns)})
        first, *_ = served.publish(Parcel("", batch))
        served.seq += batch.num_rows
        assert (first[1] is Deliver) == (columns == wide)
        if columns > wide:
            assert "MAX_BATCH_CELLS" in first[1].failure.message


# --- what a publisher is told is what has become of its events ---


def _times(raw: list[int | None]) -> pa.Array[Any]:
    return pa.array(raw, pa.int64()).view(pa.timestamp("us", "UTC"))


COLUMNS = st.one_of(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3).map(_times),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3).map(
        lambda column: pa.array(column, pa.int64())
    ),
    st.lists(st.none() | st.floats(), min_size=3, max_size=3).map(
        lambda column: pa.array(column, pa.float64())
    ),
    st.lists(st.none() | st.text(st.characters(codec="utf-8")), min_size=3, max_size=3).map(
        lambda column: pa.array(column, pa.utf8())
    ),
)
BATCHES = st.builds(
    lambda columns, first, count: pa.record_batch(columns).slice(first, count),
    st.dictionaries(st.sampled_from(["x", "y", "s", "a b"]), COLUMNS, min_size=1),
    st.integers(0, 2),
    st.integers(1, 3),
)


def receipts(effects: list[Effect]) -> tuple[bool, bool, list[Any]]:
    """Whether all was accepted, whether it was refused, and the events that link 1 was sent."""
    sent = [each for each in effects if isinstance(each, Send)]
    refused = any(isinstance(each.message, Refused) for each in sent)
    accepted = any(isinstance(each.message, Accepted) for each in sent) and not refused
    heard = [
        event
        for each in sent
        if each.link == 1 and isinstance(each.message, Deliver)
        for event in each.message.parcel.batch.to_pylist()
    ]
    return accepted, refused, heard


@pytest.mark.parametrize("selector", SELECTORS, ids=["rows", "index"])
@given(st.lists(BATCHES, min_size=1, max_size=4))
@examples(40)
def test_a_receipt_tells_the_truth_whatever_arrow_can_make(
    selector: SelectorFactory, published: list[pa.RecordBatch]
) -> None:
    served = Served(selector, ["TRUE", "x > 0 OR s = 'a'"])
    for batch in published:
        served.seq += 10
        effects = served.say(0, Publish(Parcel.of("", batch), served.seq))
        accepted, refused, heard = receipts(effects)
        assert accepted != refused
        assert len(heard) == (len(batch) if accepted else 0)


class Breaking(ReferenceSelector):
    """An engine that fails on the events of one attribute."""

    def route(self, events: Any) -> Any:
        if any("breaks" in row for row in events.rows):
            raise OverflowError("too much for this engine")
        return super().route(events)

    def match_event(self, event: Mapping[str, Any]) -> list[int]:
        if "breaks" in event:
            raise OverflowError("too much for this engine")
        return super().match_event(event)


def test_what_an_engine_fails_on_is_refused_and_nothing_else_is() -> None:
    served = Served(Breaking, ["TRUE"])
    for event, is_taken in (({"x": 1}, True), ({"breaks": 1}, False), ({"x": 2}, True)):
        served.seq += 1
        effects = served.say(0, Publish(Parcel.of("", to_batch(event)), served.seq))
        accepted, refused, heard = receipts(effects)
        assert (accepted, refused, len(heard)) == (is_taken, not is_taken, int(is_taken))


@pytest.mark.parametrize("selector", SELECTORS, ids=["rows", "index"])
@pytest.mark.parametrize("rows", [1, 2])
def test_an_event_as_wide_as_it_may_be_is_delivered_with_what_the_broker_adds(
    selector: SelectorFactory, rows: int
) -> None:
    served = Served(selector, ["a1 = 1"])
    for width, is_taken in ((4_094, True), (4_096, True), (4_097, False)):
        served.seq += 10
        batch = pa.record_batch({f"a{number}": [1] * rows for number in range(width)})
        effects = served.say(0, Publish(Parcel.of("", batch), served.seq))
        assert receipts(effects)[:2] == (is_taken, not is_taken)
        assert len(receipts(effects)[2]) == rows * is_taken


HOUR_US = 3_600_000_000
LIVES = count(1)
WALL_US = 1_700_000_000_000_000


class Life:
    """One incarnation of a broker whose disk is quick, with a client that hears itself."""

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
    assert right.told("clock_behind") == [{"behind_s": pytest.approx(3_600.0)}]
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
    assert right.told("clock_went_back") == told
    assert not Life(store, WALL_US + 1).told("clock_went_back")  # it is told once


def test_times_of_live_events_are_remembered_now_and_then() -> None:
    store = MemoryStore()
    incarnation = Life(store, WALL_US + HOUR_US)
    before = incarnation.appends
    for _ in range(50):
        incarnation.publish(durable=False)
    incarnation.now = TIME_KEPT_S - 0.1
    incarnation.do(incarnation.node.tick(incarnation.at))
    assert incarnation.appends == before
    incarnation.now = TIME_KEPT_S
    incarnation.do(incarnation.node.tick(incarnation.at))
    assert incarnation.appends == before + 1
    incarnation.now = 3 * TIME_KEPT_S  # nothing is new
    incarnation.do(incarnation.node.tick(incarnation.at))
    assert incarnation.appends == before + 1
    assert Life(store, WALL_US).publish(durable=False) == incarnation.times[-1] + 1


def test_a_broker_that_stops_remembers_the_last_time() -> None:
    store = MemoryStore()
    incarnation = Life(store, WALL_US + HOUR_US)
    last = incarnation.publish(durable=False)
    incarnation.do(incarnation.node.close(incarnation.at))
    assert Life(store, WALL_US).publish(durable=False) == last + 1


def test_a_clock_that_is_right_is_not_told_of() -> None:
    store = MemoryStore()
    Life(store, WALL_US).publish(durable=True)
    assert not Life(store, WALL_US + 1).reports[1:]
