"""`palio adv`: announce at a broker what will be published."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from palio.cli import inputs
from palio.cli.connecting import BrokerDoor
from palio.cli.reporting import tell
from palio.errors import Unreachable

__all__ = ["adv"]

LOOK_S: Final = 30.0
"""Seconds between two looks whether the broker has not turned the client away for good."""


def adv(filter: str, door: BrokerDoor, parameters: list[str]) -> int:
    """Advertise until Ctrl-C: an advertisement lasts as long as its client is there."""
    return asyncio.run(_advertise(filter, door, inputs.bindings(parameters)))


async def _advertise(filter: str, door: BrokerDoor, values: Mapping[str, Any]) -> int:
    async with door.connect() as client:
        offer = await client.advertise(filter, **values)
        await client.settled()
        tell(f"advertised {offer.advertisement} at {client.broker}; Ctrl-C withdraws it")
        while True:
            await asyncio.sleep(LOOK_S)
            with suppress(Unreachable):  # the client dials again
                await client.status()
