from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpcore
import httpx
import pytest

from palio.server.limits import MAX_CALLS, MAX_CALLS_OF_ONE
from palio.server.webhooks import sinks
from palio.server.webhooks.sinks import MAX_DRAINED_BYTES, SinkFailed, Sinks
from tests.server.fronts import WAIT_S
from tests.server.webhooks.handled import Handled
from tests.server.webhooks.test_network import HEAD, Machine

SINK = "http://sink.example/hook"


def over(handler: Callable[..., Any]) -> Sinks:
    return Sinks(lambda: Handled(handler))


async def test_nothing_is_asked_to_be_packed_and_nothing_is_unpacked() -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)

        async def body() -> AsyncIterator[bytes]:
            yield b"this is not what gzip looks like"

        return httpx.Response(200, headers={"content-encoding": "gzip"}, content=body())

    calls = over(answer)
    assert (await calls.call("alice", "POST", SINK, {"X-Key": "k"}, b"{}")).is_success
    assert sent[0].headers["accept-encoding"] == "identity"
    assert sent[0].headers["user-agent"] == "palio"
    assert sent[0].headers["x-key"] == "k"


@pytest.mark.parametrize(
    ("body", "connections"),
    [(0, 1), (MAX_DRAINED_BYTES - 1, 1), (MAX_DRAINED_BYTES, 1), (MAX_DRAINED_BYTES + 1, 2)],
)
async def test_a_short_body_is_read_off_and_the_connection_used_again(
    body: int, connections: int
) -> None:
    machine = Machine(HEAD, b"content-length: %d\r\n\r\n" % body, bytes(body))
    async with machine.at_work():
        calls = Sinks(httpcore.AsyncConnectionPool)
        for _ in range(2):
            address = f"http://127.0.0.1:{machine.port}/"
            assert (await calls.call("alice", "POST", address, {})).status == 200
        await calls.close()
    assert machine.connections == connections


async def test_no_cookie_of_a_sink_is_kept() -> None:
    """It would be sent for other owners, too."""
    machine = Machine(HEAD, b"set-cookie: whose=alice\r\ncontent-length: 0\r\n\r\n")
    async with machine.at_work():
        calls = Sinks(httpcore.AsyncConnectionPool)
        for owner in ("alice", "bob"):
            await calls.call(owner, "POST", f"http://127.0.0.1:{machine.port}/", {})
        await calls.close()
    assert len(machine.requests) == 2
    assert not any(b"cookie" in each.lower() for each in machine.requests)


async def test_a_body_that_does_not_come_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "DRAIN_S", 0.01)
    async with Machine(HEAD, b"content-length: 9\r\n\r\n").at_work() as machine:
        calls = Sinks(httpcore.AsyncConnectionPool)
        assert (await calls.call("a", "POST", f"http://127.0.0.1:{machine.port}/", {})).is_success
        await calls.close()


async def test_a_sink_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "CALL_S", 0.01)

    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(SinkFailed, match=r"no answer within 0\.01 s"):
        await over(never).call("alice", "POST", SINK, {})


@pytest.mark.parametrize("address", ["http://[::1", "http://sink.example:99999999/", "ftp://a/"])
async def test_an_address_that_is_none_fails_as_all_else_does(address: str) -> None:
    with pytest.raises(SinkFailed):
        await Sinks().call("alice", "POST", address, {})


async def test_calls_at_once_are_limited_and_one_owner_leaves_turns_for_others() -> None:
    under_way: list[str] = []
    changed = asyncio.Condition()
    release = asyncio.Event()

    async def slow(request: httpx.Request) -> httpx.Response:
        under_way.append(request.url.path)
        async with changed:
            changed.notify_all()
        await release.wait()
        return httpx.Response(200)

    calls = over(slow)
    owners = [str(number) for number in range(MAX_CALLS // MAX_CALLS_OF_ONE + 1)]
    tasks: list[asyncio.Task[Any]] = []
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        for place, owner in enumerate(owners, 1):
            tasks += [
                group.create_task(calls.call(owner, "POST", f"http://sink.example/{owner}", {}))
                for _ in range(MAX_CALLS_OF_ONE + 1)
            ]
            expected = min(place * MAX_CALLS_OF_ONE, MAX_CALLS)
            async with changed:
                await changed.wait_for(lambda expected=expected: len(under_way) == expected)  # type: ignore[misc]  # a default
        assert max(under_way.count(f"/{owner}") for owner in owners) == MAX_CALLS_OF_ONE
        release.set()
    assert all(task.result().is_success for task in tasks)
    assert len(under_way) == len(owners) * (MAX_CALLS_OF_ONE + 1)
