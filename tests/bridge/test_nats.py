"""The adapter at a real nats-server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from palio.bridge.links import BATCH, Message
from palio.bridge.nats import connect
from palio.errors import InvalidInput, Unreachable
from tests.bridge import servers
from tests.bridge.servers import Server

pytestmark = pytest.mark.xdist_group("nats")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.nats(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
async def url(server: Server) -> str:
    """A server with the stream `quotes.>`, empty."""
    url = f"nats://127.0.0.1:{server.port}"
    connection = await nats.connect(url)
    streams = connection.jetstream()
    await streams.add_stream(name="quotes", subjects=["quotes.>"])
    await streams.purge_stream("quotes")
    await connection.close()
    return url


async def test_what_is_not_acknowledged_comes_again_with_its_id(url: str) -> None:
    sent = [Message("quotes.a", b"%d" % n, f"again/{n}") for n in range(BATCH + 5)]
    async with connect(url, "b", "") as link:
        assert await link.send(sent) == [""] * len(sent)
        assert await link.send(sent[:5]) == [""] * 5  # the stream knows the ids
    async with connect(url, "again", "quotes.>") as link:
        first = await link.take()
        await link.ack(first)
        rest = await link.take()
        for each in rest:
            await each.handle.nak()
        again = await link.take()
        await link.ack(again)
    assert [each.body for each in [*first, *again]] == [each.body for each in sent]
    assert [each.id for each in rest] == [each.id for each in again]
    assert len({each.id for each in [*first, *again]}) == len(sent)


async def test_what_core_nats_publishes_into_a_stream_enters(url: str) -> None:
    connection = await nats.connect(url)
    await connection.publish("quotes.core", b"x")
    await connection.close()
    async with connect(url, "core", "quotes.core") as link:
        assert [each.body for each in await link.take()] == [b"x"]


async def test_refusals_have_reasons_and_the_others_are_stored(url: str) -> None:
    async with connect(url, "b", "") as link:
        addresses = ["nowhere", "quotes.a", "quotes.a b", "quotes.large"]
        bodies = [b"1", b"2", b"3", b"4" * 2_000_000]
        sent = [Message(a, b, a) for a, b in zip(addresses, bodies, strict=True)]
        reasons = await link.send(sent)
    assert [bool(each) for each in reasons] == [True, False, True, True]


async def test_a_subject_of_no_stream_is_a_mistake(url: str) -> None:
    with pytest.raises(InvalidInput, match="no stream has the subject 'orders'"):
        async with connect(url, "b", "orders"):
            pass


async def test_a_name_reads_one_subject(url: str) -> None:
    async with connect(url, "one name", "quotes.a"):
        pass
    with pytest.raises(InvalidInput, match=r"reads 'quotes.a'; give the bridge another --name"):
        async with connect(url, "one name", "quotes.b"):
            pass


async def test_a_server_that_is_killed_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palio.bridge.nats.TIMEOUT_S", 1.0)
    with servers.nats(tmp_path) as server:
        url = f"nats://127.0.0.1:{server.port}"
        async with connect(url, "b", "") as link:
            server.kill()
            with pytest.raises(Unreachable):
                await link.send([Message("quotes.a", b"x")])
        with pytest.raises(Unreachable):
            async with connect(url, "b", "quotes.a"):
                pass
        server.start()
