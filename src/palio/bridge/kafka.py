"""Kafka, by confluent-kafka: an idempotent producer, and offsets that are committed after events.

aiokafka fits an event loop better, but librdkafka, under this client, brings a cluster for tests.
An address is a topic, or `TOPIC/KEY`: a key keeps its events in order. A message is known by topic,
partition, offset and time, as a topic that is made again counts from 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from palio.bridge.links import BATCH, TIMEOUT_S, Message, lost_by
from palio.errors import InvalidInput, Unreachable

Result = TypeVar("Result")

POLL_S: Final = 0.5
"""How long a consumer waits for messages at once; the bridge stops within it."""

_REFUSED: Final = frozenset(
    {
        *("MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "TOPIC_EXCEPTION", "TOPIC_AUTHORIZATION_FAILED"),
        *("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"),
    }
)
"""Errors about a message and its topic; by all others the cluster is unreachable for now."""


def settings_of(url: str) -> dict[str, Any]:
    """Return the settings of a client: brokers, and any of librdkafka's own as a query.

    >>> settings_of("kafka://127.0.0.1:9092,127.0.0.2:9092?security.protocol=SSL")
    {'bootstrap.servers': '127.0.0.1:9092,127.0.0.2:9092', 'security.protocol': 'SSL'}
    """
    parts = urlsplit(url)
    return {"bootstrap.servers": parts.netloc, **dict(parse_qsl(parts.query))}


@asynccontextmanager
async def connect(url: str, name: str, source: str) -> AsyncIterator[Kafka]:
    """Make a producer, or a consumer of `source`: a topic, or a regular expression after `^`."""
    try:
        link = Kafka({"log_level": 0} | settings_of(url), name, source)
    except KafkaException as error:
        raise InvalidInput(f"invalid settings: {error.args[0].str()}; see librdkafka's") from None
    try:
        yield link
    finally:
        await link.close()


class Kafka:
    """A producer or a consumer, in a thread of its own as their calls block."""

    def __init__(self, settings: dict[str, Any], group: str, source: str) -> None:
        self._thread = ThreadPoolExecutor(1, "palio-kafka")
        self._source = source
        self._failure = ""
        if source:
            reading = {
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "error_cb": self._failed,
            }
            self._consumer = Consumer(settings | reading)
            self._consumer.subscribe([source])
        else:
            timeout = {"message.timeout.ms": int(TIMEOUT_S * 1000), "enable.idempotence": True}
            self._producer = Producer(settings | timeout)

    async def _call(self, function: Callable[..., Result], *given: Any) -> Result:
        with lost_by(KafkaException):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, function, *given)

    async def close(self) -> None:
        """Leave the group, so that another consumer gets its partitions at once."""
        if self._source:
            await self._call(self._consumer.close)
        self._thread.shutdown(wait=False)

    async def send(self, messages: Sequence[Message]) -> list[str]:
        """Produce, and wait for the reports."""
        return await self._call(self._send, messages)

    def _send(self, messages: Sequence[Message]) -> list[str]:
        late = KafkaError(KafkaError.REQUEST_TIMED_OUT)
        errors: list[KafkaError | None] = [late] * len(messages)
        for number, message in enumerate(messages):
            topic, _, key = message.address.partition("/")

            def report(error: KafkaError | None, _: object, number: int = number) -> None:
                errors[number] = error

            try:
                self._producer.produce(
                    topic,
                    message.body,
                    key or None,
                    headers=[("id", message.id.encode())],
                    on_delivery=report,
                )
            except KafkaException as refusal:
                errors[number] = refusal.args[0]
        self._producer.flush(2 * TIMEOUT_S)
        for error in errors:
            if error is not None and error.name() not in _REFUSED:
                raise Unreachable(f"messages were not confirmed: {error.str()}")
        return ["" if error is None else error.str() for error in errors]

    def _failed(self, error: KafkaError) -> None:
        if error.name() == "_ALL_BROKERS_DOWN":
            self._failure = error.str()

    async def take(self) -> Sequence[Message]:
        """Consume messages."""
        while True:
            taken = await self._call(self._consumer.consume, BATCH, POLL_S)
            failures = [each.error().str() for each in taken if each.error() is not None]
            if self._failure or failures:
                raise Unreachable(self._failure or failures[0])
            if taken:
                return [_message(each) for each in taken]

    async def ack(self, messages: Sequence[Message]) -> None:
        """Commit the offsets after the messages."""
        ends = {
            (each.handle.topic(), each.handle.partition()): each.handle.offset() + 1
            for each in messages
        }
        offsets = [TopicPartition(*place, offset) for place, offset in ends.items()]
        await self._call(lambda: self._consumer.commit(offsets=offsets, asynchronous=False))


def _message(taken: Any) -> Message:
    place = (taken.topic(), taken.partition(), taken.offset(), taken.timestamp()[1])
    return Message(taken.topic(), taken.value() or b"", "/".join(map(str, place)), taken)
