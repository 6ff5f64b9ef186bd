"""20,000 events each way while the other system or the bridge is killed: none is lost."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

import palio
from palio.bridge.links import BATCH, Message
from palio.errors import Unreachable
from tests.bridge import servers
from tests.bridge.servers import Server
from tests.cli.brokers import PATIENCE_S, broker, process

EVENTS: Final = 20_000

PAUSE_S: Final = 0.2
"""Between two looks, and two attempts of a foreign client to connect."""

AHEAD: Final = 2_000
"""Messages that wait for the bridge: mosquitto writes all of them after each change."""


async def stream(url: str) -> None:
    import nats

    connection = await nats.connect(url)
    await connection.jetstream().add_stream(name="all", subjects=["out.*", "in"])
    await connection.close()


async def queues(url: str) -> None:
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        for name in ("in", "out.x"):
            await channel.declare_queue(name, durable=True)


async def nothing(_: str) -> None:
    """Topics need no declaration."""


SYSTEMS: Final[dict[str, tuple[Callable[[Path], AbstractContextManager[Server]], Any, str]]] = {
    "nats": (servers.nats, stream, "out.x"),
    "amqp": (servers.amqp, queues, "out.x"),
    "mqtt": (servers.mqtt, nothing, "out.x"),
}


class Foreign:
    """Clients of the other system, which connect again after each kill."""

    def __init__(self, system: str, url: str) -> None:
        self._connect = import_module(f"palio.bridge.{system}").connect
        self._url = url
        self.received = Counter[int]()
        self.is_reading = asyncio.Event()

    async def read(self, source: str) -> None:
        """Count the numbers of all messages, until it is cancelled."""
        while True:
            try:
                async with self._connect(self._url, "observer", source) as link:
                    self.is_reading.set()
                    while True:
                        messages = await link.take()
                        self.received.update(json.loads(each.body)["n"] for each in messages)
                        await link.ack(messages)
            except Unreachable:
                await asyncio.sleep(PAUSE_S)

    async def write(self, address: str, entered: Counter[int]) -> None:
        """Send all numbers, each with its id and until it is confirmed."""
        waiting = [Message(address, b'{"n": %d}' % n, f"test/{n}") for n in range(EVENTS)]
        while waiting:
            try:
                async with self._connect(self._url, "writer", "") as link:
                    while waiting:
                        while EVENTS - len(waiting) - len(entered) > AHEAD:  # noqa: ASYNC110  # a counter
                            await asyncio.sleep(PAUSE_S)
                        assert not any(await link.send(waiting[:BATCH]))
                        del waiting[:BATCH]
            except Unreachable:
                await asyncio.sleep(PAUSE_S)


async def enter(client: palio.Client, entered: Counter[int]) -> None:
    """Count the numbers of all events that came from the other system."""
    entering = await client.subscribe(
        "EXISTS paliobridge", durable_name="entering", queue_size=2 * EVENTS
    )
    async for event in entering:
        entered[event["n"]] += 1


async def leave(client: palio.Client, kill: Callable[[], None]) -> None:
    """Publish all events, and kill something when half of them have their receipts."""
    for start in range(0, EVENTS, BATCH):
        events = [{"n": n, "kind": "x"} for n in range(start, min(start + BATCH, EVENTS))]
        await client.publish(events, durable=True)
        if start <= EVENTS // 2 < start + BATCH:
            await asyncio.to_thread(kill)


async def carried(system: str, victim: str, home: Path, palio_url: str) -> None:
    start, prepare, out = SYSTEMS[system]
    with start(home) as server, ExitStack() as stack:
        login = "guest:guest@" if system == "amqp" else ""
        url = f"{system}://{login}127.0.0.1:{server.port}"
        await prepare(url)

        def bridge() -> subprocess.Popen[str]:
            filter = ("--filter", "EXISTS n AND NOT EXISTS paliobridge", "--to", "out.{kind}")
            where = ("--url", url, "--broker", palio_url, "--from", "in")
            started = stack.enter_context(
                process("bridge", system, "--name", system, "--json", *filter, *where)
            )
            assert started.stderr is not None
            for _ in range(2):
                assert "connected" in started.stderr.readline()
            return started

        running = [bridge()]

        def kill() -> None:
            if victim == "bridge":
                running[-1].kill()
                running.append(bridge())
            else:
                server.kill()
                server.start()

        foreign, entered = Foreign(system, url), Counter[int]()
        reading = asyncio.create_task(foreign.read(out))
        await foreign.is_reading.wait()
        async with palio.connect(palio_url, name="observer") as client:
            counting = asyncio.create_task(enter(client, entered))
            began = time.monotonic()
            async with asyncio.timeout(16 * PATIENCE_S):
                await asyncio.gather(foreign.write("in", entered), leave(client, kill))
                while min(len(foreign.received), len(entered)) < EVENTS:  # noqa: ASYNC110  # counters
                    await asyncio.sleep(PAUSE_S)
            took_s = time.monotonic() - began
            for task in (counting, reading):
                task.cancel()
            await asyncio.gather(counting, reading, return_exceptions=True)
        running[-1].send_signal(signal.SIGTERM)
        counts, reports = await asyncio.to_thread(running[-1].communicate)
    twice = {"out": foreign.received.total() - EVENTS, "in": entered.total() - EVENTS}
    print(f"{system}, {victim} killed: {took_s:.0f} s, {twice=}, {counts}{reports}")  # noqa: T201
    assert set(entered) == set(foreign.received) == set(range(EVENTS))
    assert json.loads(counts)["dead_letters"] == 0
    assert twice["out"] <= 2 * BATCH, "those under way to the other system, and to its reader"
    assert twice["in"] == 0, "the broker drops the ids that it has had"


@pytest.mark.nightly
@pytest.mark.parametrize("victim", ["system", "bridge"])
@pytest.mark.parametrize("system", SYSTEMS)
async def test_no_event_is_lost_whatever_is_killed(
    system: str, victim: str, tmp_path: Path
) -> None:
    (home := tmp_path / "other").mkdir()
    with broker("b1", tmp_path / "journal") as url:
        await carried(system, victim, home, url)
