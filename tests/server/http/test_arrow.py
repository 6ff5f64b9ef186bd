"""Arrow streams by HTTP: record batches in and out, under the limits and grants of the front."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack
from typing import Any, Final, cast

import httpx
import pyarrow as pa
import pytest

import palio
from palio.errors import InvalidInput, LimitExceeded
from palio.model.events import stamped
from palio.model.filters import TRUE, Filter
from palio.model.limits import MAX_ATTRIBUTES, MAX_EVENT_TEXT_BYTES
from palio.node.authority import Principal
from palio.node.settings import Settings
from palio.protocol.messages import Gap, Publish
from palio.server.http.access import MAX_BODY_BYTES
from palio.server.http.arrow import (
    ARROW_TYPE,
    CURSOR,
    MAX_WAITING_GAPS,
    REST,
    columns_of,
    messages,
    whole,
)
from palio.server.http.cursors import CursorFeed, FeedBatch
from palio.server.local_link import LocalLink
from palio.server.server import Server
from tests.protocol.test_legal_parcels import stream
from tests.server.fronts import WAIT_S, asked, broker, listening
from tests.server.helpers import until
from tests.server.http.test_app import Tokens, bearer
from tests.server.http.test_connection import Caller

QUOTES: Final = pa.record_batch({"symbol": ["IBM", "MSFT", "IBM"], "price": [9.5, 8.0, 12.0]})
COLUMNS: Final = "&column.symbol=utf8&column.price=float64"
SYSTEM: Final = ["$publisher", "$seq", "$time", CURSOR, REST]
ACCEPT: Final = {"accept": ARROW_TYPE}


async def put(client: httpx.AsyncClient, *batches: pa.RecordBatch, query: str = "") -> Any:
    """Publish a stream; the answer's JSON."""
    answer = await post(client, stream(*batches), query)
    assert answer.status_code == 202, answer.text
    return answer.json()


async def post(client: httpx.AsyncClient, body: bytes, query: str = "") -> httpx.Response:
    return await client.post(f"/events{query}", content=body, headers={"content-type": ARROW_TYPE})


class Reader:
    """Reads the messages of a stream as they come."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts
        self._bytes = b""
        self.schema = pa.schema([])

    async def _read(self, count: int) -> bytes:
        async with asyncio.timeout(WAIT_S):
            while len(self._bytes) < count:
                self._bytes += await anext(self._parts)
        read, self._bytes = self._bytes[:count], self._bytes[count:]
        return read

    async def _message(self) -> bytes:
        """The next message; nothing if it is the end of the stream."""
        prefix = await self._read(8)
        length = int.from_bytes(prefix[4:], "little")
        if length == 0:
            return b""
        head = await self._read(length)
        padded = pa.py_buffer(prefix + head + bytes(1 << 20))
        body: Any = pa.ipc.read_message(padded).body  # the stubs say that there may be none
        return prefix + head + await self._read(body.size)

    async def begin(self) -> list[str]:
        """The names of the columns, once it has begun."""
        self.schema = pa.ipc.read_schema(pa.py_buffer(await self._message()))
        return self.schema.names

    async def next(self) -> dict[str, list[Any]] | None:
        """The next batch; None at the end."""
        message = await self._message()
        if not message:
            return None
        return pa.ipc.read_record_batch(pa.py_buffer(message), self.schema).to_pydict()


@asynccontextmanager
async def hearing(client: httpx.AsyncClient, path: str, **headers: str) -> AsyncIterator[Reader]:
    async with client.stream("GET", path, headers=ACCEPT | headers) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"] == ARROW_TYPE
        yield Reader(response.aiter_bytes())


async def test_batches_are_published_and_heard() -> None:
    async with broker() as server, listening(server) as client:
        query = f"/events?filter=price < :limit&param.limit=10{COLUMNS}"
        async with hearing(client, query) as reader:
            assert await reader.begin() == ["symbol", "price", *SYSTEM]
            said = await put(client, QUOTES, QUOTES[2:])
            assert said["accepted"] == 4
            assert (said["level"], said["first_seq"], said["last_seq"]) == ("memory", 1, 4)
            heard = await reader.next()
            assert heard is not None
            assert heard["symbol"] == ["IBM", "MSFT"]
            assert heard["price"] == [9.5, 8.0]
            assert heard["$publisher"] == [said["publisher"]] * 2
            assert heard["$seq"] == [1, 2]
            assert heard[REST] == [None, None]
            assert heard[CURSOR][0] is None
            assert heard[CURSOR][1].startswith("s.")


async def test_a_batch_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never taken apart into rows."""
    published: list[Publish] = []
    hand_on = Server.from_front

    def noted(server: Server, link: LocalLink, message: Any, *, up_to: int | None = None) -> None:
        if isinstance(message, Publish) and up_to is None:
            published.append(message)
        hand_on(server, link, message, up_to=up_to)

    monkeypatch.setattr(Server, "from_front", noted)
    many = pa.record_batch({"x": range(10_000)})
    query = "/events?filter=x >= 5000&column.x=int64"
    async with (
        broker() as server,
        listening(server) as client,
        hearing(client, query) as reader,
    ):
        await reader.begin()
        await put(client, many)
        heard = await reader.next()
    assert [len(each.parcel) for each in published] == [10_000]
    assert heard is not None
    assert heard["x"] == [*range(5_000, 10_000)]


async def test_without_columns_the_first_events_give_the_schema() -> None:
    async with (
        broker() as server,
        listening(server) as client,
        hearing(client, "/events?filter=EXISTS price") as reader,
    ):
        await put(client, QUOTES)
        assert await reader.begin() == ["symbol", "price", *SYSTEM]
        heard = await reader.next()
        assert heard is not None
        assert heard["symbol"] == ["IBM", "MSFT", "IBM"]
        await put(client, pa.record_batch({"price": [1], "odd": [True]}))
        heard = await reader.next()
        assert heard is not None
        assert heard["price"] == [None]
        assert json.loads(heard[REST][0]) == {"price": 1, "odd": True}


async def test_a_stream_goes_on_after_a_cursor(tmp_path: Path) -> None:
    wanted = {"filters": [{"palio": "EXISTS x"}], "config": {"durable": True}}
    async with broker(tmp_path) as server, listening(server) as client:
        made = await client.post("/subscriptions", json=wanted)
        path = f"/subscriptions/{made.json()['id']}"
        said = await put(client, pa.record_batch({"x": range(5)}), query="?durable=true")
        assert said["level"] == "durable"
        few = await client.get(f"{path}/batch?max=2&column.x=int64", headers=ACCEPT)
        assert few.headers["content-type"] == ARROW_TYPE
        table = pa.ipc.open_stream(few.content).read_all()
        assert table["x"].to_pylist() == [0, 1]
        cursor = table[CURSOR].to_pylist()[-1]
        assert cursor
        last = ""
        for query, headers in (
            (f"?cursor={cursor}", {}),
            ("", {"last-event-id": cursor}),
        ):
            async with hearing(client, f"{path}/events{query}", **headers) as reader:
                await reader.begin()
                heard = await reader.next()
                assert heard is not None
                assert heard["x"] == [2, 3, 4]
                last = heard[CURSOR][-1]
        assert last.endswith(".e")
        none = await client.get(f"{path}/batch?wait_s=0.1&cursor={last}", headers=ACCEPT)
        assert pa.ipc.open_stream(none.content).read_all().num_rows == 0
        await until(lambda: server.node.status()["custody_entries"] == 0)


async def test_a_session_that_is_gone_is_a_row_without_a_number() -> None:
    async with broker() as server, listening(server) as client:
        query = "/events?filter=TRUE&cursor=s.gone.5.0"
        async with hearing(client, f"{query}{COLUMNS}") as reader:
            await reader.begin()
            heard = await reader.next()
            assert heard is not None
            assert (heard["$seq"], heard["symbol"]) == ([None], [None])
            lost = {"publisher": "*", "first_seq": 0, "last_seq": 0, "count": 0}
            assert json.loads(heard[REST][0]) == lost
        async with hearing(client, query) as reader:  # it waits for the schema of events
            await put(client, QUOTES)
            assert await reader.begin() == ["symbol", "price", *SYSTEM]
            assert [await reader.next(), await reader.next()] != [None, None]


async def test_a_reader_that_is_too_slow_is_told_what_it_has_lost() -> None:
    small = Settings(window_bytes=200_000, queue_bytes=200_000)
    texts = pa.record_batch({"x": range(50), "pad": ["x" * 3_000] * 50})
    async with (
        broker(settings=small) as server,
        listening(server, limits={"window_bytes": 200_000}) as client,
        hearing(client, "/events?filter=EXISTS x&column.x=int64") as reader,
    ):
        await reader.begin()
        for _ in range(60):  # 9 MB, and as much as JSON: more than a connection's buffers hold
            await put(client, texts)
        await put(client, pa.record_batch({"x": [99]}))
        count = lost = 0
        heard: Any = {"x": []}
        while heard["x"] != [99]:
            heard = await reader.next()
            if heard["$seq"] == [None]:
                lost += json.loads(heard[REST][0])["count"]
            else:
                count += len(heard["x"])
    assert lost > 0
    assert count + lost == 3_001


class Silence:
    """A feed of which nothing comes, or what is given."""

    def __init__(self, *given: FeedBatch, goes_on: bool = False) -> None:
        self.given = given
        self.goes_on = goes_on or not given
        self.has_left = False

    async def batches(self) -> AsyncIterator[FeedBatch]:
        for part in self.given:
            yield part
        if self.goes_on:
            await asyncio.sleep(WAIT_S)

    def leave(self) -> None:
        self.has_left = True


async def test_a_stream_on_which_nothing_happens_has_empty_batches() -> None:
    feed = Silence()
    reader = Reader(messages(cast(CursorFeed, feed), {"x": pa.int64()}, ping_s=0.01))
    await reader.begin()
    for _ in range(2):
        assert await reader.next() == {name: [] for name in ["x", *SYSTEM]}
    assert not feed.has_left


@pytest.mark.parametrize("columns", [{}, {"x": pa.int64()}])
@pytest.mark.parametrize("gaps", [0, 1])
async def test_a_stream_has_an_end(columns: dict[str, pa.DataType], gaps: int) -> None:
    feed = Silence(*[FeedBatch("", "p", None, Gap("p", 1, 2, 2))] * gaps, *[ONE] * (1 - gaps))
    data = b"".join([part async for part in messages(cast(CursorFeed, feed), columns)])
    table = pa.ipc.open_stream(data).read_all()
    assert table.num_rows == 1
    assert table["$seq"].to_pylist() == [None if gaps else 7]
    assert feed.has_left


async def test_a_gap_is_told_although_no_event_gives_the_schema() -> None:
    gap = FeedBatch("c", "p", None, Gap("p", 1, 2, 2))
    reader = Reader(messages(cast(CursorFeed, Silence(gap, goes_on=True)), {}, ping_s=0.01))
    assert await reader.begin() == SYSTEM
    assert await reader.next() == {name: [] for name in SYSTEM}
    found = await reader.next()
    assert found is not None
    assert (found[CURSOR], found["$seq"]) == (["c"], [None])


@pytest.mark.parametrize(("more", "is_begun"), [(-1, False), (0, True), (1, True)])
async def test_so_many_gaps_wait_for_an_event_and_no_more(more: int, *, is_begun: bool) -> None:
    gaps = [FeedBatch("c", "p", None, Gap("p", 1, 2, 2))] * (MAX_WAITING_GAPS + more)
    stream = messages(cast(CursorFeed, Silence(*gaps, ONE)), {})
    schema = pa.ipc.read_schema(pa.py_buffer(await anext(stream)))
    assert ("x" in schema.names) != is_begun


ONE: Final = FeedBatch("c", "p", stamped(pa.record_batch({"x": [1]}), 7, 0))


async def test_what_does_not_fit_is_kept_beside() -> None:
    batch = pa.record_batch({"x": [1, 2], "z": [None, float("nan")], "y": [1, None]})
    part = FeedBatch("c", "p", stamped(batch, 1, 0))
    data = await whole([part], {"x": pa.int64(), "y": pa.utf8()})
    fitted = pa.ipc.open_stream(data).read_all()
    assert fitted["x"].to_pylist() == [1, 2]
    assert fitted["y"].to_pylist() == [None, None]
    assert [json.loads(str(each)) for each in fitted[REST].to_pylist()] == [{"y": 1}, {"z": "nan"}]
    assert fitted[CURSOR].to_pylist() == [None, "c"]


async def test_many_rows_that_do_not_fit_go_in_steps() -> None:
    part = FeedBatch("c", "p", stamped(pa.record_batch({"x": range(2_500)}), 1, 0))
    batches = list(pa.ipc.open_stream(await whole([part], {"y": pa.int64()})))
    assert [each.num_rows for each in batches] == [1_000, 1_000, 500]
    cursors = pa.Table.from_batches(batches)[CURSOR].to_pylist()
    assert cursors == [None] * 2_499 + ["c"]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"column.x": "int8"}, "types are bool, int64"),
        ({"column.$seq": "int64"}, "belong to the system"),
        ({f"column.c{each}": "int64" for each in range(MAX_ATTRIBUTES + 1)}, "MAX_ATTRIBUTES"),
    ],
    ids=["a type", "a name", "too many"],
)
def test_columns_are_those_that_events_can_have(query: dict[str, str], problem: str) -> None:
    with pytest.raises((InvalidInput, LimitExceeded), match=problem):
        columns_of(query)


async def test_columns_are_asked_for_with_arrow_only() -> None:
    async with broker() as server, asked(server) as client:
        refused = await client.get("/events?filter=TRUE&column.x=int64")
        assert refused.status_code == 400
        assert "column.x" in refused.json()["error"]["message"]
        refused = await client.get("/events?filter=TRUE&column.x=int8", headers=ACCEPT)
        assert refused.status_code == 400
        head = await client.head(
            "/events?filter=TRUE", headers={"accept": f"a/b, {ARROW_TYPE};q=1"}
        )
        assert head.headers["content-type"] == ARROW_TYPE


TOO_LONG = "a" * (MAX_EVENT_TEXT_BYTES + 1)


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"junk", 400, "InvalidEvent"),
        (stream(pa.record_batch({"$seq": [1]})), 400, "InvalidEvent"),
        (stream(pa.record_batch({"x": pa.nulls(10**8)})), 413, "LimitExceeded"),
        (stream(QUOTES, codec="zstd"), 400, "InvalidEvent"),
        (stream(pa.record_batch({"x": ["a" * MAX_BODY_BYTES]})), 413, "LimitExceeded"),
        (stream(pa.record_batch({"x": ["a", TOO_LONG]})), 413, "LimitExceeded"),
        (stream(QUOTES)[:-300], 400, "InvalidEvent"),
        (stream(QUOTES).replace(pack("<4i", 0, 3, 7, 10), b"\xff" * 16), 400, "InvalidEvent"),
    ],
    ids=["junk", "system", "nulls", "compressed", "too long", "text", "cut", "offsets"],
)
async def test_a_body_that_is_refused_publishes_nothing(
    body: bytes, status: int, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the client's fault, and told to the client; the broker has none of its own to log."""
    async with broker() as server, asked(server) as client:
        answer = await post(client, body)
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["type"] == kind
        assert server.node.status()["published"] == 0
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_nothing_is_nothing() -> None:
    async with broker() as server, asked(server) as client:
        assert await put(client, QUOTES[:0]) == {"accepted": 0}


async def test_tokens_and_grants() -> None:
    cheap = palio.parse("price < 9")
    assert isinstance(cheap, Filter)
    people = Tokens(
        {"alice": Principal("alice", TRUE, TRUE), "bob": Principal("bob", cheap, cheap)}
    )
    async with broker(authority=people) as server, asked(server, people) as client:
        assert (await post(client, b"junk")).status_code == 401
        assert (await client.get("/events?filter=TRUE", headers=ACCEPT)).status_code == 401
        client.headers.update(bearer("bob"))
        some = await post(client, stream(QUOTES))
        assert some.status_code == 207
        assert some.json()["accepted"] == 1
        ranges = [(each["first_seq"], each["last_seq"]) for each in some.json()["refused"]]
        assert ranges == [(1, 1), (3, 3)]
        assert (await post(client, stream(QUOTES[:1]))).status_code == 403
        refused = await client.get("/events?filter=price > 9", headers=ACCEPT)
        assert refused.status_code == 403


async def test_a_body_that_does_not_come_has_the_time_of_any() -> None:
    head = (
        f"POST /events HTTP/1.1\r\nhost: localhost\r\ncontent-type: {ARROW_TYPE}\r\n"
        "content-length: 100000\r\n\r\n"
    )
    limits = {"http_body_s": 0.1}
    async with broker() as server, listening(server, limits=limits) as client:
        slow = await Caller.to(client, head.encode() + stream(QUOTES)[:100])
        assert b"408" in (await slow.answered()).partition(b"\r\n")[0]
        assert server.node.status()["published"] == 0
