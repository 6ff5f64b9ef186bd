"""The last events that a broker keeps by key, and who gets them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from palio.client.events import Event, Gap
from palio.client.subscription import Subscription
from palio.errors import InvalidInput, NotSupported
from palio.node import latest
from palio.node.settings import Settings
from palio.testing import Network
from tests.client.virtual import in_virtual_time
from tests.conftest import seeds

KEPT = Settings(latest_by=("symbol", "id"))
QUIET_S = 30.0
VALUES = 5


async def pairs(subscription: Subscription[Any], count: int) -> list[tuple[str, int]]:
    events = [await subscription.receive(QUIET_S) for _ in range(count)]
    return [(event["symbol"], event["x"]) for event in events]


@in_virtual_time
async def test_a_late_comer_first_receives_the_last_event_of_each_value() -> None:
    async with Network("line:2", settings=KEPT) as net:
        await asyncio.sleep(QUIET_S)
        ann, bob = await net.connect("b1", name="ann"), await net.connect("b2", name="bob")
        events = [{"symbol": s, "x": x} for s, x in (("a", 1), ("b", 2), ("a", 3), ("c", 9))]
        await ann.publish([*events, {"other": 1}])
        await asyncio.sleep(1)
        late = await bob.subscribe("x < :x", {"x": 9}, latest_by="symbol")
        await ann.publish({"symbol": "a", "x": 4})
        assert await pairs(late, 3) == [("b", 2), ("a", 3), ("a", 4)]
        batch = await (await bob.subscribe("x = 2", latest_by="symbol")).receive_batch(1)
        assert batch.column("symbol").to_pylist() == ["b"]


@in_virtual_time
async def test_a_key_whose_last_event_no_longer_matches_has_none() -> None:
    async with Network("line:1", settings=KEPT) as net:
        ann = await net.connect("b1", name="ann")
        await ann.publish([{"symbol": "a", "x": 1}, {"symbol": "a", "x": 2}])
        late = await ann.subscribe("x = 1", latest_by="symbol")
        assert late.pending == 0


@in_virtual_time
async def test_values_without_room_are_dropped_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(latest, "LATEST_BYTES", 1_000)
    async with Network("line:1", settings=KEPT) as net:
        ann = await net.connect("b1", name="ann")
        await ann.publish([{"symbol": s, "x": 1} for s in "abcde"])
        gaps: list[Gap] = []
        late = await ann.subscribe("EXISTS x", latest_by="symbol", on_gap=gaps.append)
        assert [symbol for symbol, _ in await pairs(late, late.pending)] == ["c", "d", "e"]
        assert [gap.reason for gap in gaps] == [
            "the broker 'b1' had no room for 2 last values by 'symbol' (LATEST_BYTES)"
        ]


@in_virtual_time
async def test_misuse_is_refused() -> None:
    async with Network("line:1", settings=KEPT) as net:
        ann = await net.connect("b1", name="ann")
        with pytest.raises(NotSupported, match=r"'color'; name it in broker\.latest_by"):
            await ann.subscribe("EXISTS x", latest_by="color")
        await asyncio.sleep(1)
        assert net.node("b1").status()["subscriptions"] == 0
        for filter, name in (("a = 1 THEN b = 1", ""), ("EXISTS x", "d")):
            with pytest.raises(InvalidInput, match="for a filter that is not durable"):
                await ann.subscribe(filter, latest_by="symbol", durable_name=name)


@pytest.mark.parametrize("seed", seeds(12, nightly=1_000))
@in_virtual_time
async def test_last_values_and_live_events_have_no_seam(seed: int) -> None:
    rng = random.Random(seed)
    latency_s, brokers = rng.choice((0.001, 0.1, 0.5)), rng.randint(1, 3)
    async with Network(f"line:{brokers}", settings=KEPT, seed=seed, delay_s=latency_s) as net:
        await asyncio.sleep(QUIET_S)
        published: dict[str, list[tuple[float, int]]] = {}
        clock = asyncio.get_running_loop().time

        async def publish(symbol: str) -> None:
            """Go on with events of one key, which have one publisher and so an order."""
            client = await net.connect(f"b{rng.randint(1, brokers)}", name=symbol)
            mine = published.setdefault(symbol, [])
            for _ in range(rng.randint(0, 20)):
                mine.append((clock(), rng.randrange(VALUES)))
                await client.publish({"symbol": symbol, "x": mine[-1][1], "n": len(mine) - 1})
                await asyncio.sleep(rng.choice((0.0, 0.05, 1.0)))

        going = asyncio.gather(*(publish(symbol) for symbol in "abc"))
        await asyncio.sleep(rng.uniform(0.0, 10.0))
        client = await net.connect(f"b{rng.randint(1, brokers)}", name="late")
        if rng.random() < 0.5:
            await client.subscribe("TRUE")
        limit = rng.randrange(VALUES + 1)
        await client.settled()
        begun = clock()
        late = await client.subscribe("x < :limit", {"limit": limit}, latest_by="symbol")
        returned = clock()
        await going
        await asyncio.sleep(QUIET_S)
        heard: dict[str, list[int]] = {symbol: [] for symbol in "abc"}
        event: Event
        for _ in range(late.pending):
            event = await late.receive()
            heard[event["symbol"]].append(event["n"])
        way_s = (brokers + 1) * latency_s + 0.01
        for symbol, events in published.items():
            known = sum(at < begun - way_s for at, _ in events)
            newest = sum(at <= returned for at, _ in events)
            possible = [
                [n for n, (_, x) in enumerate(events) if n >= first and x < limit]
                for first in range(max(0, known - 1), newest + (known == 0))
            ]
            assert heard[symbol] in possible, (symbol, heard[symbol], possible)
