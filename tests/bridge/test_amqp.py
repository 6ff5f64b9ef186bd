"""The adapter at a real RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import aio_pika
import pytest

from palio.bridge.amqp import connect
from palio.bridge.links import Message
from palio.errors import InvalidInput, Unreachable
from tests.bridge import servers
from tests.bridge.servers import Server
from tests.cli.brokers import PATIENCE_S

pytestmark = pytest.mark.xdist_group("rabbitmq")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.amqp(tmp_path_factory.mktemp("rabbit")) as server:
        yield server


@pytest.fixture
async def url(server: Server) -> str:
    """A server with the queue `orders`, which the topic `total.*` leads to."""
    url = f"amqp://guest:guest@127.0.0.1:{server.port}"
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("orders", durable=True)
        await queue.bind("amq.topic", "total.*")
        await queue.purge()
    return url


async def test_what_is_not_acknowledged_comes_again_with_its_id(url: str) -> None:
    async with connect(url, "b", "") as link:
        addresses = ["orders", "amq.topic/total.x"]
        sent = [Message(a, b"%d" % n, f"p/{n}") for n, a in enumerate(addresses)]
        assert await link.send(sent) == ["", ""]
    for is_acked in (False, True):
        taken = list[Message]()
        async with connect(url, "b", "orders") as link:
            while len(taken) < 2:
                messages = await link.take()
                taken += messages
                if is_acked:
                    await link.ack(messages)
        assert [(each.id, each.body) for each in taken] == [
            ("orders/p/0", b"0"),
            ("orders/p/1", b"1"),
        ]


async def test_a_message_that_no_queue_takes_is_refused(url: str) -> None:
    async with connect(url, "b", "") as link:
        sent = [Message(a, b"x", a) for a in ("orders", "nowhere", "amq.topic/other")]
        reasons = await link.send(sent)
    assert [bool(each) for each in reasons] == [False, True, True]


async def test_a_queue_that_is_not_declared_is_a_mistake(url: str) -> None:
    with pytest.raises(InvalidInput, match="there is no queue 'nowhere'; declare it"):
        async with connect(url, "b", "nowhere"):
            pass


async def test_a_server_that_is_away_or_refuses_the_password_is_unreachable(url: str) -> None:
    for wrong in ("amqp://127.0.0.1:1", url.replace("guest@", "wrong@")):
        with pytest.raises(Unreachable):
            async with connect(wrong, "b", ""):
                pass


async def test_a_queue_that_is_deleted_is_lost(url: str) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("short")
        async with connect(url, "b", "short") as link:
            await queue.delete(if_unused=False, if_empty=False)
            with pytest.raises(Unreachable, match="deleted"):
                async with asyncio.timeout(PATIENCE_S):
                    await link.take()


async def test_a_link_that_is_closed_is_lost(url: str) -> None:
    async with connect(url, "b", "orders") as link:
        await link._channel.close()
        with pytest.raises(Unreachable, match="closed"):
            await link.take()
        with pytest.raises(Unreachable):
            await link.send([Message("orders", b"x")])
