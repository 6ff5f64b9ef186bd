"""Redis among the systems of `benchmarks.peers`: redis-server, and redis-py's asyncio client."""

from __future__ import annotations

import asyncio
from collections import defaultdict
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
    free_port,
)

KEPT: Final = "kept"
"""The stream of durable events, and the group that hears them."""

READ_AT_ONCE: Final = 100
BLOCK_MS: Final = 200


class RedisClient(Client):
    """A channel for each pair of equalities; `c < x` is tested here."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self._heard = redis.pubsub()
        self._bounds: defaultdict[bytes, list[tuple[int, Hear]]] = defaultdict(list)
        self._confirmed: dict[bytes, asyncio.Future[None]] = {}
        self._unsent: Any = None
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._is_open = True

    async def subscribe(self, wanted: Sequence[Wanted], hear: Hear) -> None:
        for each in wanted:
            self._bounds[_channel(each.a, each.b)].append((each.x, hear))
        channels = sorted({_channel(each.a, each.b) for each in wanted})
        loop = asyncio.get_running_loop()
        self._confirmed |= {each: loop.create_future() for each in channels}
        asked = [self._confirmed[each] for each in channels]
        await self._heard.subscribe(*channels)
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())
        await asyncio.gather(*asked)

    async def _listen(self) -> None:
        async for message in self._heard.listen():
            kind, channel = message["type"], message["channel"]
            if kind == "message":
                event = decoded(message["data"])
                for bound, hear in self._bounds.get(channel, ()):
                    if event["c"] < bound:
                        hear(event)
            elif kind == "subscribe":
                self._confirmed.pop(channel).set_result(None)

    async def follow(self, wanted: Wanted, hear: Hear) -> Move:
        here = wanted
        await self.subscribe([wanted], hear)

        async def move(now: Wanted) -> None:
            nonlocal here
            before, here = _channel(here.a, here.b), now
            await self.subscribe([now], hear)
            await self._heard.unsubscribe(before)
            del self._bounds[before]

        return move

    async def send(self, event: dict[str, Any]) -> None:
        if self._unsent is None:
            self._unsent = self._redis.pipeline(transaction=False)
        self._unsent.publish(_channel(event["a"], event["b"]), encoded(event))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())

    async def _send(self) -> None:
        """What was published until now in one go, and again as long as there is more."""
        while self._unsent is not None:
            batch, self._unsent = self._unsent, None
            await batch.execute()
        self._sender = None

    async def keep(self, hear: Hear) -> None:
        await self._redis.xgroup_create(KEPT, KEPT, mkstream=True)

        async def listen() -> None:
            while self._is_open:
                for _, entries in await self._redis.xreadgroup(
                    KEPT, "one", {KEPT: ">"}, count=READ_AT_ONCE, block=BLOCK_MS
                ):
                    for _, fields in entries:
                        hear(decoded(fields[b"event"]))
                    await self._redis.xack(KEPT, KEPT, *(number for number, _ in entries))

        self._listener = asyncio.create_task(listen())

    async def send_durable(self, event: dict[str, Any]) -> None:
        await self._redis.xadd(KEPT, {"event": encoded(event)})

    async def close(self) -> None:
        # Tasks end by themselves: its client loses a cancellation now and then.
        self._is_open = False
        if self._heard.subscribed:
            await self._heard.unsubscribe()
        for each in (self._sender, self._listener):
            if each is not None:
                await each
        await self._heard.aclose()
        await self._redis.aclose()


def _channel(a: int, b: int) -> bytes:
    return f"e.{a}.{b}".encode()


class Redis(System):
    name = "Redis"
    distribution = "redis"
    package = "redis-server"
    module = "redis"
    program = "redis-server"
    notes = (
        "A channel for each pair of equalities, and `c < x` is tested by the client. Its client "
        "waits for an answer to each call, so what is published meanwhile goes as one pipeline. "
        "Durable: a stream with a group, `appendfsync always`"
    )

    @contextmanager
    def start(self, directory: Path, *, durable: bool) -> Iterator[Running]:
        port = free_port()
        kept = ("--appendonly", "yes", "--appendfsync", "always") if durable else ()
        command = ("redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", *kept)
        with child((*command, "--dir", str(directory)), port, directory) as running:
            yield running

    async def connect(self, address: str, name: str, directory: Path) -> Client:  # noqa: ARG002  # the interface
        from redis.asyncio import Redis as Connection

        return RedisClient(Connection.from_url(f"redis://{address}", client_name=name))
