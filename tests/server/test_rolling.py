"""Three brokers in a line are restarted one after the other while events are published.

Whoever is next to the brokers loses live events of the moments in which one is away, and is told.
What is durable is not lost. docs/howto/operations.md has the figures that this prints.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import palio
from palio.cli.demo.fleet import Fleet
from palio.client.connection import Client
from palio.client.events import Gap
from palio.client.subscription import Subscription
from palio.errors import PalioError
from tests.server.helpers import Changing

logger: Final = logging.getLogger(__name__)

PATIENCE_S: Final = 240.0
WHOLE_S: Final = 30.0
"""How long the network may take to be whole again after a restart, on a busy machine."""

PAUSE_S: Final = 0.005
"""Between two publications: 200 in a second, less what they take."""


class Listener(Changing):
    """What one subscription heard, and when it was told a gap."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: set[int] = set()
        self.told: list[float] = []

    def tell(self, gap: Gap) -> None:
        assert gap.publisher == "*"
        assert not gap.is_certain
        self.told.append(time.monotonic())
        self.changed.set()

    def lost(self, taken: Mapping[int, float]) -> list[float]:
        """When events were published that did not come."""
        return [at for x, at in taken.items() if x not in self.heard]

    def is_told_of(self, taken: Mapping[int, float]) -> bool:
        """Whether a gap was told after the last of them."""
        return bool(self.told) and self.told[-1] > max(self.lost(taken), default=0.0)

    async def listen(self, subscription: Subscription) -> None:
        async for event in subscription:
            self.heard.add(event["x"])
            self.changed.set()


class Load:
    """A publisher that goes on whatever happens, and what was taken of it, with when."""

    def __init__(self, client: Client, *, durable: bool, first: int) -> None:
        self._client = client
        self._durable = durable
        self._next = first
        self.taken: dict[int, float] = {}
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            x, at = self._next, time.monotonic()
            self._next += 1
            try:
                await self._client.publish({"x": x}, durable=self._durable)
            except PalioError:
                pass  # nobody knows what became of it: it is on no account
            else:
                self.taken[x] = at
            await asyncio.sleep(PAUSE_S)


async def test_what_a_rolling_restart_loses_is_told(tmp_path: Path) -> None:
    names = ("b1", "b2", "b3")
    fleet = Fleet(names, tmp_path, links=(("b2", "b1"), ("b3", "b2")))
    live, durable = Listener(), Listener()
    async with asyncio.timeout(PATIENCE_S), fleet:
        urls = [fleet.url(name) for name in names]
        async with palio.connect(urls[0]) as publisher, palio.connect(urls[2]) as client:
            hearing = await client.subscribe("x >= 0", on_gap=live.tell)
            keeping = await client.subscribe("x < 0", durable="kept", on_gap=durable.tell)
            await hearing.settled(patience=WHOLE_S)
            await keeping.settled(patience=WHOLE_S)
            tasks = [
                asyncio.create_task(live.listen(hearing)),
                asyncio.create_task(durable.listen(keeping)),
            ]
            loads = [
                Load(publisher, durable=False, first=0),
                Load(publisher, durable=True, first=-(1 << 40)),
            ]
            running = [asyncio.create_task(each.run()) for each in loads]
            away_s = []
            for name in names:
                began = time.monotonic()
                await fleet.restart(name)
                await hearing.settled(patience=WHOLE_S)
                away_s.append(time.monotonic() - began)
            at_first = len(live.heard)
            await live.until(lambda: len(live.heard) >= at_first + 100)
            for each in loads:
                each.is_over = True
            await asyncio.gather(*running)
            published, kept = (each.taken for each in loads)
            await live.until(lambda: live.is_told_of(published))
            await durable.until(lambda: not kept.keys() - durable.heard)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    lost = live.lost(published)
    logger.info(
        "away for %s s; live: %d taken, %d lost, %d gaps; durable: %d taken, none lost",
        [round(each, 1) for each in away_s],
        len(published),
        len(lost),
        len(live.told),
        len(kept),
    )
    assert lost, "three brokers were away for a while"
    assert len(live.told) <= 30, "of outages one after another some are told together"
