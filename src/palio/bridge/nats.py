"""NATS with JetStream: confirmed publications, and a durable consumer with explicit acks.

A subject needs a stream: it keeps what clients of core NATS publish there, too. A message is known
by its stream, number and time, as a stream that is made again counts from the start.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import nats
from nats.errors import BadSubjectError, Error, MaxPayloadError
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError

from palio.bridge.links import BATCH, TIMEOUT_S, Message, confirms, lost_by
from palio.errors import InvalidInput, Unreachable

_LOST: Final = (Error, OSError, asyncio.TimeoutError)
_REFUSED: Final = (MaxPayloadError, BadSubjectError, NoStreamResponseError, APIError)


async def _ignore(_: Exception) -> None:
    """Each failure reaches its caller, too."""


@asynccontextmanager
async def connect(url: str, name: str, source: str) -> AsyncIterator[JetStream]:
    """Connect; `source` is a subject, such as `orders.>`."""
    with lost_by(_LOST):
        connection = await nats.connect(
            url,
            allow_reconnect=False,
            max_reconnect_attempts=1,  # without which the first connect tries for two minutes
            reconnect_time_wait=0,
            connect_timeout=int(TIMEOUT_S),
            error_cb=_ignore,
        )
    try:
        link = JetStream(connection)
        if source:
            with lost_by(_LOST):
                await link.open(re.sub(r"[^\w-]", "_", name), source)
        yield link
    finally:
        await connection.close()


class JetStream:
    """A link to the streams of a server."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._streams = connection.jetstream(timeout=TIMEOUT_S)
        self._consumer: Any = None

    async def open(self, durable: str, subject: str) -> None:
        """Find the consumer, or make it."""
        try:
            self._consumer = await self._streams.pull_subscribe(subject, durable)
            filtered = (await self._consumer.consumer_info()).config.filter_subject
        except NotFoundError:
            raise InvalidInput(f"no stream has the subject {subject!r}; create one") from None
        if filtered != subject:
            raise InvalidInput(
                f"the consumer {durable!r} reads {filtered!r}; give the bridge another --name"
            )

    async def send(self, messages: Sequence[Message]) -> list[str]:
        """Publish; JetStream drops an id that it had in the last two minutes."""
        return await confirms(map(self._publish, messages), _REFUSED, _LOST)

    async def _publish(self, message: Message) -> None:
        id = {"Nats-Msg-Id": message.id}
        await self._streams.publish(message.address, message.body, headers=id)

    async def take(self) -> Sequence[Message]:
        """Pull messages."""
        while self._connection.is_connected:
            with lost_by(_LOST):
                try:
                    messages = await self._consumer.fetch(BATCH, timeout=1)
                except TimeoutError:
                    continue
            return [Message(each.subject, each.data, _id(each), each) for each in messages]
        raise Unreachable("the connection was lost")

    async def ack(self, messages: Sequence[Message]) -> None:
        """Acknowledge each, and wait until the server has read that."""
        with lost_by(_LOST):
            for each in messages:
                await each.handle.ack()
            await self._connection.flush()


def _id(message: Any) -> str:
    place = message.metadata
    return f"{place.stream}/{place.sequence.stream}/{place.timestamp.timestamp()}"
