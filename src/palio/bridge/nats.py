"""NATS with JetStream: confirmed publications, and a durable consumer with explicit acks.

A subject must belong to a stream, which also stores what core NATS clients publish. A message's id
consists of stream, sequence number and time: a stream that is created anew restarts its numbers.
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
    """Do nothing: the failed call raises the error as well, and the default would print it."""


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
                # The name of a consumer allows no dots, spaces or wildcards.
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
