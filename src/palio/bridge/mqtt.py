"""MQTT 5 with QoS 1 and a persistent session, by paho-mqtt.

aiomqtt, which is built on it, acknowledges a message as it arrives; here that waits for Palio. The
user property `id` is a message's id. Without it the id is empty, so that Palio cannot recognize a
redelivery.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from palio.bridge.links import BATCH, TIMEOUT_S, Inbox, Message, confirms, lost_by
from palio.errors import Unreachable

SESSION_S: Final = 7 * 24 * 3600
"""How long the other broker keeps messages for a bridge that is stopped."""

CONNACK: Final = 0
"""Stands for the answer to a connection among those to packets: no packet has this id."""


@asynccontextmanager
async def connect(url: str, name: str, source: str) -> AsyncIterator[Mqtt]:
    """Connect; `source` is a topic filter, such as `orders/#`."""
    parts = urlsplit(url)
    link = Mqtt(f"{name}-{'in' if source else 'out'}")
    if parts.username is not None:
        link.client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
    if has_tls := parts.scheme == "mqtts":
        link.client.tls_set_context(ssl.create_default_context())
    try:
        with lost_by((OSError, TimeoutError)):
            port = parts.port or (8883 if has_tls else 1883)
            await link.open(parts.hostname or "localhost", port, source)
        yield link
    finally:
        link.client.disconnect()
        await asyncio.to_thread(link.client.loop_stop)


class Mqtt:
    """A session; the client calls back in a thread of its own."""

    def __init__(self, session: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._inbox = Inbox()
        self.take = self._inbox.take
        self._answers: dict[int, asyncio.Future[str]] = {}
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            session,
            protocol=paho.MQTTv5,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        call = self._loop.call_soon_threadsafe
        self.client.max_inflight_messages_set(BATCH)
        self.client.on_connect = lambda _client, _data, _flags, code, properties: call(
            self._connected, code, properties
        )
        self.client.on_publish = lambda _client, _data, packet_id, code, _properties: call(
            self._answered, packet_id, code
        )
        self.client.on_subscribe = lambda _client, _data, packet_id, codes, _properties: call(
            self._answered, packet_id, codes[0]
        )
        self.client.on_disconnect = lambda _client, _data, _flags, code, _properties: call(
            self._closed, code
        )
        self.client.on_message = lambda _client, _data, message: call(self._received, message)

    async def open(self, host: str, port: int, source: str) -> None:
        """Connect, resume the session, and subscribe."""
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = SESSION_S
        properties.ReceiveMaximum = BATCH
        await asyncio.to_thread(
            self.client.connect, host, port, clean_start=False, properties=properties
        )
        self.client.loop_start()
        refused = await self._answer(CONNACK)
        if source and not refused:
            problem, packet_id = self.client.subscribe(source, qos=1)
            if packet_id is None:
                raise Unreachable(paho.error_string(problem))
            refused = await self._answer(packet_id)
        if refused:
            raise Unreachable(f"the connection or subscription was refused: {refused}")

    async def _answer(self, packet_id: int) -> str:
        """Wait for the answer to a packet: why it was refused, or an empty text."""
        answer = self._answers.setdefault(packet_id, self._loop.create_future())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await answer
        finally:
            del self._answers[packet_id]

    def _connected(self, code: Any, properties: Any) -> None:
        # The client does not obey the broker's ReceiveMaximum, so `_publish` does.
        most = getattr(properties, "ReceiveMaximum", BATCH)
        self._slots = asyncio.Semaphore(min(most, BATCH))
        self._answered(CONNACK, code)

    def _answered(self, packet_id: int, code: Any) -> None:
        answer = self._answers.setdefault(packet_id, self._loop.create_future())
        if not answer.done():
            answer.set_result(str(code) if code.is_failure else "")

    def _closed(self, code: Any) -> None:
        self._inbox.lose(f"the connection was lost: {code}")
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(Unreachable(f"the connection was lost: {code}"))

    def _received(self, message: Any) -> None:
        given = dict(getattr(message.properties, "UserProperty", ()))
        self._inbox.put(Message(message.topic, message.payload, given.get("id", ""), message))

    async def send(self, messages: Sequence[Message]) -> list[str]:
        """Publish; the broker refuses by the code of its answer."""
        return await confirms(map(self._publish, messages), ValueError, TimeoutError)

    async def _publish(self, message: Message) -> str:
        properties = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = ("id", message.id)
        async with self._slots:
            info = self.client.publish(message.address, message.body, qos=1, properties=properties)
            if info.rc != paho.MQTT_ERR_SUCCESS:
                raise Unreachable(paho.error_string(info.rc))
            return await self._answer(info.mid)

    async def ack(self, messages: Sequence[Message]) -> None:
        """Acknowledge each."""
        for each in messages:
            self.client.ack(each.handle.mid, each.handle.qos)
