"""`palio adv`: announce at a broker what will be published."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from palio.cli import inputs
from palio.cli.connecting import BrokerDoor
from palio.cli.reporting import show, tell
from palio.errors import InvalidInput, Unreachable

__all__ = ["adv"]

LOOK_S: Final = 30.0
"""Seconds between two looks whether the broker has not turned the client away for good."""


def adv(
    filter: str, door: BrokerDoor, parameters: list[str], *, withdraw: bool, as_json: bool
) -> int:
    """Advertise until Ctrl-C: an advertisement lasts as long as its client is there. Or withdraw
    what other clients of the identity advertise.
    """
    if withdraw and not door.identity:
        raise InvalidInput(
            "--withdraw is for what is advertised under an identity; give --as its name"
        )
    verb = _withdraw if withdraw else _advertise
    return asyncio.run(verb(filter, door, inputs.bindings(parameters), as_json=as_json))


async def _withdraw(
    filter: str, door: BrokerDoor, values: Mapping[str, Any], *, as_json: bool
) -> int:
    async with door.connect() as client:
        await client.unadvertise(filter, values)
        if as_json:
            show({"broker": client.broker, "identity": door.identity, "withdrawn": filter})
            return 0
        where = f"at {client.broker} as {door.identity}"
        tell(f"nothing that {filter} covers is advertised {where} any longer")
    return 0


async def _advertise(
    filter: str, door: BrokerDoor, values: Mapping[str, Any], *, as_json: bool
) -> int:
    async with door.connect() as client:
        offer = await client.advertise(filter, values)
        await client.settled()
        if as_json:
            offered = str(offer.advertisement)
            show({"broker": client.broker, "identity": door.identity, "advertised": offered})
        under = f" as {door.identity}" if door.identity else ""
        tell(f"advertised {offer.advertisement} at {client.broker}{under}; Ctrl-C withdraws it")
        while offer.is_in_force:
            await asyncio.sleep(LOOK_S)
            with suppress(Unreachable):  # the client dials again
                await client.status()
        tell(f"{offer.advertisement} was withdrawn by another client{under}")
    return 0
