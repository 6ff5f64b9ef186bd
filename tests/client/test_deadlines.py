"""What is waited for no longer than so many seconds, and what is known when they are over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import palio
from palio.client import deadlines
from palio.client.connection import Client, connect
from palio.client.deadlines import TIMEOUT_S, Deadlines
from palio.client.subscription import Subscription
from palio.errors import InvalidInput, Unreachable
from palio.testing import Network
from tests.client.virtual import in_virtual_time

Verb = Callable[[Client, Subscription], Awaitable[Any]]

VERBS: dict[str, Verb] = {
    "publish": lambda client, _: client.publish({"x": 1}),
    "publish durably": lambda client, _: client.publish({"x": 1}, durable=True),
    "subscribe": lambda client, _: client.subscribe("x > 0"),
    "subscribe durably": lambda client, _: client.subscribe("x > 0", durable_name="d"),
    "advertise": lambda client, _: client.advertise("x > 0"),
    "update": lambda _, heard: heard.update(low=5),
    "replace": lambda _, heard: heard.replace("x < 0"),
    "settled": lambda client, _: client.settled(),
    "settled of a subscription": lambda _, heard: heard.settled(),
    "ask": lambda client, _: client.admin.query("status"),
    "add_peer": lambda client, _: client.admin.add_peer("palio://b3"),
    "remove_peer": lambda client, _: client.admin.remove_peer("b2"),
    "retire": lambda client, _: client.admin.remove_broker("b2"),
}


@pytest.mark.parametrize("verb", VERBS)
@in_virtual_time
async def test_a_request_fails_when_its_time_is_over(verb: str) -> None:
    async with Network("line:2") as net:
        client = await net.connect("b1")
        heard = await client.subscribe("x > :low", {"low": 0})
        net.kill("b1")
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(Unreachable, match="no answer for 30 s"):
            await VERBS[verb](client, heard)
        assert loop.time() - began == pytest.approx(TIMEOUT_S)


@in_virtual_time
async def test_what_was_not_acknowledged_may_be_published_all_the_same() -> None:
    async with Network() as net:
        client, other = await net.connect("b1"), await net.connect("b1")
        heard = await other.subscribe("x > 0")
        net.cut("client-1", "b1")
        with pytest.raises(Unreachable, match="they may still be published"):
            await client.publish({"x": 1}, timeout=5.0)
        assert heard.pending == 0
        net.heal("client-1", "b1")
        assert dict(await heard.receive()) == {"x": 1}


@in_virtual_time
async def test_a_change_that_was_not_answered_is_in_force_here_and_told_later() -> None:
    async with Network() as net:
        client = await net.connect("b1", timeout=5.0)
        heard = await client.subscribe("x > :low", {"low": 0})
        net.cut("client-1", "b1")
        with pytest.raises(Unreachable, match="the change is in force here"):
            await heard.update(low=5)
        assert dict(heard.params) == {"low": 5}
        net.heal("client-1", "b1")
        await client.settled()
        await client.publish([{"x": 3}, {"x": 7}])
        assert dict(await heard.receive()) == {"x": 7}
        assert client.stale == 0, "the broker knows it too"


@in_virtual_time
async def test_what_was_not_subscribed_or_advertised_in_time_is_withdrawn() -> None:
    async with Network(routing="advertised") as net:
        client = await net.connect("b1", timeout=5.0)
        net.cut("client-1", "b1")
        with pytest.raises(Unreachable):
            await client.subscribe("x > 0")
        with pytest.raises(Unreachable):
            await client.advertise("x > 0")
        net.heal("client-1", "b1")
        await client.settled()
        assert net.node("b1").status()["subscriptions"] == 0


@in_virtual_time
async def test_none_waits_for_ever() -> None:
    async with Network() as net:
        client = await net.connect("b1", timeout=None)
        net.cut("client-1", "b1")
        asked = asyncio.ensure_future(client.admin.query("status"))
        published = asyncio.ensure_future(client.publish({"x": 1}))
        await asyncio.sleep(10 * TIMEOUT_S)
        assert not asked.done()
        assert not published.done()
        net.heal("client-1", "b1")
        await asked
        assert (await published).level == "memory", "it had not left before"


@pytest.mark.parametrize("is_connected", [True, False])
@in_virtual_time
async def test_unsubscribing_waits_for_nobody_who_is_away(is_connected: bool) -> None:
    """Also where the connection breaks in the middle of it."""
    async with Network(routing="advertised") as net:
        client = await net.connect("b1")
        heard = await client.subscribe("x > 0")
        advertised = await client.advertise("x > 0")
        if not is_connected:
            net.cut("client-1", "b1")
        leaving = [
            asyncio.ensure_future(each) for each in (heard.unsubscribe(), advertised.withdraw())
        ]
        await asyncio.sleep(0)
        if is_connected:
            assert not any(each.done() for each in leaving)
            net.cut("client-1", "b1")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert all(each.done() for each in leaving)
        assert heard.is_closed
        net.heal("client-1", "b1")
        await client.settled()
        assert net.node("b1").status()["subscriptions"] == 0


@in_virtual_time
async def test_who_is_cancelled_does_not_wait_for_a_broker() -> None:
    async with Network(routing="advertised") as net:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()

        async def at_work() -> None:
            async with net.client("b1") as client:
                await client.subscribe("x > 0")
                net.delay("client-1", "b1", 100.0)
                receipt = client.publish_nowait({"x": 1})
                ready.set()
                await receipt

        task = asyncio.ensure_future(at_work())
        await ready.wait()
        began = loop.time()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert loop.time() - began < 1.0


@in_virtual_time
async def test_leaving_for_another_broker_does_not_wait_for_ever() -> None:
    async with Network("line:2") as net:
        client = await net.connect("b1", timeout=5.0)
        net.delay("client-1", "b1", 100.0)
        receipt = client.publish_nowait({"x": 1})
        for leaving in (client.move("b2"), client.suspend()):
            with pytest.raises(Unreachable, match="not all that was published"):
                await leaving
        receipt.cancel()


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), "5", True])
def test_a_timeout_is_a_number_above_0(timeout: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout"):
        _client = connect("palio://localhost", timeout=timeout)


# --- the queue of deadlines ---


@in_virtual_time
async def test_one_timer_serves_all_and_the_answered_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deadlines, "TIDY_AT", 4)
    loop = asyncio.get_running_loop()
    watched = Deadlines(10.0, lambda: "here")
    began = loop.time()
    stuck = loop.create_future()
    watched.watch(stuck, "stuck", 10.0)
    for _ in range(1_000):
        answered = loop.create_future()
        watched.watch(answered, "answered", 10.0)
        answered.set_result(None)
    assert len(watched._waiting) <= 2 * deadlines.TIDY_AT
    await asyncio.sleep(4.0)
    late = loop.create_future()
    watched.watch(late, "late", 10.0)
    with pytest.raises(Unreachable, match="stuck"):
        await stuck
    assert loop.time() - began == pytest.approx(10.0)
    own = loop.create_future()
    watched.watch(own, "own", 1.0)
    with pytest.raises(Unreachable, match=r"1 s.*own"):
        await own
    assert not late.done()
    watched.close()
    await asyncio.sleep(60.0)
    assert not late.done()
    late.cancel()


def test_a_synchronous_client_has_the_same_limits() -> None:
    with pytest.raises(InvalidInput, match="timeout"):
        palio.SyncClient("palio://127.0.0.1:1", timeout=0).close()
