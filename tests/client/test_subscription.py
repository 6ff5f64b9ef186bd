from __future__ import annotations

import asyncio
from typing import Any

import pytest

import palio
from palio.client.delivery_queue import DeliveryQueue
from palio.client.dispatcher import Dispatcher
from palio.client.registration import KEPT_GAPS, SubscriptionOptions
from palio.client.subscription import LoopAffinity, Subscription
from palio.errors import (
    Closed,
    IllegalMessage,
    InvalidBinding,
    InvalidFilter,
    InvalidInput,
    NotPermitted,
    NotStored,
    PalioError,
    ParseError,
    Unreachable,
)
from palio.matching.reference import Reference
from palio.model.events import SEQ, TIME
from tests.client.helpers import NOON, drain, plain, seqs, stopped_clock
from tests.client.recording import Recording

QUOTES = [{"price": price} for price in (5, 15, 25)]


async def test_batches_come_with_their_publishers() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price > 10")
        await bus.publish(QUOTES, publisher="nyse")
        parcel = await anext(sub.parcels())
        assert parcel.publisher == "nyse"
        assert parcel.batch.column(SEQ).to_pylist() == [2, 3]
    assert [each async for each in sub.parcels()] == []


# --- update ---


async def test_strictness_covers_what_waits() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price < :limit", {"limit": 100})
        await bus.publish(QUOTES)
        assert (await sub.receive())["price"] == 5
        await sub.update(limit=20)
        await bus.publish(QUOTES)
        assert plain(await drain(sub)) == [{"price": 15}, {"price": 5}, {"price": 15}]
        assert sub.stale == 1


async def test_an_update_back_and_forth_lets_through_what_matches_when_it_is_taken() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price < :limit", {"limit": 100})
        await bus.publish(QUOTES)
        await sub.update(limit=1)
        await sub.update(limit=100)
        assert seqs(await drain(sub)) == [1, 2, 3]


async def test_several_parameters_change_as_one() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price BETWEEN :low AND :high", {"low": 0, "high": 9})
        version = sub.revision
        await sub.update(low=10, high=19)
        assert sub.revision == version + 1
        await bus.publish(QUOTES)
        assert plain(await drain(sub)) == [{"price": 15}]
        await sub.update(high=30)
        assert sub.params == {"low": 10, "high": 30}


@pytest.mark.parametrize(
    "bad",
    [
        {"limit": None},
        {"limit": float("nan")},
        {"limit": [1, 2]},
        {"limit": object()},
        {"limit": 30, "other": 1},
        {"limit": 30, "name": 7},
    ],
)
async def test_a_bad_update_changes_nothing(bad: dict[str, Any]) -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price < :limit OR name LIKE :name", {"limit": 10, "name": "I%"})
        version = sub.revision
        with pytest.raises(InvalidBinding):
            await sub.update(**bad)
        assert sub.params == {"limit": 10, "name": "I%"}
        assert sub.revision == version
        await bus.publish([*QUOTES, {"name": "IBM"}])
        assert plain(await drain(sub)) == [{"price": 5}, {"name": "IBM"}]


async def test_an_unknown_parameter_is_told_which_there_are() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price BETWEEN :low AND :high", {"low": 0, "high": 9})
        with pytest.raises(InvalidBinding, match="no parameter :lo; it has :high, :low") as error:
            await sub.update(lo=1)
        assert error.value.name == "lo"
        fixed = await bus.subscribe("price = 1")
        with pytest.raises(InvalidBinding, match="it has none"):
            await fixed.update(lo=1)


async def test_parameters_may_have_any_name() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x = :self OR y = :filter", {"self": 1, "filter": 1})
        await sub.update(self=2, filter=3)
        assert sub.params == {"self": 2, "filter": 3}
        await sub.replace("z = :filter", filter=4)
        assert sub.params == {"filter": 4}


async def test_a_collection_is_copied() -> None:
    async with palio.Bus() as bus:
        names = ["IBM"]
        sub = await bus.subscribe("symbol IN :names", {"names": names})
        names.append("MSFT")
        await bus.publish({"symbol": "MSFT"})
        assert await drain(sub) == []
        await sub.update(names=names)
        names.clear()
        await bus.publish({"symbol": "MSFT"})
        assert len(await drain(sub)) == 1
        assert sub.params == {"names": ("IBM", "MSFT")}


async def test_values_are_for_reading() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price < :limit", {"limit": 10})
        with pytest.raises(TypeError):
            sub.params["limit"] = 20  # type: ignore[index]  # that is the point


# --- replace ---


async def test_replacing_keeps_the_identity_and_what_still_matches() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price < 20")
        same = sub
        await bus.publish(QUOTES)
        await sub.replace("price > 10")
        assert str(sub.filter) == "price > 10"
        await bus.publish(QUOTES)
        assert seqs(await drain(sub)) == [2, 5, 6]
        assert sub.stale == 1
        assert sub is same
        assert repr(bus) == "<Bus with 1 subscriptions>"


async def test_replacing_keeps_the_values_of_parameters_of_the_same_name() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price > :low AND price < :high", {"low": 10, "high": 20})
        await sub.replace("price < :low OR price > :top", top=24)
        assert sub.params == {"low": 10, "top": 24}
        await bus.publish(QUOTES)
        assert plain(await drain(sub)) == [{"price": 5}, {"price": 25}]
        with pytest.raises(InvalidBinding, match="no parameter :high"):
            await sub.update(high=1)


async def test_replacing_by_the_same_filter() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price < :limit", {"limit": 10})
        await sub.replace(sub.filter, limit=20)
        await bus.publish(QUOTES)
        assert len(await drain(sub)) == 2


@pytest.mark.parametrize(
    ("filter", "values", "error"),
    [
        ("price <", {}, ParseError),
        ("price > :unknown", {}, InvalidBinding),
        ("price > 1", {"extra": 1}, InvalidBinding),
        ("name LIKE :limit", {}, InvalidBinding),
        ("a = 1 THEN b = :unknown", {}, InvalidBinding),
        (7, {}, InvalidFilter),
    ],
)
async def test_a_bad_replacement_changes_nothing(
    filter: Any, values: dict[str, Any], error: type[Exception]
) -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price < :limit", {"limit": 10})
        await bus.publish(QUOTES)
        with pytest.raises(error, match=r"."):
            await sub.replace(filter, **values)
        await bus.publish(QUOTES)
        await sub.update(limit=10)
        assert str(sub.filter) == "price < :limit"
        assert seqs(await drain(sub)) == [1, 4]


async def test_a_filter_becomes_a_pattern_and_back() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price > 0")
        await bus.publish(QUOTES)
        await sub.replace("price = 5 THEN price = 25")
        await bus.publish(QUOTES)
        (composite,) = await drain(sub)
        assert seqs(composite.parts) == [4, 6]
        assert sub.stale == 3
        await bus.publish(QUOTES)
        await sub.replace("price > 0")  # a sequence that waits is no event of the filter
        assert await drain(sub) == []
        await bus.publish(QUOTES)
        assert seqs(await drain(sub)) == [10, 11, 12]


# --- patterns ---


async def test_a_pattern_gives_its_last_event_with_all_parts() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("alarm = 1 THEN file = 'x' AND user = 'me'")
        await bus.publish({"alarm": 1, "host": "h"}, publisher="a")
        await bus.publish({"file": "x", "user": "me"}, publisher="b")
        (found,) = await drain(sub)
        assert dict(found) == {"file": "x", "user": "me"}
        assert plain(found.parts) == [{"alarm": 1, "host": "h"}, {"file": "x", "user": "me"}]
        assert [(part.publisher, part.seq) for part in found.parts] == [("a", 1), ("b", 1)]
        assert (found.publisher, found.seq, found.time) == ("b", 1, found.parts[1].time)
        assert found.parts[0].time < found.time


async def test_within_goes_by_publication_time() -> None:
    times = [NOON.replace(minute=minute) for minute in (0, 2, 3)]
    async with palio.Bus(clock=iter(times).__next__) as bus:
        sub = await bus.subscribe("x = 1 THEN x = 2 WITHIN 1m")
        for x in (1, 1, 2):
            await bus.publish({"x": x})
        assert [seqs(event.parts) for event in await drain(sub)] == [[2, 3]]


@pytest.mark.parametrize(
    ("text", "before", "then", "after", "found"),
    [
        ("x = 1 THEN x = :v", [1], 3, [2, 3], [[1, 3]]),
        # The first part fails the new values; it completes nothing and hides nothing.
        ("x = :v THEN x = 2", [1], 5, [2, 5, 2], [[3, 4]]),
        ("x = 1 THEN x = :v THEN x = 3", [1, 2], 4, [3, 4, 3], [[1, 4, 5]]),
    ],
    ids=["what is to come", "a part that is dropped", "parts that are kept"],
)
async def test_a_partial_match_is_kept_as_far_as_the_new_values_want_it(
    text: str, before: list[int], then: int, after: list[int], found: list[list[int]]
) -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe(text, {"v": before[-1]})
        await bus.publish([{"x": x} for x in before])
        await sub.update(v=then)
        await bus.publish([{"x": x} for x in after])
        assert [seqs(event.parts) for event in await drain(sub)] == found


async def test_a_composite_that_waits_must_match_as_a_whole() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x >= :low THEN x = 9", {"low": 0})
        await bus.publish([{"x": 1}, {"x": 9}, {"x": 5}, {"x": 9}])
        await sub.update(low=5)
        assert [seqs(event.parts) for event in await drain(sub)] == [[3, 4]]
        assert sub.stale == 1


# --- receiving ---


async def test_iteration_ends_with_the_bus_after_what_waits() -> None:
    bus = palio.Bus()
    sub = await bus.subscribe("price > 0")
    await bus.publish(QUOTES)
    await bus.close()
    assert seqs([event async for event in sub]) == [1, 2, 3]
    assert seqs([event async for event in sub]) == []
    with pytest.raises(Closed):
        await sub.receive()


async def test_iteration_may_stop_and_go_on() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price > 0")
        await bus.publish(QUOTES)
        async for event in sub:
            assert event.seq == 1
            break
        assert seqs(await drain(sub)) == [2, 3]


async def test_system_columns_are_there_for_filters_but_not_in_events() -> None:
    async with palio.Bus(clock=stopped_clock) as bus:
        text = f"price > 0 AND {SEQ} >= :from AND {TIME} >= TIMESTAMP '2026-01-01T12:00:00Z'"
        sub = await bus.subscribe(text, {"from": 2})
        await bus.publish(QUOTES)
        assert (await sub.receive()) == {"price": 15}
        await sub.update(**{"from": 3})
        assert [(event.seq, event.time) for event in await drain(sub)] == [(3, NOON)]


async def test_batches_hold_what_matched_with_the_system_columns() -> None:
    bus = palio.Bus(clock=stopped_clock)
    sub = await bus.subscribe("price < 20")
    await bus.publish(QUOTES)
    await bus.publish(QUOTES[:2])
    await bus.publish(QUOTES[2:])
    await bus.close()
    batches = [batch async for batch in sub.batches()]
    assert [batch.column("price").to_pylist() for batch in batches] == [[5, 15], [5, 15]]
    assert [batch.column(SEQ).to_pylist() for batch in batches] == [[1, 2], [4, 5]]
    assert batches[0].schema.names == ["price", SEQ, TIME]
    assert batches[0].column(TIME)[0].as_py() == NOON


async def test_a_batch_that_comes_after_the_timeout_waits_for_the_next_call() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x > 0")
        with pytest.raises(TimeoutError):
            await sub.receive_batch(timeout=0.001)
        await bus.publish([{"x": 1}, {"x": 2}])
        assert (await sub.receive_batch(timeout=30)).num_rows == 2


async def test_batches_and_events_may_be_mixed() -> None:
    bus = palio.Bus()
    sub = await bus.subscribe("price > :low", {"low": 0})
    await bus.publish(QUOTES)
    await bus.publish(QUOTES)
    assert (await sub.receive()).seq == 1
    async for batch in sub.batches():
        assert batch.column(SEQ).to_pylist() == [2, 3]
        break
    await sub.update(low=20)
    await bus.close()
    assert [batch.column(SEQ).to_pylist() async for batch in sub.batches()] == [[6]]
    assert sub.stale == 2


# --- ending ---


async def test_unsubscribing_discards_what_waits() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price > 0", queue_size=2)
        await bus.publish(QUOTES)
        await sub.unsubscribe()
        await sub.unsubscribe()
        assert sub.is_closed
        assert [event async for event in sub] == []
        assert (sub.pending, list(sub.gaps)) == (0, [])
        assert (await bus.publish(QUOTES)).deliveries == 0


async def test_unsubscribing_after_the_end_discards_too() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price > 0")
        await bus.publish(QUOTES)
    await sub.unsubscribe()
    assert [event async for event in sub] == []


async def test_a_subscription_is_a_context() -> None:
    async with palio.Bus() as bus:
        async with await bus.subscribe("price > 0") as sub:
            assert isinstance(sub, Subscription)
            await bus.publish(QUOTES)
            assert repr(sub) == "<Subscription to price > 0, 3 pending>"
        assert sub.is_closed
        assert repr(bus) == "<Bus with 0 subscriptions>"


async def test_a_closed_subscription_takes_no_changes() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price < :limit", {"limit": 10})
        await sub.settled()
        await sub.unsubscribe()
        for change in (sub.update(limit=1), sub.replace("a = 1"), sub.settled()):
            with pytest.raises(Closed, match="subscribe again"):
                await change
        with pytest.raises(Closed):
            sub.assign({"limit": 1})


async def test_gaps_are_kept_up_to_a_number_and_counted_beyond() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x >= 0", queue_size=1, on_gap=lambda gap: None)
        for _ in range(KEPT_GAPS + 1):
            await bus.publish([{"x": 0}, {"x": 1}])
            await sub.receive()
        assert (len(sub.gaps), sub.dropped) == (KEPT_GAPS, KEPT_GAPS + 1)
        assert sub.gaps[0].first_seq == 3


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "stays"),
    [
        (InvalidFilter("no"), False),
        (NotPermitted("no"), False),
        (NotStored("no"), False),
        (IllegalMessage("this client", "no"), False),
        (PalioError("no"), False),
        (Unreachable("who knows"), True),
        (Closed("over"), True),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_refused_change_is_taken_back_and_one_that_nobody_answered_is_not(
    error: PalioError, stays: bool
) -> None:
    upstream = Recording()
    dispatcher = Dispatcher(upstream, Reference())
    registration = dispatcher.register(
        palio.parse("x > :low"), {"low": 0}, DeliveryQueue(9), SubscriptionOptions()
    )
    sub = Subscription(registration, upstream, LoopAffinity("Client"))
    answered = asyncio.get_running_loop().create_future()
    answered.set_exception(error)
    upstream.answer = answered
    with pytest.raises(type(error)):
        await sub.update(low=5)
    assert sub.params == {"low": 5 if stays else 0}
    sub.assign({"low": 7})
    await asyncio.sleep(0)
    assert sub.params == {"low": 7 if stays else 0}
    with pytest.raises(type(error)):
        await sub.replace("y = 1")
    assert str(sub.filter) == ("y = 1" if stays else "x > :low")
    assert len(upstream.sent) == (3 if stays else 6), "what is taken back is told too"
    assert registration.concerns({"y": 1}) is stays


# --- counts ---


@pytest.mark.parametrize("together", [1, 2, 3, 20])
async def test_after_so_many_events_it_ends_by_itself(together: int) -> None:
    async with palio.Bus() as bus:
        sub, other = await bus.subscribe("x >= 0", max_events=3), await bus.subscribe("x >= 0")
        delivered = 0
        for start in range(0, 20, together):
            some = [{"x": x - 1} for x in range(start, min(20, start + together))]
            delivered += (await bus.publish(some)).deliveries or 0
        assert sub.is_closed
        assert [(await sub.receive())["x"] for _ in range(3)] == [0, 1, 2]
        with pytest.raises(Closed):
            await sub.receive()
        assert delivered == 3 + other.pending == 3 + 19
        assert len(bus._dispatcher) == 1


async def test_a_pattern_counts_its_sequences() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x = 1 THEN x = 2", max_events=2)
        for _ in range(3):
            await bus.publish([{"x": 1}, {"x": 2}])
        assert len([each async for each in sub]) == 2


async def test_counts_are_of_what_matched_when_it_came() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x > :low", {"low": 0}, max_events=3)
        await bus.publish([{"x": 1}, {"x": 5}])
        await sub.update(low=4)
        await bus.publish([{"x": 2}, {"x": 6}, {"x": 7}])
        assert [each["x"] async for each in sub] == [5, 6]
        with pytest.raises(Closed):
            await sub.update(low=1)


@pytest.mark.parametrize("count", [0, -1, 1.0, "3", True])
async def test_what_is_no_count_is_refused(count: Any) -> None:
    async with palio.Bus() as bus:
        with pytest.raises(InvalidInput, match="at least 1"):
            await bus.subscribe("x > 0", max_events=count)
        assert not len(bus._dispatcher)


async def test_a_subscription_is_not_changed_from_another_loop() -> None:
    async with palio.Bus() as bus:
        heard = await bus.subscribe("x > :low", {"low": 0})
        for change in (heard.update(low=1), heard.replace("x > 0"), heard.settled()):
            with pytest.raises(PalioError, match="belongs to another event loop"):
                await asyncio.to_thread(asyncio.run, change)
        assert (dict(heard.params), heard.revision) == ({"low": 0}, 0)
