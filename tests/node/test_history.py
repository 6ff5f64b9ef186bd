"""Subscriptions that begin in the past: the history of a broker, the seam, and what it lacks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from palio.client.archive import Archive
from palio.client.connection import Client
from palio.client.events import Gap
from palio.client.history import history
from palio.client.subscription import Subscription
from palio.errors import InvalidInput, NotPermitted, NotSupported
from palio.language.parsing import parse_filter
from palio.node import history as module
from palio.node.history import HISTORY_OWNER
from palio.testing import Network
from tests.client.virtual import in_virtual_time
from tests.conftest import seeds
from tests.node.late_comers import DAWN, KEPT, QUIET_S, play


@asynccontextmanager
async def kept(topology: str = "line:1", **options: Any) -> AsyncIterator[Network]:
    """Brokers whose histories have begun."""
    async with Network(topology, **{"settings": KEPT, **options}) as net:
        await asyncio.sleep(QUIET_S)
        yield net


async def put(client: Client, *numbers: int) -> None:
    for x in numbers:
        await client.publish({"x": x}, durable=True)


async def xs(subscription: Subscription[Any], count: int) -> list[int]:
    return [(await subscription.receive(QUIET_S))["x"] for _ in range(count)]


@pytest.mark.parametrize("seed", seeds(12, nightly=1_000))
@in_virtual_time
async def test_a_late_comer_receives_what_a_filter_over_all_events_gives(seed: int) -> None:
    await play(seed)


@in_virtual_time
async def test_it_receives_the_events_of_all_brokers_and_goes_on() -> None:
    async with kept("line:2") as net:
        ann, bob = await net.connect("b1", name="ann"), await net.connect("b2", name="bob")
        await put(ann, 1, 2, 3)
        await put(bob, 4)
        gaps: list[Gap] = []
        late = await bob.subscribe("x != 2", durable_name="late", since=DAWN, on_gap=gaps.append)
        await put(ann, 5)
        assert sorted(await xs(late, 4)) == [1, 3, 4, 5]
        assert gaps == []


@in_virtual_time
async def test_a_subscription_that_exists_goes_on_where_it_was() -> None:
    async with kept() as net:
        bob = await net.connect("b1", name="bob")
        await put(bob, 1)
        first = await bob.subscribe("EXISTS x", durable_name="late", since=DAWN)
        assert await xs(first, 1) == [1]
        first.ack()
        await first.unsubscribe()
        await put(bob, 2)
        again = await bob.subscribe("EXISTS x", durable_name="late", since=DAWN)
        assert await xs(again, 1) == [2]


@in_virtual_time
async def test_its_backlog_outlives_a_kill_of_the_broker() -> None:
    async with kept() as net:
        bob = await net.connect("b1", name="bob")
        await put(bob, 1, 2)
        await bob.subscribe("EXISTS x", durable_name="late", since=DAWN)
        await bob.close()
        net.kill("b1")
        net.restart("b1")
        bob = await net.connect("b1", name="bob")
        assert await xs(await bob.subscribe("EXISTS x", durable_name="late"), 2) == [1, 2]
        later = await bob.subscribe("EXISTS x", durable_name="later", since=DAWN)
        assert await xs(later, 2) == [1, 2]


@in_virtual_time
async def test_a_gap_names_the_time_at_which_the_history_begins() -> None:
    async with kept(settings=replace(KEPT, history_s=100.0)) as net:
        bob = await net.connect("b1", name="bob")
        await put(bob, 1)
        await asyncio.sleep(200)
        await put(bob, 2)
        gaps: list[Gap] = []
        late = await bob.subscribe("EXISTS x", durable_name="late", since=DAWN, on_gap=gaps.append)
        assert await xs(late, 1) == [2]
        (gap,) = gaps
        assert "the history of 'b1' begins at 2026-01-01T00:01:00." in str(gap)
        assert net.node("b1").status()["custody_waiting"][f"{HISTORY_OWNER}/b1"] == 1


@in_virtual_time
async def test_it_keeps_no_more_entries_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HISTORY", 3)
    async with kept() as net:
        bob = await net.connect("b1", name="bob")
        for count, entries in ((2, 2), (1, 3), (1, 3)):
            await put(bob, *range(count))
            await asyncio.sleep(QUIET_S)
            assert net.node("b1").status()["custody_waiting"] == {f"{HISTORY_OWNER}/b1": entries}


@in_virtual_time
async def test_without_the_setting_there_is_none() -> None:
    async with kept() as net:
        net.node("b1").renew(net.node("b1")._core.authority, history_s=0.0)
        await asyncio.sleep(QUIET_S)
        assert net.node("b1").status()["custody_waiting"] == {}
        bob = await net.connect("b1", name="bob")
        with pytest.raises(NotSupported, match=r"set limits\.history_s there"):
            await bob.subscribe("EXISTS x", durable_name="late", since=DAWN)
        await put(bob, 1)
        assert await xs(await bob.subscribe("TRUE"), 0) == []


@in_virtual_time
async def test_events_that_match_after_a_change_of_the_filter_come_too() -> None:
    async with kept(disk_s=0.5) as net:
        bob = await net.connect("b1", name="bob")
        late = await bob.subscribe("x = :x", {"x": 1}, durable_name="late", since=DAWN)
        await late.update(x=2)
        await put(bob, 1, 2)
        assert await xs(late, 1) == [2]


@in_virtual_time
async def test_lost_events_of_the_history_are_a_gap() -> None:
    async with kept() as net:
        bob = await net.connect("b1", name="bob")
        await put(bob, 1)
        (entry,) = net.store("b1").held()
        net._cluster.disks["b1"].flip(entry.entry)
        net.kill("b1")
        net.restart("b1")
        bob = await net.connect("b1", name="bob")
        gaps: list[Gap] = []
        late = await bob.subscribe("EXISTS x", durable_name="late", since=DAWN, on_gap=gaps.append)
        await put(bob, 2)
        assert await xs(late, 1) == [2]
        assert [gap.count for gap in gaps] == [1]


@in_virtual_time
async def test_misuse_is_refused() -> None:
    async with kept() as net:
        bob = await net.connect("b1", name="bob")
        with pytest.raises(InvalidInput, match="since= is for durable"):
            await bob.subscribe("EXISTS x", since=DAWN)
        with pytest.raises(InvalidInput, match="time zone"):
            await bob.subscribe("EXISTS x", durable_name="d", since=datetime(2026, 1, 1))  # noqa: DTZ001  # as users write
        thief = await net.connect("b1", name=HISTORY_OWNER)
        with pytest.raises(NotPermitted, match="keep the histories"):
            await thief.subscribe("EXISTS x", durable_name="b1")


@in_virtual_time
async def test_a_broker_without_a_disk_keeps_none() -> None:
    async with kept(settings=replace(KEPT, has_disk=False)) as net:
        assert net.node("b1").status()["durable_subscriptions"] == 0


@pytest.mark.parametrize("seed", seeds(3, nightly=300))
@in_virtual_time
async def test_an_archive_before_a_time_and_the_history_from_it_have_no_seam(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    async with kept() as net:
        archivist, ann = await net.connect("b1", name="archivist"), await net.connect("b1")
        archiving = await archivist.subscribe("TRUE", durable_name="archive")
        published = 0
        with Archive(tmp_path) as archive:
            for _ in range(rng.randint(2, 30)):
                await put(ann, published)
                published += 1
                await asyncio.sleep(rng.choice((0.0, 0.3, 5.0)))
            async for parcel in archiving.parcels():
                archive.add([parcel])
                if archive.events == published:
                    break
            archive.roll()
        await put(ann, published)
        since, seam = sorted(rng.sample(archived_times(tmp_path), 2))
        filter, bob = parse_filter("x % 2 = 0"), await net.connect("b1", name="bob")
        late = await bob.subscribe(filter, durable_name="late", since=seam)
        batches = history(tmp_path, filter, since=since, until=seam)
        heard = [x for batch in batches for x in batch.column("x").to_pylist()]
        await put(ann, published + 1)
        heard += await xs(late, late.pending)
        first = archived_times(tmp_path).index(since)
        assert heard == [x for x in range(first, published + 2) if x % 2 == 0]


def archived_times(path: Path) -> list[datetime]:
    return [row["$time"] for batch in history(path) for row in batch.to_pylist()]
