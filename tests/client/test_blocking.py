from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import palio
from palio.client.blocking import Portal, SyncSubscription
from palio.client.events import Event, Gap, PublishReceipt
from palio.client.roaming import ConnectionState
from palio.errors import Closed, InvalidBinding, InvalidEvent, InvalidInput, PalioError
from palio.model.events import SEQ
from tests.cli.brokers import PATIENCE_S, broker

SECONDS = 30
"""Long enough for any machine; a test that waits so long has failed."""


def test_the_verbs_without_await() -> None:
    with palio.SyncBus() as bus:
        sub = bus.subscribe("price < :limit", {"limit": 10})
        sub.settled()
        assert bus.publish([{"price": 5}, {"price": 15}]) == PublishReceipt(1, 2, 1)
        assert sub.receive() == {"price": 5}
        sub.update({"limit": 20})
        assert sub.params == {"limit": 20}
        bus.publish([{"price": 5}, {"price": 15}], publisher="other")
        assert sub.pending == 2
        assert [(event.publisher, event.seq) for event in (sub.receive(), sub.receive())] == [
            *(("other", 1), ("other", 2))
        ]
        sub.replace("price > :limit")
        assert str(sub.filter) == "price > :limit"
        sub.unsubscribe()
        assert list(sub) == []


def test_errors_arrive_as_they_are() -> None:
    with palio.SyncBus() as bus:
        sub = bus.subscribe("price < :limit", {"limit": 10})
        with pytest.raises(InvalidBinding, match="no parameter :other"):
            sub.update(other=1)
        with pytest.raises(InvalidEvent, match="begin with"):
            bus.publish({"$seq": 1})
        with pytest.raises(InvalidBinding, match="has no value"):
            bus.subscribe("price < :limit")


@pytest.mark.parametrize("timeout", [0, 0.001, -1])
def test_receiving_with_a_timeout_loses_nothing(timeout: float) -> None:
    with palio.SyncBus() as bus:
        sub = bus.subscribe("x >= 0")
        for x in range(20):
            with pytest.raises(TimeoutError, match="nothing came within"):
                sub.receive(timeout=timeout)
            bus.publish({"x": x})
            assert sub.receive(timeout=timeout)["x"] == x


def test_events_that_race_with_the_timeout_are_not_lost() -> None:
    received: list[int] = []
    with palio.SyncBus() as bus:
        sub = bus.subscribe("x >= 0")
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(lambda: [bus.publish({"x": x}) for x in range(300)])
            while len(received) < 300:
                try:
                    received.append(sub.receive(timeout=0.0002)["x"])
                except TimeoutError:
                    assert not done.done() or done.exception() is None
        assert received == list(range(300))


def test_gaps_and_counts() -> None:
    told: list[Gap] = []
    with palio.SyncBus() as bus:
        sub = bus.subscribe("x >= :low", {"low": 0}, queue_size=2, on_gap=told.append)
        bus.publish([{"x": x} for x in range(5)])
        sub.update(low=4)
        assert sub.receive()["x"] == 4
        assert (sub.dropped, sub.stale, sub.pending) == (3, 1, 0)
        assert told == sub.gaps == [Gap("bus", 1, 3, 3)]


def test_batches() -> None:
    with palio.SyncBus() as bus:
        sub = bus.subscribe("x > 0")
        bus.publish([{"x": x} for x in range(3)])
        bus.publish({"x": 5})
    assert [batch.column(SEQ).to_pylist() for batch in sub.batches()] == [[2, 3], [4]]


def test_a_batch_with_a_timeout() -> None:
    with palio.SyncBus() as bus:
        sub = bus.subscribe("x > 0")
        with pytest.raises(TimeoutError):
            sub.receive_batch(timeout=0.001)
        bus.publish([{"x": 1}, {"x": 2}])
        assert sub.receive_batch(timeout=30).num_rows == 2


def test_what_waits_can_be_taken_after_the_end() -> None:
    with palio.SyncBus() as bus:
        sub = bus.subscribe("x >= :low", {"low": 0})
        bus.publish([{"x": x} for x in range(3)])
    assert sub.receive(timeout=SECONDS)["x"] == 0
    assert [event["x"] for event in sub] == [1, 2]
    with pytest.raises(Closed):
        sub.receive(timeout=SECONDS)


@pytest.mark.parametrize(
    "call",
    [
        lambda bus, sub: bus.publish({"x": 1}),
        lambda bus, sub: bus.subscribe("x = 1"),
        lambda bus, sub: bus.attach(palio.Subscriber()),
        lambda bus, sub: sub.update(),
        lambda bus, sub: sub.replace("x = 1"),
        lambda bus, sub: sub.settled(),
    ],
)
def test_everything_else_after_the_end_is_closed(
    call: Callable[[palio.SyncBus, SyncSubscription], object],
) -> None:
    with palio.SyncBus() as bus:
        sub = bus.subscribe("x = 1")
    with pytest.raises(Closed):
        call(bus, sub)
    bus.close()
    sub.unsubscribe()
    bus.detach(palio.Subscriber())


def test_a_subscription_is_a_context() -> None:
    with palio.SyncBus() as bus, bus.subscribe("x >= 0") as sub:
        bus.publish({"x": 1})
        assert sub.receive()["x"] == 1
    assert list(sub) == []


# --- threads ---


def test_many_threads_may_use_one_bus() -> None:
    def publish(name: str) -> None:
        for x in range(100):
            bus.publish({"x": x}, publisher=name)

    def consume(sub: SyncSubscription) -> list[Event]:
        return list(sub)

    names = ["a", "b", "c"]
    with ThreadPoolExecutor(8) as pool:
        with palio.SyncBus() as bus:
            subs = [bus.subscribe("x >= :low", {"low": low}) for low in (0, 50)]
            consumers = [pool.submit(consume, sub) for sub in subs]
            publishers = [pool.submit(publish, name) for name in names]
            for each in publishers:
                each.result(SECONDS)
        received = [each.result(SECONDS) for each in consumers]
    for events, low in zip(received, (0, 50), strict=True):
        for name in names:
            own = [event["x"] for event in events if event.publisher == name]
            assert own == list(range(low, 100))
        assert [event.time for event in events] == sorted(event.time for event in events)


def test_closing_from_another_thread_ends_iteration() -> None:
    for _ in range(50):
        bus = palio.SyncBus()
        subs = [bus.subscribe("x >= 0") for _ in range(4)]
        begun = threading.Barrier(5)

        def consume(sub: SyncSubscription, begun: threading.Barrier = begun) -> list[Any]:
            begun.wait(SECONDS)
            return [event["x"] for event in sub]

        with ThreadPoolExecutor(4) as pool:
            consumers = [pool.submit(consume, sub) for sub in subs]
            begun.wait(SECONDS)
            bus.publish({"x": 1})
            bus.close()
            assert [each.result(SECONDS) for each in consumers] == [[1]] * 4


def test_calls_that_race_with_the_end_are_done_or_refused() -> None:
    def publish(bus: palio.SyncBus) -> int:
        count = 0
        try:
            while True:
                bus.publish({"x": count})
                count += 1
        except Closed:
            return count

    for _ in range(20):
        with ThreadPoolExecutor(3) as pool:
            with palio.SyncBus() as bus:
                sub = bus.subscribe("x >= 0")
                publishers = [pool.submit(publish, bus) for _ in range(3)]
                sub.receive(timeout=SECONDS)
            published = sum(each.result(SECONDS) for each in publishers)
        assert 1 + len(list(sub)) == published


def test_several_threads_may_close() -> None:
    bus = palio.SyncBus()
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(bus.close) for _ in range(4)]:
            each.result(SECONDS)
    assert not bus._portal._thread.is_alive()


def test_no_thread_is_left() -> None:
    before = threading.enumerate()
    for _ in range(5):
        with palio.SyncBus() as bus:
            bus.attach(Relay(bus))
    left = [each.name for each in threading.enumerate() if each not in before]
    assert [name for name in left if name != "palio-engine"] == [], "an engine's job ends by itself"


# --- on the bus's own thread ---


class Relay(palio.Subscriber):
    """Publishes again what it hears, through the same synchronous bus."""

    low = palio.Parameter(0)

    def __init__(self, bus: palio.SyncBus) -> None:
        self.bus = bus
        self.errors: list[BaseException | None] = []

    @palio.on("x >= :low", queue_size=2)
    def relay(self, x: int) -> None:
        self.low = x
        self.bus.publish({"y": x})
        if x == 9:
            self.bus.detach(self)

    @palio.on("wait = TRUE")
    def wait(self) -> None:
        self.bus.subscribe("x = 1").receive()

    @palio.on("end = TRUE")
    async def end(self) -> None:
        self.bus.close()

    def failed(self, handler: str, event: Event, error: Exception) -> None:  # noqa: ARG002  # theirs
        self.errors.append(error.__cause__)


def test_handlers_may_use_the_bus_that_runs_them() -> None:
    with palio.SyncBus() as bus:
        relayed = bus.subscribe("EXISTS y")
        relay = bus.attach(Relay(bus))
        for x in (5, 3, 7):
            bus.publish({"x": x})
            if x != 3:
                assert relayed.receive(timeout=SECONDS)["y"] == x
        assert relay.low == 7
        relay.low = 1
        bus.publish({"x": 9})
        assert relayed.receive(timeout=SECONDS)["y"] == 9
        assert bus.publish({"x": 9}).deliveries == 0
    assert relay.errors == []


def test_a_handler_that_would_wait_for_itself_is_told_so() -> None:
    with palio.SyncBus() as bus:
        relay = bus.attach(Relay(bus))
        bus.publish({"wait": True})
        bus.publish({"end": True})
        bus.detach(relay)
        first, second = relay.errors
        assert isinstance(first, PalioError)
        assert "only that thread can do" in str(first)
        assert isinstance(second, PalioError)
        assert "use another thread" in str(second)
        assert bus.publish({"x": 1}) == PublishReceipt(3, 3, 1)


def test_on_gap_may_use_the_bus() -> None:
    for close_first in (False, True):
        with palio.SyncBus() as bus:
            told: list[int] = []

            def tell(gap: Gap, bus: palio.SyncBus = bus, told: list[int] = told) -> None:
                told.append(gap.count)
                try:
                    told.append(bus.publish({"lost": gap.count}).last_seq)
                except Closed:
                    told.append(-1)

            sub = bus.subscribe("x >= 0", queue_size=1, on_gap=tell)
            bus.publish([{"x": 1}, {"x": 2}])
            if close_first:
                bus.close()
            assert sub.receive(timeout=SECONDS)["x"] == 2
        assert told == [1, -1 if close_first else 3]


def test_a_portal_lets_calls_end_before_it_closes() -> None:
    portal = Portal("test")
    begun = threading.Event()

    async def take_turns() -> int:
        begun.set()
        for _ in range(1_000):
            await asyncio.sleep(0)
        return 7

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(portal.call, take_turns())
        assert begun.wait(SECONDS)
        portal.close()
        assert call.result(SECONDS) == 7


def test_a_portal_cancels_what_is_left_running() -> None:
    portal = Portal("test")
    cancelled = threading.Event()

    async def leave_something() -> None:
        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        tasks.append(asyncio.create_task(forever()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    portal.call(leave_something())
    portal.close()
    portal.close()
    assert cancelled.is_set()


# --- ends ---


def test_a_client_may_be_closed_twice() -> None:
    with broker("b1") as url, palio.SyncClient(url) as client:
        client.close()
        client.close()


def test_the_states_of_a_connection_without_await() -> None:
    with broker("b1") as url, palio.SyncClient(url) as client:
        states = client.states()
        assert next(states).status == "connected"
        client.suspend()
        assert next(states) == ConnectionState("disconnected", "b1")
        client.resume()
        assert next(states).status == "connected"
        client.close()
        assert list(states) == []


def test_a_request_without_await() -> None:
    class Clerk(palio.Subscriber):
        @palio.on("EXISTS ask")
        def asked(self, id: str) -> None:
            bus.publish({"answers": id})

    with palio.SyncBus() as bus:
        bus.attach(Clerk())
        assert bus.request({"ask": 1, "id": "7"}, "answers = :id") == {"answers": "7"}


def test_an_offer_and_questions_without_await() -> None:
    with broker("b1", routing="advertised") as url, palio.SyncClient(url, name="ann") as client:
        offer = client.advertise("x < :most", {"most": 5})
        assert repr(offer) == "<SyncAdvertisementHandle of x < 5>"
        client.settled()
        heard = client.subscribe("x > 1")
        assert client.admin.status()["subscriptions"] == 1
        assert client.admin.topology()["asked"] == "b1"
        assert client.admin.trace({"x": 2})["hops"][0]["matched"][0]["subscriber"] == "ann"
        assert [entry["filter"] for entry in client.admin.subscriptions()] == ["x > 1"]
        assert client.admin.query("topology") == client.admin.topology()
        assert client.cancel("x > :least", {"least": 0}) == 1
        assert heard.is_closed
        offer.withdraw()
        client.unadvertise(offer)  # again: it is withdrawn already
        assert not offer.is_in_force
        other = client.advertise("x < 5")
        client.unadvertise("x < :most", {"most": 5})
        assert not other.is_in_force
        client.settled()


def test_what_is_not_closed_is_told_and_leaves_no_thread() -> None:
    bus = palio.SyncBus()
    thread = next(each for each in threading.enumerate() if each.name == "palio-bus")
    left = weakref.ref(bus)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del bus
        gc.collect()
    assert left() is None
    assert "the thread of a palio-bus was never closed" in [str(each.message) for each in caught]
    thread.join(SECONDS)
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks on this system")
def test_a_forked_child_is_told_that_the_thread_is_not_there() -> None:
    program = (
        "import os, palio\n"
        "bus = palio.SyncBus()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        bus.publish({'x': 1})\n"
        "    except palio.errors.PalioError as error:\n"
        "        os._exit(7 if 'forked' in str(error) else 1)\n"
        "    os._exit(2)\n"
        "status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "bus.close()\n"
        "raise SystemExit(status)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=SECONDS, check=False)
    assert done.returncode == 7


def test_what_things_are_is_shown() -> None:
    with palio.SyncBus() as bus:
        sub = bus.subscribe("x = 1")
        assert repr(bus) == "<SyncBus: <Bus with 1 subscriptions>>"
        assert repr(sub) == "<SyncSubscription to x = 1, 0 pending>"


def test_a_pattern_is_durable_without_await(tmp_path: Path) -> None:
    with broker(data=tmp_path) as url:
        with palio.SyncClient(url, name="bob") as bob:
            bob.subscribe("n = 1 THEN n = 2", durable_name="d", reorder_timeout=0)
            bob.publish({"n": 1}, durable=True)
        with palio.SyncClient(url, name="bob") as bob:
            heard = bob.subscribe("n = 1 THEN n = 2", durable_name="d", reorder_timeout=0)
            bob.publish({"n": 2}, durable=True)
            assert [part["n"] for part in heard.receive(timeout=PATIENCE_S).parts] == [1, 2]


def test_nothing_is_durable_on_a_bus() -> None:
    with palio.SyncBus() as bus, pytest.raises(InvalidInput, match="a bus keeps nothing"):
        bus.publish({"x": 1}, durable=True)


def test_an_event_is_rejected_without_await(tmp_path: Path) -> None:
    with broker("b1", tmp_path / "data") as url, palio.SyncClient(url, name="bob") as bob:
        orders = bob.subscribe("EXISTS order", durable_name="orders")
        bob.publish({"order": 7}, durable=True)
        assert orders.receive(5)["order"] == 7
        orders.nack(reason="no stock")
        assert orders.receive(5)["order"] == 7
        assert orders.event.attempt == 2
