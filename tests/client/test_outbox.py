from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from palio.client.outbox import GATHERED_ROWS, MAX_WAITING, Outbox
from palio.errors import InvalidEvent, LimitExceeded, NotPermitted, Unreachable
from palio.model.limits import MAX_EVENT_TEXT_BYTES
from palio.protocol.batches import PART_BYTES
from palio.protocol.limits import MAX_BATCH_CELLS, MAX_BATCH_ROWS, MAX_FRAME_BYTES, WINDOW_BYTES
from palio.protocol.messages import Accepted, Failure, Message, Publish, Refused, StoredAt
from palio.protocol.publications import Publications


class Recorder:
    """A way to the broker that keeps what is sent, and the outbox before it."""

    def __init__(self, window: int = WINDOW_BYTES, max_waiting: int = MAX_WAITING) -> None:
        self.is_open = True
        self.sent: list[Publish] = []
        self.written: list[int] = []
        """How many were sent, each time that they were to be written."""
        self.publications = Publications(self._send, window=window)
        self.outbox = Outbox(
            self.publications,
            lambda: self.is_open and self.publications.has_room,
            lambda: self.written.append(len(self.sent)),
            max_waiting=max_waiting,
        )

    def _send(self, message: Message) -> None:
        assert isinstance(message, Publish)
        self.sent.append(message)

    def accepted(self, seq: int, level: str) -> None:
        self.publications.accepted(Accepted(seq, level))
        self.outbox.flow()

    @property
    def shapes(self) -> list[tuple[int, int, StoredAt]]:
        return [(each.first_seq, len(each.parcel), each.durable) for each in self.sent]


def recorded(**limits: int) -> tuple[Recorder, Outbox]:
    line = Recorder(**limits)
    return line, line.outbox


async def turn() -> None:
    await asyncio.sleep(0)


async def test_one_turn_is_one_batch_per_form_in_order() -> None:
    line, outbox = recorded()
    for event in ({"x": 1}, {"x": 2}, {"y": "a"}, {"x": 3}, {"x": 4.5}):
        _ = outbox.offer(event)
    assert not line.sent
    await turn()
    assert line.shapes == [(1, 2, False), (3, 1, False), (4, 1, False), (5, 1, False)]
    assert line.sent[0].parcel.batch.to_pylist() == [{"x": 1}, {"x": 2}]


async def test_what_a_turn_offered_is_written_once_it_is_gathered() -> None:
    line = Recorder()
    for event in ({"x": 1}, {"y": "a"}):
        _ = line.outbox.offer(event)
    assert line.written == []
    await turn()
    assert line.written == [2]
    line.outbox.flow()
    await turn()
    assert line.written == [2]


async def test_durable_and_other_events_leave_in_the_order_of_the_calls() -> None:
    line, outbox = recorded()
    for durable in (False, True, True, False):
        _ = outbox.offer({"x": 1}, durable=durable)
    await turn()
    assert line.shapes == [(1, 1, False), (2, 2, True), (4, 1, False)]


@pytest.mark.parametrize(
    ("count", "batches"), [(GATHERED_ROWS - 1, 1), (GATHERED_ROWS, 1), (GATHERED_ROWS + 1, 2)]
)
async def test_no_more_than_so_many_rows_a_batch(count: int, batches: int) -> None:
    line, outbox = recorded()
    for x in range(count):
        _ = outbox.offer({"x": x})
    await turn()
    assert len(line.sent) == batches


async def test_answers_come_by_number_and_level() -> None:
    line, outbox = recorded()
    memory, durable, later = [
        outbox.offer({"x": 1}, durable=level) for level in (False, True, False)
    ]
    await turn()
    line.accepted(3, "memory")
    assert (await memory).level == "memory"
    assert (await later).first_seq == 3
    assert not durable.done()
    line.accepted(2, "durable")
    assert (await durable).level == "durable"
    assert outbox.is_idle


async def test_a_refusal_is_for_those_whose_events_were_refused() -> None:
    line, outbox = recorded()
    first, second, third = [outbox.offer({"x": x}) for x in range(3)]
    await turn()
    line.publications.refused(Refused(2, 2, Failure("NotPermitted", "not this one")))
    line.accepted(3, "memory")
    assert (await first).last_seq == 1
    with pytest.raises(NotPermitted, match="not this one"):
        await second
    assert (await third).first_seq == 3


async def test_lone_surrogates_are_refused() -> None:
    _, outbox = recorded()
    _ = outbox.offer({"s": "good"})
    bad = outbox.offer({"s": "\ud800"})
    await turn()
    with pytest.raises(InvalidEvent, match="s"):
        await bad


async def test_what_is_under_way_is_bounded_by_bytes() -> None:
    line, outbox = recorded(window=1)
    batch = pa.record_batch({"x": [1, 2, 3]})
    for _ in range(3):
        _ = outbox.offer(batch)
    await turn()
    assert len(line.sent) == 1
    line.accepted(3, "memory")
    assert len(line.sent) == 2
    assert outbox.waiting == 3


@pytest.mark.parametrize(("count", "is_refused"), [(9, False), (10, False), (11, True)])
async def test_what_waits_is_bounded(count: int, is_refused: bool) -> None:
    line, outbox = recorded(max_waiting=10)
    line.is_open = False
    for _ in range(count - 1):
        _ = outbox.offer({"x": 1})
    if is_refused:
        with pytest.raises(LimitExceeded, match="MAX_WAITING"):
            _ = outbox.offer({"x": 1})
    else:
        _ = outbox.offer({"x": 1})
    assert outbox.waiting == min(count, 10)


async def test_the_end_is_told_to_all() -> None:
    line, outbox = recorded()
    futures = [outbox.offer({"x": 1}, durable=durable) for durable in (True, False)]
    await turn()
    futures.append(outbox.offer({"x": 2}))
    idle = asyncio.ensure_future(outbox.idle())
    await turn()
    error = Unreachable("it is over")
    line.publications.end(error)
    outbox.end(error)
    for future in futures:
        with pytest.raises(Unreachable, match="over"):
            await future
    await idle


async def test_who_waits_for_answers_does_not_wait_for_what_is_offered_later() -> None:
    line, outbox = recorded()
    receipts = [outbox.offer({"x": 1}, durable=True)]
    await turn()
    receipts.append(outbox.offer({"x": 2}, durable=True))
    idle = asyncio.ensure_future(outbox.idle())
    await turn()
    receipts.append(outbox.offer({"x": 3}, durable=True))
    await turn()
    for number, is_done in ((1, False), (2, True)):
        line.accepted(number, "durable")
        outbox.flow()
        await turn()
        assert idle.done() is is_done
    assert [each.done() for each in receipts] == [True, True, False]


@pytest.mark.parametrize("extra", [0, 1])
async def test_an_event_with_too_much_text_is_refused_and_others_leave(extra: int) -> None:
    line, outbox = recorded()
    texts = ["a", "a" * (MAX_EVENT_TEXT_BYTES + extra), "b"]
    receipts = [outbox.offer({"x": text}) for text in texts]
    await turn()
    line.accepted(3 - extra, "memory")
    if extra:
        with pytest.raises(LimitExceeded, match="MAX_EVENT_TEXT_BYTES"):
            await receipts[1]
        with pytest.raises(LimitExceeded, match="MAX_EVENT_TEXT_BYTES"):
            _ = outbox.offer([{"x": text} for text in texts])
    assert [(await receipts[at]).last_seq for at in (0, 2)] == [1, 3 - extra]


async def test_a_large_batch_leaves_in_parts_with_one_receipt() -> None:
    line, outbox = recorded()
    rows = PART_BYTES // 1_000
    future = outbox.offer(pa.record_batch({"x": ["a" * 999] * rows}))
    await turn()
    assert [len(each.parcel) for each in line.sent] == [rows // 2, rows - rows // 2]
    line.accepted(rows // 2, "memory")
    assert not future.done()
    line.accepted(rows, "memory")
    assert (await future).last_seq == rows


async def test_a_long_or_wide_batch_leaves_in_parts_too() -> None:
    line, outbox = recorded()
    long = pa.array(np.ones(MAX_BATCH_ROWS + 1, np.bool_))
    _ = outbox.offer(pa.record_batch({"x": long}))
    await turn()
    assert [len(each.parcel) for each in line.sent] == [
        MAX_BATCH_ROWS // 2,
        MAX_BATCH_ROWS // 2 + 1,
    ]
    line.sent.clear()
    wide = MAX_BATCH_CELLS // 8_192 + 1
    _ = outbox.offer(pa.record_batch({f"c{place}": long[:8_192] for place in range(wide)}))
    await turn()
    assert [len(each.parcel) for each in line.sent] == [4_096, 4_096]


async def test_many_wide_events_leave_as_several_batches() -> None:
    line, outbox = recorded()
    wide = {f"c{place}": place % 2 == 0 for place in range(1_024)}
    most = MAX_BATCH_CELLS // len(wide)
    futures = [outbox.offer(wide) for _ in range(most + 2)]
    await turn()
    assert [len(each.parcel) for each in line.sent] == [most, 2]
    line.accepted(most + 2, "memory")
    assert [(await each).last_seq for each in futures] == list(range(1, most + 3))


async def test_an_event_larger_than_a_frame_is_refused() -> None:
    _, outbox = recorded()
    with pytest.raises(LimitExceeded, match="MAX_BATCH_BYTES"):
        _ = outbox.offer(pa.record_batch({"s": ["a" * MAX_FRAME_BYTES]}))


@pytest.mark.parametrize("wrong", [{"$x": 1}, [{"x": 1}, 7], 7, {"x": object()}, {7: 1}])
async def test_what_is_no_event_is_refused_at_the_call(wrong: Any) -> None:
    _, outbox = recorded()
    with pytest.raises(InvalidEvent):
        _ = outbox.offer(wrong)
    assert outbox.is_idle
