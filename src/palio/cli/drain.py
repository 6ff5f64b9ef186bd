"""`palio peer drain`: a broker hands over all it has, and what is left of that meanwhile."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from palio.cli.connecting import BrokerDoor
from palio.cli.reporting import show, tell
from palio.client.answers import Remains
from palio.client.connection import Client

__all__ = ["drain", "left"]

AGAIN_S: Final = 0.2
"""How often it is asked what is left."""


def drain(door: BrokerDoor, timeout_s: float, *, undo: bool, as_json: bool) -> int:
    """Drain a broker; 1 if that is not done in time, and the broker in service again."""
    return asyncio.run(door.ask(lambda client: _drain(client, timeout_s, undo, as_json=as_json)))


async def _drain(client: Client, timeout_s: float, undo: bool, *, as_json: bool) -> int:
    broker = client.broker
    remains = await client.drain(undo=undo)
    if undo:
        show({"broker": broker, **remains} if as_json else f"{broker} is in service.")
        return 0
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    told = ""
    while not remains["done"] and loop.time() < until:
        text = left(remains)
        if text != told and sys.stderr.isatty():
            tell(text)
        told = text
        await asyncio.sleep(AGAIN_S)
        remains = await client.drain()
    if not remains["done"]:
        await client.drain(undo=True)
    if as_json:
        show({"broker": broker, **remains})
    elif remains["done"]:
        show(f"{broker} is empty: it may be stopped, and nothing is lost.")
    else:
        show(f"{broker} is in service again, after {timeout_s:g} s. {left(remains)}")
    return 0 if remains["done"] else 1


def left(remains: Remains) -> str:
    """What is left, in words.

    >>> left(
    ...     Remains(
    ...         clients=1,
    ...         durable_subscriptions=0,
    ...         entries=7,
    ...         neighbours=1,
    ...         unreached=[],
    ...         done=False,
    ...     )
    ... )
    'Left: 1 client, 7 durable events.'
    """
    counts = {
        "client": remains["clients"],
        "durable subscription": remains["durable_subscriptions"],
        "durable event": remains["entries"],
    }
    left = [f"{count:,} {what}{'s' * (count != 1)}" for what, count in counts.items() if count]
    words = (
        f"Left: {', '.join(left)}." if left else "Nothing is left; it waits for what is on its way."
    )
    if not remains["neighbours"]:
        words += " No other broker is linked that could take it over."
    if remains["unreached"]:
        words += f" Not told yet: {', '.join(remains['unreached'])}."
    return words
