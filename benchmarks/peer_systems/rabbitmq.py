"""RabbitMQ among the systems of `benchmarks.peers`: a broker of its own, and aio-pika."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.peer_systems.system import (
    Client,
    Hear,
    Move,
    Running,
    System,
    Wanted,
    child,
    decoded,
    encoded,
    find,
    free_port,
)

SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's command of that name in the path starts it as a user of its own, at a fixed place."""

EVENTS: Final = "events"
KEPT: Final = "kept"


class RabbitClient(Client):
    """A queue for each client, bound once for each pair of equalities; `c < x` is tested here."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._channel: Any = None
        self._confirming: Any = None
        self._exchange: Any = None
        self._queue: Any = None
        self._bounds: dict[tuple[int, int], tuple[int, Hear]] = {}

    async def open(self) -> None:
        self._channel = await self._connection.channel(publisher_confirms=False)
        self._exchange = await self._channel.declare_exchange(EVENTS, "headers")
        self._confirming = await self._connection.channel(publisher_confirms=True)

    async def subscribe(self, wanted: Sequence[Wanted], hear: Hear) -> None:
        if self._queue is None:
            self._queue = await self._channel.declare_queue(exclusive=True)
            await self._queue.consume(self._called, no_ack=True)
        for each in wanted:
            self._bounds[each.a, each.b] = (each.x, hear)
        await asyncio.gather(
            *(self._queue.bind(self._exchange, arguments=_pair(each)) for each in wanted)
        )

    async def _called(self, message: Any) -> None:
        event = decoded(message.body)
        found = self._bounds.get((event["a"], event["b"]))
        if found is not None and event["c"] < found[0]:
            found[1](event)

    async def follow(self, wanted: Wanted, hear: Hear) -> Move:
        here = wanted
        await self.subscribe([wanted], hear)

        async def move(now: Wanted) -> None:
            nonlocal here
            before, here = here, now
            await asyncio.gather(
                self._queue.unbind(self._exchange, arguments=_pair(before)),
                self.subscribe([now], hear),
            )
            del self._bounds[before.a, before.b]

        return move

    async def send(self, event: dict[str, Any]) -> None:
        from aio_pika import Message

        heads = {"a": event["a"], "b": event["b"], "c": event["c"]}
        await self._exchange.publish(Message(encoded(event), headers=heads), routing_key="")

    async def keep(self, hear: Hear) -> None:
        async def called(message: Any) -> None:
            hear(decoded(message.body))
            await message.ack()

        queue = await self._channel.declare_queue(KEPT, durable=True)
        await queue.consume(called)

    async def send_durable(self, event: dict[str, Any]) -> None:
        from aio_pika import DeliveryMode, Message

        message = Message(encoded(event), delivery_mode=DeliveryMode.PERSISTENT)
        await self._confirming.default_exchange.publish(message, routing_key=KEPT)

    async def close(self) -> None:
        await self._connection.close()


def _pair(wanted: Wanted) -> dict[str, Any]:
    return {"x-match": "all", "a": wanted.a, "b": wanted.b}


class RabbitMQ(System):
    name = "RabbitMQ"
    distribution = "aio-pika"
    package = "rabbitmq-server"
    module = "aio_pika"
    program = "epmd"
    notes = (
        "A headers exchange: the broker tests both equalities, and the client `c < x`. `a`, `b` "
        "and `c` are headers beside the event as JSON. Durable: persistent messages of a durable "
        "queue, confirmed"
    )

    @classmethod
    def missing(cls) -> str:
        return super().missing() or ("" if SERVER.exists() else "rabbitmq-server is not installed")

    @contextmanager
    def start(self, directory: Path, *, durable: bool) -> Iterator[Running]:  # noqa: ARG002  # it always has a store
        port, names, others = free_port(), free_port(), free_port()
        environment = {
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
            "HOME": str(directory),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
            "RABBITMQ_DIST_PORT": str(others),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_LOG_BASE": str(directory / "logs"),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_NODENAME": f"peers{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
        }
        directory.joinpath("rabbitmq.conf").write_text("loopback_users = none\n")
        with _names(names), child((str(SERVER),), port, directory, environment=environment) as it:
            yield it

    async def connect(self, address: str, name: str, directory: Path) -> Client:  # noqa: ARG002  # the interface
        import aio_pika

        client = RabbitClient(await aio_pika.connect(f"amqp://guest:guest@{address}/"))
        await client.open()
        return client


@contextmanager
def _names(port: int) -> Iterator[None]:
    """Erlang's directory of nodes, for the time of the block: RabbitMQ would leave one running."""
    program = find("epmd")
    assert program is not None
    process = subprocess.Popen(
        [program, "-port", str(port), "-address", "127.0.0.1"], stdin=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()
