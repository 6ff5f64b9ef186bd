from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from palio.client.publications import GATHERED_ROWS, Publications
from palio.errors import InvalidEvent, LimitExceeded, NotPermitted, Unreachable
from palio.protocol.batches import PART_BYTES
from palio.protocol.limits import MAX_BATCH_CELLS, MAX_BATCH_ROWS, MAX_FRAME_BYTES
from palio.protocol.messages import Accepted, Failure, Message, Publish, Refused


class Recorder:
    """A way to the broker that keeps what is sent."""

    def __init__(self) -> None:
        self.is_open = True
        self.sent: list[Publish] = []

    def send(self, message: Message) -> None:
        assert isinstance(message, Publish)
        self.sent.append(message)

    @property
    def shapes(self) -> list[tuple[int, int, bool]]:
        return [(each.first_seq, len(each.parcel), each.durable) for each in self.sent]


async def turn() -> None:
    await asyncio.sleep(0)


async def test_one_turn_is_one_batch_per_form_in_order() -> None:
    line = Recorder()
    publications = Publications(line)
    for event in ({"x": 1}, {"x": 2}, {"y": "a"}, {"x": 3}, {"x": 4.5}):
        _ = publications.offer(event)
    assert not line.sent
    await turn()
    assert line.shapes == [(1, 2, False), (3, 1, False), (4, 1, False), (5, 1, False)]
    assert line.sent[0].parcel.batch.to_pylist() == [{"x": 1}, {"x": 2}]


async def test_durable_and_other_events_leave_in_the_order_of_the_calls() -> None:
    line = Recorder()
    publications = Publications(line)
    for durable in (False, True, True, False):
        _ = publications.offer({"x": 1}, durable=durable)
    await turn()
    assert line.shapes == [(1, 1, False), (2, 2, True), (4, 1, False)]


@pytest.mark.parametrize(
    ("count", "batches"), [(GATHERED_ROWS - 1, 1), (GATHERED_ROWS, 1), (GATHERED_ROWS + 1, 2)]
)
async def test_no_more_than_so_many_rows_a_batch(count: int, batches: int) -> None:
    line = Recorder()
    publications = Publications(line)
    for x in range(count):
        _ = publications.offer({"x": x})
    await turn()
    assert len(line.sent) == batches


async def test_answers_come_by_number_and_level() -> None:
    line = Recorder()
    publications = Publications(line)
    memory, durable, later = [
        publications.offer({"x": 1}, durable=level) for level in (False, True, False)
    ]
    await turn()
    publications.accepted(Accepted(3, "memory"))
    assert (await memory).level == "memory"
    assert (await later).first_seq == 3
    assert not durable.done()
    publications.accepted(Accepted(2, "durable"))
    assert (await durable).level == "durable"
    assert publications.is_idle


async def test_a_refusal_is_for_those_whose_events_were_refused() -> None:
    line = Recorder()
    publications = Publications(line)
    first, second, third = [publications.offer({"x": x}) for x in range(3)]
    await turn()
    publications.refused(Refused(2, 2, Failure("NotPermitted", "not this one")))
    publications.accepted(Accepted(3, "memory"))
    assert (await first).last_seq == 1
    with pytest.raises(NotPermitted, match="not this one"):
        await second
    assert (await third).first_seq == 3


async def test_a_value_that_does_not_fit_costs_nobody_else_anything() -> None:
    line = Recorder()
    publications = Publications(line)
    good = publications.offer({"x": 1})
    bad = publications.offer({"x": 1 << 64})
    worse = publications.offer({"x": 2})
    await turn()
    assert [each.first_seq for each in line.sent] == [1, 2]
    publications.accepted(Accepted(2, "memory"))
    assert ((await good).first_seq, (await worse).first_seq) == (1, 2)
    with pytest.raises(InvalidEvent, match="x"):
        await bad


async def test_lone_surrogates_are_refused() -> None:
    publications = Publications(Recorder())
    _ = publications.offer({"s": "good"})
    bad = publications.offer({"s": "\ud800"})
    await turn()
    with pytest.raises(InvalidEvent, match="s"):
        await bad


async def test_what_is_under_way_is_bounded_by_bytes() -> None:
    line = Recorder()
    publications = Publications(line, window=1)
    batch = pa.record_batch({"x": [1, 2, 3]})
    for _ in range(3):
        _ = publications.offer(batch)
    await turn()
    assert len(line.sent) == 1
    publications.accepted(Accepted(3, "memory"))
    assert len(line.sent) == 2
    assert publications.waiting == 3


async def test_nothing_leaves_while_the_way_is_closed() -> None:
    line = Recorder()
    line.is_open = False
    publications = Publications(line)
    _ = publications.offer({"x": 1})
    await turn()
    assert not line.sent
    line.is_open = True
    publications.flush()
    assert len(line.sent) == 1


@pytest.mark.parametrize(("count", "is_refused"), [(9, False), (10, False), (11, True)])
async def test_what_waits_is_bounded(count: int, is_refused: bool) -> None:
    line = Recorder()
    line.is_open = False
    publications = Publications(line, max_waiting=10)
    for _ in range(count - 1):
        _ = publications.offer({"x": 1})
    if is_refused:
        with pytest.raises(LimitExceeded, match="MAX_WAITING"):
            _ = publications.offer({"x": 1})
    else:
        _ = publications.offer({"x": 1})
    assert publications.waiting == min(count, 10)


async def test_after_a_lost_session_durable_events_go_again_and_others_are_uncertain() -> None:
    line = Recorder()
    publications = Publications(line)
    memory = publications.offer({"x": 1})
    durable = publications.offer({"x": 2}, durable=True)
    await turn()
    line.sent.clear()
    waiting = publications.offer({"x": 3})
    publications.renew()
    await turn()
    assert line.shapes == [(2, 1, True), (3, 1, False)]
    with pytest.raises(Unreachable, match="may or may not"):
        await memory
    publications.accepted(Accepted(2, "durable"))
    publications.accepted(Accepted(3, "memory"))
    assert ((await durable).first_seq, (await waiting).first_seq) == (2, 3)


async def test_the_end_is_told_to_all() -> None:
    publications = Publications(Recorder())
    futures = [publications.offer({"x": 1}, durable=durable) for durable in (True, False)]
    await turn()
    futures.append(publications.offer({"x": 2}))
    idle = asyncio.ensure_future(publications.idle())
    await turn()
    publications.end(Unreachable("it is over"))
    for future in futures:
        with pytest.raises(Unreachable, match="over"):
            await future
    await idle


async def test_a_large_batch_leaves_in_parts_with_one_receipt() -> None:
    line = Recorder()
    publications = Publications(line)
    rows = PART_BYTES // 1_000
    future = publications.offer(pa.record_batch({"x": ["a" * 999] * rows}))
    await turn()
    assert [len(each.parcel) for each in line.sent] == [rows // 2, rows - rows // 2]
    publications.accepted(Accepted(rows // 2, "memory"))
    assert not future.done()
    publications.accepted(Accepted(rows, "memory"))
    assert (await future).last_seq == rows


async def test_a_long_or_wide_batch_leaves_in_parts_too() -> None:
    line = Recorder()
    publications = Publications(line)
    long = pa.array(np.ones(MAX_BATCH_ROWS + 1, np.bool_))
    _ = publications.offer(pa.record_batch({"x": long}))
    await turn()
    assert [len(each.parcel) for each in line.sent] == [
        MAX_BATCH_ROWS // 2,
        MAX_BATCH_ROWS // 2 + 1,
    ]
    line.sent.clear()
    wide = MAX_BATCH_CELLS // 8_192 + 1
    _ = publications.offer(pa.record_batch({f"c{place}": long[:8_192] for place in range(wide)}))
    await turn()
    assert [len(each.parcel) for each in line.sent] == [4_096, 4_096]


async def test_many_wide_events_leave_as_several_batches() -> None:
    line = Recorder()
    publications = Publications(line)
    wide = {f"c{place}": place % 2 == 0 for place in range(1_024)}
    most = MAX_BATCH_CELLS // len(wide)
    futures = [publications.offer(wide) for _ in range(most + 2)]
    await turn()
    assert [len(each.parcel) for each in line.sent] == [most, 2]
    publications.accepted(Accepted(most + 2, "memory"))
    assert [(await each).last_seq for each in futures] == list(range(1, most + 3))


async def test_an_event_larger_than_a_frame_is_refused() -> None:
    publications = Publications(Recorder())
    with pytest.raises(LimitExceeded, match="MAX_BATCH_BYTES"):
        _ = publications.offer(pa.record_batch({"s": ["a" * MAX_FRAME_BYTES]}))


@pytest.mark.parametrize("wrong", [{"$x": 1}, [{"x": 1}, 7], 7, {"x": object()}, {7: 1}])
async def test_what_is_no_event_is_refused_at_the_call(wrong: Any) -> None:
    publications = Publications(Recorder())
    with pytest.raises(InvalidEvent):
        _ = publications.offer(wrong)
    assert publications.is_idle
