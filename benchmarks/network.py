"""How fast brokers are on loopback, each figure beside a raw framed echo in the same run.

    python -m benchmarks.network [--json] [--seconds 3] [--filters 10000]
    python -m benchmarks.network --docs docs/measured    and renew the page network.md with it

Brokers are processes of their own (`palio serve`); this process is publisher and subscriber.
Throughput is measured with a client of bare frames, so that it is the broker's; single publishes
and latency with `palio.connect`, as an application has them. Every event of the workload matches
some filter, so every event is delivered.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.matching_results import Bar, Results, rewrite, text
from benchmarks.network_ends import EchoClient, Wire, broker, echo
from palio.cli.serve import loop_factory
from palio.client.connection import connect

BEGIN: Final = "<!-- measured: python -m benchmarks.network --docs docs/measured -->"

NOT_COMPARED: Final = "RabbitMQ, NATS: no comparison has been written yet"

ATTRIBUTES: Final = 10
VALUES: Final = 10
SEED: Final = 1
BATCH_ROWS: Final = 1_000
DURABLE_ROWS: Final = 100
OUTSTANDING: Final = 32_000
"""Events that were published and not yet delivered: fewer bytes than a window, for a subscriber
that falls behind by more loses the oldest, and the count would wait for them."""


def filters(count: int) -> list[str]:
    """podc10 with ten attributes: attribute i is tested with p = 0.98 * 0.85**i, values Zipf."""
    rng = np.random.default_rng(SEED)
    tested = rng.random((count, ATTRIBUTES)) < 0.98 * 0.85 ** np.arange(ATTRIBUTES)
    weights = 1 / np.arange(1, VALUES + 1)
    constants = rng.choice(VALUES, size=(count, ATTRIBUTES), p=weights / weights.sum())
    texts = [
        " AND ".join(f"a{at} = {constants[row, at]}" for at in np.flatnonzero(tested[row]))
        for row in range(count)
    ]
    return [each or "EXISTS a0" for each in texts[:-1]] + ["a0 >= 0"]


def batches(rows: int, count: int = 16) -> list[pa.RecordBatch]:
    """Uniform events."""
    rng = np.random.default_rng(SEED + 1)
    return [
        pa.record_batch({f"a{at}": rng.integers(0, VALUES, rows) for at in range(ATTRIBUTES)})
        for _ in range(count)
    ]


async def throughput(
    publisher: Wire, subscriber: Wire, rows: int, seconds: float, *, durable: bool = False
) -> float:
    """Events a second, from the first publication to the last delivery, after a warm-up."""
    ready = batches(rows)
    base, events = publisher.accepted + 1, subscriber.events

    async def publish(seq: int, until: float) -> int:
        while perf_counter() < until:
            publisher.publish(ready[(seq // rows) % len(ready)], seq, durable=durable)
            seq += rows
            enough = seq - base - OUTSTANDING
            await subscriber.until(lambda: subscriber.events - events >= enough)  # noqa: B023  # awaited here
        await subscriber.until(lambda: subscriber.events - events >= seq - base)
        return seq

    first = await publish(base, perf_counter() + seconds)
    started = perf_counter()
    last = await publish(first, started + seconds)
    return (last - first) / (perf_counter() - started)


async def single_publishes(url: str, seconds: float) -> float:
    """Calls of `publish` a second, a thousand at a time."""
    async with connect(url, name="single") as client:
        event = {f"a{at}": at for at in range(ATTRIBUTES)}
        await client.publish(event)
        started, calls = perf_counter(), 0
        while perf_counter() - started < seconds:
            await asyncio.gather(*(client.publish_nowait(event) for _ in range(1_000)))
            calls += 1_000
        return calls / (perf_counter() - started)


async def latencies(
    url: str, echo_port: int, count: int = 1_000
) -> tuple[list[float], list[float]]:
    """Seconds from publishing one event to its delivery, with nothing else going on, and of the
    round trips of a raw echo in between.
    """
    found, trips = [], []
    raw_client = await EchoClient.connect(echo_port)
    async with connect(url, name="quiet publisher") as one, connect(url, name="quiet") as other:
        subscription = await other.subscribe("quiet = true")
        event = {"quiet": True, **{f"a{at}": at for at in range(ATTRIBUTES)}}
        for number in range(-100, count):
            started = perf_counter()
            receipt = one.publish_nowait(event)
            await subscription.receive()
            heard = perf_counter()
            await receipt
            if number >= 0:
                found.append(heard - started)
            if number >= 0 and number % 10 == 0:
                trips.append(await round_trip(raw_client))
    return found, trips


async def round_trip(client: EchoClient) -> float:
    """Seconds until one small frame is back."""
    started = perf_counter()
    await client.exchange(100, 1, window=1)
    return perf_counter() - started


async def measure(results: Results, seconds: float, count: int) -> None:
    """Run everything; each part with processes of its own."""
    for part in (raw, one_broker, quiet, line, on_disk):
        await part(results, seconds, count)


async def raw(results: Results, seconds: float, count: int) -> None:  # noqa: ARG001  # a part
    with echo() as port:
        client = await EchoClient.connect(port)
        size = batches(BATCH_ROWS, 1)[0].serialize().size
        for name, bytes_each, frames, window, scale in (
            (
                "raw echo, 1000-row frames, events/s",
                size,
                3_000,
                OUTSTANDING // BATCH_ROWS,
                BATCH_ROWS,
            ),
            ("raw echo, small frames/s", 100, 100_000, 1_000, 1),
        ):
            started = perf_counter()
            await client.exchange(bytes_each, frames, window=window)
            results.facts[name] = frames * scale / (perf_counter() - started)
        trips = [await round_trip(client) for _ in range(2_000)]
        results.facts["raw echo round trip, p50 us"] = float(np.median(trips) * 1e6)
        results.facts["raw echo round trip, p99 us"] = float(np.percentile(trips, 99) * 1e6)


async def one_broker(results: Results, seconds: float, count: int) -> None:
    with broker("b1") as one:
        subscriber = await Wire.connect(one.url, "hears")
        publisher = await Wire.connect(one.url, "says")
        started = perf_counter()
        await subscriber.subscribe(filters(count))
        results.facts[f"{count} subscriptions in force, s"] = perf_counter() - started
        heard, before = subscriber.events, one.cpu_s
        rate = await throughput(publisher, subscriber, BATCH_ROWS, seconds)
        add(results, f"1000-row batches, {count} filters", 1_000_000, rate, "events/s")
        results.facts["one broker, events/s"] = rate
        spent_us = (one.cpu_s - before) / (subscriber.events - heard) * 1e6
        results.facts["one broker, CPU us an event"] = spent_us
        subscriber.close()
        publisher.close()


async def quiet(results: Results, seconds: float, count: int) -> None:
    with broker("b1") as one, echo() as port:
        rate = await single_publishes(one.url, seconds)
        add(results, "single publish calls, pipelined", 60_000, rate, "calls/s")
        standing = await Wire.connect(one.url, "standing")
        await standing.subscribe([f"{each} AND quiet = false" for each in filters(count)])
        delays, trips = await latencies(one.url, port)
        found = np.array(delays) * 1e6
        results.facts["raw echo between those events, p50 us"] = float(np.median(trips) * 1e6)
        standing.close()
        trip = results.facts["raw echo round trip, p50 us"]
        assert isinstance(trip, float)
        p50, p99 = float(np.median(found)), float(np.percentile(found, 99))
        results.facts["publish to delivery, p50 us"] = p50
        add(results, "quiet, p50 over the raw round trip", 10, p50 / trip, "times", at_least=False)
        add(results, "quiet, p99", 3, p99 / 1_000, "ms", at_least=False)


async def line(results: Results, seconds: float, count: int) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(broker("b1"))
        second = stack.enter_context(broker("b2", "--peer", first.url))
        third = stack.enter_context(broker("b3", "--peer", second.url))
        brokers = (first, second, third)
        subscriber = await Wire.connect(third.url, "hears")
        publisher = await Wire.connect(first.url, "says")
        await reachable(third.url, 3)
        await reachable(first.url, 3)
        await subscriber.subscribe(filters(count))
        heard, before = subscriber.events, sum(each.cpu_s for each in brokers)
        rate = await throughput(publisher, subscriber, BATCH_ROWS, seconds)
        spent_us = (sum(each.cpu_s for each in brokers) - before) / 3
        spent_us *= 1e6 / (subscriber.events - heard)
        results.facts["each of three in a line, CPU us an event"] = spent_us
        one = results.facts["one broker, events/s"]
        assert isinstance(one, float)
        results.facts["three brokers in a line, events/s"] = rate
        add(results, "three brokers in a line, of one", 0.6, rate / one, "")
        subscriber.close()
        publisher.close()


async def reachable(url: str, brokers: int) -> None:
    """Wait until a broker knows the way to all."""
    async with connect(url, name="asks") as client:
        while True:
            known = (await client.admin.topology())["brokers"].values()
            if sum(each["reachable"] for each in known) == brokers:
                return
            await asyncio.sleep(0.05)


async def on_disk(results: Results, seconds: float, count: int) -> None:  # noqa: ARG001  # a part
    with tempfile.TemporaryDirectory() as directory, broker("b1", "--data", directory) as one:
        subscriber = await Wire.connect(one.url, "hears")
        publisher = await Wire.connect(one.url, "says")
        await subscriber.subscribe(["a0 >= 0"], durable="all")
        rate = await throughput(publisher, subscriber, DURABLE_ROWS, seconds, durable=True)
        add(results, "durable, 100-row batches", 50_000, rate, "events/s")
        subscriber.close()
        publisher.close()


def add(
    results: Results, name: str, target: float, measured: float, unit: str, *, at_least: bool = True
) -> None:
    results.bars.append(Bar(1, name, target, measured, unit, "wall", at_least))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--full", action="store_true", help="longer")
    parser.add_argument("--docs", type=Path, help="renew network.md and network.json in a folder")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--filters", type=int, default=10_000)
    options = parser.parse_args()
    seconds = 10.0 if options.full else options.seconds
    results = Results(
        "full" if options.full else "short",
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        os.getloadavg()[0],
    )
    results.left_out.append(NOT_COMPARED)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(measure(results, seconds, options.filters))
    document = msgspec.json.encode(results)
    if options.docs:
        rewrite(results, options.docs / "network.md", BEGIN)
        formatted = msgspec.json.format(document, indent=1)
        (options.docs / "network.json").write_bytes(formatted + b"\n")
    print(document.decode() if options.json else text(results))


if __name__ == "__main__":
    main()
