"""Brokers of a ring are restarted one after the other while events are published: nothing is lost,
as each sends its clients to others before it goes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Final

import pytest

import palio
from palio.client.connection import Client
from palio.client.subscription import Subscription
from palio.errors import PalioError
from palio.studies.fleet import Fleet
from tests.server.helpers import Changing

logger: Final = logging.getLogger(__name__)

NIGHTLY: Final = os.environ.get("PALIO_PROFILE") == "nightly"
PATIENCE_S: Final = 240.0
WHOLE_S: Final = 30.0
"""How long the network may take to be whole again after a restart, on a busy machine."""

PAUSE_S: Final = 0.005
"""Between two publications: 200 in a second, less what they take."""


class Listener(Changing):
    """What one subscription heard."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: set[int] = set()

    async def listen(self, subscription: Subscription) -> None:
        async for event in subscription:
            self.heard.add(event["x"])
            self.changed.set()


class Load:
    """A publisher that goes on whatever happens, and what was taken of it."""

    def __init__(self, client: Client, *, durable: bool, first: int) -> None:
        self._client = client
        self._durable = durable
        self._next = first
        self.taken: set[int] = set()
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            x = self._next
            self._next += 1
            try:
                await self._client.publish({"x": x}, durable=self._durable)
            except PalioError:
                pass  # nobody knows what became of it: it is on no account
            else:
                self.taken.add(x)
            await asyncio.sleep(PAUSE_S)


@pytest.mark.parametrize("restarted", [("b1", "b2", "b3")] if NIGHTLY else [("b1",)])
async def test_in_a_ring_a_restart_costs_nobody_an_event(
    tmp_path: Path, restarted: tuple[str, ...]
) -> None:
    names = ("b1", "b2", "b3")
    fleet = Fleet(names, tmp_path)
    async with asyncio.timeout(PATIENCE_S), fleet:
        first, last = fleet.url("b1"), fleet.url("b3")
        async with palio.connect(first) as publisher, palio.connect(first, name="ann") as client:
            listener, keeper = Listener(), Listener()
            hearing = await client.subscribe("x >= 0")
            keeping = await client.subscribe("x < 0", durable="kept")
            await hearing.settled(patience=WHOLE_S)
            tasks = [
                asyncio.create_task(listener.listen(hearing)),
                asyncio.create_task(keeper.listen(keeping)),
            ]
            async with palio.connect(last) as other:
                loads = [
                    Load(publisher, durable=False, first=0),
                    Load(other, durable=False, first=1 << 40),
                    Load(other, durable=True, first=-(1 << 40)),
                ]
                running = [asyncio.create_task(each.run()) for each in loads]
                for name in restarted:
                    await fleet.restart(name)
                    assert name not in {publisher.broker, client.broker}
                    await hearing.settled(patience=WHOLE_S)
                for each in loads:
                    each.is_over = True
                await asyncio.gather(*running)
                published = loads[0].taken | loads[1].taken
                await listener.until(lambda: not published - listener.heard)
                await keeper.until(lambda: not loads[2].taken - keeper.heard)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
