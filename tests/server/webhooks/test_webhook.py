from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpcore
import httpx
import msgspec
import pytest

from palio.language.http_events import BATCH_TYPE, JSON_TYPE
from palio.language.webhooks import LONGEST_DELAY_S, secret_of, signature
from palio.server.http.cursors import CursorFeed, Item
from palio.server.http.subscriptions import HttpSubscription, Request
from palio.server.webhooks.sinks import Sinks
from palio.server.webhooks.webhook import Gone, NotTaken, Webhook, ask_leave
from tests.server.fronts import WAIT_S, asked, broker, event, listening, publish
from tests.server.http.test_app import bearer, tokens
from tests.server.webhooks.handled import Handled
from tests.server.webhooks.test_network import HEAD, Machine

SINK = "https://sink.example/hook"

Answer = httpx.Response | Exception


class Sink:
    """Sinks that answer what they are told to, in order, and 200 after that."""

    def __init__(self, *answers: int | Answer, allowed: str = "*") -> None:
        self.calls: list[httpx.Request] = []
        self.allowed = allowed
        self.origin = ""
        self._answers = list(answers)
        self._called = asyncio.Event()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "OPTIONS":
            self.origin = request.headers["WebHook-Request-Origin"]
            return httpx.Response(200, headers={"WebHook-Allowed-Origin": self.allowed})
        self.calls.append(request)
        self._called.set()
        answer = self._answers.pop(0) if self._answers else 200
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer) if isinstance(answer, int) else answer

    @property
    def sinks(self) -> Sinks:
        return Sinks(lambda: Handled(self))

    async def heard(self, count: int) -> list[Any]:
        """Bodies of the first calls, once there are so many."""
        async with asyncio.timeout(WAIT_S):
            while len(self.calls) < count:
                self._called.clear()
                await self._called.wait()
        return [json.loads(call.content) for call in self.calls]


class Script:
    """A feed that gives items and ends; remembers how far it was asked."""

    def __init__(self, *items: Item) -> None:
        self._items = items
        self.done = 0

    async def chunks(self, most: int) -> AsyncIterator[list[Item]]:
        for start in range(0, len(self._items), most):
            yield list(self._items[start : start + most])
            self.done = start + most


def items(*numbers: int) -> Script:
    return Script(*(Item("", event(number)) for number in numbers))


def subscription(**config: Any) -> HttpSubscription:
    request = msgspec.convert({"sink": SINK, "config": config}, Request)
    return HttpSubscription.of("s1", "alice", request, "")


async def run(sink: Sink, feed: Script, made: HttpSubscription | None = None) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await Webhook(sink.sinks, made or subscription(), sleep=sleep).run(cast(CursorFeed, feed))
    return slept


async def test_events_are_posted_one_by_one_as_cloud_events() -> None:
    sink = Sink()
    slept = await run(sink, items(1, 2))
    assert await sink.heard(2) == [event(1), event(2)]
    assert {call.headers["content-type"] for call in sink.calls} == {JSON_TYPE}
    assert slept == []


async def test_or_in_batches_with_the_headers_asked_for() -> None:
    request = msgspec.convert(
        {"sink": SINK, "config": {"batch": 2}, "protocolsettings": {"headers": {"x-key": "k"}}},
        Request,
    )
    sink = Sink()
    await run(sink, items(1, 2, 3), HttpSubscription.of("s1", "alice", request, ""))
    assert await sink.heard(2) == [[event(1), event(2)], [event(3)]]
    assert {call.headers["content-type"] for call in sink.calls} == {BATCH_TYPE}
    assert {call.headers["x-key"] for call in sink.calls} == {"k"}


@pytest.mark.parametrize("failure", [500, 503, 408, 425, 429, httpcore.ConnectError("refused")])
async def test_what_may_pass_is_tried_again_later_each_time(failure: int | Answer) -> None:
    sink = Sink(failure, failure, failure)
    slept = await run(sink, items(1))
    assert await sink.heard(4) == [event(1)] * 4
    assert slept == [0.5, 1.0, 2.0]


async def test_waiting_has_an_end_and_a_sink_may_say_how_long() -> None:
    busy = httpx.Response(429, headers={"Retry-After": "7"})
    dated = httpx.Response(503, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})
    endless = httpx.Response(503, headers={"Retry-After": "1e9"})
    slept = await run(Sink(busy, dated, endless), items(1))
    assert slept == [7.0, 14.0, LONGEST_DELAY_S]
    slept = await run(Sink(*[500] * 19), items(1), subscription(attempts=20))
    assert max(slept) == LONGEST_DELAY_S


async def test_what_is_never_taken_goes_to_the_dead_letters() -> None:
    made = subscription(attempts=3, deadletter="https://dead.example/letters")
    sink = Sink(500, 500, 500)
    feed = items(1, 2)
    await run(sink, feed, made)
    assert [str(call.url) for call in sink.calls] == [
        *[SINK] * 3,
        "https://dead.example/letters",
        SINK,
    ]
    assert feed.done == 2


async def test_a_final_answer_is_not_asked_for_twice() -> None:
    sink = Sink(400)
    slept = await run(sink, items(1))
    assert (len(sink.calls), slept) == (1, [])


async def test_a_dead_letter_box_that_is_away_stops_nobody() -> None:
    made = subscription(deadletter="https://dead.example/letters")
    feed = items(1, 2)
    await run(Sink(400, httpcore.ConnectError("away")), feed, made)
    assert feed.done == 2


async def test_a_sink_that_is_gone_ends_it() -> None:
    feed = items(1, 2)
    with pytest.raises(Gone, match="'s1' is gone"):
        await run(Sink(410), feed)
    assert feed.done == 0


@pytest.mark.parametrize("allowed", ["*", "here"])
async def test_a_sink_agrees(allowed: str) -> None:
    sink = Sink(allowed=allowed)
    await ask_leave(sink.sinks, "alice", SINK, "here")
    assert sink.origin == "here"


async def test_a_sink_that_does_not_agree_is_not_called_and_its_owner_learns_nothing_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def away(_: httpx.Request) -> httpx.Response:
        raise httpcore.ConnectError("refused")

    answers: dict[str, Callable[[httpx.Request], httpx.Response]] = {
        "status 200, WebHook-Allowed-Origin: elsewhere": Sink(allowed="elsewhere"),
        "status 200, WebHook-Allowed-Origin: ": Sink(allowed=""),
        "status 405, WebHook-Allowed-Origin: ": lambda _: httpx.Response(405),
        "refused": away,
    }
    said = set()
    for reason, answer in answers.items():
        sinks = Sinks(partial(Handled, answer))
        with pytest.raises(NotTaken) as refused:
            await ask_leave(sinks, "alice", SINK, "here")
        said.add(str(refused.value))
        details = caplog.records[-1].__dict__["details"]
        assert details == {"sink": SINK, "owner": "alice", "reason": reason}
    assert len(said) == 1


# --- with a broker ---


async def test_a_subscription_with_a_sink_is_delivered(tmp_path: Path) -> None:
    sink = Sink(503)
    async with broker(tmp_path) as server, asked(server, sinks=sink.sinks) as client:
        wanted = {"filters": [{"palio": "x > 5"}], "config": {"durable": True}, "sink": SINK}
        made = await client.post("/subscriptions", json=wanted)
        assert made.status_code == 201
        await publish(client, event(1), event(6), query="?durable=true")
        assert await sink.heard(2) == [event(6)] * 2
        await publish(client, event(7), query="?durable=true")
        assert (await sink.heard(3))[-1] == event(7)
        address = f"/subscriptions/{made.json()['id']}"
        changed = wanted | {"filters": [{"palio": "x > 8"}]}
        assert (await client.put(address, json=changed)).status_code == 200
        await publish(client, event(8), event(9), query="?durable=true")
        assert (await sink.heard(4))[-1] == event(9)
        assert (await client.delete(address)).status_code == 204


async def test_a_sink_that_is_gone_takes_its_subscription_along() -> None:
    sink = Sink(410)
    async with broker() as server, asked(server, sinks=sink.sinks) as client:
        assert (await client.post("/subscriptions", json={"sink": SINK})).status_code == 201
        while (await client.get("/subscriptions")).json():
            await publish(client, event(1))
            await asyncio.sleep(0)
        assert len(sink.calls) == 1


async def test_a_sink_nearby_is_not_called_unless_the_broker_allows_it() -> None:
    agrees = HEAD + b"webhook-allowed-origin: *\r\ncontent-length: 0\r\n\r\n"
    async with broker() as server, Machine(agrees).at_work() as machine:
        wanted = {"sink": f"http://localhost:{machine.port}/hook"}
        refusals = set()
        async with listening(server) as client:
            closed = {"sink": f"http://localhost:{machine.port + 1}/hook"}
            for each in (wanted, closed, wanted | {"sink": "http://no.invalid/hook"}):
                answer = await client.post("/subscriptions", json=each)
                assert (answer.status_code, answer.json()["error"]["type"]) == (403, "NotTaken")
                said = answer.json()["error"]["message"]
                refusals.add(said.replace(each["sink"], "").replace(str(client.base_url), ""))
        assert (len(refusals), machine.connections) == (1, 0)
        async with listening(server, webhooks={"allow": ["127.0.0.0/8"]}) as client:
            assert (await client.post("/subscriptions", json=wanted)).status_code == 201
        assert machine.connections == 1


@pytest.mark.parametrize("durable", [True, False])
async def test_who_may_hear_nothing_has_nobody_called(tmp_path: Path, durable: bool) -> None:
    sink = Sink()
    wanted = {"sink": SINK, "config": {"durable": durable}}
    async with (
        broker(tmp_path, authority=tokens()) as server,
        asked(server, tokens(), sinks=sink.sinks) as client,
    ):
        for filter, refusal in (("TRUE", "NotPermitted"), ("FALSE", "InvalidInput")):
            asked_for = wanted | {"filters": [{"palio": filter}]}
            answer = await client.post("/subscriptions", json=asked_for, headers=bearer("deaf"))
            assert answer.json()["error"]["type"] == refusal
        made = await client.post("/subscriptions", json={}, headers=bearer("alice"))
        assert made.status_code == 201
        assert (sink.calls, sink.origin) == ([], "")
        assert server.node.status()["durable_subscriptions"] == 0


async def test_a_sink_that_does_not_agree_makes_no_subscription(tmp_path: Path) -> None:
    sink = Sink(allowed="")
    async with broker(tmp_path) as server, asked(server, sinks=sink.sinks) as client:
        wanted = {"sink": SINK, "config": {"durable": True}}
        answer = await client.post("/subscriptions", json=wanted)
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "NotTaken")
        assert (await client.get("/subscriptions")).json() == []
        assert server.node.status()["durable_subscriptions"] == 0


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def test_every_call_says_which_it_is_and_which_try() -> None:
    sink = Sink(503)
    await run(sink, Script(*(Item(f"d.{n}.0", event(n)) for n in (1, 2))))
    said = [(call.headers["webhook-id"], call.headers["webhook-attempt"]) for call in sink.calls]
    assert said == [("s1/d.1.0", "1"), ("s1/d.1.0", "2"), ("s1/d.2.0", "1")]
    assert [call.headers["idempotency-key"] for call in sink.calls] == [id for id, _ in said]
    assert not any("webhook-signature" in call.headers for call in sink.calls)


async def test_batches_that_begin_alike_and_end_otherwise_are_different_calls() -> None:
    """After a restart a batch may be longer: who has had the shorter must not pass it over."""
    ids = []
    for count in (2, 3):
        sink = Sink()
        found = Script(*(Item(f"d.1.{row}", event(row)) for row in range(count)))
        await run(sink, found, subscription(batch=10))
        ids.append(sink.calls[0].headers["webhook-id"])
    assert ids == ["s1/d.1.0..d.1.1", "s1/d.1.0..d.1.2"]


async def test_calls_are_signed_with_a_secret() -> None:
    request = msgspec.convert({"sink": SINK, "protocolsettings": {"secret": SECRET}}, Request)
    sink = Sink()
    made = HttpSubscription.of("s1", "alice", request, "")
    webhook = Webhook(sink.sinks, made, now=lambda: 1614265330.9)
    await webhook.run(cast(CursorFeed, Script(Item("d.1.0", event(1)))))
    (call,) = sink.calls
    assert call.headers["webhook-timestamp"] == "1614265330"
    expected = signature(secret_of(SECRET), "s1/d.1.0", 1614265330, call.content)
    assert call.headers["webhook-signature"] == expected
    assert SECRET not in f"{made!r}{request!r}"
