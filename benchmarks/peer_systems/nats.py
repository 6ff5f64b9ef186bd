"""NATS among the systems of `benchmarks.peers`: nats-server, and nats-py."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

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
    free_port,
)
from palio.node.limits import GROUP_PREFETCH


class NatsClient(Client):
    """A subject for each pair of equalities; `c < x` is tested here."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._streams = connection.jetstream()
        self._tasks: list[asyncio.Task[None]] = []

    async def subscribe(self, wanted: Sequence[Wanted], hear: Hear) -> None:
        bounds: defaultdict[str, list[int]] = defaultdict(list)
        for each in wanted:
            bounds[_subject(each.a, each.b)].append(each.x)
        for subject, several in bounds.items():
            await self._hear(subject, several, hear)
        await self._in_force()

    async def _in_force(self) -> None:
        """Return when the broker has read all that was sent."""
        # The ping of `flush` overtakes what waits to be sent, so that goes first.
        await self._connection._flush_pending(force_flush=True)
        await self._connection.flush()

    async def _hear(self, subject: str, bounds: Sequence[int], hear: Hear) -> Any:
        async def called(message: Any) -> None:
            event = decoded(message.data)
            for bound in bounds:
                if event["c"] < bound:
                    hear(event)

        return await self._connection.subscribe(subject, cb=called)

    async def follow(self, wanted: Wanted, hear: Hear) -> Move:
        here = await self._hear(_subject(wanted.a, wanted.b), (wanted.x,), hear)
        await self._in_force()

        async def move(now: Wanted) -> None:
            nonlocal here
            before, here = here, await self._hear(_subject(now.a, now.b), (now.x,), hear)
            await before.unsubscribe()
            await self._in_force()

        return move

    async def send(self, event: dict[str, Any]) -> None:
        await self._connection.publish(_subject(event["a"], event["b"]), encoded(event))

    async def keep(self, hear: Hear) -> None:
        await self._streams.add_stream(name="all", subjects=["durable"], storage="file")

        async def called(message: Any) -> None:
            hear(decoded(message.data))
            await message.ack()

        await self._streams.subscribe("durable", durable="all", cb=called, manual_ack=True)

    async def work(self, hear: Hear) -> None:
        await self._streams.add_stream(name="all", subjects=["durable"], storage="file")
        pulled = await self._streams.pull_subscribe("durable", durable="workers")

        async def work() -> None:
            while True:
                with suppress(TimeoutError):
                    for message in await pulled.fetch(GROUP_PREFETCH):
                        hear(decoded(message.data))
                        await message.ack()

        self._tasks.append(asyncio.create_task(work()))

    async def send_durable(self, event: dict[str, Any]) -> None:
        await self._streams.publish("durable", encoded(event))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.close()


def _subject(a: int, b: int) -> str:
    return f"e.{a}.{b}"


class Nats(System):
    name = "NATS"
    distribution = "nats-py"
    package = "nats-server"
    module = "nats"
    program = "nats-server"
    cannot: ClassVar[Mapping[str, str]] = {}
    notes = (
        "The broker has no filters on content: a subject for each pair of equalities, and `c < x` "
        "is tested by the client. Durable: JetStream, a stream in files, which is synced every two "
        "minutes and not for each acknowledgement; a group pulls as many events at a time as Palio "
        "prefetches"
    )

    @contextmanager
    def start(self, directory: Path, *, durable: bool) -> Iterator[Running]:
        port = free_port()
        kept = ("-js", "-sd", str(directory / "streams")) if durable else ()
        command = ("nats-server", "-a", "127.0.0.1", "-p", str(port), *kept)
        with child(command, port, directory) as running:
            yield running

    async def connect(self, address: str, name: str, directory: Path) -> Client:  # noqa: ARG002  # the interface
        import nats

        connection = await nats.connect(f"nats://{address}", name=name, allow_reconnect=False)
        return NatsClient(connection)
