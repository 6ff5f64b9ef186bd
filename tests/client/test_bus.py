from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # it has no types here
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palio
from palio.client.dispatcher import FEW_EVENTS
from palio.client.events import Event, PublishReceipt
from palio.client.subscription import Subscription
from palio.errors import (
    Closed,
    HandlerFailed,
    InvalidBinding,
    InvalidEvent,
    InvalidFilter,
    InvalidInput,
    PalioError,
    ParseError,
)
from palio.matching.protocol import Matches
from palio.matching.reference import Reference
from palio.model.events import SEQ, TIME, rows
from tests.client.helpers import NOON, drain, plain, seqs, stopped_clock, turns

# --- publishing ---


async def test_a_receipt_says_numbers_and_deliveries() -> None:
    async with palio.Bus() as bus:
        await bus.subscribe("x > 0")
        await bus.subscribe("x > 1")
        assert await bus.publish([{"x": x} for x in range(4)]) == PublishReceipt(1, 4, 5)
        assert await bus.publish({"x": 9}) == PublishReceipt(5, 5, 2)
        assert await bus.publish({"y": 9}) == PublishReceipt(6, 6, 0)


async def test_numbers_are_given_per_publisher() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x >= 0")
        for publisher in "aba":
            await bus.publish([{"x": 0}, {"x": 1}], publisher=publisher)
        assert [(event.publisher, event.seq) for event in await drain(sub)] == [
            *(("a", 1), ("a", 2), ("b", 1), ("b", 2), ("a", 3), ("a", 4))
        ]


async def test_times_rise_from_call_to_call_whatever_the_clock_does() -> None:
    times = iter([NOON, NOON.replace(hour=11), NOON.replace(hour=13)])
    async with palio.Bus(clock=times.__next__) as bus:
        sub = await bus.subscribe("x >= 0")
        for _ in range(3):
            await bus.publish([{"x": 0}, {"x": 1}])
        got = [event.time for event in await drain(sub)]
        assert got[::2] == got[1::2]
        assert got[::2] == [NOON, NOON.replace(microsecond=1), NOON.replace(hour=13)]


async def test_nothing_published_is_fine() -> None:
    async with palio.Bus() as bus:
        assert await bus.publish([]) == PublishReceipt(1, 0, 0)
        assert await bus.publish(
            pa.record_batch({"x": pa.array([], pa.int64())})
        ) == PublishReceipt(1, 0, 0)


async def test_a_single_event_is_numbered_and_checked_though_nobody_wants_it() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x > 5")
        assert await bus.publish({"x": 1}) == PublishReceipt(1, 1, 0)
        for wrong in ({"y": object()}, {"$seq": 1}, {"": 1}):
            with pytest.raises(InvalidEvent):
                await bus.publish(wrong)
        assert await bus.publish({"x": 6}) == PublishReceipt(2, 2, 1)
        assert [(event["x"], event.seq) for event in await drain(sub)] == [(6, 2)]


async def test_an_event_without_attributes_is_an_event() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x IS NULL")
        assert (await bus.publish([{}, {"x": None}, {"x": 1}])).deliveries == 2
        assert plain(await drain(sub)) == [{}, {}]


async def test_types_may_change_within_a_call() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("EXISTS x")
        events: list[dict[str, Any]] = [
            {"x": 1},
            {"x": "a"},
            {"x": 1.5},
            {"y": 1},
            {"x": True, "z": b"b"},
        ]
        await bus.publish(iter(events))
        received = await drain(sub)
        assert plain(received) == [event for event in events if "x" in event]
        assert seqs(received) == [1, 2, 3, 5]


async def test_a_record_batch_is_published_as_it_is() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price < 3 OR price IS NULL")
        batch = pa.record_batch({"price": pa.array([1, None, 3], pa.int32()), "s": ["a", "b", "c"]})
        assert (await bus.publish(batch)).last_seq == 3
        assert plain(await drain(sub)) == [{"price": 1, "s": "a"}, {"s": "b"}]


@pytest.mark.parametrize(
    "bad",
    [
        [{"x": 1}, {"x": 2**63}],
        [{"x": 1}, {"x": datetime(2026, 1, 1)}],  # noqa: DTZ001  # what is refused
        [{"x": 1}, {"x": 1j}],
        [{"x": 1}, {"x": [2**70]}],
        [{"x": 1}, {"": 1}],
        [{"x": 1}, {5: 1}],
        [{"x": 1}, {SEQ: 1}],
        [{"x": 1}, "x = 1"],
        [{"x": 1}, None],
        {TIME: 1},
        "text",
        None,
        7,
        pa.record_batch({"x": [[1]]}),
        pa.record_batch({SEQ: [1]}),
    ],
)
async def test_one_bad_event_and_none_is_published(bad: Any) -> None:
    async with palio.Bus(clock=stopped_clock) as bus:
        sub = await bus.subscribe("x >= 0")
        sequence = await bus.subscribe("x = 1 THEN x = 2")
        with pytest.raises(InvalidEvent):
            await bus.publish(bad)
        assert await bus.publish([{"x": 2}]) == PublishReceipt(1, 1, 1)
        (event,) = await drain(sub)
        assert event.time == NOON
        assert await drain(sequence) == []


async def test_an_iterable_that_raises_publishes_nothing() -> None:
    def events() -> Iterator[dict[str, int]]:
        yield {"x": 1}
        raise ZeroDivisionError

    async with palio.Bus() as bus:
        sub = await bus.subscribe("x >= 0")
        with pytest.raises(ZeroDivisionError):
            await bus.publish(events())
        assert (await bus.publish({"x": 1})).first_seq == 1
        assert sub.pending == 1


class Faulty(Reference):
    """An engine that fails on text."""

    def match(self, events: pa.RecordBatch) -> Matches:
        if pa.types.is_string(events.schema.field("x").type):
            raise MemoryError
        return super().match(events)


async def test_an_engine_that_fails_publishes_nothing() -> None:
    async with palio.Bus(matcher=Faulty()) as bus:
        sub = await bus.subscribe("x >= 0")
        with pytest.raises(MemoryError):
            await bus.publish([{"x": 1}, *({"x": "a"} for _ in range(FEW_EVENTS + 1))])
        assert sub.pending == 0
        assert (await bus.publish({"x": 1})).first_seq == 1


async def test_a_busy_publisher_lets_consumers_run() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x >= 0", queue_size=4)
        received: list[Event] = []

        async def consume() -> None:
            received.extend([event async for event in sub])

        consumer = asyncio.create_task(consume())
        for x in range(100):
            await bus.publish({"x": x})
        assert sub.dropped == 0
    await consumer
    assert len(received) == 100


# --- subscribing ---


@pytest.mark.parametrize(
    "filter",
    [
        "x = :v",
        palio.parse("x = :v"),
        palio.attr.x == palio.param.v,
        palio.parse("x = :v THEN x = :v"),
    ],
)
async def test_a_filter_in_any_form(filter: Any) -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe(filter, {"v": 1})
        await bus.publish([{"x": 1}, {"x": 2}, {"x": 1}])
        assert sub.pending in (1, 2)


@pytest.mark.parametrize(
    ("filter", "values", "error", "message"),
    [
        ("x = ", {}, ParseError, "line 1, column 5"),
        ("x = :v", {}, InvalidBinding, "parameter :v has no value; pass {'v': "),
        ("x = :v", {"v": 1, "w": 2}, InvalidBinding, "no parameter :w; it has :v"),
        ("x = :v", {"v": None}, InvalidBinding, ":v"),
        ("x LIKE :v", {"v": 1}, InvalidBinding, ":v"),
        ("x = 1 THEN y = :v", {}, InvalidBinding, ":v"),
        (7, {}, InvalidFilter, "not int"),
        (None, {}, InvalidFilter, "not NoneType"),
    ],
)
async def test_a_bad_subscription_leaves_nothing_behind(
    filter: Any, values: dict[str, Any], error: type[Exception], message: str
) -> None:
    matcher = Reference()
    async with palio.Bus(matcher=matcher) as bus:
        with pytest.raises(error, match=message):
            await bus.subscribe(filter, values)
        assert repr(bus) == "<Bus with 0 subscriptions>"
        assert len(matcher) == 0


async def test_parameters_by_name_and_in_values() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x > :low AND x < :capacity", {"capacity": 9, "low": 1})
        assert sub.params == {"low": 1, "capacity": 9}
        assert sub.queue_size != 9


async def test_parameters_with_the_names_of_options() -> None:
    async with palio.Bus() as bus:
        text = "a = :values AND b = :capacity AND c = :durable AND d = :on_gap AND e = :filter"
        given = {"values": 1, "capacity": 2, "durable": 3, "on_gap": 4, "filter": 5}
        sub = await bus.subscribe(text, given, queue_size=9)
        assert (sub.params, sub.queue_size) == (given, 9)
        await sub.update({"values": 6}, durable=7)
        assert sub.params == given | {"values": 6, "durable": 7}
        await sub.replace("a = :values AND f = :self", {"self": 8})
        assert sub.params == {"values": 6, "self": 8}


async def test_parameters_that_are_no_mapping_or_given_twice() -> None:
    async with palio.Bus() as bus:
        with pytest.raises(InvalidInput, match=r"a mapping, such as \{'values': 7\}, not int"):
            await bus.subscribe("a = :values", 7)  # type: ignore[call-overload]  # the mistake
        sub = await bus.subscribe("a = :x", {"x": 1})
        for call in (sub.replace("a = :x", {"x": 1}, x=1), sub.update({"x": 2}, x=2)):
            with pytest.raises(InvalidBinding, match=":x is given by name and in the mapping"):
                await call
        assert sub.params == {"x": 1}


async def test_the_matcher_forgets_with_the_subscription() -> None:
    matcher = Reference()
    bus = palio.Bus(matcher=matcher)
    one = await bus.subscribe("x = 1")
    two = await bus.subscribe("x = 1 THEN x = 2 THEN x = 3")
    assert len(matcher) == 4
    await two.replace("x = 1 THEN x = 2")
    assert len(matcher) == 3
    await one.unsubscribe()
    assert len(matcher) == 2
    await bus.close()
    assert len(matcher) == 0


# --- closing ---


async def test_a_closed_bus_takes_nothing_more() -> None:
    async with palio.Bus() as bus:
        pass
    for call in (bus.subscribe("x = 1"), bus.publish({"x": 1}), bus.attach(palio.Subscriber())):
        with pytest.raises(Closed, match="make a new one"):
            await call
    await bus.close()


async def test_an_error_in_the_block_closes_too() -> None:
    with pytest.raises(ZeroDivisionError):
        async with palio.Bus() as bus:
            raise ZeroDivisionError
    with pytest.raises(Closed):
        await bus.publish({"x": 1})


# --- everything at once, against a reference ---

FILTERS: Final = (
    "x > :a",
    "x < :a AND y = 1",
    "x BETWEEN :a AND :b OR y IS NULL",
    "NOT (x = :a OR y = :b)",
    "x >= 0 AND x * 2 < :b",
    "y > 1",
    "x > :a THEN x < :b",
    "x = :a THEN y = 1 THEN x = :b",
)

small: Final = st.integers(0, 4)
events: Final = st.fixed_dictionaries({}, optional={"x": st.integers(0, 5), "y": st.integers(0, 2)})
actions: Final = st.lists(
    st.one_of(
        st.tuples(st.just("subscribe"), st.sampled_from(FILTERS), small, small, st.integers(1, 5)),
        st.tuples(st.just("publish"), st.sampled_from("pq"), st.lists(events, max_size=4)),
        st.tuples(st.just("receive"), small, st.integers(1, 4)),
        st.tuples(st.just("batch"), small),
        st.tuples(st.just("update"), small, small, small),
        st.tuples(st.just("replace"), small, st.sampled_from(FILTERS), small, small),
        st.tuples(st.just("unsubscribe"), small),
    ),
    max_size=40,
)


class Expected:
    """What a subscription should do, said as simply as can be: a queue of sequences."""

    def __init__(self, text: str, a: int, b: int, capacity: int) -> None:
        self.capacity = capacity
        self.queue: deque[tuple[str, tuple[tuple[int, dict[str, int]], ...]]] = deque()
        self.gaps: list[tuple[str, int, int, int]] = []
        self.untold: dict[str, list[int]] = {}
        self.spurious = 0
        self.put(text, a, b)

    def put(self, text: str, a: int, b: int) -> None:
        self.text = text
        self.steps = [palio.parse(step) for step in text.split(" THEN ")]
        self.values = {"a": a, "b": b}
        self.partial: list[tuple[int, dict[str, int]]] = []

    def wants(self, parts: tuple[tuple[int, dict[str, int]], ...]) -> bool:
        return len(parts) == len(self.steps) and all(map(self.fits, self.steps, parts))

    def fits(self, step: Any, part: tuple[int, dict[str, int]]) -> bool:
        return bool(step.matches(part[1], self.values))

    def update(self, a: int, b: int) -> None:
        self.values = {"a": a, "b": b}
        kept = takewhile(lambda pair: self.fits(*pair), zip(self.steps, self.partial, strict=False))
        self.partial = [part for _, part in kept]

    def publish(self, publisher: str, seq: int, event: dict[str, int]) -> None:
        if not self.fits(self.steps[len(self.partial)], (seq, event)):
            return
        self.partial.append((seq, event))
        if len(self.partial) == len(self.steps):
            self.queue.append((publisher, tuple(self.partial)))
            self.partial = []
            if len(self.queue) > self.capacity:
                lost, parts = self.queue.popleft()
                self.untold.setdefault(lost, []).append(parts[-1][0])

    def tell(self) -> None:
        for publisher, lost in self.untold.items():
            self.gaps.append((publisher, lost[0], lost[-1], len(lost)))
        self.untold = {}

    def receive(self) -> tuple[str, tuple[tuple[int, dict[str, int]], ...]] | None:
        self.tell()
        while self.queue:
            found = self.queue.popleft()
            if self.wants(found[1]):
                return found
            self.spurious += 1
        return None


class Rig:
    """A bus and what is expected of it, driven together."""

    def __init__(self) -> None:
        self.bus = palio.Bus(clock=stopped_clock)
        self.pairs: list[tuple[Subscription, Expected]] = []
        self.seqs = {"p": 0, "q": 0}

    async def subscribe(self, text: str, a: int, b: int, capacity: int) -> None:
        values = own_values(text, a, b)
        sub = await self.bus.subscribe(text, values, queue_size=capacity, on_gap=lambda gap: None)
        self.pairs.append((sub, Expected(text, a, b, capacity)))

    async def publish(self, publisher: str, published: list[dict[str, int]]) -> None:
        receipt = await self.bus.publish(published, publisher=publisher)
        for event in published:
            self.seqs[publisher] += 1
            for _, expected in self.pairs:
                expected.publish(publisher, self.seqs[publisher], event)
        assert receipt.last_seq == self.seqs[publisher]

    async def receive(self, place: int, count: int) -> None:
        sub, expected = self.pairs[place]
        for _ in range(count):
            wanted = expected.receive()
            task = asyncio.ensure_future(sub.receive())
            await turns(2)
            if wanted is None:
                assert not task.done()
                task.cancel()
                return
            assert seen(task.result()) == wanted

    async def batch(self, place: int) -> None:
        sub, expected = self.pairs[place]
        if len(expected.steps) > 1:
            return
        task = asyncio.ensure_future(sub.receive_batch())
        await turns(2)
        if not task.done():
            assert expected.receive() is None
            task.cancel()
            return
        batch = task.result()
        for row in rows(batch):
            wanted = expected.receive()
            assert wanted is not None
            assert wanted[1] == ((row.pop(SEQ), {k: v for k, v in row.items() if k != TIME}),)

    async def update(self, place: int, a: int, b: int) -> None:
        sub, expected = self.pairs[place]
        await sub.update(**own_values(expected.text, a, b))
        expected.update(a, b)

    async def replace(self, place: int, text: str, a: int, b: int) -> None:
        sub, expected = self.pairs[place]
        await sub.replace(text, **own_values(text, a, b))
        expected.put(text, a, b)

    async def unsubscribe(self, place: int) -> None:
        await self.pairs.pop(place)[0].unsubscribe()

    async def finish(self) -> None:
        await self.bus.close()
        for sub, expected in self.pairs:
            wanted = list(iter(expected.receive, None))
            assert [seen(event) async for event in sub] == wanted
            expected.tell()
            assert [(g.publisher, g.first_seq, g.last_seq, g.count) for g in sub.gaps] == (
                expected.gaps
            )
            assert sub.stale == expected.spurious
            assert sub.pending == 0


def own_values(text: str, a: int, b: int) -> dict[str, int]:
    return {name: value for name, value in {"a": a, "b": b}.items() if f":{name}" in text}


def seen(event: Event) -> tuple[str, tuple[tuple[int, dict[str, int]], ...]]:
    parts = event.parts or (event,)
    return event.publisher, tuple((part.seq, dict(part)) for part in parts)


@given(actions)
def test_any_interleaving_agrees_with_the_reference(steps: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        rig = Rig()
        for verb, *arguments in steps:
            if verb not in ("subscribe", "publish"):
                if not rig.pairs:
                    continue
                arguments[0] %= len(rig.pairs)
            await getattr(rig, verb)(*arguments)
        await rig.finish()

    asyncio.run(run())


async def test_a_queue_keeps_few_rows_of_a_large_batch_as_a_copy() -> None:
    async with palio.Bus() as bus:
        few = await bus.subscribe("x < 2")
        most = await bus.subscribe("x >= 2")
        await bus.publish([{"x": number, "pad": "p" * 100} for number in range(100)])
        batches = [await anext(aiter(each.batches())) for each in (few, most)]
    assert [batch.column("x").to_pylist() for batch in batches] == [[0, 1], list(range(2, 100))]
    assert batches[0].nbytes < batches[1].nbytes / 10


# --- what is told ---


async def test_another_loop_is_told_that_it_is_another() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x = 1")

        def elsewhere() -> None:
            for work in (bus.publish({"x": 1}), bus.subscribe("x = 1"), sub.receive()):
                with pytest.raises(PalioError, match="this Bus belongs to another event loop"):
                    asyncio.run(work)

        await asyncio.to_thread(elsewhere)
        await bus.publish({"x": 1})
        assert await sub.receive() == {"x": 1}


def test_one_loop_after_another_is_no_fault() -> None:
    bus = palio.Bus()
    sub = asyncio.run(bus.subscribe("x = 1"))
    asyncio.run(bus.publish({"x": 1}))
    assert asyncio.run(sub.receive()) == {"x": 1}


async def on_gap_that_never_runs(_: palio.Gap) -> None: ...


def on_gap_that_gives_it(gap: palio.Gap) -> Any:
    return on_gap_that_never_runs(gap)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"on_gap": on_gap_that_never_runs}, "an `async def` would never run"),
        ({"on_gap": 5}, "5 cannot be called"),
    ],
)
async def test_options_that_mean_nothing_are_refused(options: dict[str, Any], told: str) -> None:
    async with palio.Bus() as bus:
        with pytest.raises(InvalidInput, match=told):
            await bus.subscribe("x = 1", **options)


async def test_a_parameter_may_have_the_name_of_an_option() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x = :queue_size", {"queue_size": 1})
        await bus.publish({"x": 1})
        assert await sub.receive() == {"x": 1}


async def test_a_coroutine_of_on_gap_is_a_failure() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x > 0", queue_size=1, on_gap=on_gap_that_gives_it)
        await bus.publish([{"x": 1}, {"x": 2}])
        with pytest.raises(HandlerFailed, match="a coroutine, which nobody awaits"):
            await sub.receive()
        assert await sub.receive() == {"x": 2}


@pytest.mark.parametrize("publisher", [5, None, "", ["a"], "a/b"])
async def test_a_publisher_has_a_name(publisher: Any) -> None:
    async with palio.Bus() as bus:
        with pytest.raises(InvalidInput, match="a publisher"):
            await bus.publish({"x": 1}, publisher=publisher)


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([pa.record_batch({"x": [1]})], "not RecordBatch; publish record batches one by one"),
        ("x", "a mapping of attributes or a typed object, not str"),
        ({"x": pd.NaT}, "'x': NaT is no time; give None"),
        ({"x": pd.NA}, "of type NAType, which is no attribute type"),
    ],
)
async def test_what_is_no_event_is_told_how_it_may_be_one(events: Any, told: str) -> None:
    async with palio.Bus() as bus:
        await bus.subscribe("EXISTS x")
        with pytest.raises(InvalidEvent, match=told):
            await bus.publish(events)


@pytest.mark.parametrize("members", [range(3), {1: 2}.keys(), (x for x in (1, 2)), np.arange(3)])
async def test_members_are_a_list(members: Any) -> None:
    async with palio.Bus() as bus:
        with pytest.raises(InvalidBinding, match=f"{type(members).__name__}; pass a list"):
            await bus.subscribe("x IN :members", {"members": members})


# --- values that would hear nothing ---


@pytest.mark.parametrize("door", ["subscribe", "update", "replace", "assign"])
@pytest.mark.parametrize(
    ("text", "good", "bad", "told"),
    [
        ("p < :v", 10, "5", "write it into the filter: p < '5'"),
        ("NOT p < :v", 10, " 1.5e3 ", "no number is above or below a text"),
        ("p IN :v", [1], 5, r"one value where IN takes a list; pass \[5\]"),
        ("p NOT IN :v", ["a"], "abc", r"where NOT IN takes a list; pass \['abc'\]"),
        ("LENGTH(p) IN :v", [1], 5, "one value where IN takes a list"),
    ],
)
async def test_a_value_that_would_hear_nothing_is_refused_where_it_is_given(
    door: str, text: str, good: Any, bad: Any, told: str
) -> None:
    async with palio.Bus() as bus:
        if door == "subscribe":
            with pytest.raises(InvalidBinding, match=told):
                await bus.subscribe(text, {"v": bad})
            return
        sub = await bus.subscribe(text, {"v": good})
        before = dict(sub.params)
        doors: dict[str, Callable[[], Any]] = {
            "update": lambda: sub.update(v=bad),
            "assign": lambda: asyncio.to_thread(sub.assign, {"v": bad}),
            "replace": lambda: sub.replace(f"({text}) AND q = 1", v=bad),
        }
        with pytest.raises(InvalidBinding, match=told):
            await doors[door]()
        assert (sub.params, str(sub.filter)) == (before, str(palio.parse(text)))


@pytest.mark.parametrize(
    ("text", "first", "then"),
    [("p < :v", 10, "high"), ("p = :v", "a", 1), ("p IN :v", [1], ["a"]), ("p = :v", True, 1)],
)
async def test_a_parameter_keeps_its_kind(text: str, first: Any, then: Any) -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe(text, {"v": first})
        with pytest.raises(InvalidBinding, match=r"parameter :v is a .*; with replace\(\)"):
            await sub.update(v=then)
        await sub.replace(text, v=then)
        assert sub.revision == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("name < :v", "M"),
        ("name < :v", "2026-01-01"),
        ("name = :v", "5"),
        ("p < :v", 5),
        ("p < :v", 2.5),
        ("p IN (:v)", 5),
        ("p IN :v", (5,)),
        ("p IN :v", frozenset({5})),
        ("name STARTS WITH :v", "5"),
        ("flag < :v", True),
    ],
)
async def test_values_that_may_be_meant_are_taken(text: str, value: Any) -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe(text, {"v": value})
        await sub.update(v=value)


async def test_numbers_of_either_type_are_one_kind() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("p < :v", {"v": 1})
        await sub.update(v=2.5)
        await bus.publish({"p": 2})
        assert await sub.receive() == {"p": 2}


# --- events as they arrive ---


@pytest.mark.parametrize("name", ["", 1, "\ud800", "a" * 257, None])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("heard", [False, True])
async def test_names_of_absent_attributes_are_names(name: Any, listed: bool, heard: bool) -> None:
    async with palio.Bus() as bus:
        if heard:
            await bus.subscribe("EXISTS x")
        event = {"x": 1, name: None}
        with pytest.raises(InvalidInput, match="name"):
            await bus.publish([event] if listed else event)


async def test_times_are_of_one_zone_whichever_way_they_came() -> None:
    time = datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    batch = pa.record_batch({"t": pa.array([time, None], pa.timestamp("us", "UTC"))})
    async with palio.Bus() as bus:
        sub = await bus.subscribe("EXISTS t OR x = 1")
        together: list[Any] = [{"t": time}, [{"t": time}, {"t": time, "x": 1}], batch, batch[:1]]
        for events in together:
            await bus.publish(events)
        heard = await drain(sub)
        assert len(heard) == 5
        for event in heard:
            assert event["t"] == time
            assert event["t"].tzinfo is event.time.tzinfo is UTC
