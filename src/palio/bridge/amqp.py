"""AMQP 0.9.1, as RabbitMQ speaks it: publisher confirms, and manual acks of a queue.

An address is `EXCHANGE/KEY`, or the name of a queue. Messages are persistent and mandatory: one
that no queue takes is returned, and so refused. A message without a `message_id` has no id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import aio_pika
from aio_pika.exceptions import AMQPError, ChannelNotFoundEntity, DeliveryError

from palio.bridge.links import BATCH, TIMEOUT_S, Inbox, Message, confirms, lost_by, reason_of
from palio.errors import InvalidInput

_LOST: Final = (AMQPError, OSError, asyncio.TimeoutError, RuntimeError)
"""The client raises a RuntimeError where a channel was closed meanwhile."""

for _name in ("aio_pika", "aiormq"):  # they log what they raise
    logging.getLogger(_name).addHandler(logging.NullHandler())


@asynccontextmanager
async def connect(url: str, name: str, source: str) -> AsyncIterator[Amqp]:
    """Connect; `source` is the name of a queue."""
    with lost_by(_LOST):
        properties = {"connection_name": name}
        connection = await aio_pika.connect(url, timeout=TIMEOUT_S, client_properties=properties)
    try:
        with lost_by(_LOST):
            link = Amqp(await connection.channel(on_return_raises=True))
            if source:
                await link.open(source)
        yield link
    finally:
        await connection.close()


class Amqp:
    """A channel of a connection."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._inbox = Inbox()
        self.take = self._inbox.take
        channel.close_callbacks.add(
            lambda _, error: self._inbox.lose(f"the channel was closed: {reason_of(error)}")
        )

    async def open(self, source: str) -> None:
        """Consume a queue."""

        async def received(message: Any) -> None:
            id = f"{source}/{message.message_id}" if message.message_id else ""
            self._inbox.put(Message(message.routing_key, message.body, id, message))

        await self._channel.set_qos(prefetch_count=BATCH)
        try:
            queue = await self._channel.get_queue(source)
        except ChannelNotFoundEntity:
            raise InvalidInput(f"there is no queue {source!r}; declare it") from None
        below = await self._channel.get_underlay_channel()
        below.on_consumer_cancel_callbacks.add(
            lambda _: self._inbox.lose(f"the queue {source!r} was deleted or moved")
        )
        await queue.consume(received)

    async def send(self, messages: Sequence[Message]) -> list[str]:
        """Publish, each with a confirm of its own."""
        return await confirms(map(self._publish, messages), DeliveryError, _LOST)

    async def _publish(self, message: Message) -> None:
        exchange, _, key = message.address.rpartition("/")
        to = self._channel.default_exchange
        if exchange:
            to = await self._channel.get_exchange(exchange, ensure=False)
        content = aio_pika.Message(
            message.body,
            content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=message.id,
        )
        await to.publish(content, key, timeout=TIMEOUT_S)

    async def ack(self, messages: Sequence[Message]) -> None:
        """Acknowledge all deliveries up to the last one."""
        with lost_by(_LOST):
            await messages[-1].handle.ack(multiple=True)
