from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import palio
from palio.client.delivery_queue import DeliveryQueue
from palio.client.dispatcher import Dispatcher
from palio.client.registration import Registration, SubscriptionOptions
from palio.errors import Closed, InvalidBinding, InvalidFilter, NotPermitted
from palio.matching.reference import Reference
from tests.client.recording import Recording


def registered(
    text: str, options: SubscriptionOptions | None = None, **values: Any
) -> tuple[Recording, Dispatcher, Registration]:
    """A subscription of a place of its own."""
    upstream = Recording()
    dispatcher = Dispatcher(upstream, Reference())
    what = palio.parse(text)
    registration = dispatcher.register(
        what, values, DeliveryQueue(9), options or SubscriptionOptions()
    )
    return upstream, dispatcher, registration


def test_a_change_is_in_force_here_and_told_upstream() -> None:
    upstream, _, heard = registered("x > :low AND x < :high", low=0, high=9)
    assert heard.concerns({"x": 3})
    assert heard.update(heard.changed({"low": 5})) is None
    assert not heard.concerns({"x": 3})
    assert heard.replace(palio.parse("y = 1"), {}) is None
    assert heard.concerns({"y": 1})
    assert heard.announce() is heard.leave(forget=True) is None
    assert upstream.told == [
        ("update", 0, {"low": 5}),
        ("replace", 0, "y = 1", {}),
        ("subscribe", 0, "y = 1", {}),
        ("withdraw", 0, True),
    ]
    assert heard.version == 2


async def test_the_answer_of_the_upstream_is_what_a_change_returns() -> None:
    upstream, _, heard = registered("x > :low", low=0)
    upstream.answer = asyncio.get_running_loop().create_future()
    assert heard.announce() is upstream.answer
    assert heard.update(heard.changed({"low": 1})) is upstream.answer


def test_what_does_not_change_is_not_told() -> None:
    upstream, _, heard = registered("x > :low", low=0)
    assert heard.update(heard.values) is None
    assert not upstream.told


def test_what_has_ended_tells_nothing_more() -> None:
    upstream, dispatcher, heard = registered("x > :low", low=0)
    heard.abandon()
    heard.abandon()
    heard.end(NotPermitted("no"))
    assert heard.update({"low": 3}) is None
    assert upstream.told == [("withdraw", 0, False)]
    assert (len(dispatcher), heard.closed, heard.values) == (0, True, {"low": 3})


async def test_an_end_with_an_error_is_told_after_what_waits() -> None:
    _, _, heard = registered("x > 0")
    heard.end(NotPermitted("no"))
    with pytest.raises(NotPermitted):
        await heard.queue.take_event()
    _, _, heard = registered("x > 0")
    heard.end()
    with pytest.raises(Closed):
        await heard.queue.take_event()


def test_refused_values_change_nothing() -> None:
    upstream, _, heard = registered("x > :low", low=0)
    for values in ({"low": "a"}, {"high": 1}):
        with pytest.raises(InvalidBinding):
            heard.changed(values)
    assert (heard.values, heard.version, upstream.told) == ({"low": 0}, 0, [])


def test_a_durable_one_acknowledges_upstream_and_takes_no_pattern() -> None:
    upstream, _, heard = registered("x > 0", SubscriptionOptions(durable="mine", lease_s=5.0))
    entry = heard.receipts.expect(7, "p", np.array([1]), 1)
    heard.receipts.make(entry).give()
    assert upstream.told == [("acknowledge", 0, 7)]
    assert (heard.durable, heard.lease_s) == ("mine", 5.0)
    with pytest.raises(InvalidFilter, match="takes a filter"):
        heard.replace(palio.parse("x = 1 THEN x = 2"), {})
    assert heard.concerns({"x": 1})
    with pytest.raises(InvalidFilter, match="takes a filter"):
        registered("x = 1 THEN x = 2", SubscriptionOptions(durable="mine"))
