"""Where a URL leads, and what is none."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import palio
from palio.errors import InvalidConfiguration, Unreachable
from palio.protocol.addresses import CLOSED, DEFAULT_PORT, Address, parse_address, why_not
from tests.server.certificates import self_signed
from tests.server.fronts import broker


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("palio://host", Address("host", DEFAULT_PORT, False)),
        ("palios://host:1", Address("host", 1, True)),
        ("palio://[::1]:7401", Address("::1", 7401, False)),
    ],
)
def test_an_address_prints_to_what_it_was_read_from(url: str, address: Address) -> None:
    assert parse_address(url) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("url", ["", "host", "http://host", "palio://", "palio://host:99999"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="address"):
        parse_address(url)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("palio://host:7", Address("host", 7, is_secure=False)),
        ("palio://host", Address("host", 7400, is_secure=False)),
        ("palios://[::1]:7", Address("::1", 7, is_secure=True)),
        ("palio://127.0.0.1:0", Address("127.0.0.1", 0, is_secure=False)),
    ],
)
def test_where_a_url_leads(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    "url",
    ["host:7", "http://host", "palio://", "palio://host:x", "palio://host:70000", "palio://[1"],
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="is no address of a broker"):
        parse_address(url)


@pytest.mark.parametrize(
    "url", ["palio://user:secretpw@host", "palios://secretpw@host:7", "palio://a:secretpw@h:x"]
)
def test_a_user_or_a_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="has a user or a password") as refused:
        parse_address(url)
    assert "secretpw" not in str(refused.value)


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
