from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NoReturn

import pytest

import palio
from palio.client.base_bus import BaseBus
from palio.client.dispatcher import Dispatcher
from palio.client.upstream import Change, PendingReply
from palio.errors import Closed, InvalidBinding, NotPermitted, SubscriptionEnded
from palio.matching.reference import Reference
from palio.protocol.messages import Subscribe
from palio.testing import Network
from tests.client.recording import Recording
from tests.client.virtual import PATIENCE_S, in_virtual_time


@dataclass
class Watcher(palio.Subscriber):
    """Equal to others of the same name, and without a hash."""

    name: str
    heard: int = 0

    @palio.on("x > 0")
    def rises(self) -> None:
        self.heard += 1

    @palio.on("x < 0")
    def falls(self) -> None:
        self.heard -= 1


class Refusing(Recording):
    """An upstream that refuses each subscription, one turn of the loop after the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[asyncio.Future[None]] = []

    def send_change(self, change: Change, /) -> PendingReply:
        super().send_change(change)
        if not isinstance(change, Subscribe):
            return None
        answer = asyncio.get_running_loop().create_future()
        delay = 0.001 * change.key
        error = NotPermitted(f"not {change.key}")
        asyncio.get_running_loop().call_later(delay, answer.set_exception, error)
        self.answers.append(answer)
        return answer


async def test_subscribers_that_are_equal_or_have_no_hash_are_told_apart() -> None:
    async with palio.Bus() as bus:
        one, other = Watcher("a"), Watcher("a")
        for each in (one, other):
            await bus.attach(each)
        await bus.detach(one)
        await bus.publish({"x": 1})
        await bus.detach(other)
        assert (one.heard, other.heard) == (0, 1)


class Silent(BaseBus[Refusing]):
    async def publish(self, events: object) -> NoReturn:
        raise NotImplementedError

    def _check_unused(self, durable_name: str) -> NoReturn:
        raise NotImplementedError


async def test_the_answers_to_all_handlers_are_waited_for() -> None:
    upstream = Refusing()
    hub = Silent(Dispatcher(upstream, Reference()), upstream, reorder_timeout=0.0)
    with pytest.raises(NotPermitted, match="not 0") as refused:
        await hub.attach(Watcher("a"))
    assert refused.value.__notes__ == ["and: not 1"]
    assert all(each.done() for each in upstream.answers)


# --- cancelling by covering ---


async def test_all_that_a_filter_covers_is_cancelled_and_nothing_wider() -> None:
    async with palio.Bus() as bus:
        wide, narrow, other = [await bus.subscribe(text) for text in ("x > 0", "x > 5", "y = 1")]
        moving = await bus.subscribe("x > :least", {"least": 3})
        pattern = await bus.subscribe("x > 5 THEN x > 5")
        assert await bus.cancel("x > :low", {"low": 3}) == 2
        assert [each.is_closed for each in (wide, narrow, other, moving, pattern)] == [
            *(False, True, False, True, False)
        ]
        assert await bus.cancel("x > 3") == 0  # it makes no hole in what is wider
        await bus.publish([{"x": 9}, {"y": 1}])
        assert (wide.pending, narrow.pending, other.pending) == (1, 0, 1)


async def test_what_a_parameter_widens_is_covered_no_more() -> None:
    async with palio.Bus() as bus:
        moving = await bus.subscribe("x > :least", {"least": 3})
        await moving.update(least=1)
        assert await bus.cancel("x > 2") == 0
        await moving.update(least=2)
        assert await bus.cancel("x > 2") == 1


async def test_what_waits_is_discarded_with_what_is_cancelled() -> None:
    async with palio.Bus() as bus:
        heard = await bus.subscribe("x > 5")
        await bus.publish({"x": 9})
        assert await bus.cancel("EXISTS x") == 1
        with pytest.raises(Closed):
            await heard.receive()


@pytest.mark.parametrize(
    ("covering", "count"),
    [
        ("x > 0 THEN y > 0", 2),
        ("x > 0 THEN y > 0 WITHIN 2s", 1),
        ("x > 1 THEN y > 0", 1),
        ("x > 0", 0),
        ("x > 0 THEN y > 0 THEN z > 0", 0),
    ],
)
async def test_a_pattern_cancels_patterns_step_by_step(covering: str, count: int) -> None:
    async with palio.Bus() as bus:
        await bus.subscribe("x > 1 THEN y > 1 WITHIN 1s")
        await bus.subscribe("x > 0 THEN y > 0")
        assert await bus.cancel(covering) == count


async def test_handlers_go_on_until_their_subscriber_is_detached() -> None:
    async with palio.Bus() as bus:
        watcher = await bus.attach(Watcher("one"))
        assert await bus.cancel("TRUE") == 0
        await bus.publish({"x": 1})
        await bus.detach(watcher)
        assert watcher.heard == 1


async def test_what_is_no_filter_cancels_nothing() -> None:
    async with palio.Bus() as bus:
        await bus.subscribe("x > 0")
        with pytest.raises(InvalidBinding, match=":low"):
            await bus.cancel("x > :low")
        with pytest.raises(InvalidBinding, match="no parameter :low"):
            await bus.cancel("x > 0", {"low": 1})
        assert await bus.cancel("x > 0") == 1


@pytest.mark.parametrize("text", ["x > 3", "x > 3 THEN x > 4"])
async def test_a_new_subscription_replaces_what_it_covers_if_asked(text: str) -> None:
    async with palio.Bus() as bus, Network() as net:
        client = await net.connect("b1", identity="ann")
        other = await net.connect("b1", identity="ann")
        for hub, elsewhere in ((bus, bus), (client, client), (client, other)):
            narrow = await elsewhere.subscribe(text.replace("3", "5"))
            equal = await hub.subscribe(text)
            beside = await elsewhere.subscribe("y > 3")
            wide = await hub.subscribe(text, replace_covered=True)
            with pytest.raises((Closed, SubscriptionEnded)):
                await narrow.receive(PATIENCE_S)
            assert (equal.is_closed, wide.is_closed, beside.is_closed) == (True, False, False)
            await wide.unsubscribe()  # and brings nothing back
            assert (narrow.is_closed, equal.is_closed) == (True, True)


@in_virtual_time
async def test_what_an_identity_hears_is_cancelled_from_any_connection_of_it() -> None:
    async with Network() as net:
        planner, worker = [await net.connect("b1", identity="ann") for _ in range(2)]
        bob = await net.connect("b1")
        texts = ("x > 0", "x > 5", "x > 5 THEN y > 5")
        wide, narrow, pattern = [await worker.subscribe(each) for each in texts]
        strange = await bob.subscribe("x > 5")
        own = await planner.subscribe("x > 6")
        await bob.publish({"x": 9})
        assert await bob.cancel("x > 1") == 1  # its own
        assert strange.is_closed
        assert await planner.cancel("x > :least", {"least": 3}) == 2
        assert own.is_closed
        assert (await narrow.receive())["x"] == 9  # what waited comes first
        with pytest.raises(SubscriptionEnded, match="cancelled what x > 3 covers"):
            await narrow.receive()
        assert (narrow.is_closed, wide.is_closed, pattern.is_closed) == (True, False, False)
        with pytest.raises(Closed):
            await narrow.update(least=1)
        assert await planner.cancel("x > 1 THEN TRUE") == 1
        with pytest.raises(SubscriptionEnded):
            await pattern.receive()
        net.kill("b1")
        net.restart("b1")
        assert (await worker.admin.status())[
            "subscriptions"
        ] == 1  # what has ended is not said again
        await bob.publish({"x": 9})
        await wide.settled()


@in_virtual_time
async def test_handlers_of_others_are_told_that_they_were_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Network() as net:
        planner, worker = [await net.connect("b1", identity="ann") for _ in range(2)]
        watcher = await worker.attach(Watcher("one"))
        mine = await planner.attach(Watcher("mine"))
        assert await planner.cancel("x > 0") == 1  # one's own go on
        await planner.publish([{"x": 1}, {"x": -1}])
        await worker.detach(watcher)
        await planner.detach(mine)
        assert (watcher.heard, mine.heard) == (-1, 0)
        assert "rises of Watcher(name='one'" in caplog.text
        assert "receives no more events: another client that acts as 'ann'" in caplog.text


@in_virtual_time
async def test_an_update_that_comes_after_a_cancellation_is_told_so() -> None:
    async with Network() as net:
        planner, worker = [await net.connect("b1", identity="ann") for _ in range(2)]
        heard = await worker.subscribe("x > :least", {"least": 5})
        ended, update = await asyncio.gather(
            planner.cancel("x > 1"), heard.update(least=6), return_exceptions=True
        )
        assert ended == 1
        assert isinstance(update, Closed)
        with pytest.raises(SubscriptionEnded):
            await heard.receive()


async def test_the_broker_is_told_of_what_is_cancelled() -> None:
    async with Network() as net:
        client = await net.connect("b1", name="ann")
        await client.subscribe("x > 5")
        await client.subscribe("x > 6", durable_name="d")
        wide = await client.subscribe("x > 0")
        assert await client.cancel("x > 3") == 2
        status = await client.admin.status()
        assert (status["subscriptions"], status["durable_subscriptions"]) == (1, 1)
        await client.subscribe("x > 6", durable_name="d")
        assert await client.cancel("x > 3", delete=True) == 1
        assert (await client.admin.status())["durable_subscriptions"] == 0
        assert not wide.is_closed
