"""Four workers of one group, killed with SIGKILL under load: all work is done, and little twice."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
from asyncio.subprocess import Process
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from palio import connect
from palio.node.limits import GROUP_PREFETCH
from palio.testing.fleet import SOON, Fleet
from tests.conftest import NIGHTLY
from tests.server.group_worker import ATTEMPTS, join

logger: Final = logging.getLogger(__name__)

ROOT: Final = Path(__file__).parents[2]
WORKERS: Final = 4
PUBLISHERS: Final = 4
LONG: Final = NIGHTLY or "PALIO_WORKERS" in os.environ
SECONDS: Final = 300.0 if LONG else 8.0
EVENTS: Final = 50_000 if LONG else 800
KILL_S: Final = 5.0 if LONG else 3.0
PATIENCE_S: Final = 120.0


async def dismiss(workers: list[Process]) -> None:
    """Kill those that run: they would dial whoever listens at the port later."""
    for worker in workers:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()


async def hired(url: str, file: Path) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.server.group_worker", url, str(file)), cwd=ROOT
    )


async def publish(url: str, numbers: range, gap_s: float) -> None:
    """Publish jobs one by one, so that each is an entry of its own."""
    loop = asyncio.get_running_loop()
    async with connect(url, name=f"publisher{numbers.start}") as client:
        due = loop.time()
        for number in numbers:
            await client.publish({"job": number}, durable=True)
            due += gap_s
            await asyncio.sleep(due - loop.time())  # the load


async def live_through(folder: Path, seed: int) -> tuple[Counter[int], int, list[tuple[int, int]]]:
    """Return how often each job was done, how often a worker was killed, and the dead letters."""
    draw, kills, file = random.Random(seed), 0, folder / "done"
    limits = {**SOON, "client_grace_s": 1.0}
    letters: list[tuple[int, int]] = []
    async with (
        AsyncExitStack() as stack,
        Fleet(("b1",), folder, limits=limits) as fleet,
        asyncio.timeout(SECONDS + PATIENCE_S),
    ):
        url = fleet.url("b1")
        async with connect(url, name="workers") as first:
            await join(first)  # it stays for the others: no job is published before
        workers: list[Process] = []
        stack.push_async_callback(dismiss, workers)
        for _ in range(WORKERS):
            workers.append(await hired(url, file))  # noqa: PERF401  # each is dismissed at last
        async with connect(url, name="operator") as operator:
            failed = await operator.subscribe(
                "EXISTS dead_letter", durable_name="failed", ack="manual"
            )
            gap_s = SECONDS * PUBLISHERS / EVENTS
            publishing = asyncio.gather(
                *(publish(url, range(n, EVENTS, PUBLISHERS), gap_s) for n in range(PUBLISHERS))
            )
            await operator.publish({"job": -1}, durable=True)
            while not publishing.done():
                await asyncio.wait([publishing], timeout=KILL_S)
                place = draw.randrange(WORKERS)
                workers[place].kill()
                await workers[place].wait()
                workers[place] = await hired(url, file)
                kills += 1
            await publishing
            letter = await failed.receive()
            letters.append((letter["job"], letter["dead_letter_attempts"]))
            letter.ack()
            while (await operator.admin.status())["custody_entries"]:
                pass
    return Counter(map(int, file.read_text().split())), kills, letters


def test_workers_that_are_killed(tmp_path: Path, seed: int) -> None:
    done, kills, letters = asyncio.run(live_through(tmp_path, seed))
    repeats = done.total() - len(done)
    logger.info("%d jobs, %d kills, %d done again", len(done), kills, repeats)
    assert sorted(done) == list(range(EVENTS))
    assert repeats <= kills * GROUP_PREFETCH
    assert letters == [(-1, ATTEMPTS)]
