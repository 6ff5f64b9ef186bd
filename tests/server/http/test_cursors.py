from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from struct import pack
from typing import Any
from zlib import crc32

import msgspec
import pytest

from palio.errors import InvalidInput, JournalDamaged
from palio.model.events import to_batch, to_batches
from palio.node.effects import Entry
from palio.node.loss_markers import LossMarker
from palio.node.settings import Settings
from palio.server.http.cursors import MAX_CHUNK, CursorFeed, Item
from palio.server.http.subscriptions import HttpSubscription, Request
from palio.server.journal.format import checksum, payload_checksum, payload_of
from palio.server.journal.journal import FILE, Journal
from palio.server.local_client import InternalClient
from palio.server.server import Server
from tests.server.fronts import WAIT_S, broker
from tests.server.helpers import publish_by


def subscription(filter: str = "TRUE", **config: Any) -> HttpSubscription:
    request = msgspec.convert({"filters": [{"palio": filter}], "config": config}, Request)
    return HttpSubscription.of("s1", "http", request, "")


@asynccontextmanager
async def publisher(server: Server) -> AsyncIterator[InternalClient]:
    client = await InternalClient.open(server.connect_local, name="publisher")
    yield client
    client.close()


async def take(feed: CursorFeed, count: int) -> list[Item]:
    """The next items, all dealt with but those of the last chunk."""
    found: list[Item] = []
    async with asyncio.timeout(WAIT_S):
        async for items in feed.chunks():
            found += items
            if len(found) >= count:
                break
    return found


def values(items: list[Item]) -> list[int]:
    return [item.document["data"]["x"] for item in items]


@pytest.mark.parametrize(
    ("cursor", "durable"),
    [
        ("junk", False),
        ("d.1.0", False),
        ("s.a.1.0", True),
        ("d.1", True),
        ("d.1.0.0", True),
        ("d.-1.0", True),
        ("s..1.0", False),
        ("d." + "9" * 30 + ".0", True),
    ],
)
async def test_a_cursor_of_another_kind_is_refused(
    cursor: str, durable: bool, tmp_path: Path
) -> None:
    async with broker(tmp_path) as server:
        with pytest.raises(InvalidInput, match="is no cursor of this subscription"):
            await CursorFeed.open(
                server.connect_local, subscription(durable=durable), cursor=cursor
            )
        assert server.node.status()["sessions"] == 0


async def test_what_was_sent_long_enough_ago_is_acknowledged(tmp_path: Path) -> None:
    made = subscription(durable=True)
    async with broker(tmp_path) as server, publisher(server) as client:
        feed = await CursorFeed.open(server.connect_local, made, keep_bytes=5_000)
        for number in range(20):
            await publish_by(client, to_batch({"x": number, "pad": "x" * 1_000}), durable=True)
        assert values(await take(feed, 20)) == list(range(20))
        feed.leave()
        again = await CursorFeed.open(server.connect_local, made)
        left = values(await take(again, 1))
        assert 1 <= left[0] < 19
        again.close()


async def test_what_an_earlier_consumer_was_given_is_acknowledged(tmp_path: Path) -> None:
    """Also before it is given again: who is told that it is done is not given it once more."""
    made = subscription(durable=True, acknowledge="explicit")
    async with broker(tmp_path) as server, publisher(server) as client:
        feed = await CursorFeed.open(server.connect_local, made)
        for number in range(2):
            await publish_by(client, to_batch({"x": number}), durable=True)
        first, _ = await take(feed, 2)
        feed.leave()
        again = await CursorFeed.open(server.connect_local, made)
        again.acknowledge(first.cursor)
        again.leave()
        last = await CursorFeed.open(server.connect_local, made)
        assert values(await take(last, 1)) == [1]
        last.close()


async def test_a_late_comer_begins_in_the_history(tmp_path: Path) -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    settings = Settings(history_s=3_600.0)
    async with broker(tmp_path, settings=settings) as server, publisher(server) as client:
        while not server.node.status()["custody_waiting"]:
            await server.flush()
        for number in range(3):
            await publish_by(client, to_batch({"x": number}), durable=True)
        made = subscription("x > 0", durable=True, since=begun)
        feed = await CursorFeed.open(server.connect_local, made)
        gap, *items = await take(feed, 3)
        assert "history" in str(gap.document)
        assert values(items) == [1, 2]
        feed.close()


async def test_events_of_one_batch_come_in_chunks(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, publisher(server) as client:
        feed = await CursorFeed.open(server.connect_local, subscription())
        events = [{"x": number} for number in range(2 * MAX_CHUNK + 1)]
        for batch in to_batches(events):
            await publish_by(client, batch)
        sizes = []
        async for items in feed.chunks():
            sizes.append(len(items))
            if sum(sizes) == len(events):
                break
        assert sizes == [MAX_CHUNK, MAX_CHUNK, 1]
        feed.close()


async def test_cursors_are_in_the_order_of_events() -> None:
    async with broker() as server, publisher(server) as client:
        feed = await CursorFeed.open(server.connect_local, subscription("x > 0"))
        for number in range(4):
            await publish_by(client, to_batch({"x": number}))
        items = await take(feed, 3)
        assert values(items) == [1, 2, 3]
        assert len({item.cursor for item in items}) == 3
        feed.close()


async def test_what_fails_new_values_is_not_given_any_more() -> None:
    """Strictness: also what was on its way when they changed."""
    own = {"palio": {"filter": "x < :limit", "parameters": {"limit": 100}}}
    request = msgspec.convert({"filters": [own]}, Request)
    async with broker() as server, publisher(server) as client:
        made = HttpSubscription.of("s1", "http", request, "")
        feed = await CursorFeed.open(server.connect_local, made)
        for number in (50, 5):
            await publish_by(client, to_batch({"x": number}))
        await feed.update({"limit": 10})
        await publish_by(client, to_batch({"x": 6}))
        assert values(await take(feed, 2)) == [5, 6]
        feed.close()


@pytest.fixture
def bad(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Entries that journals cannot give back."""
    bad: list[int] = []
    whole = Journal.entries

    def entries(self: Journal, numbers: Sequence[int]) -> list[Entry]:
        if set(bad) & set(numbers):
            raise JournalDamaged(f"one of {numbers} is not what was written")
        return whole(self, numbers)

    monkeypatch.setattr(Journal, "entries", entries)
    return bad


@pytest.mark.parametrize("most", [1, 10])
@pytest.mark.parametrize("last", [2, 3])
async def test_an_entry_that_was_lost_is_acknowledged_by_the_cursor_of_its_gap(
    most: int, last: int, bad: list[int], tmp_path: Path
) -> None:
    """Else who takes one at a time would be told of it again and again."""
    made = subscription(durable=True, acknowledge="explicit")
    async with broker(tmp_path) as server, publisher(server) as client:
        feed = await CursorFeed.open(server.connect_local, made)
        feed.leave()
        for number in range(1, last + 1):
            await publish_by(client, to_batch({"x": number}), durable=True)
    bad.append(2)
    async with broker(tmp_path) as server:
        found: list[Any] = []
        cursor = ""
        for _ in range(last + 1):
            feed = await CursorFeed.open(server.connect_local, made, cursor=cursor)
            items = [item for part in await feed.take(most, 0.5) for item in part.items()]
            found += ["gap" if each.is_gap else each.document["data"]["x"] for each in items]
            cursor = items[-1].cursor if items else cursor
            feed.acknowledge(cursor)
            feed.leave()
        assert found == [1, "gap", 3][:last]
        assert server.node.status()["custody_entries"] == 0


@pytest.mark.parametrize("damage", ["offset", "null", "notice"])
async def test_a_row_altered_under_a_right_checksum_is_a_gap(damage: str, tmp_path: Path) -> None:
    """An offset that leads out of memory, an event without its number, a notice of nothing."""
    made = subscription(durable=True)
    async with broker(tmp_path) as server, publisher(server) as client:
        feed = await CursorFeed.open(server.connect_local, made)
        feed.leave()
        for first in (1, 4, 7):
            (batch,) = to_batches([{"x": first + each, "s": "ab"} for each in range(3)])
            await publish_by(client, batch, durable=True)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        alter_second_entry(connection, damage)
    async with broker(tmp_path) as server:
        feed = await CursorFeed.open(server.connect_local, made)
        found = await take(feed, 7)
        assert [item.is_gap for item in found] == [False] * 3 + [True] + [False] * 3
        lost = found[3].document["data"]
        assert (lost["first_seq"], lost["last_seq"], lost["count"]) == (4, 6, 3)
        feed.close()


def alter_second_entry(connection: sqlite3.Connection, damage: str) -> None:
    """Put something else in the place of a batch, with checksums that are right."""
    query = "SELECT entry, publisher, first_seq, last_seq, wall_us, shape, payload FROM"
    *head, payload = connection.execute(f"{query} entries ORDER BY entry").fetchall()[1]
    if damage == "offset":
        payload = payload.replace(pack("<4i", 0, 2, 4, 6), pack("<4i", 0, 2, 4, 10**8))
    elif damage == "null":
        payload = msgspec.msgpack.encode((1, "ab", None, None))
    else:
        lost = LossMarker("b", head[0], "p", 9, 3, 5).parcel
        payload = payload_of(lost)
        described = lost.shape.schema.serialize().to_pybytes()
        head[-1] = 77
        row = (head[-1], described, crc32(described))
        connection.execute("INSERT INTO shapes VALUES (?, ?, ?)", row)
    query = "SELECT schema FROM shapes WHERE shape = ?"
    (schema,) = connection.execute(query, head[-1:]).fetchone()
    sums = checksum(*head), payload_checksum(head[0], schema, payload)
    connection.execute(
        "UPDATE entries SET shape = ?, payload = ?, sum = ?, payload_sum = ? WHERE entry = ?",
        (head[-1], payload, *sums, head[0]),
    )
