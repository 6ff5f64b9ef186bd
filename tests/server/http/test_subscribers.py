from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from palio.errors import SubscriptionEnded, Unreachable
from palio.language.http_events import BATCH_TYPE
from palio.model.filters import TRUE
from palio.node.authority import OpenAuthority, Principal
from palio.server.http import subscribers
from palio.server.http.access import Access
from palio.server.http.app import application
from palio.server.http.cursors import CursorFeed
from palio.server.http.subscribers import HttpSubscribers
from palio.server.http.subscriptions import Directory
from palio.server.limits import MAX_TAKEN
from palio.server.webhooks import webhook
from tests.server.fronts import Source, asked, broker, event, listening, publish
from tests.server.helpers import until
from tests.server.http.test_app import Tokens, bearer
from tests.server.webhooks.test_webhook import SINK, Sink


async def test_webhooks_go_on_after_a_restart(tmp_path: Path) -> None:
    sink = Sink()
    wanted = {"config": {"durable": True}, "sink": SINK}
    async with broker(tmp_path) as server, asked(server) as client:
        access = Access(OpenAuthority(), server.moment)
        directory = Directory(server.host.keep, {})
        delivery = HttpSubscribers(server.connect_local, access, directory, sinks=sink.sinks)
        app = application(server.connect_local, access, delivery)
        client._transport = type(client._transport)(app)  # type: ignore[call-arg]  # the ASGI one
        assert (await client.post("/subscriptions", json=wanted)).status_code == 201
        await publish(client, event(1), query="?durable=true")
        await sink.heard(1)
        await delivery.stop()
        await publish(client, event(2), query="?durable=true")
    async with broker(tmp_path) as server:
        access = Access(OpenAuthority(), server.moment)
        directory = Directory(server.host.keep, server.journal.records())
        again = HttpSubscribers(server.connect_local, access, directory, sinks=sink.sinks)
        await again.start("http://palio.example:7480")
        assert (await sink.heard(2))[-1] == event(2)
        await again.stop()


async def test_what_goes_to_a_sink_goes_nowhere_else() -> None:
    sink = Sink()
    async with broker() as server, asked(server, sinks=sink.sinks) as client:
        made = (await client.post("/subscriptions", json={"sink": SINK})).json()
        assert sink.origin == "palio", "it was asked in this name"
        answer = await client.get(f"/subscriptions/{made['id']}/events")
        assert answer.status_code == 400
        assert "delivered to its sink" in answer.json()["error"]["message"]


async def test_a_changed_sink_is_asked_and_called(tmp_path: Path) -> None:
    sink = Sink()
    async with broker(tmp_path) as server, asked(server, sinks=sink.sinks) as client:
        wanted = {"config": {"durable": True}, "sink": SINK}
        made = (await client.post("/subscriptions", json=wanted)).json()
        await publish(client, event(1), query="?durable=true")
        await sink.heard(1)
        other = wanted | {"sink": "https://other.example/hook"}
        address = f"/subscriptions/{made['id']}"
        assert (await client.put(address, json=other)).status_code == 200
        await publish(client, event(2), query="?durable=true")
        await sink.heard(2)
        assert [call.url.host for call in sink.calls] == ["sink.example", "other.example"]
        sink.allowed = ""
        refused = await client.put(address, json=wanted)
        assert refused.status_code == 403
        assert (await client.get(address)).json()["sink"] == other["sink"]


async def test_a_subscription_that_the_node_refuses_is_not_kept() -> None:
    async with broker() as server, asked(server) as client:  # without a journal
        answer = await client.post("/subscriptions", json={"config": {"durable": True}})
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "NotStored")
        assert "could not write to its disk" in answer.json()["error"]["message"]
        assert (await client.get("/subscriptions")).json() == []


async def test_a_subscription_is_reached_with_the_token_of_the_caller(tmp_path: Path) -> None:
    """Not with that of its making, which may have expired."""
    tokens = Tokens({name: Principal("alice", TRUE, TRUE) for name in ("old", "new")})
    async with broker(tmp_path, authority=tokens) as server, asked(server, tokens) as client:
        durable = {"config": {"durable": True}}
        made = await client.post("/subscriptions", json=durable, headers=bearer("old"))
        address = f"/subscriptions/{made.json()['id']}"
        del tokens._principals["old"]
        assert (await client.delete(address, headers=bearer("new"))).status_code == 204
        assert server.node.status()["durable_subscriptions"] == 0


def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is away when it is first asked to forget a subscription."""
    forget = CursorFeed.forget

    async def away(feed: CursorFeed) -> None:
        monkeypatch.setattr(CursorFeed, "forget", forget)
        feed.close()
        raise Unreachable("the broker is away")

    monkeypatch.setattr(CursorFeed, "forget", away)


async def test_a_subscription_that_the_node_has_not_forgotten_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody could end it any more, and events would wait for it for ever."""
    async with broker(tmp_path) as server, asked(server) as client:
        durable = {"config": {"durable": True}}
        made = await client.post("/subscriptions", json=durable)
        address = f"/subscriptions/{made.json()['id']}"
        forgetful(monkeypatch)
        assert (await client.delete(address)).status_code == 503
        assert (await client.get(address)).json() == made.json()
        assert (await client.delete(address)).status_code == 204
        assert server.node.status()["durable_subscriptions"] == 0


async def test_a_subscription_ends_though_its_reader_has_it_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program of its owner took it up: the node knows nothing of the reader any more."""
    forget = CursorFeed.forget

    async def taken(_feed: CursorFeed) -> None:
        monkeypatch.setattr(CursorFeed, "forget", forget)
        raise SubscriptionEnded("this subscription has ended already")

    async with broker(tmp_path) as server, listening(server) as client:
        made = await client.post("/subscriptions", json={"config": {"durable": True}})
        address = f"/subscriptions/{made.json()['id']}"
        async with Source(client, f"{address}/events").open():
            monkeypatch.setattr(CursorFeed, "forget", taken)
            assert (await client.delete(address)).status_code == 204
        assert server.node.status()["durable_subscriptions"] == 0
        assert (await client.get(address)).status_code == 404


async def test_what_is_deleted_while_it_is_changed_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else an owner would have more of them than its limit says."""
    async with broker() as server, asked(server) as client:

        async def late(request: Request) -> bytes:
            monkeypatch.undo()
            assert (await client.delete(request.url.path)).status_code == 204
            return b"{}"

        made = await client.post("/subscriptions", json={})
        monkeypatch.setattr(subscribers, "body_of", late)
        assert (await client.put(made.headers["location"], json={})).status_code == 404

        async def refused(*_: object, **__: object) -> CursorFeed:
            monkeypatch.undo()
            assert (await client.delete(made.headers["location"])).status_code == 204
            raise Unreachable("the broker is away")

        made = await client.post("/subscriptions", json={})
        monkeypatch.setattr(CursorFeed, "open", refused)
        assert (await client.put(made.headers["location"], json={})).status_code == 503
        assert (await client.get("/subscriptions")).json() == []


async def test_a_sink_that_is_gone_is_removed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "AGAIN_S", 0.01)
    sink = Sink(410, 410)
    async with broker(tmp_path) as server, asked(server, sinks=sink.sinks) as client:
        wanted = {"config": {"durable": True}, "sink": SINK}
        assert (await client.post("/subscriptions", json=wanted)).status_code == 201
        forgetful(monkeypatch)
        await publish(client, event(1), query="?durable=true")
        await sink.heard(2)
        await until(lambda: server.node.status()["durable_subscriptions"] == 0)
        assert (await client.get("/subscriptions")).json() == []


async def test_a_failure_that_nobody_foresaw_does_not_end_a_webhook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "AGAIN_S", 0.01)
    sink = Sink(RuntimeError("a bug"))
    async with broker(tmp_path) as server, asked(server, sinks=sink.sinks) as client:
        wanted = {"config": {"durable": True}, "sink": SINK}
        assert (await client.post("/subscriptions", json=wanted)).status_code == 201
        await publish(client, event(1), query="?durable=true")
        assert await sink.heard(2) == [event(1), event(1)]


async def test_a_change_that_the_node_does_not_take_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> CursorFeed:
        raise Unreachable("the broker is away")

    async with broker(tmp_path) as server, asked(server) as client:
        durable = {"config": {"durable": True}}
        made = await client.post("/subscriptions", json=durable)
        address = f"/subscriptions/{made.json()['id']}"
        monkeypatch.setattr(CursorFeed, "open", away)
        changed = await client.put(address, json=durable | {"filters": [{"palio": "x > 5"}]})
        assert changed.status_code == 503
        assert (await client.get(address)).json() == made.json()


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("filter=a ==", "line 1, column 5: the text ends too soon"),
        ("filter=a = 1&param.b=2", "the filter has no parameter :b"),
    ],
)
async def test_what_is_wrong_with_a_query_is_not_told_as_a_place_in_a_body(
    query: str, problem: str
) -> None:
    async with broker() as server, asked(server) as client:
        answer = await client.get(f"/events?{query}")
        assert answer.status_code == 400
        assert answer.json()["error"]["message"].startswith(problem)


DURABLE = {"config": {"durable": True}}


async def taken(client: httpx.AsyncClient, address: str, **query: Any) -> list[Any]:
    answer = await client.get(f"{address}/batch", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == BATCH_TYPE
    return [(each["data"]["x"], each["paliocursor"]) for each in answer.json()]


async def test_events_are_taken_by_request_and_answer(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, asked(server) as client:
        made = (await client.post("/subscriptions", json=DURABLE)).json()
        address = f"/subscriptions/{made['id']}"
        assert await taken(client, address, wait_s=0) == []
        await publish(client, event(1), event(2), event(3), query="?durable=true")
        await publish(client, event(4), query="?durable=true")
        first = await taken(client, address, max=2)
        assert [x for x, _ in first] == [1, 2]
        again = await taken(client, address)  # nothing was acknowledged
        assert [x for x, _ in again][:3] == [1, 2, 3]
        second = await taken(client, address, cursor=first[-1][1], max=1)
        assert [x for x, _ in second] == [3]
        third = await taken(client, address, cursor=second[-1][1])
        assert [x for x, _ in third] == [4]
        assert await taken(client, address, cursor=third[-1][1], wait_s=0) == []
        assert await taken(client, address, wait_s=0.01) == []  # its cursor has come back
        assert server.node.status()["connected"] == 1  # the publisher


async def test_what_was_taken_is_acknowledged_without_a_stream(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, asked(server) as client:
        made = (await client.post("/subscriptions", json=DURABLE)).json()
        address = f"/subscriptions/{made['id']}"
        await publish(client, event(1), event(2), query="?durable=true")
        await publish(client, event(3), query="?durable=true")
        (_, middle), (_, last) = await taken(client, address, max=2)
        for cursor, left in ((middle, [1, 2]), (last, [3])):
            asks = await client.post(f"{address}/acknowledge", json={"cursor": cursor})
            assert asks.status_code == 204
            assert [x for x, _ in await taken(client, address)][: len(left)] == left


async def test_an_answer_waits_for_the_first_event(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, asked(server) as client:
        made = (await client.post("/subscriptions", json=DURABLE)).json()
        waiting = asyncio.create_task(taken(client, f"/subscriptions/{made['id']}", wait_s=60))
        await until(lambda: server.node.status()["connected"] == 1)
        await publish(client, event(1), query="?durable=true")
        assert [x for x, _ in await waiting] == [1]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("max=0", "max is a number from 1 to 1000, not '0'"),
        ("max=1001", "max is a number from 1 to 1000"),
        ("max=all", "max is a number"),
        ("wait_s=-1", "wait_s is a number from 0 to 60"),
        ("wait_s=61", "wait_s is a number from 0 to 60"),
        ("wait_s=nan", "wait_s is a number from 0 to 60"),
        ("wait=1", "there are cursor, max, wait_s"),
        ("cursor=s.a.1.1", "is no cursor of this subscription"),
    ],
)
async def test_bounds_of_an_answer(tmp_path: Path, query: str, problem: str) -> None:
    async with broker(tmp_path) as server, asked(server) as client:
        made = (await client.post("/subscriptions", json=DURABLE)).json()
        address = f"/subscriptions/{made['id']}/batch"
        refused = await client.get(f"{address}?{query}")
        assert (refused.status_code, problem in refused.text) == (400, True), refused.text
        for good in ("max=1&wait_s=0", f"max={MAX_TAKEN}&wait_s=0"):
            assert (await client.get(f"{address}?{good}")).status_code == 200
        assert (await client.head(address)).status_code == 200


async def test_only_what_waits_is_taken(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, asked(server) as client:
        made = (await client.post("/subscriptions", json={})).json()
        answer = await client.get(f"/subscriptions/{made['id']}/batch")
        assert answer.status_code == 400
        assert "not durable: nothing waits between two requests" in answer.text
        assert (await client.get("/subscriptions/other/batch")).status_code == 404


async def test_the_newest_of_those_who_take_is_answered(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, asked(server) as client:
        made = (await client.post("/subscriptions", json=DURABLE)).json()
        address = f"/subscriptions/{made['id']}"
        first = asyncio.create_task(taken(client, address, wait_s=60))
        await until(lambda: server.node.status()["connected"] == 1)
        second = asyncio.create_task(taken(client, address, wait_s=60))
        assert await first == []
        await publish(client, event(1), query="?durable=true")
        assert [x for x, _ in await second] == [1]


async def test_an_unknown_field_is_refused_with_those_that_there_are() -> None:
    async with broker() as server, asked(server) as client:
        answer = await client.post("/subscriptions", json={"filter": "x > 5"})
        assert answer.status_code == 400
        problem = answer.json()["error"]["message"]
        assert "unknown field `filter`; there are" in problem
        assert "filters" in problem
