"""`palio retire`: a broker that was stopped is gone for good."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from palio.cli.connecting import BrokerDoor
from palio.cli.reporting import show

if TYPE_CHECKING:
    pass

__all__ = ["retire"]


def retire(broker: str, door: BrokerDoor) -> int:
    """Say of a broker that it is gone for good; return when all others know."""

    async def say() -> None:
        async with door.connect() as client:
            await client.retire(broker)

    asyncio.run(say())
    show(f"{broker} is gone for good; all others know.")
    return 0
