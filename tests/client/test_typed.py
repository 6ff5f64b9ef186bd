"""Typed events: objects in, objects out, and arguments of handlers that are what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, assert_type
from uuid import UUID

import msgspec
import pydantic
import pytest

import palio
from palio.client.events import Event
from palio.client.subscription import Subscription
from palio.client.typed import reader_of
from palio.errors import HandlerFailed, InvalidEvent, InvalidInput
from palio.testing import Network
from tests.client.helpers import drain
from tests.client.virtual import in_virtual_time

if TYPE_CHECKING:
    from fractions import Fraction

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


class Level(IntEnum):
    LOW = 1


@dataclass
class Line:
    item: str
    count: int


@dataclass
class Order:
    id: UUID
    price: Decimal
    day: date
    at: datetime
    side: Side
    level: Level
    note: str | None
    lines: list[Line] = field(default_factory=list)
    tags: frozenset[str] = frozenset()


class OrderStruct(msgspec.Struct, frozen=True):
    id: UUID
    price: Decimal
    day: date
    at: datetime
    side: Side
    level: Level
    note: str | None
    lines: list[Line] = []


class OrderModel(pydantic.BaseModel):
    id: UUID
    price: Decimal
    day: date
    at: datetime
    side: Side
    level: Level
    note: str | None
    lines: list[Line] = []


class OrderDict(TypedDict):
    symbol: str
    price: float
    tags: NotRequired[list[str]]


FIELDS: dict[str, Any] = {
    "id": UUID(int=7),
    "price": Decimal("9.950"),
    "day": date(2026, 1, 31),
    "at": NOON,
    "side": Side.SELL,
    "level": Level.LOW,
    "note": None,
    "lines": [Line("tea", 2)],
}
ORDERS = [kind(**FIELDS) for kind in (Order, OrderStruct, OrderModel)]


@pytest.mark.parametrize("order", ORDERS, ids=lambda each: type(each).__name__)
async def test_an_object_comes_back_as_it_was(order: Any) -> None:
    async with palio.Bus() as bus:
        where = "id = :id AND side = 'sell' AND price < 10 AND level = 1 AND day > '2026-01-30'"
        typed = await bus.subscribe(where, {"id": UUID(int=7)}, as_=type(order))
        plain = await bus.subscribe("price < :most", {"most": Decimal("9.96")})
        await bus.publish([order, order])
        assert await typed.receive() == order
        assert str((await typed.receive()).price) == "9.950"
        event = await plain.receive()
        assert dict(event) == {
            "id": str(UUID(int=7)),
            "price": 9.95,
            "day": "2026-01-31",
            "at": NOON,
            "side": "sell",
            "level": 1,
        }
        assert event.payload["lines"] == [{"item": "tea", "count": 2}]
        assert (typed.invalid, typed.pending) == (0, 0)


@in_virtual_time
async def test_objects_cross_brokers_live_and_durably() -> None:
    async with Network("line:2") as net:
        ann, bob = await net.connect("b1"), await net.connect("b2", name="bob")
        live = await bob.subscribe("EXISTS id", as_=Order)
        kept = await bob.subscribe("EXISTS id", durable_name="kept", as_=Order, ack="manual")
        assert_type(kept, Subscription[Order])
        await kept.settled()
        await ann.publish(ORDERS[0], durable=True)
        assert await live.receive() == ORDERS[0]
        assert await kept.receive() == ORDERS[0]
        await bob.close()
        bob = await net.connect("b2", name="bob")
        kept = await bob.subscribe("EXISTS id", durable_name="kept", as_=Order)
        assert await kept.receive() == ORDERS[0], "it was not acknowledged"


async def test_the_types_of_subscriptions() -> None:
    async with palio.Bus() as bus:
        order: OrderDict = {"symbol": "IBM", "price": 9.5, "tags": ["a"]}
        plain = await bus.subscribe("price < :most", {"most": 10}, max_events=1)
        typed = await bus.subscribe("price < 10", as_=OrderDict, queue_size=5)
        assert_type(plain, Subscription[Event])
        assert_type(typed, Subscription[OrderDict])
        bare: Subscription = plain
        await bus.publish(order)
        assert (await bare.receive()).payload == order
        async for each in typed:
            assert_type(each, OrderDict)
            assert each == order
            break


def test_typed_events_without_await() -> None:
    with palio.SyncBus() as bus:
        sub = bus.subscribe("price < 10", as_=Order)
        bus.publish(ORDERS[0])
        received = sub.receive(timeout=30)
        assert_type(received, Order)
        assert received == ORDERS[0]
        assert sub.invalid == 0


async def test_a_plain_event_is_read_as_an_object() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("TRUE", as_=OrderStruct)
        event = {**FIELDS, "price": 9.5, "note": "", "lines": [{"item": "tea", "count": 2}]}
        await bus.publish(event)
        received = await sub.receive()
        assert (received.price, received.lines) == (Decimal("9.5"), [Line("tea", 2)])


async def test_an_event_that_does_not_fit_is_left_out_counted_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("EXISTS price", as_=OrderDict)
        await bus.publish([{"price": 1}, {"price": 2.0, "symbol": 5}])
        await bus.publish({"price": 1, "$payload": b"\xc1"})
        await bus.publish({"symbol": "IBM", "price": 3})
        assert await sub.receive() == {"symbol": "IBM", "price": 3.0}
        assert sub.invalid == 3
        (record,) = caplog.records
        assert "event 1 of 'bus' does not fit as_= " in record.message
        assert "missing required field `symbol`" in record.message


@in_virtual_time
async def test_a_durable_event_that_does_not_fit_does_not_come_again() -> None:
    async with Network() as net:
        bob = await net.connect("b1", name="bob")
        kept = await bob.subscribe("EXISTS price", durable_name="kept", as_=OrderDict, ack="manual")
        await bob.publish({"price": "1"}, durable=True)
        await bob.publish({"price": 1, "symbol": "IBM"}, durable=True)
        assert (await kept.receive())["symbol"] == "IBM"
        kept.ack()
        await bob.close()
        bob = await net.connect("b1", name="bob")
        assert await drain(await bob.subscribe("EXISTS price", durable_name="kept")) == []


@pytest.mark.parametrize("kind", [list["Missing"], datetime | str, 5])  # type: ignore[name-defined]  # noqa: F821  # that is the test
async def test_what_nobody_can_read_is_refused(kind: Any) -> None:
    async with palio.Bus() as bus:
        with pytest.raises(InvalidInput, match="no event can be read as"):
            await bus.subscribe("x = 1", as_=kind)


async def test_a_pattern_has_no_object() -> None:
    async with palio.Bus() as bus:
        with pytest.raises(InvalidInput, match="payloads are in their parts"):
            await bus.subscribe("x = 1 THEN x = 2", as_=OrderDict)
        sub = await bus.subscribe("x = 1 THEN x = 2")
        await bus.publish([{"x": 1, "tags": ["a"]}, {"x": 2, "tags": ["b"]}])
        both = await sub.receive()
        assert both.payload == {"x": 2, "tags": ["b"]}
        assert [part.payload["tags"] for part in both.parts] == [["a"], ["b"]]


async def test_an_event_that_is_published_again_keeps_its_payload() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x = 1", max_events=2)
        await bus.publish({"x": 1, "tags": ["a"]})
        await bus.publish(await sub.receive())
        again = await sub.receive()
        assert (dict(again), again.payload) == ({"x": 1}, {"x": 1, "tags": ["a"]})


async def test_filters_do_not_see_lists_but_nested_scalars() -> None:
    async with palio.Bus() as bus:
        seen = await bus.subscribe("size.x = 1")
        unseen = await bus.subscribe("EXISTS tags OR EXISTS size")
        await bus.publish({"size": {"x": 1}, "tags": ["a"]})
        assert (await seen.receive()).payload == {"size": {"x": 1}, "tags": ["a"]}
        assert unseen.pending == 0


async def test_batches_have_the_payload_as_a_column() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x = 1")
        await bus.publish({"x": 1, "tags": ["a"]})
        batch = await sub.receive_batch()
        assert batch.schema.names == ["x", "$payload", "$seq", "$time"]


# --- handlers ---


class Desk(palio.Subscriber):
    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.failures: list[tuple[str, HandlerFailed]] = []

    @palio.on("EXISTS id")
    def job(self, id: int, side: Side | None = None, price: float = 0.0) -> None:
        self.calls.append((id, side, price))

    @palio.on("EXISTS price")
    def order(self, event: OrderDict) -> None:
        self.calls.append(event)

    @palio.on("EXISTS raw")
    def raw(self, event: Mapping[str, Any], raw) -> None:  # type: ignore[no-untyped-def]  # takes anything
        self.calls.append((event, raw))

    @palio.on("EXISTS part")
    def part(self, part: Fraction) -> None:
        self.calls.append(part)

    def failed(self, handler: str, event: Event, error: HandlerFailed) -> None:  # noqa: ARG002  # as it is called
        self.failures.append((handler, error))


async def test_a_handler_is_never_given_what_its_annotations_exclude(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with palio.Bus() as bus:
        desk = await bus.attach(Desk())
        (record,) = [each for each in caplog.records if "cannot be read" in each.message]
        assert "takes any value for 'part'" in record.message
        await bus.publish({"id": "four"})
        await bus.publish({"id": 4, "side": "buy"})
        await bus.publish({"id": 4, "side": "neither"})
        await bus.publish({"price": 1})
        await bus.publish({"symbol": "IBM", "price": 1, "tags": ["a"]})
        await bus.publish([{"raw": 1}, {"raw": "a"}, {"part": "1/3"}])
        await bus.detach(desk)
    assert desk.calls == [
        (4, Side.BUY, 0.0),
        {"symbol": "IBM", "price": 1.0, "tags": ["a"]},
        *(({"raw": 1}, 1), ({"raw": "a"}, "a"), "1/3"),
    ]
    assert isinstance(desk.calls[2][0], Event)
    told = [(handler, str(error)) for handler, error in desk.failures]
    assert [handler for handler, _ in told] == ["Desk.job", "Desk.job", "Desk.order"]
    assert "argument 'id': Expected `int`, got `str`" in told[0][1]
    assert "argument 'side': Invalid enum value 'neither'" in told[1][1]
    assert "argument 'event': Object missing required field `symbol`" in told[2][1]
    assert all(isinstance(error.__cause__, InvalidEvent) for _, error in desk.failures)


def test_a_reader_converts_nothing_silently() -> None:
    read = reader_of(int)
    for given in ("4", 4.5, True, None):
        with pytest.raises(InvalidEvent, match="Expected `int`"):
            read(given)


@in_virtual_time
async def test_the_event_of_an_object_is_rejected_and_comes_again() -> None:
    async with Network() as net:
        bob = await net.connect("b1", name="bob")
        orders = await bob.subscribe("EXISTS id", durable_name="kept", as_=Order)
        with pytest.raises(InvalidInput, match="no event was received yet"):
            orders.nack()
        await bob.publish(ORDERS[0], durable=True)
        assert await orders.receive() == ORDERS[0]
        assert (orders.event.publisher, orders.event.attempt) == (bob.publisher, 1)
        orders.nack(delay=1.0, reason="no stock")
        assert await orders.receive(5.0) == ORDERS[0]
        assert orders.event.attempt == 2
        orders.event.ack()
