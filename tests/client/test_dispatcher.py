from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

import palio
from palio.client.arrivals import ROWS_A_TAKE
from palio.client.delivery_queue import DeliveryQueue
from palio.client.dispatcher import FEW_EVENTS, FEW_SUBSCRIPTIONS, FIRST_ROW, Dispatcher
from palio.client.events import Gap
from palio.client.registration import Registration, SubscriptionOptions
from palio.client.subscribing import DurablePolicy
from palio.matching.protocol import Matcher
from palio.matching.reference import Reference
from palio.model.events import stamped, to_batch, to_batches
from palio.model.filters import Filter
from palio.model.parcels import Parcel
from palio.model.shapes import Shape
from tests.client.recording import Recording

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def lone(seq: int, event: dict[str, Any]) -> Parcel:
    """An event that comes by itself."""
    (row,) = stamped(to_batch(event), seq, 0).to_pylist()
    shape = Shape.of(stamped(to_batch(event), seq, 0).schema)
    return Parcel.lone("p", shape, tuple(row.values()))


def several(events: list[dict[str, Any]]) -> Parcel:
    (batch,) = to_batches(events)
    return Parcel("p", stamped(batch, 1, 0))


def everything(parcel: Parcel) -> range:
    return range(len(parcel))


class Place:
    """A dispatcher with an engine of its own, and subscriptions to numbers from some on."""

    def __init__(self, matcher: Matcher | None = None) -> None:
        self.upstream = Recording()
        self.dispatcher = Dispatcher(self.upstream, matcher)

    def hear(
        self,
        text: str,
        queue: DeliveryQueue | None = None,
        options: SubscriptionOptions | None = None,
    ) -> Registration:
        queue, options = queue or DeliveryQueue(100), options or SubscriptionOptions()
        return self.dispatcher.register(palio.parse(text), {}, queue, options)


@pytest.mark.parametrize("others", [0, 1, FEW_SUBSCRIPTIONS])
@pytest.mark.parametrize("matcher", [None, Reference()], ids=["index", "reference"])
async def test_an_event_by_itself_is_queued_for_those_who_want_it(
    others: int, matcher: Matcher | None
) -> None:
    place = Place(matcher)
    wanting = [place.hear("x > 0") for _ in range(1 + others)]
    durable = place.hear("x > 0", options=SubscriptionOptions(durable=DurablePolicy("mine")))
    not_wanting = place.hear("x < 0")
    place.dispatcher.deliver(lone(1, {"x": 1}), FIRST_ROW)
    place.dispatcher.deliver(lone(2, {"x": 0}), FIRST_ROW)
    assert [each.queue.waiting for each in wanting] == [1] * len(wanting)
    assert durable.queue.waiting == not_wanting.queue.waiting == 0
    assert place.dispatcher.spurious == 1
    consumer, event = await wanting[0].queue.take_event()
    assert (consumer, dict(event), event.seq) == (wanting[0], {"x": 1}, 1)
    place.dispatcher.end()


async def test_an_event_is_queued_for_those_whom_the_broker_names() -> None:
    place = Place()
    first, second, third = (place.hear(text) for text in ("x > 0", "x > 5", "x > 0"))
    durable = place.hear("x > 0", options=SubscriptionOptions(durable=DurablePolicy("mine")))
    deliver = place.dispatcher.deliver_named
    deliver(lone(1, {"x": 1}), [0, 9], ())
    deliver(lone(2, {"x": 9}), [1, 0], ())
    deliver(lone(3, {"x": 9}), [0], {0: 1, 1: 2, 3: 3, 8: 4})
    deliver(lone(4, {"x": 1}), [1], {1: 2})
    third.end()
    deliver(lone(5, {"x": 9}), [2], ())
    assert place.dispatcher.spurious == 2
    heard = [each.queue.waiting for each in (first, second, third, durable)]
    assert heard == [3, 2, 0, 0]


async def test_of_a_batch_only_what_is_meant_is_queued() -> None:
    place = Place()
    heard = place.hear("x > 0")
    parcel = several([{"x": 1}, {"x": 2}, {"x": 0}])
    place.dispatcher.deliver(parcel, [1, 2])
    assert (heard.queue.waiting, place.dispatcher.spurious) == (1, 1)
    _, event = await heard.queue.take_event()
    assert event.seq == 2


@pytest.mark.parametrize("by_batch", [False, True])
@pytest.mark.parametrize("count", [1, FEW_EVENTS, FEW_EVENTS + 1, 3 * ROWS_A_TAKE])
@pytest.mark.parametrize("subscriptions", [1, FEW_SUBSCRIPTIONS + 1])
async def test_each_hears_what_its_filter_says(
    subscriptions: int, count: int, by_batch: bool, rng: random.Random
) -> None:
    place = Place()
    texts = [f"x >= {rng.randrange(10)} AND x < {rng.randrange(11)}" for _ in range(subscriptions)]
    heard = [place.hear(text, DeliveryQueue(1_000)) for text in texts]
    events = [{"x": rng.randrange(10), "s": rng.choice("ab")} for _ in range(count)]
    meant = [place for place in range(len(events)) if rng.random() < 0.8]
    place.dispatcher.deliver(several(events), meant)
    for text, each in zip(texts, heard, strict=True):
        filter_ = palio.parse(text)
        assert isinstance(filter_, Filter)
        expected = [
            (number, event)
            for number, event in enumerate(events, start=1)
            if number - 1 in meant and filter_.matches(event)
        ]
        assert each.queue.waiting == len(expected)
        if by_batch and expected:
            _, batch = await each.queue.take_batch()
            assert [(row["$seq"], row) for row in batch.to_pylist()] == [
                (number, {**event, "$seq": number, "$time": EPOCH}) for number, event in expected
            ]
        elif expected:
            taken = [(await each.queue.take_event())[1] for _ in expected]
            assert [(event.seq, dict(event), event.time) for event in taken] == [
                (number, event, EPOCH) for number, event in expected
            ]


async def test_who_shares_a_queue_hears_in_the_order_of_publication() -> None:
    place, queue = Place(), DeliveryQueue(100)
    small, large = place.hear("x < 3", queue), place.hear("x > 1", queue)
    parcel = several([{"x": x} for x in range(4)])
    place.dispatcher.deliver(parcel, everything(parcel))
    place.dispatcher.deliver(lone(5, {"x": 2}), FIRST_ROW)
    taken = [await queue.take_event() for _ in range(queue.waiting)]
    assert [(who is large, event.seq) for who, event in taken] == [
        *((False, 1), (False, 2), (False, 3), (True, 3), (True, 4), (False, 5), (True, 5))
    ]
    assert small.queue is large.queue


@pytest.mark.parametrize("more", [0, FEW_EVENTS])
async def test_of_those_who_share_a_queue_the_elder_hears_an_event_first(more: int) -> None:
    place, queue = Place(), DeliveryQueue(100)
    large, every = place.hear("x > 0", queue), place.hear("x >= 0", queue)
    parcel = several([{"x": 0}, {"x": 1}, *({"x": -1} for _ in range(more))])
    place.dispatcher.deliver(parcel, everything(parcel))
    taken = [await queue.take_event() for _ in range(queue.waiting)]
    assert [(who, event.seq) for who, event in taken] == [(every, 1), (large, 2), (every, 2)]


async def test_an_entry_of_custody_is_acknowledged_when_all_of_it_is_dealt_with() -> None:
    place = Place()
    heard = place.hear("x > 0", options=SubscriptionOptions(durable=DurablePolicy("mine")))
    parcel = several([{"x": 0}, {"x": 1}])
    for _ in range(2):  # the second time it waits here already
        place.dispatcher.deliver_durable(heard, parcel, everything(parcel), 7)
        heard.receipts.renew()
    place.dispatcher.deliver_durable(heard, parcel, everything(parcel), 8)
    assert (heard.queue.waiting, heard.spurious) == (1, 1)
    await heard.queue.take_event()
    heard.receipts.finish()
    assert place.upstream.sent == [("acknowledge", 0, 8)]


async def test_an_entry_that_was_lost_is_acknowledged_once_the_gap_is_told() -> None:
    place = Place()
    heard = place.hear("x > 0", options=SubscriptionOptions(durable=DurablePolicy("mine")))
    parcel = several([{"x": 1}])
    place.dispatcher.deliver_durable(heard, parcel, everything(parcel), 7)
    heard.lose(Gap("p", 2, 3, 2))
    empty = parcel.select(np.zeros(1, np.bool_))
    place.dispatcher.deliver_durable(heard, empty, everything(empty), 8)
    assert not place.upstream.sent
    await heard.queue.take_event()
    assert heard.lost == 2
    assert place.upstream.sent == [("acknowledge", 0, 0, (8,))], "the other is being handled"
    heard.receipts.finish()
    assert place.upstream.sent[1:] == [("acknowledge", 0, 8)]
