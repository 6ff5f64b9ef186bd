"""What a broker withstands: journals, breaks, idle connections, clients that stop reading.

    python -m benchmarks.stress [--json] [--full] [--only journal,resync,idle,slow]

Brokers are processes of their own (`palio serve`). Times are wall times; memory is what the process
of the broker has resident, less what it had before.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.matching_results import Bar, Results, text
from benchmarks.network_ends import Wire
from benchmarks.relay import Relay
from benchmarks.stress_ends import BULK_ROWS, GROUPS, Idle, Stranger, connect, resident_bytes
from palio.client.connection import connect as client
from palio.protocol.limits import GREETING_S
from palio.protocol.messages import Settle, Subscribe, Unsubscribe
from palio.testing.fleet import Fleet

KIB: Final = 1 << 10
MIB: Final = 1 << 20

ONE: Final = ("b1",)
LINK_S: Final = 0.01
BREAK_S: Final = 3.0
"""Shorter than a broker waits for another that is away."""


PATIENT_S: Final = 60.0
"""Long enough to count what those cost that have not greeted."""

CUT_S: Final = GREETING_S + 0.1
"""What a stranger is given, and a little to notice that it is over."""

WARM: Final = 50
STEADY_BYTES: Final = MIB
STEADY_S: Final = 5.0
"""In so long a broker that is still loading takes more than that."""

HEARTBEATS_S: Final = 20.0
"""A broker hangs up on those that it has not heard for 15 s."""

BUDGET: Final = 128 * MIB
BULKS_A_S: Final = 50.0
QUIET_S: Final = 0.005
WARM_S: Final = 2.0
"""What is measured before that counts for nothing."""


class Size(NamedTuple):
    """How much of each."""

    journal_events: int
    subscriptions: int
    idle: int
    stalled: int
    slow_s: float


QUICK: Final = Size(100_000, 10_000, 1_000, 1_000, 30.0)
FULL: Final = Size(1_000_000, 100_000, 5_000, 1_000, 60.0)


class Linked(Fleet):
    """Two brokers, and a slow line between them that can be cut."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("b1", "b2"), folder, limits={})
        self.line = Relay(self.port("b1"), delay_s=LINK_S)

    def way(self, name: str, other: str) -> str:  # noqa: ARG002  # there is one
        """See `Fleet`."""
        return self.line.url


# --- a journal of many events ---


async def journal(results: Results, size: Size) -> None:
    """Fill a journal, kill the broker, and see how long it takes to be there again."""
    rows = 100
    with tempfile.TemporaryDirectory() as folder:
        async with Fleet(ONE, Path(folder)) as fleet:
            owner, publisher = await both(fleet.url("b1"))
            await owner.subscribe(["a0 >= 0"], durable="all")
            owner.close()
            batch = pa.record_batch({f"a{at}": np.arange(rows) for at in range(10)})
            for first in range(1, size.journal_events, rows):
                publisher.publish(batch, first, durable=True)
                if first % (100 * rows) == 1:
                    await publisher.until(lambda: publisher.accepted > first - 200 * rows)  # noqa: B023  # awaited here
            await publisher.until(lambda: publisher.accepted >= size.journal_events)
            await fleet.kill("b1")
            started = perf_counter()
            await fleet.start("b1")
            ready = perf_counter() - started
            owner = await Wire.connect(fleet.url("b1"), "hears")
            owner.send(Subscribe(1, 1, "a0 >= 0", durable="all"))
            await owner.until(lambda: owner.events > 0)
            results.facts["journal: first delivery after a kill, s"] = perf_counter() - started
            await owner.until(lambda: owner.events >= size.journal_events)
            results.facts["journal: all delivered after a kill, s"] = perf_counter() - started
            bar(results, 2, f"journal of {size.journal_events:,} events, ready", 5, ready, "s")


async def both(url: str) -> tuple[Wire, Wire]:
    """A client that hears and one that says."""
    return await Wire.connect(url, "hears"), await Wire.connect(url, "says")


# --- a link that returns ---


async def resync(results: Results, size: Size) -> None:
    """Many subscriptions known beyond a link; it breaks, some change, and it returns."""
    total = size.subscriptions
    with tempfile.TemporaryDirectory() as folder:
        fleet = Linked(Path(folder))
        async with fleet.line, fleet:
            client = await Wire.connect(fleet.url("b1"), "hears")
            started = perf_counter()
            for first in range(0, total, 5_000):
                await change(client, range(first, min(total, first + 5_000)))
            results.facts["resync: until all are in force the first time, s"] = since(started)
            results.facts["resync: bytes for all of them"] = float(fleet.line.carried_bytes)
            first = 0
            for changes in (total // 1_000, total // 100):
                changed = range(first, first + changes // 2)
                seconds, sent = await return_after(BREAK_S, fleet.line, client, changed, total)
                first = changed.stop
                results.facts[f"resync: bytes for {changes:,} changes"] = float(sent)
                name = f"{total:,} subscriptions, {changes:,} changes, in force again"
                bar(results, 2, name, 5, seconds, "s")
            client.close()


async def change(client: Wire, keys: range) -> None:
    """Subscribe under each key to something that no other covers, and wait until it is in force."""
    before = client.answers
    for key in keys:
        client.send(Subscribe(key, key, f"number = {key}"))
    client.send(Settle(0))
    await client.until(lambda: client.answers > before + len(keys))


async def return_after(
    break_s: float, line: Relay, client: Wire, changed: range, base: int
) -> tuple[float, int]:
    """Seconds and bytes from the return of the link until what changed meanwhile is in force."""
    line.cut()
    before = client.answers
    for key in changed:
        client.send(Unsubscribe(key, key))
        client.send(Subscribe(base + key, base + key, f"number = {base + key}"))
    await client.until(lambda: client.answers == before + 2 * len(changed))
    await asyncio.sleep(break_s)
    carried = line.carried_bytes
    line.mend()
    started = perf_counter()
    client.send(Settle(0))
    await client.until(lambda: client.answers > before + 2 * len(changed))
    return since(started), line.carried_bytes - carried


# --- connections that do nothing ---


async def idle(results: Results, size: Size) -> None:
    """What a connection costs before it has said who it is, and after that."""
    with tempfile.TemporaryDirectory() as folder:
        async with Fleet(ONE, Path(folder), limits={"handshake_timeout_s": PATIENT_S}) as fleet:
            empty = await warm(fleet)
            strangers = [await connect(fleet.url("b1"), Stranger) for _ in range(size.idle)]
            each = (resident_bytes(fleet.pid("b1")) - empty) / size.idle / KIB
            bar(results, 5, "a connection that has not greeted", 16, each, "KiB")
            for stranger in strangers:
                stranger.transport.abort()
    with tempfile.TemporaryDirectory() as folder:
        async with Fleet(ONE, Path(folder), limits={}) as fleet:
            empty = await warm(fleet)
            url, pid = fleet.url("b1"), fleet.pid("b1")
            ends = [await connect(url, partial(Idle, f"idle {at}")) for at in range(size.idle)]
            await asyncio.gather(*(end.greeted for end in ends))
            each = (resident_bytes(pid) - empty) / size.idle / KIB
            bar(results, 5, f"an idle connection, of {size.idle:,}", 30, each, "KiB")
            await asyncio.sleep(HEARTBEATS_S)
            each = (resident_bytes(pid) - empty) / size.idle / KIB
            bar(results, 5, f"the same after {HEARTBEATS_S:.0f} s", 30, each, "KiB")
            lost = sum(end.ended.done() for end in ends)
            bar(results, 5, "of them lost meanwhile", 0, lost, "")
            stranger, started = await connect(url, Stranger), perf_counter()
            await stranger.ended
            bar(results, 5, "until one that does not greet is cut", CUT_S, since(started), "s")
            for end in ends:
                end.transport.abort()


async def warm(fleet: Fleet) -> int:
    """Let a broker load all that it loads once, and some clients come and go, whose memory is used
    again; what it has resident then.
    """
    url, pid = fleet.url("b1"), fleet.pid("b1")
    hears, says = await both(url)
    await hears.subscribe(["warm = 1"])
    says.publish(pa.record_batch({"warm": [1]}), 1)
    await hears.until(lambda: hears.events == 1)
    for number in range(WARM):
        end = await connect(url, partial(Idle, f"warm {number}"))
        await end.greeted
        end.transport.abort()
    hears.close()
    says.close()
    before, found = 0, resident_bytes(pid)
    while abs(found - before) > STEADY_BYTES:
        await asyncio.sleep(STEADY_S)
        before, found = found, resident_bytes(pid)
    return found


# --- clients that stop reading ---


async def slow(results: Results, size: Size) -> None:
    """A quiet pair beside a crowd that is sent a bulk of events, and reads it or does not."""
    p99 = {}
    with tempfile.TemporaryDirectory() as folder:
        for mode in ("nobody", "reading", "stalled"):
            limits = {"memory_bytes": BUDGET}
            async with Fleet(ONE, Path(folder), limits=limits) as fleet:
                empty = await warm(fleet)
                with crowd(fleet.url("b1"), 0 if mode == "nobody" else size.stalled, mode):
                    found, most = await beside(fleet, size.slow_s)
                most -= empty
            p99[mode] = float(np.percentile(found, 99)) * 1e3
            results.facts[f"slow: p50 of the healthy, {mode}, ms"] = float(np.median(found)) * 1e3
            results.facts[f"slow: p99 of the healthy, {mode}, ms"] = p99[mode]
            results.facts[f"slow: memory over that of an idle broker, {mode}, MiB"] = most / MIB
            if mode == "stalled":
                name = f"{size.stalled:,} stalled clients, memory over the budget"
                bar(results, 4, name, 1.1, most / BUDGET, "times")
    bar(
        results,
        4,
        "healthy p99, the crowd stalled over reading",
        1.2,
        p99["stalled"] / p99["reading"],
        "times",
    )


async def beside(fleet: Fleet, seconds: float) -> tuple[list[float], int]:
    """Latencies of a quiet pair while a bulk is published, and the most memory of the broker."""
    url, pid = fleet.url("b1"), fleet.pid("b1")
    bulk = await Wire.connect(url, "bulk")
    rows = bulks()
    latencies: list[float] = []
    most = resident_bytes(pid)
    async with client(url, name="hears") as hears, client(url, name="says") as says:
        subscription = await hears.subscribe("quiet = true")
        started = perf_counter()
        sent_bulks = 0
        while (now := perf_counter()) < started + seconds:
            if (now - started) * BULKS_A_S >= sent_bulks:
                bulk.publish(rows[sent_bulks % GROUPS], 1 + sent_bulks * BULK_ROWS)
                sent_bulks += 1
                most = max(most, resident_bytes(pid))
            sent = perf_counter()
            receipt = says.publish_nowait({"quiet": True})
            await subscription.receive()
            if sent > started + WARM_S:
                latencies.append(perf_counter() - sent)
            await receipt
            await asyncio.sleep(QUIET_S)
    bulk.close()
    return latencies, max(most, resident_bytes(pid))


def bulks() -> list[pa.RecordBatch]:
    """For each group of the crowd events of which each of the group wants other ones."""
    rng = np.random.default_rng(1)
    return [
        pa.record_batch(
            {"bulk": np.arange(BULK_ROWS), "group": np.full(BULK_ROWS, group)}
            | {f"a{at}": rng.integers(0, 1 << 40, BULK_ROWS) for at in range(8)}
        )
        for group in range(GROUPS)
    ]


@contextmanager
def crowd(url: str, count: int, mode: str) -> Iterator[None]:
    """A process of so many clients, all subscribed."""
    command = [sys.executable, "-m", "benchmarks.stress_ends", url, str(count), mode]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


# --- the program ---


def since(started: float) -> float:
    return perf_counter() - started


def bar(
    results: Results, number: int, name: str, target: float, measured: float, unit: str
) -> None:
    clock = "memory" if unit in ("KiB", "times") and "p99" not in name else "wall"
    results.bars.append(Bar(number, name, target, measured, unit, clock))
    print(f"{name}: {measured:.3g} {unit} (at most {target:g})", file=sys.stderr, flush=True)


PARTS: Final[dict[str, Callable[[Results, Size], Coroutine[None, None, None]]]] = {
    "journal": journal,
    "resync": resync,
    "idle": idle,
    "slow": slow,
}


async def measure(results: Results, size: Size, parts: Sequence[str]) -> None:
    """Run the parts, each with brokers of its own."""
    for name in parts:
        await PARTS[name](results, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--full", action="store_true", help="the sizes of the bars")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    results = Results(
        "full" if options.full else "quick",
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        os.getloadavg()[0],
    )
    parts = options.only.split(",")
    asyncio.run(measure(results, FULL if options.full else QUICK, parts))
    print(msgspec.json.encode(results).decode() if options.json else text(results))


if __name__ == "__main__":
    main()
