"""`palio retire`: a broker that was stopped is gone for good."""

from __future__ import annotations

import asyncio

from palio.cli.connecting import BrokerDoor
from palio.cli.reporting import show

__all__ = ["retire"]


def retire(broker: str, door: BrokerDoor, *, as_json: bool) -> int:
    """Say of a broker that it is gone for good; return when all others know."""
    asyncio.run(door.ask(lambda client: client.retire(broker)))
    show({"retired": broker} if as_json else f"{broker} is gone for good; all others know.")
    return 0
