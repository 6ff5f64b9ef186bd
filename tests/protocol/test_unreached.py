from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import palio
from palio.errors import Unreachable
from palio.protocol.unreached import CLOSED, why_not
from tests.server.certificates import self_signed
from tests.server.fronts import broker


@pytest.mark.parametrize(
    ("error", "url", "told"),
    [
        (ConnectionRefusedError(111, "x"), "palio://b1", "nobody listens there; is the broker"),
        (OSError("Multiple exceptions: [Errno 111] a, [Errno 111] b"), "palio://b1", "nobody list"),
        (TimeoutError(), "palio://b1", "no answer in time; is this the port for palio://"),
        (Unreachable(CLOSED), "palio://b1", "if it wants TLS, the address is palios://"),
        (Unreachable(CLOSED), "palios://b1", CLOSED),
        (OSError("[Errno -2] Name or service not known"), "palio://b1", "Name or service not"),
        (ConnectionResetError(), "palio://b1", "ConnectionResetError"),
    ],
)
def test_what_keeps_a_connection_from_being_made(error: Exception, url: str, told: str) -> None:
    assert told in why_not(error, url)


@asynccontextmanager
async def two_ports(directory: Path) -> AsyncIterator[tuple[int, int]]:
    """Ports of a broker, without TLS and with it."""
    self_signed(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    async with broker() as server:
        _, plain = await server.listen("127.0.0.1", 0, None)
        _, secured = await server.listen("127.0.0.1", 0, context)
        yield plain, secured


async def refusal(url: str) -> str:
    with pytest.raises(Unreachable) as caught:
        async with palio.connect(url):
            raise AssertionError("it is connected")
    return str(caught.value)


async def test_a_port_with_tls_and_one_without_are_told_apart(tmp_path: Path) -> None:
    async with two_ports(tmp_path) as (plain, secured):
        assert "the address is palios://" in await refusal(f"palio://127.0.0.1:{secured}")
        assert "palio:// is the address" in await refusal(f"palios://127.0.0.1:{plain}")
        assert "its certificate is not trusted" in await refusal(f"palios://127.0.0.1:{secured}")


async def test_nobody_listens() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert "nobody listens there" in await refusal(f"palio://127.0.0.1:{port}")
