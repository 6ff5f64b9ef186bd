"""`palio adv`: announce at a broker what will be published."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from palio.cli import inputs
from palio.cli.connecting import BrokerDoor
from palio.cli.reporting import tell

__all__ = ["adv"]


def adv(filter: str, door: BrokerDoor, parameters: list[str]) -> int:
    """Advertise until Ctrl-C: an advertisement lasts as long as its client is there."""
    return asyncio.run(_advertise(filter, door, inputs.bindings(parameters)))


async def _advertise(filter: str, door: BrokerDoor, values: Mapping[str, Any]) -> int:
    async with door.connect() as client:
        offer = await client.advertise(filter, **values)
        await client.settled()
        tell(f"advertised {offer.advertisement} at {client.broker}; Ctrl-C withdraws it")
        await asyncio.Event().wait()
    return 0
