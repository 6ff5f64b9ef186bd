"""Brokers of a ring are restarted one after the other while events are published: nothing is lost,
as each sends its clients to others before it goes.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

import pytest

import palio
from palio import files
from palio.client.connection import Client
from palio.client.events import Gap
from palio.client.subscription import Subscription
from palio.errors import PalioError
from palio.testing.fleet import Fleet
from tests.server.helpers import Changing

logger: Final = logging.getLogger(__name__)

PATIENCE_S: Final = 240.0
WHOLE_S: Final = 30.0
"""How long the network may take to be whole again after a restart, on a busy machine."""

PAUSE_S: Final = 0.005
"""Between two publications: 200 in a second, less what they take."""

TRIES: Final = 3
"""A machine that is busy may cut a departure short (`LEAVE_S`). Then clients are told that events
may have been lost, and it is tried again; a loss that nobody is told of fails at once.
"""


class Listener(Changing):
    """What one subscription heard."""

    def __init__(self) -> None:
        super().__init__(WHOLE_S)
        self.heard: set[int] = set()
        self.gaps: list[Gap] = []

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


@pytest.mark.nightly
async def test_in_a_ring_restarts_cost_nobody_an_event(tmp_path: Path) -> None:
    for number in range(TRIES):
        if await _nothing_is_lost(files.make_directory(tmp_path / str(number))):
            return
    raise AssertionError(f"events were lost, and gaps told, in each of {TRIES} networks")


async def _nothing_is_lost(folder: Path) -> bool:
    """Restart all brokers of a ring. False if live events were lost, as their listener was told."""
    fleet = Fleet(("b1", "b2", "b3"), folder)
    async with asyncio.timeout(PATIENCE_S), fleet:
        first, last = fleet.url("b1"), fleet.url("b3")
        async with palio.connect(first) as publisher, palio.connect(first, name="ann") as client:
            listener, keeper = Listener(), Listener()
            hearing = await client.subscribe("x >= 0", on_gap=listener.gaps.append)
            keeping = await client.subscribe("x < 0", durable_name="kept")
            await hearing.settled(timeout=WHOLE_S)
            tasks = [
                asyncio.create_task(listener.listen(hearing)),
                asyncio.create_task(keeper.listen(keeping)),
            ]
            async with palio.connect(last) as other:
                live = [
                    Load(publisher, durable=False, first=0),
                    Load(other, durable=False, first=1 << 40),
                ]
                durable = Load(other, durable=True, first=-(1 << 40))
                running = [asyncio.create_task(each.run()) for each in (*live, durable)]
                for name in fleet.names:
                    await fleet.restart(name)
                    await hearing.settled(timeout=WHOLE_S)
                    assert client.broker != name or listener.gaps, f"it stayed at {name}"
                for each in (*live, durable):
                    each.is_over = True
                await asyncio.gather(*running)
                await keeper.until(lambda: not durable.taken - keeper.heard)
                found = await _all_came(listener, live[0].taken | live[1].taken)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def _all_came(listener: Listener, published: set[int]) -> bool:
    try:
        await listener.until(lambda: not published - listener.heard)
    except TimeoutError:
        lost = sorted(published - listener.heard)
        assert listener.gaps, f"lost in silence: {lost[:5]}, {len(lost)} in all"
        return False
    return True
