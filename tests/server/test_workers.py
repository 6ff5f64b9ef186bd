"""Workers of one group, processes that are killed under load: each event is done at least once."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from palio import connect
from palio.client.connection import Client
from palio.node.limits import GROUP_PREFETCH
from palio.testing.fleet import Fleet
from tests.conftest import NIGHTLY

EVENTS: Final = 50_000 if NIGHTLY else 3_000
WORKERS: Final = 4
POISON: Final = 13
TOGETHER: Final = 100
KILL_EVERY: Final = 5_000 if NIGHTLY else 1_000
"""After so many events a worker is killed."""

WORK: Final = f"""
import asyncio, sys, palio

async def main():
    async with palio.connect(sys.argv[1], name="bob") as client:
        jobs = await client.subscribe(
            "EXISTS x", durable_name="jobs", ack="manual", group=True, max_attempts=3
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
    """Processes, each with a file of what it has done."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._running: list[Process] = []
        self.kills = 0

    async def start(self) -> None:
        """Start one."""
        path = self._folder / f"{self.kills}-{len(self._running)}.done"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WORK, self._url, str(path)
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

    def done(self) -> Iterator[int]:
        """What all have done, those too that were killed while they wrote a line."""
        for path in self._folder.glob("*.done"):
            *lines, _ = path.read_text().split("\n")
            yield from map(int, lines)


async def until(client: Client, is_so: Callable[[dict[str, Any]], bool]) -> None:
    """Ask a broker how it stands, until that is so; each answer takes some turns of the loop."""
    while not is_so(await client.admin.status()):
        pass


async def published(client: Client, workers: Workers) -> None:
    """Publish all, and kill a worker now and then."""
    for first in range(0, EVENTS, TOGETHER):
        some = range(first, min(EVENTS, first + TOGETHER))
        await asyncio.gather(*[client.publish({"x": x}, durable=True) for x in some])
        if first and first % KILL_EVERY == 0:
            await workers.kill()


async def test_each_event_is_done_though_workers_are_killed(tmp_path: Path) -> None:
    async with Fleet(("b1",), tmp_path, limits={"client_grace_s": 1.0}) as fleet:
        url = fleet.url("b1")
        workers = Workers(url, tmp_path)
        async with connect(url, name="ann") as ann:
            failed = await ann.subscribe("EXISTS dead_letter", durable_name="failed")
            try:
                for _ in range(WORKERS):
                    await workers.start()
                await until(ann, lambda _: any(tmp_path.glob("*.done")))  # one has subscribed
                await published(ann, workers)
                async with asyncio.timeout(120.0):
                    letter = await failed.receive()
                    await until(ann, lambda status: not status["custody_waiting"]["bob/jobs"])
            finally:
                await workers.stop()
    done = Counter(workers.done())
    assert (letter["x"], letter["dead_letter_reason"]) == (POISON, "poison")
    assert set(done) == set(range(EVENTS)) - {POISON}
    assert workers.kills >= 2
    assert done.total() - len(done) <= workers.kills * GROUP_PREFETCH
