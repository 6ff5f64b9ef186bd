from __future__ import annotations

import asyncio

import pytest

import palio
from palio.errors import PalioError


async def test_a_subscription_is_not_changed_from_another_loop() -> None:
    async with palio.Bus() as bus:
        heard = await bus.subscribe("x > :low", low=0)
        for change in (heard.update(low=1), heard.replace("x > 0"), heard.settled()):
            with pytest.raises(PalioError, match="belongs to another event loop"):
                await asyncio.to_thread(asyncio.run, change)
        assert (dict(heard.values), heard.version) == ({"low": 0}, 0)
