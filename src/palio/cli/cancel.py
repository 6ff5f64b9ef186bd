"""`palio cancel`: end what those who act under an identity hear."""

from __future__ import annotations

import asyncio

from palio.cli import inputs
from palio.cli.connecting import BrokerDoor
from palio.cli.reporting import show

__all__ = ["cancel"]


def cancel(
    filter: str, door: BrokerDoor, parameters: list[str], *, forget: bool, as_json: bool
) -> int:
    """End all that a filter covers, as it is heard now; say how many."""
    values = inputs.bindings(parameters)
    ended = asyncio.run(door.ask(lambda client: client.cancel(filter, values, forget=forget)))
    if as_json:
        show({"identity": door.identity, "cancelled": ended})
        return 0
    subscriptions = "subscription" if ended == 1 else "subscriptions"
    show(f"{ended:,} {subscriptions} of {door.identity} cancelled")
    return 0
