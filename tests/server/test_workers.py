"""Workers of one group, processes that are killed under load: each event is done at least once."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from palio import connect
from palio.client.connection import Client
from palio.node.limits import GROUP_PREFETCH
from palio.testing.fleet import Fleet
from tests.conftest import NIGHTLY

EVENTS: Final = 50_000 if NIGHTLY else 3_000
WORKERS: Final = 4
POISON: Final = 13
TOGETHER: Final = 100
KEYS: Final = 50
KILL_EVERY: Final = 5_000 if NIGHTLY else 1_000
"""After so many events a worker is killed."""

WORK: Final = f"""
import asyncio, sys, palio

async def main():
    async with palio.connect(sys.argv[1], name="bob") as client:
        jobs = await client.subscribe(
            "EXISTS x", durable_name="jobs", ack="manual", group=True, max_attempts=3,
            order_by=sys.argv[3],
        )
        with open(sys.argv[2], "a", buffering=1) as done:
            async for event in jobs:
                if event["x"] == {POISON}:
                    event.nack(reason="poison")
                    continue
                done.write(f"{{event['x']}}\\n")
                event.ack()

asyncio.run(main())
"""


class Workers:
    """Processes, and the file to which each appends what it has done."""

    def __init__(self, url: str, path: Path, order_by: str) -> None:
        self._url = url
        self._path = path
        self._order_by = order_by
        self._running: list[Process] = []
        self.kills = 0

    async def start(self) -> None:
        """Start one."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WORK, self._url, str(self._path), self._order_by)
        )
        self._running.append(process)

    async def kill(self) -> None:
        """Kill the oldest, and start another one."""
        self.kills += 1
        oldest = self._running.pop(0)
        oldest.kill()
        await oldest.wait()
        await self.start()

    async def stop(self) -> None:
        """Kill all."""
        for process in self._running:
            process.kill()
            await process.wait()

    def done(self) -> list[int]:
        """What all have done, in order: a line is written at once."""
        return [int(line) for line in self._path.read_text().splitlines()]


async def until(client: Client, is_so: Callable[[dict[str, Any]], bool]) -> None:
    """Ask a broker how it stands, until that is so; each answer takes some turns of the loop."""
    while not is_so(await client.admin.status()):
        pass


async def published(client: Client, workers: Workers) -> None:
    """Publish all, and kill a worker now and then."""
    for first in range(0, EVENTS, TOGETHER):
        some = range(first, min(EVENTS, first + TOGETHER))
        await asyncio.gather(
            *[client.publish({"x": x, "key": x % KEYS}, durable=True) for x in some]
        )
        if first and first % KILL_EVERY == 0:
            await workers.kill()


@pytest.mark.parametrize("order_by", ["", "key"])
async def test_each_event_is_done_though_workers_are_killed(tmp_path: Path, order_by: str) -> None:
    async with Fleet(("b1",), tmp_path, limits={"client_grace_s": 1.0}) as fleet:
        url = fleet.url("b1")
        workers = Workers(url, tmp_path / "done", order_by)
        async with connect(url, name="ann") as ann:
            failed = await ann.subscribe("EXISTS dead_letter", durable_name="failed")
            try:
                for _ in range(WORKERS):
                    await workers.start()
                await until(ann, lambda _: (tmp_path / "done").exists())  # one has subscribed
                await published(ann, workers)
                async with asyncio.timeout(120.0):
                    letter = await failed.receive()
                    await until(ann, lambda status: not status["custody_waiting"]["bob/jobs"])
            finally:
                await workers.stop()
    if order_by:  # what a worker did that was killed is done again before the next of its key
        for key in range(KEYS):
            of_key = [x for x in workers.done() if x % KEYS == key]
            assert of_key == sorted(of_key)
    done = Counter(workers.done())
    assert (letter["x"], letter["dead_letter_reason"]) == (POISON, "poison")
    assert set(done) == set(range(EVENTS)) - {POISON}
    assert workers.kills >= 2
    assert done.total() - len(done) <= workers.kills * GROUP_PREFETCH
