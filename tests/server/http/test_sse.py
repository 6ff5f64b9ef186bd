from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from palio.errors import Unreachable
from palio.node.settings import Settings
from palio.server.http.cursors import CursorFeed, Item
from palio.server.http.sse import ENDED_RETRY_MS, frame, frames
from tests.server.fronts import Source, broker, event, listening, numbers, publish

DURABLE = {"filters": [{"palio": "EXISTS x"}], "config": {"durable": True}}


async def made(client: httpx.AsyncClient, **fields: Any) -> str:
    answer = await client.post("/subscriptions", json=fields)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/subscriptions/{answer.json()['id']}"
    return f"{answer.headers['location']}/events"


async def test_a_filter_is_streamed_with_its_parameters() -> None:
    async with broker() as server, listening(server) as client:
        source = Source(client, "/events?filter=x < :limit&param.limit=3")
        async with source.open() as events:
            await publish(client, *map(event, (1, 5, 2, 3)))
            assert await numbers(events, 2) == [1, 2]


async def test_an_event_whose_time_has_run_out_is_not_streamed() -> None:
    async with (
        broker() as server,
        listening(server) as client,
        Source(client, "/events?filter=EXISTS x").open() as events,
    ):
        late = event(1, expirytime="2020-01-01T00:00:00Z")
        await publish(client, late, event(2, expirytime="9999-01-01T00:00:00Z"), event(3))
        assert await numbers(events, 2) == [2, 3]


async def test_a_stream_is_resumed_in_its_session_without_loss_or_double() -> None:
    async with broker() as server, listening(server) as client:
        source = Source(client, await made(client, filters=[{"palio": "EXISTS x"}]))
        async with source.open() as events:
            await publish(client, *map(event, range(4)))
            assert await numbers(events, 2) == [0, 1]
        await publish(client, *map(event, range(4, 6)))  # nobody listens
        async with source.open() as events:
            await publish(client, event(6))
            assert await numbers(events, 5) == [2, 3, 4, 5, 6]


async def test_a_session_that_is_gone_is_a_gap() -> None:
    async with broker() as server, listening(server) as client:
        source = Source(client, await made(client))
        source.last_id = "s.gone.5.0"
        async with source.open() as events:
            kind, document = await anext(events)
            assert (kind, document["type"]) == ("gap", "palio.gap")
            assert document["data"]["publisher"] == "*"
            await publish(client, event(1))
            assert await numbers(events, 1) == [1]


async def test_a_durable_subscription_is_resumed_exactly(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, listening(server) as client:
        path = await made(client, **DURABLE)
        await publish(client, event(0), query="?durable=true")
        await publish(client, *map(event, (1, 2, 3)), query="?durable=true")
        source = Source(client, path)
        async with source.open() as events:
            assert await numbers(events, 3) == [0, 1, 2]
        await publish(client, event(4), query="?durable=true")
        async with source.open() as events:  # in the middle of a batch
            assert await numbers(events, 2) == [3, 4]
        async with Source(client, path).open() as events:  # without a cursor: all batches but
            assert await numbers(events, 4) == [1, 2, 3, 4]  # those before the cursor's


async def test_a_durable_subscription_outlives_the_broker(tmp_path: Path) -> None:
    data_dir = str(tmp_path)
    async with broker(tmp_path) as server, listening(server, data_dir) as client:
        path = await made(client, **DURABLE)
        source = Source(client, path)
        async with source.open() as events:
            await publish(client, event(0), query="?durable=true")
            await publish(client, event(1), query="?durable=true")
            assert await numbers(events, 1) == [0]
    async with broker(tmp_path) as server, listening(server, data_dir) as client:
        again = Source(client, path)
        again.last_id = source.last_id
        async with again.open() as events:
            assert await numbers(events, 1) == [1]


async def test_the_newest_consumer_of_a_durable_subscription_has_it(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, listening(server) as client:
        path = await made(client, **DURABLE)
        oldest, newest = Source(client, path), Source(client, path)
        async with oldest.open() as first, newest.open() as second:
            kind, problem = await anext(first)
            assert (kind, problem["type"]) == ("ended", "SubscriptionEnded")
            assert oldest.retry_ms == ENDED_RETRY_MS
            assert "was taken over by another session" in problem["message"]
            with pytest.raises(StopAsyncIteration):
                await anext(first)
            await publish(client, event(1), query="?durable=true")
            assert await numbers(second, 1) == [1]


async def test_explicit_acknowledgement(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, listening(server) as client:
        config = {"durable": True, "acknowledge": "explicit"}
        path = await made(client, config=config)
        acknowledge = path.replace("/events", "/acknowledge")
        for number in range(3):
            await publish(client, event(number), query="?durable=true")
        source = Source(client, path)
        async with source.open() as events:
            assert await numbers(events, 2) == [0, 1]
            answer = await client.post(acknowledge, json={"cursor": source.last_id})
            assert answer.status_code == 204
        async with Source(client, path).open() as events:
            assert await numbers(events, 1) == [2]
        for wrong in ({}, {"cursor": "d.1"}, {"cursor": "s.a.1.0"}):
            assert (await client.post(acknowledge, json=wrong)).status_code == 400


async def test_a_change_while_nobody_listens_is_in_force_for_who_comes_back() -> None:
    async with broker() as server, listening(server) as client:
        path = await made(client, filters=[{"palio": "x < 10"}])
        source = Source(client, path)
        async with source.open() as events:
            await publish(client, event(1))
            assert await numbers(events, 1) == [1]
        await publish(client, event(2), event(3))  # while the old filter is in force
        other = {"filters": [{"palio": "x > 2"}]}
        assert (await client.put(path.removesuffix("/events"), json=other)).status_code == 200
        async with source.open() as events:
            await publish(client, event(1), event(20))
            assert await numbers(events, 2) == [3, 20]


@pytest.mark.parametrize("durable", [False, True])
async def test_a_filter_changes_under_the_same_identity(durable: bool, tmp_path: Path) -> None:
    def asking(limit: int) -> dict[str, Any]:
        own = {"filter": "x < :limit", "parameters": {"limit": limit}}
        return {"filters": [{"palio": own}], "config": {"durable": durable}}

    query = "?durable=true" if durable else ""
    async with broker(tmp_path) as server, listening(server) as client:
        path = await made(client, **asking(5))
        address = path.removesuffix("/events")
        async with Source(client, path).open() as events:
            await publish(client, event(1), event(7), query=query)
            assert await numbers(events, 1) == [1]
            changed = await client.put(address, json=asking(10))
            assert changed.json()["palio"]["parameters"] == {"limit": 10}
            await publish(client, event(8), query=query)
            assert await numbers(events, 1) == [8]
            other = {**asking(0), "filters": [{"palio": "x > 100"}]}
            assert (await client.put(address, json=other)).status_code == 200
            await publish(client, event(9), event(101), query=query)
            assert await numbers(events, 1) == [101]


async def test_a_change_while_nobody_listens_keeps_the_position(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, listening(server) as client:
        path = await made(client, **DURABLE)
        await publish(client, event(1), query="?durable=true")
        changed = DURABLE | {"filters": [{"palio": "x > 5"}]}
        assert (await client.put(path.removesuffix("/events"), json=changed)).status_code == 200
        await publish(client, event(2), event(6), query="?durable=true")
        async with Source(client, path).open() as events:
            assert await numbers(events, 2) == [1, 6]


async def test_what_stays_and_what_ends(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, listening(server) as client:
        path = await made(client, **DURABLE)
        address = path.removesuffix("/events")
        for wrong in (DURABLE | {"id": "other"}, DURABLE | {"config": {}}):
            assert (await client.put(address, json=wrong)).status_code == 400
        assert (await client.get(address)).json()["config"]["durable"] is True
        async with Source(client, path).open() as events:
            assert (await client.delete(address)).status_code == 204
            with pytest.raises(StopAsyncIteration):
                await anext(events)
        assert (await client.get(path)).status_code == 404
        brokers = (await client.get("/topology")).json()["brokers"]
        assert brokers["b"]["durable_subscriptions"] == []


async def test_bad_requests_are_answered_before_a_stream_begins() -> None:
    async with broker() as server, listening(server) as client:
        path = await made(client)
        for wrong in ("/events", "/events?filter=x <", "/events?filter=x < :y"):
            assert (await client.get(wrong)).status_code == 400
        assert (await client.get(path, headers={"last-event-id": "d.1.0"})).status_code == 400
        assert (await client.get(path, headers={"last-event-id": "junk"})).status_code == 400


async def test_a_slow_consumer_is_bounded_and_told() -> None:
    small = Settings(window_bytes=200_000, queue_bytes=200_000)
    text = "x" * 15_000
    async with (
        broker(settings=small) as server,
        listening(server, limits={"window_bytes": 200_000}) as client,
        Source(client, "/events?filter=EXISTS x").open() as events,
    ):
        for start in range(0, 600, 10):  # 9 MB: more than the buffers of a connection hold
            await publish(client, *(event(start + n, subject=text) for n in range(10)))
        await publish(client, event(-1))
        heard, lost = 0, 0
        async for kind, document in events:
            if kind == "gap":
                lost += document["data"]["count"]
            else:
                heard += 1
                if document["data"]["x"] == -1:
                    break
    assert lost > 0
    assert lost + heard == 601


async def test_a_question_for_the_headers_opens_no_stream() -> None:
    async with broker() as server, listening(server) as client:
        answer = await client.head("/events?filter=TRUE")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert server.node.status()["sessions"] == 0


# --- frames ---


def test_a_frame_has_no_line_ends_within() -> None:
    odd = "\r\n\u2028\x85 é"
    said = frame(Item("s.a.1.0", {"x": odd}, is_gap=True))
    assert said.count("\n") == 4
    assert said.isascii()
    assert json.loads(said.split("data: ")[1]) == {"x": odd}
    assert "event: gap" in said


class Scripted:
    """A feed that gives what it is told to."""

    opened = ""

    def __init__(self, *chunks: list[Item] | Exception) -> None:
        self._chunks = chunks
        self.failure: Exception | None = None
        self.left = False

    async def chunks(self) -> AsyncIterator[list[Item]]:
        for each in self._chunks:
            if isinstance(each, Exception):
                self.failure = each
                raise each
            yield each
        await asyncio.Event().wait()

    def leave(self) -> None:
        self.left = True


async def test_a_quiet_stream_says_that_it_is_there() -> None:
    feed = Scripted()
    stream = frames(cast(CursorFeed, feed), ping_s=0.01)
    assert [await anext(stream) for _ in range(3)] == [":\n\n"] * 3
    await stream.aclose()  # type: ignore[attr-defined]  # it is a generator
    assert feed.left


async def test_a_stream_ends_with_its_session() -> None:
    feed = Scripted([Item("", {"a": 1})], Unreachable("gone"))
    said = [each async for each in frames(cast(CursorFeed, feed))]
    assert said == [":\n\n", 'data: {"a":1}\n\n']
    assert feed.left
