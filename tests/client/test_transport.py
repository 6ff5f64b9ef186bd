"""Over real sockets, to a broker that follows a script."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import palio
from palio.client.transport import tls_context
from palio.errors import IllegalMessage, InvalidConfiguration, NotAuthenticated, Unreachable
from palio.protocol.messages import (
    Bye,
    Done,
    Failed,
    Failure,
    Hello,
    Message,
    Ping,
    Pong,
    Route,
    StreamAck,
    Subscribe,
    Unsubscribe,
    Update,
    Welcome,
)
from palio.protocol.wire import Decoder, Encoder
from palio.routing.messages import Batch

Answer = Callable[[Message], list[Message]]


@asynccontextmanager
async def broker(answer: Answer) -> AsyncIterator[tuple[str, list[Message]]]:
    """A broker that says to each message what it is told to, and remembers what it heard."""
    heard: list[Message] = []
    serving: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.append(task)
        encoder, decoder = Encoder(), Decoder("the client")
        while data := await reader.read(1 << 16):
            for message in decoder.feed(data):
                heard.append(message)
                for each in answer(message):
                    writer.writelines(map(bytes, encoder.encode(each)))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"palio://{host}:{port}", heard
        await asyncio.gather(*serving)


def friendly(message: Message) -> list[Message]:
    match message:
        case Hello():
            return [Welcome("b1", "s1", False, 0, "me/1")]
        case Subscribe(id=id) | Unsubscribe(id=id):
            return [Done(id)]
        case Update(id=id):
            return [Failed(id, Failure("LimitExceeded", "too much", {"limit": "SOME_LIMIT"}))]
        case _:
            return []


async def test_the_greeting_and_a_request() -> None:
    async with broker(friendly) as (url, heard):
        async with palio.connect(url, name="me", token="secret") as client:
            assert (client.broker, client.publisher, client.name) == ("b1", "me/1", "me")
            await client.subscribe("x < :limit", {"limit": 1})
        hello, subscribe, *_ = heard
        assert isinstance(hello, Hello)
        assert (hello.role, hello.name, hello.token, hello.session) == (
            "client",
            "me",
            "secret",
            "",
        )
        assert subscribe == Subscribe(1, 0, "x < :limit", {"limit": 1})


async def test_what_the_broker_refuses_is_taken_back_here() -> None:
    async with broker(friendly) as (url, _), palio.connect(url) as client:
        subscription = await client.subscribe("x < :limit", {"limit": 1})
        with pytest.raises(palio.errors.LimitExceeded, match="too much") as raised:
            await subscription.update(limit=2)
        assert raised.value.limit == "SOME_LIMIT"
        assert subscription.params == {"limit": 1}


async def test_a_refused_greeting_is_an_error_of_its_kind() -> None:
    def refuse(_message: Message) -> list[Message]:
        return [Bye("NotAuthenticated", "who are you?")]

    async with broker(refuse) as (url, _):
        with pytest.raises(NotAuthenticated, match="who are you"):
            _client = await palio.connect(url)


async def test_a_greeting_that_is_none() -> None:
    async with broker(lambda _message: [Done(7)]) as (url, _):
        with pytest.raises(IllegalMessage, match="Done"):
            _client = await palio.connect(url)


async def test_nobody_listens() -> None:
    async with broker(friendly) as (url, _):
        pass
    with pytest.raises(Unreachable, match=url):
        _client = await palio.connect(url)


async def test_pings_are_answered_and_what_came_is_said_to_have() -> None:
    def pinging(message: Message) -> list[Message]:
        return [*friendly(message), Ping()] if isinstance(message, Subscribe) else friendly(message)

    async with broker(pinging) as (url, heard), palio.connect(url) as client:
        await client.subscribe("x < 1")
        async with asyncio.timeout(30):
            while StreamAck(1) not in heard:  # noqa: ASYNC110  # the scripted broker only takes notes
                await asyncio.sleep(0)
    assert Pong() in heard
    assert heard[-1] == Bye("closed")


async def test_what_is_not_for_clients_ends_the_client() -> None:
    def confused(message: Message) -> list[Message]:
        return [Route(Batch(()))] if isinstance(message, Subscribe) else friendly(message)

    async with broker(confused) as (url, _), palio.connect(url) as client:
        with pytest.raises(IllegalMessage, match="Route, which is not for clients"):
            await client.subscribe("x < 1")
        assert not client.is_connected


async def test_a_final_refusal_ends_all_subscriptions_with_the_error() -> None:
    def dismissing(message: Message) -> list[Message]:
        if isinstance(message, Subscribe):
            return [*friendly(message), Bye("NotAuthenticated", "the token was revoked")]
        return friendly(message)

    async with broker(dismissing) as (url, _), palio.connect(url) as client:
        subscription = await client.subscribe("x < 1")
        with pytest.raises(NotAuthenticated, match="revoked"):
            await subscription.receive()
        with pytest.raises(palio.errors.Closed):
            await client.subscribe("x < 2")


async def test_a_connection_that_is_closing_is_not_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop may have closed it without having said so yet."""
    async with broker(friendly) as (url, _):
        client = await palio.connect(url)
        wire: Any = client._upstream._session._wire
        monkeypatch.setattr(wire._transport, "write", lambda _: pytest.fail("written"))
        wire._transport.abort()
        wire.send(Pong())
        wire.flush()
        await client.close()


def test_tls_is_by_scheme_or_by_argument() -> None:
    given = ssl.create_default_context()
    assert tls_context(None, is_secure=False) is None
    assert tls_context(False, is_secure=False) is None
    assert tls_context(given, is_secure=False) is given
    for tls in (None, True):
        context = tls_context(tls, is_secure=True)
        assert context is not None
        assert context.verify_mode == ssl.CERT_REQUIRED


def test_what_cannot_be_secured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="tls=False"):
        tls_context(False, is_secure=True)
    with pytest.raises(InvalidConfiguration, match="authorities"):
        tls_context(tmp_path / "missing.pem", is_secure=True)
