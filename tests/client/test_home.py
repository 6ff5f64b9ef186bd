from __future__ import annotations

import asyncio

import pytest

import palio
from palio.client.home import Home
from palio.errors import PalioError


async def _check(home: Home) -> None:
    home.check()


def test_no_loop_is_no_other_loop() -> None:
    home = Home("Bus")
    home.check()
    asyncio.run(_check(home))
    home.check()


def test_a_loop_that_has_ended_gives_its_place_to_another() -> None:
    home = Home("Bus")
    for _ in range(2):
        asyncio.run(_check(home))


async def test_another_loop_is_refused_while_the_first_runs() -> None:
    home = Home("Bus")
    home.check()
    with pytest.raises(PalioError, match="this Bus belongs to another event loop"):
        await asyncio.to_thread(asyncio.run, _check(home))


async def test_a_subscription_is_not_changed_from_another_loop() -> None:
    async with palio.Bus() as bus:
        heard = await bus.subscribe("x > :low", low=0)
        for change in (heard.update(low=1), heard.replace("x > 0"), heard.settled()):
            with pytest.raises(PalioError, match="belongs to another event loop"):
                await asyncio.to_thread(asyncio.run, change)
        assert (dict(heard.values), heard.version) == ({"low": 0}, 0)
