"""Palio among the systems of `benchmarks.peers`: `palio serve`, and `palio.connect`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.network_ends import broker, warm
from benchmarks.peer_systems.system import Client, Hear, Move, Running, System, Wanted
from palio.client.connection import Client as Connection
from palio.client.connection import connect
from palio.client.subscription import Subscription
from palio.matching.warming import warm as load_kernels


class PalioClient(Client):
    """Each filter is a subscription, and each subscription has a task that takes its events."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tasks: list[asyncio.Task[None]] = []

    async def subscribe(self, wanted: Sequence[Wanted], hear: Hear) -> None:
        calls = (self._connection.subscribe(each.text) for each in wanted)
        for subscription in await asyncio.gather(*calls):
            self._take(subscription, hear)

    async def follow(self, wanted: Wanted, hear: Hear) -> Move:
        text = "a = :a AND b = :b AND c < :x"
        subscription = await self._connection.subscribe(text, wanted._asdict())
        self._take(subscription, hear)
        return lambda now: subscription.update(now._asdict())

    async def send(self, event: dict[str, Any]) -> None:
        _ = self._connection.publish_nowait(event)

    async def keep(self, hear: Hear) -> None:
        self._take(await self._connection.subscribe("EXISTS n", durable_name="all"), hear)

    async def work(self, hear: Hear) -> None:
        mine = await self._connection.subscribe(
            "EXISTS n", durable_name="workers", group=True, ack="manual"
        )

        async def work() -> None:
            async for event in mine:
                hear(event)
                event.ack()

        self._tasks.append(asyncio.create_task(work()))

    async def send_durable(self, event: dict[str, Any]) -> None:
        await self._connection.publish(event, durable=True)

    async def close(self) -> None:
        await self._connection.close()
        await asyncio.gather(*self._tasks)

    def _take(self, subscription: Subscription, hear: Hear) -> None:
        async def take() -> None:
            async for event in subscription:
                hear(event)

        self._tasks.append(asyncio.create_task(take()))


class Palio(System):
    name = "Palio"
    distribution = "palio"
    cannot: ClassVar[Mapping[str, str]] = {}
    notes = (
        "The whole filter is tested by the broker, which names the subscriptions that an event is "
        "for. Each filter of the fan-out is a text of its own. Clients have their kernels loaded "
        "before they are measured, as one does by itself after about 1,000 events"
    )

    def prepare(self) -> None:
        warm()

    @contextmanager
    def start(self, directory: Path, *, durable: bool) -> Iterator[Running]:
        kept = ("--data", str(directory)) if durable else ()
        with broker("b1", *kept) as one:
            yield Running(one.url, one.process)

    async def connect(self, address: str, name: str, directory: Path) -> Client:  # noqa: ARG002  # the interface
        load_kernels()
        return PalioClient(await connect(address, name=name))
