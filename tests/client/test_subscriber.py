from __future__ import annotations

import asyncio
import dataclasses
import threading
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

import palio
from palio.client.connection import Client
from palio.client.delivery_queue import MAX_QUEUE_SIZE, DeliveryQueue
from palio.client.dispatcher import Dispatcher
from palio.client.events import Event
from palio.client.registration import Registration, SubscriptionOptions
from palio.client.subscriber import RETRY_FIRST_S, Attached
from palio.client.subscribing import DurablePolicy
from palio.client.upstream import PendingReply
from palio.errors import (
    Closed,
    HandlerFailed,
    InvalidBinding,
    InvalidEvent,
    InvalidFilter,
    InvalidInput,
    LimitExceeded,
    NotPermitted,
    PalioError,
    Unreachable,
)
from palio.matching.reference import Reference
from palio.model.filters import Filter
from palio.model.patterns import Pattern
from palio.model.values import Bindings
from palio.testing import Network
from tests.client.helpers import seqs, turns
from tests.client.recording import Recording
from tests.client.test_registration import Choosy
from tests.client.virtual import in_virtual_time
from tests.node.test_consumers import kept


def heard_by(subscriber: palio.Subscriber) -> list[Registration]:
    """The subscriptions of the handlers that run."""
    assert subscriber._attached is not None
    return subscriber._attached.registrations


class Trader(palio.Subscriber):
    """Buys only at ever lower prices."""

    last_buy = palio.Parameter(100.0)

    def __init__(self) -> None:
        self.bought: list[float] = []

    @palio.on("firm = 'IBM' AND price < :last_buy")
    async def quote(self, firm: str, price: float) -> None:
        assert firm == "IBM"
        self.bought.append(price)
        self.last_buy = price


def ibm(*prices: float) -> list[dict[str, Any]]:
    return [{"firm": "IBM", "price": price} for price in prices]


# --- handlers ---


async def test_a_handler_moves_its_own_parameter() -> None:
    async with palio.Bus() as bus:
        trader = await bus.attach(Trader())
        await bus.publish(ibm(120, 90, 95, 80, 85, 70))
    assert trader.bought == [90, 80, 70]
    assert trader.last_buy == 70


async def test_handlers_of_a_subscriber_run_one_after_another_in_order() -> None:
    class Both(palio.Subscriber):
        def __init__(self) -> None:
            self.log: list[str] = []

        @palio.on("x = 1")
        async def one(self, event: Event) -> None:
            self.log.append(f"begin {event.seq}")
            await asyncio.sleep(0)
            self.log.append(f"end {event.seq}")

        @palio.on("x IN (1, 2)")
        def two(self, event: Event) -> None:
            self.log.append(f"two {event.seq}")

    async with palio.Bus() as bus:
        both = await bus.attach(Both())
        await bus.publish([{"x": 1}, {"x": 1}, {"x": 2}])
        await bus.publish({"x": 1})
    assert both.log == [
        *("begin 1", "end 1", "two 1"),
        *("begin 2", "end 2", "two 2", "two 3"),
        *("begin 4", "end 4", "two 4"),
    ]


async def test_arguments_come_from_attributes() -> None:
    class Picky(palio.Subscriber):
        def __init__(self) -> None:
            self.seen: list[tuple[Any, ...]] = []

        @palio.on("a > 0")
        def handle(self, a: int, event: Event, *, b: int, c: int = -1) -> None:
            self.seen.append((a, b, c, dict(event)))

    async with palio.Bus() as bus:
        picky = await bus.attach(Picky())
        receipt = await bus.publish([{"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3, "d": 4}])
        assert receipt.deliveries == 2  # b has no default, so an event without it is not wanted
    assert picky.seen == [
        (1, 2, -1, {"a": 1, "b": 2}),
        (1, 2, 3, {"a": 1, "b": 2, "c": 3, "d": 4}),
    ]


async def test_a_pattern_fills_arguments_from_its_last_event() -> None:
    class Watcher(palio.Subscriber):
        def __init__(self) -> None:
            self.seen: list[tuple[str, list[int]]] = []

        @palio.on("alarm = 1 THEN EXISTS file WITHIN 1h")
        def found(self, user: str, event: Event) -> None:
            self.seen.append((user, seqs(event.parts)))

    async with palio.Bus() as bus:
        watcher = await bus.attach(Watcher())
        await bus.publish([{"alarm": 1}, {"file": "x"}, {"file": "x", "user": "me"}])
    assert watcher.seen == [("me", [1, 3])]


@pytest.mark.parametrize("bad", ["self, *args", "self, **kwargs", "self, a, /"])
def test_a_parameter_that_has_no_name_is_refused(bad: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def handler({bad}): ...", namespace)
    with pytest.raises(InvalidFilter, match="cannot be filled by name"):
        palio.on("a = 1")(namespace["handler"])


@pytest.mark.parametrize("bad", [7, None, True])
def test_on_takes_filters_only(bad: Any) -> None:
    with pytest.raises(InvalidFilter, match="@on takes"):
        palio.on(bad)


def test_the_capacity_of_a_handler_is_checked_where_it_is_written() -> None:
    with pytest.raises(InvalidInput, match="at least 1"):
        palio.on("a = 1", queue_size=0)
    with pytest.raises(LimitExceeded, match="MAX_QUEUE_SIZE"):
        palio.on("a = 1", queue_size=MAX_QUEUE_SIZE + 1)


async def test_a_slow_subscriber_is_told_what_it_lost(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(palio.Subscriber):
        def __init__(self) -> None:
            self.seen: list[int] = []

        @palio.on("x >= 0", queue_size=2)
        def handle(self, x: int) -> None:
            self.seen.append(x)

    async with palio.Bus() as bus:
        slow = await bus.attach(Slow())
        await bus.publish([{"x": x} for x in range(5)])
    assert slow.seen == [3, 4]
    (message,) = caplog.messages
    assert message.endswith("lost 3 events of 'bus', numbers 1 to 3")


async def test_inherited_handlers_run_and_overridden_ones_once() -> None:
    class Base(palio.Subscriber):
        floor = palio.Parameter(0)

        def __init__(self) -> None:
            self.log: list[str] = []

        @palio.on("x > :floor")
        def first(self) -> None:
            self.log.append("base first")

        @palio.on("x > :floor")
        def second(self) -> None:
            self.log.append("base second")

        @palio.on("x > :floor")
        def third(self) -> None:
            self.log.append("base third")

    class Derived(Base):
        @palio.on("x > 1")
        def first(self) -> None:
            self.log.append("derived first")

        third = None  # type: ignore[assignment]  # not a handler any more

    async with palio.Bus() as bus:
        derived = await bus.attach(Derived())
        await bus.publish({"x": 2})
    assert derived.log == ["derived first", "base second"]


def test_what_is_hardly_a_handler_is_refused_where_it_is_written() -> None:
    class Base(palio.Subscriber):
        @palio.on("x > 1")
        def handle(self) -> None: ...

    with pytest.raises(InvalidFilter, match=r"Derived.handle overrides a handler without @on"):

        class Derived(Base):
            def handle(self) -> None: ...

    with pytest.raises(InvalidFilter, match="handle has @on twice"):

        class Twice(palio.Subscriber):
            @palio.on("x > 1")
            @palio.on("x < 0")
            def handle(self) -> None: ...

    with pytest.raises(InvalidFilter, match="two handlers are called handle"):

        class Two(palio.Subscriber):
            @palio.on("x > 1")
            def handle(self) -> None: ...

            @palio.on("x < 0")  # type: ignore[no-redef]
            def handle(self, x: int) -> None: ...  # noqa: F811


async def test_parameters_are_fields_of_a_dataclass() -> None:
    @dataclasses.dataclass(eq=False)
    class Watcher(palio.Subscriber):
        name: str
        limit: float = palio.Parameter(5.0)  # type: ignore[assignment]  # it reads as one
        seen: list[int] = dataclasses.field(default_factory=list)

        @palio.on("x > :limit")
        def handle(self, x: int) -> None:
            self.seen.append(x)

    async with palio.Bus() as bus:
        usual = await bus.attach(Watcher("usual"))
        high = await bus.attach(Watcher("high", 7.0))
        assert (usual.limit, high.limit) == (5.0, 7.0)
        await bus.publish([{"x": 6}, {"x": 8}])
    assert (usual.seen, high.seen) == ([6, 8], [8])


# --- failures ---


class Fragile(palio.Subscriber):
    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.failures: list[tuple[str, int, HandlerFailed]] = []
        self.seen: list[int] = []

    @palio.on("x >= 0")
    async def handle(self, x: int) -> None:
        if x == 1:
            raise self.error
        self.seen.append(x)

    def failed(self, handler: str, event: Event, error: HandlerFailed) -> None:
        self.failures.append((handler, event.seq, error))


@pytest.mark.parametrize(
    "error", [ValueError("no"), asyncio.CancelledError("no"), GeneratorExit("no")]
)
async def test_a_handler_that_raises_does_not_stop_the_others(error: BaseException) -> None:
    async with palio.Bus() as bus:
        fragile = await bus.attach(Fragile(error))
        await bus.publish([{"x": x} for x in range(3)])
    assert fragile.seen == [0, 2]
    ((name, seq, failure),) = fragile.failures
    assert (name, seq) == ("Fragile.handle", 2)
    assert failure.__cause__ is error
    assert str(failure) == f"Fragile.handle raised {type(error).__name__}: no"


async def test_failures_are_logged_unless_handled(caplog: pytest.LogCaptureFixture) -> None:
    class Loud(Fragile):
        failed = palio.Subscriber.failed

    async with palio.Bus() as bus:
        loud = await bus.attach(Loud(ValueError("no")))
        await bus.publish([{"x": x} for x in range(3)])
    assert loud.seen == [0, 2]
    (record,) = caplog.records
    assert "Fragile.handle" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


async def test_a_failed_that_raises_is_logged_and_costs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Hopeless(Fragile):
        def failed(self, *_: object) -> None:
            raise ZeroDivisionError

    async with palio.Bus() as bus:
        hopeless = await bus.attach(Hopeless(ValueError("no")))
        await bus.publish([{"x": x} for x in range(3)])
    assert hopeless.seen == [0, 2]
    assert len(caplog.records) == 1


async def test_a_subscriber_that_is_cancelled_leaves_nothing_behind() -> None:
    matcher = Reference()
    async with palio.Bus(matcher=matcher) as bus:
        for let_begin in (0, 3):
            trader = await bus.attach(Trader())
            await turns(let_begin)
            (attached,) = bus._attached.values()
            attached.task.cancel()
            await turns()
            assert len(matcher) == 0
            assert (await bus.publish(ibm(1))).deliveries == 0
            await bus.detach(trader)
            await bus.attach(trader)
            await bus.detach(trader)


# --- parameters ---


def test_a_parameter_is_a_field() -> None:
    one, other = Trader(), Trader()
    one.last_buy = 5
    assert (one.last_buy, other.last_buy) == (5, 100)
    assert Trader.last_buy.default == 100
    assert Trader.last_buy.name == "last_buy"


class Range(palio.Subscriber):
    low = palio.Parameter(0)
    high = palio.Parameter(10)
    prefix = palio.Parameter[Any]("I")

    def __init__(self) -> None:
        self.seen: list[int] = []

    @palio.on("x BETWEEN :low AND :high")
    def inside(self, x: int) -> None:
        self.seen.append(x)

    @palio.on("x > :high OR name LIKE :prefix")
    def above(self) -> None: ...

    @palio.on("name = :prefix")
    def named(self) -> None: ...


async def test_an_assignment_changes_all_filters_that_use_it() -> None:
    async with palio.Bus() as bus:
        range_ = await bus.attach(Range())
        range_.high = 20
        values = [dict(sub.values) for sub in heard_by(range_)]
        assert values == [
            {"low": 0, "high": 20},
            {"high": 20, "prefix": "I"},
            {"prefix": "I"},
        ]
        assert [sub.version for sub in heard_by(range_)] == [1, 1, 0]
        await bus.publish([{"x": 15}, {"x": 25}])
    assert range_.seen == [15]


async def test_what_was_assigned_before_attaching_counts() -> None:
    range_ = Range()
    range_.high = 3
    async with palio.Bus() as bus:
        await bus.attach(range_)
        await bus.publish([{"x": 2}, {"x": 5}])
    assert range_.seen == [2]


async def test_an_assignment_that_one_filter_refuses_changes_none() -> None:
    async with palio.Bus() as bus:
        range_ = await bus.attach(Range())
        before = [(dict(sub.values), sub.version) for sub in heard_by(range_)]
        with pytest.raises(InvalidBinding):
            range_.prefix = 5  # `name = 5` could be, `name LIKE 5` cannot
        assert range_.prefix == "I"

        def assign_both() -> None:
            with range_.assigning():
                range_.high = 50
                range_.prefix = 5

        with pytest.raises(InvalidBinding):
            assign_both()
        assert (range_.high, range_.prefix) == (10, "I")
        assert [(dict(sub.values), sub.version) for sub in heard_by(range_)] == before


@pytest.mark.parametrize("error", [NotPermitted("not yours"), Unreachable("who knows")])
async def test_an_assignment_that_the_broker_refuses_is_taken_back(error: PalioError) -> None:
    upstream, range_ = Recording(), Range()
    dispatcher = Dispatcher(upstream, Reference())

    def register(
        filter: Filter | Pattern, values: Bindings, queue: DeliveryQueue, durable: DurablePolicy
    ) -> Registration:
        return dispatcher.register(filter, values, queue, SubscriptionOptions(durable=durable))

    attached = range_._attached = Attached(range_, register, palio.Bus().publish)
    answers = [asyncio.get_running_loop().create_future() for _ in range(2)]
    for answer, high in zip(answers, (20, 30), strict=True):
        upstream.answer = answer
        with range_.assigning():
            range_.high, range_.prefix = high, f"P{high}"
    upstream.answer = None
    range_.prefix = "Q"
    answers[0].set_exception(error)  # other values are in force by now
    await turns(2)
    assert (range_.high, range_.prefix) == (30, "Q")
    upstream.sent.clear()
    answers[1].set_exception(error)
    await turns(2)
    stays = isinstance(error, Unreachable)
    assert (range_.high, range_.prefix) == (30 if stays else 20, "Q")
    assert [dict(each.values).get("high") for each in heard_by(range_)] == [range_.high] * 2 + [
        None
    ]
    assert len(upstream.sent) == (0 if stays else 2), "what is taken back is told too"
    attached.task.cancel()


async def test_an_assignment_that_the_engine_has_no_room_for_changes_no_handler() -> None:
    class Pair(palio.Subscriber):
        low = palio.Parameter(0)
        high = palio.Parameter(9)

        @palio.on("x > :low")
        def above(self) -> None: ...

        @palio.on("x > :low AND x < :high")
        def between(self) -> None: ...

    async with palio.Bus(matcher=Choosy()) as bus:
        pair = await bus.attach(Pair())
        with pytest.raises(LimitExceeded), pair.assigning():
            pair.low, pair.high = 5, 666
        assert (pair.low, pair.high) == (0, 9)
        assert [each.values for each in heard_by(pair)] == [{"low": 0}, {"low": 0, "high": 9}]
        assert (await bus.publish({"x": 3})).deliveries == 2


async def test_several_assignments_are_one_update() -> None:
    async with palio.Bus() as bus:
        range_ = await bus.attach(Range())
        inside = heard_by(range_)[0]
        with range_.assigning():
            range_.low = 30
            with range_.assigning():
                range_.high = 40
            assert (range_.low, range_.high) == (30, 40)
            assert inside.values == {"low": 0, "high": 10}
        assert inside.values == {"low": 30, "high": 40}
        assert inside.version == 1
        await bus.publish([{"x": 5}, {"x": 35}])
    assert range_.seen == [35]


async def test_assigning_without_a_bus() -> None:
    range_ = Range()
    with range_.assigning():
        range_.low, range_.high = 1, 2
    assert (range_.low, range_.high) == (1, 2)


async def test_an_assignment_on_another_thread_waits_until_it_is_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with palio.Bus() as bus:
        range_ = await bus.attach(Range())
        where: list[threading.Thread] = []
        (inside, *_) = heard_by(range_)
        update = inside.update

        def watched(values: dict[str, Any]) -> PendingReply:
            where.append(threading.current_thread())
            return update(values)

        monkeypatch.setattr(inside, "update", watched)
        await asyncio.to_thread(setattr, range_, "low", 7)
        assert range_.low == 7
        assert heard_by(range_)[0].values["low"] == 7
        assert where == [threading.current_thread()]
        with pytest.raises(InvalidBinding):
            await asyncio.to_thread(setattr, range_, "prefix", 7)


# --- attaching and detaching ---


async def test_detaching_deals_with_what_waits_under_the_newest_values() -> None:
    async with palio.Bus() as bus:
        trader = await bus.attach(Trader())
        await bus.publish(ibm(90, 95, 80))
        await bus.detach(trader)
        assert trader.bought == [90, 80]
        assert (await bus.publish(ibm(1))).deliveries == 0
        trader.last_buy = 50
        assert trader.last_buy == 50
        await bus.detach(trader)
        await bus.attach(trader)
        await bus.publish(ibm(60, 40))
    assert trader.bought == [90, 80, 40]


async def test_a_subscriber_is_attached_once() -> None:
    async with palio.Bus() as bus, palio.Bus() as other:
        trader = await bus.attach(Trader())
        for each in (bus, other):
            with pytest.raises(InvalidFilter, match="attached already"):
                await each.attach(trader)
        await other.detach(trader)
        assert (await bus.publish(ibm(1))).deliveries == 1
    assert trader.bought == [1]


class NoHandlers(palio.Subscriber):
    pass


class NoParameter(palio.Subscriber):
    @palio.on("x = 1")
    def fine(self) -> None: ...

    @palio.on("x = :missing")
    def lacking(self) -> None: ...


class BadDefault(palio.Subscriber):
    limit = palio.Parameter[Any](None)

    @palio.on("x = 1")
    def fine(self) -> None: ...

    @palio.on("x = :limit")
    def unusable(self) -> None: ...


class Replaced(palio.Subscriber):
    limit = palio.Parameter(5)

    @palio.on("x > :limit")
    def handle(self) -> None: ...


Replaced.limit = 7  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        (NoHandlers, InvalidFilter, "NoHandlers has no handler"),
        (NoParameter, InvalidBinding, "NoParameter has no Parameter 'missing' for :missing"),
        (BadDefault, InvalidBinding, ":limit"),
        (Replaced, InvalidBinding, r"Replaced.limit is 7 and no Parameter; write limit = palio"),
    ],
)
async def test_what_cannot_be_attached_leaves_nothing_behind(
    kind: type[palio.Subscriber], error: type[Exception], message: str
) -> None:
    matcher = Reference()
    async with palio.Bus(matcher=matcher) as bus:
        with pytest.raises(error, match=message):
            await bus.attach(kind())
        assert len(matcher) == 0
        assert repr(bus) == "<Bus with 0 subscriptions>"


@pytest.mark.parametrize("verb", ["detach", "close"])
async def test_a_handler_may_end_its_own_subscription(verb: str) -> None:
    class Once(palio.Subscriber):
        def __init__(self, bus: palio.Bus) -> None:
            self.bus = bus
            self.seen: list[int] = []

        @palio.on("x >= 0")
        async def handle(self, x: int) -> None:
            self.seen.append(x)
            await (self.bus.detach(self) if verb == "detach" else self.bus.close())

    async with palio.Bus() as bus:
        both = [await bus.attach(Once(bus)) for _ in range(2)]
        await bus.publish([{"x": 1}, {"x": 2}])
        await turns(20)
        assert [once.seen for once in both] == [[1, 2]] * 2  # what waited is still dealt with
        assert not bus._attached


async def test_waiting_for_handlers_may_be_given_up() -> None:
    class Stuck(palio.Subscriber):
        def __init__(self) -> None:
            self.go_on = asyncio.Event()
            self.seen: list[int] = []

        @palio.on("x >= 0")
        async def handle(self, x: int) -> None:
            await self.go_on.wait()
            self.seen.append(x)

    bus = palio.Bus()
    stuck = await bus.attach(Stuck())
    sub = await bus.subscribe("x >= 0")
    await bus.publish({"x": 1})
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bus.close(), 0.001)
    assert [event["x"] async for event in sub] == [1]
    stuck.go_on.set()
    await bus.close()
    assert stuck.seen == [1]


# --- what is told ---


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (Trader, r"takes an object, not its class; write attach\(Trader\(\)\)"),
        (None, "takes a palio.Subscriber, not NoneType"),
        (Trader().quote, "takes a palio.Subscriber, not method"),
    ],
)
async def test_only_a_subscriber_is_attached(given: Any, told: str) -> None:
    async with palio.Bus() as bus:
        with pytest.raises(InvalidInput, match=told):
            await bus.attach(given)


async def test_a_handler_whose_subscription_ended_is_told_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Two(palio.Subscriber):
        def __init__(self) -> None:
            self.heard: list[str] = []

        @palio.on("x = 1")
        async def one(self) -> None:
            self.heard.append("one")

        @palio.on("y = 1")
        async def other(self) -> None:
            self.heard.append("other")

    async with palio.Bus() as bus:
        two = await bus.attach(Two())
        first, second = heard_by(two)
        first.end(NotPermitted("it was taken back"))
        await bus.publish([{"x": 1}, {"y": 1}])
        await turns()
        assert two.heard == ["other"]
        assert "Two.one of " in caplog.text
        assert "receives no more events: it was taken back" in caplog.text
        second.end(NotPermitted("this too"))
        await turns()
        assert two._attached is not None
        assert two._attached.task.done()
        assert two._attached.task.exception() is None


async def test_what_refused_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Trader):
        def refused(self, handler: str, error: PalioError) -> None:
            raise ValueError(handler) from error

    async with palio.Bus() as bus:
        broken = await bus.attach(Broken())
        (only,) = heard_by(broken)
        only.end(NotPermitted("no"))
        assert "refused() of" in caplog.text


async def test_a_block_of_assignments_is_of_its_own_thread_or_task() -> None:
    class Pair(palio.Subscriber):
        a = palio.Parameter(0)
        b = palio.Parameter(0)

        @palio.on("x > :a AND x > :b")
        async def hear(self, x: int) -> None: ...

    async with palio.Bus() as bus:
        pair = await bus.attach(Pair())
        inside, done = threading.Event(), threading.Event()

        def assign_and_fail() -> None:
            with suppress(ZeroDivisionError), pair.assigning():
                pair.a = 3
                assert (pair.a, pair.b) == (3, 0)
                inside.set()
                assert done.wait(30)
                raise ZeroDivisionError

        failing = asyncio.create_task(asyncio.to_thread(assign_and_fail))
        await asyncio.to_thread(inside.wait, 30)
        assert pair.a == 0
        pair.b = 5
        done.set()
        await failing
        assert (pair.a, pair.b) == (0, 5)
        (heard,) = heard_by(pair)
        assert heard.values == {"a": 0, "b": 5}


async def test_what_is_hardly_meant_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Doubtful(palio.Subscriber):
        used = palio.Parameter(1)
        unused = palio.Parameter(1)

        @palio.on("price < :used AND EXISTS firm")
        async def quote(self, price: int, quote: int, firm: str, venue: str = "") -> None: ...

    async with palio.Bus() as bus:
        await bus.attach(Doubtful())
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert told[0].endswith("no filter uses the Parameter 'unused'")
    assert "Doubtful.quote receives only events with the attribute 'quote'" in told[1]


async def test_a_handler_that_is_closed_from_outside_ends() -> None:
    class Waiting(palio.Subscriber):
        @palio.on("x > 0")
        async def hear(self) -> None:
            await asyncio.Event().wait()

    waiting = Waiting()
    async with palio.Bus() as bus:
        await bus.attach(waiting)
        await bus.publish({"x": 1})
        await turns()
        assert waiting._attached is not None
        task = waiting._attached.task
        steps = task.get_coro()
        assert steps is not None
        steps.close()  # as the interpreter does with what is never run again
        task.cancel()
        with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
            await task


# --- event methods (parametric 3.2) ---


class Market(palio.Subscriber):
    @palio.event
    async def quote(self, firm: str, price: float, volume: int | None = None) -> None:
        """A trade at the exchange."""

    @palio.event(durable=True)
    async def halted(self, firm: str) -> None: ...


class Buyer(palio.Subscriber):
    limit = palio.Parameter(10.0)

    def __init__(self) -> None:
        self.prices: list[float] = []

    @palio.on("price < :limit")
    async def cheap(self, firm: str, price: float) -> None:
        self.prices.append(price)
        await self.bought(firm, paid=price)

    @palio.event
    async def bought(self, firm: str, paid: float) -> None: ...


async def test_a_call_of_an_event_method_publishes() -> None:
    async with palio.Bus() as bus:
        every = await bus.subscribe("EXISTS firm")
        market, buyer = await bus.attach(Market()), await bus.attach(Buyer())
        receipt = await market.quote("IBM", 9.0)
        assert (receipt.first_seq, receipt.deliveries) == (1, 2)
        await market.quote(price=12.0, firm="HAL", volume=5)
        await bus.detach(buyer)
        assert buyer.prices == [9.0]
        assert [dict(await every.receive()) for _ in range(3)] == [
            {"firm": "IBM", "price": 9.0},
            {"firm": "HAL", "price": 12.0, "volume": 5},
            {"firm": "IBM", "paid": 9.0},
        ]


async def test_an_event_method_publishes_at_a_broker_durably_too() -> None:
    async with Network("line:2") as net:
        near, far = await net.connect("b1"), await net.connect("b2")
        halted = await far.subscribe("EXISTS firm", durable_name="halted")
        await halted.settled()
        market = await near.attach(Market())
        assert (await market.halted("IBM")).level == "durable"
        assert dict(await halted.receive()) == {"firm": "IBM"}


async def test_an_event_method_needs_a_bus_and_the_declared_arguments() -> None:
    market = Market()
    with pytest.raises(Closed, match=r"Market\.quote publishes where its object is attached"):
        await market.quote("IBM", 9.0)
    async with palio.Bus() as bus:
        await bus.attach(market)
        with pytest.raises(TypeError, match="missing a required argument: 'price'"):
            await market.quote("IBM")  # type: ignore[call-arg]  # the mistake
        with pytest.raises(InvalidEvent, match="price"):
            await market.quote("IBM", object())  # type: ignore[arg-type]  # the mistake
    with pytest.raises(Closed):
        await market.quote("IBM", 9.0)


def test_what_is_no_declaration_of_an_event_is_refused() -> None:
    async def with_a_body(self: Market, price: float) -> None:
        await self.quote("IBM", price)

    def at_once(self: Market, price: float) -> None: ...

    async def of_anything(self: Market, **attributes: float) -> None: ...

    async def heard(self: Market, price: float) -> None: ...

    async def sent(self: Market, price: float) -> None: ...

    with pytest.raises(InvalidEvent, match="would never run"):
        palio.event(with_a_body)
    with pytest.raises(InvalidEvent, match="async def"):
        palio.event(at_once)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(InvalidFilter, match="'attributes' cannot be filled by name"):
        palio.event(of_anything)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(InvalidEvent, match="two methods"):
        palio.event(palio.on("price > 1")(heard))
    with pytest.raises(InvalidFilter, match="two methods"):
        palio.on("price > 1")(palio.event(sent))


# --- durable handlers ---


class Packer(palio.Subscriber):
    """Packs orders; an odd one fails at first, and 13 for ever."""

    def __init__(self) -> None:
        self.packed: list[tuple[int, int]] = []
        self.failures: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    @palio.on("EXISTS order", durable_name="orders", group=True, max_attempts=3)
    async def pack(self, order: int, event: Event) -> None:
        await self.gate.wait()
        if order == 13 or (order % 2 and event.attempt == 1):
            raise LookupError(f"no box for {order}")
        self.packed.append((order, event.attempt))

    def failed(self, handler: str, event: Event, error: HandlerFailed) -> None:
        del handler, event
        self.failures.append(str(error))


async def order(client: Client, *numbers: int) -> None:
    for number in numbers:
        await client.publish({"order": number}, durable=True)


@in_virtual_time
async def test_a_durable_handler_acknowledges_by_returning_and_rejects_by_raising() -> None:
    async with Network() as net:
        ann, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        failed = await ann.subscribe("EXISTS dead_letter", durable_name="failed")
        packer = await bob.attach(Packer())
        await order(ann, 1, 2, 13)
        await asyncio.sleep(RETRY_FIRST_S - 0.1)
        assert packer.packed == [(2, 1)]
        await asyncio.sleep(0.2)
        assert packer.packed == [(2, 1), (1, 2)]
        letter = await failed.receive(2 * RETRY_FIRST_S + 0.2)
        assert letter["dead_letter_reason"] == "LookupError: no box for 13"
        assert packer.failures[0] == "Packer.pack raised LookupError: no box for 1"
        assert await kept(net, "b1", "bob/orders") == 0


@in_virtual_time
async def test_the_delay_of_a_failing_event_doubles_up_to_a_minute() -> None:
    class Failing(palio.Subscriber):
        def __init__(self) -> None:
            self.times: list[float] = []

        @palio.on("EXISTS order", durable_name="orders")
        def fail(self) -> None:
            self.times.append(asyncio.get_running_loop().time())
            raise OSError("off")

        def failed(self, handler: str, event: Event, error: HandlerFailed) -> None:
            """It is expected."""

    async with Network() as net:
        client = await net.connect("b1")
        failing = await client.attach(Failing())
        await order(client, 1)
        await asyncio.sleep(300.0)
        pauses = [round(later - time) for time, later in pairwise(failing.times)]
        assert pauses == [1, 2, 4, 8, 16, 32, 64, 64, 64]


@pytest.mark.parametrize("how", ["detach", "cancel", "close"])
@in_virtual_time
async def test_a_durable_handler_gives_back_what_it_did_not_handle(how: str) -> None:
    async with Network() as net:
        ann, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        packer = await bob.attach(Packer())
        packer.gate.clear()
        await order(ann, 2, 4, 6)
        await turns(50)
        assert packer._attached is not None
        if how == "cancel":
            packer._attached.task.cancel()
            with suppress(asyncio.CancelledError):
                await packer._attached.task
        else:
            leaving = asyncio.ensure_future(bob.detach(packer) if how == "detach" else bob.close())
            await turns(50)
            packer.gate.set()
            await leaving
        handled = {"detach": [(2, 1)], "cancel": [], "close": [(2, 1), (4, 1), (6, 1)]}[how]
        assert packer.packed == handled
        assert await kept(net, "b1", "bob/orders") == 3 - len(handled)
        if how != "close":
            other = await (await net.connect("b1", name="bob")).attach(Packer())
            await asyncio.sleep(1.0)
            assert {number for number, _ in other.packed} == {2, 4, 6} - {n for n, _ in handled}


@in_virtual_time
async def test_a_durable_handler_moves_to_its_group() -> None:
    async with Network("line:2") as net:
        one, other = [await net.connect(broker, name="bob") for broker in ("b1", "b2")]
        await one.attach(Packer())
        await one.settled()
        packer = await other.attach(Packer())
        assert other.broker == "b1"
        await order(one, 2, 4)
        await asyncio.sleep(1.0)
        assert len(packer.packed) == 1


async def test_what_is_durable_at_no_bus_and_of_no_pattern() -> None:
    async with palio.Bus() as bus:
        with pytest.raises(InvalidInput, match="durable_name='orders' is for brokers: a bus keeps"):
            await bus.attach(Packer())
    with pytest.raises(InvalidFilter, match="a durable handler is for a filter"):
        palio.on("a = 1 THEN b = 1", durable_name="orders")
    with pytest.raises(InvalidInput, match="group= is for durable subscriptions"):
        palio.on("a = 1", group=True)


@in_virtual_time
async def test_two_handlers_have_two_durable_names() -> None:
    class Twice(palio.Subscriber):
        @palio.on("a = 1", durable_name="mine")
        def one(self) -> None: ...

        @palio.on("b = 1", durable_name="mine")
        def two(self) -> None: ...

    async with Network() as net:
        with pytest.raises(InvalidInput, match="subscribed to the durable name 'mine' already"):
            await (await net.connect("b1")).attach(Twice())
