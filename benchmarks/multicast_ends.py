"""A broker process of the multicast benchmark, with a subscriber in it.

It reads commands from its input, one a line, and answers each with a line of JSON:

| command | answer, once it is so |
|---|---|
| (the start) | it listens |
| `hear` | its subscriber is in force |
| `heard N` | what the subscriber heard, once that is all from 1 to N |
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import statistics
import sys
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec

from palio.cli.serve import loop_factory
from palio.protocol.messages import Deliver, Subscribe
from palio.server.local_client import KEY, InternalClient
from palio.server.run import running
from palio.server.settings import Configuration

HEARD_S: Final = 60.0
"""How long a subscriber waits for the last event."""


class Heard(msgspec.Struct, frozen=True):
    """What a subscriber heard of the numbers from 1 to N."""

    lost: int
    twice: int
    disordered: int
    """Numbers that came after greater ones."""
    p50_ms: float
    p99_ms: float


class _Subscriber:
    """A client within the broker's process, which spares the machine connections of clients."""

    def __init__(self, client: InternalClient) -> None:
        self._client = client
        self._numbers: list[int] = []
        self._distinct: set[int] = set()
        self._delays_ms: list[float] = []
        self._changed = asyncio.Event()
        self.listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            message = (await self._client.next()).message
            now = time.monotonic_ns()
            if isinstance(message, Deliver):
                for row in message.parcel.batch.select(["number", "sent_ns"]).to_pylist():
                    self._numbers.append(row["number"])
                    self._distinct.add(row["number"])
                    self._delays_ms.append((now - row["sent_ns"]) / 1e6)
            self._client.done()
            self._changed.set()

    async def heard(self, last: int) -> Heard:
        """What came up to a number; what should have come was lost if it does not by then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARD_S):
                while len(self._distinct) < last:
                    self._changed.clear()
                    await self._changed.wait()
        numbers, delays = self._numbers, self._delays_ms or [0.0]
        distinct = len(self._distinct)
        self._numbers, self._delays_ms, self._distinct = [], [], set()
        return Heard(
            lost=last - distinct,
            twice=len(numbers) - distinct,
            disordered=sum(later < one for one, later in itertools.pairwise(numbers)),
            p50_ms=statistics.median(delays),
            p99_ms=statistics.quantiles([*delays, *delays], n=100)[-1],
        )


async def _serve(configuration: Configuration, loss: float, seed: int) -> None:
    draw = random.Random(seed).random
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with AsyncExitStack() as stack:
        is_lost = (lambda: draw() < loss) if loss else None
        broker = await stack.enter_async_context(running(configuration, is_lost=is_lost))
        _say({"listening": broker.addresses})
        subscriber: _Subscriber | None = None
        while line := await reader.readline():
            command, *rest = line.decode().split()
            if command == "hear":
                name, token = configuration.broker.name, rest[0]
                client = await InternalClient.open(
                    broker.server.connect_local, name=name, token=token
                )
                stack.callback(client.close)
                await client.ask(Subscribe(0, KEY, "number > 0"))
                subscriber = _Subscriber(client)
                stack.callback(subscriber.listening.cancel)
                _say({})
            elif subscriber is not None:
                _say(msgspec.to_builtins(await subscriber.heard(int(rest[0]))))


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


def _main() -> None:
    """Configuration (a file), share of datagrams that is lost, seed."""
    file, loss, seed = sys.argv[1:]
    configuration = msgspec.json.decode(Path(file).read_bytes(), type=Configuration)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(configuration, float(loss), int(seed)))


if __name__ == "__main__":
    _main()
