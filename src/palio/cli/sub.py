"""`palio sub`: print events as they come from a broker."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from palio.cli import inputs
from palio.cli.connecting import BrokerDoor, tell_gap
from palio.cli.feed import LineFeed
from palio.cli.reporting import tell
from palio.client.events import Event
from palio.client.subscription import Subscription
from palio.errors import PalioError, Unsettled

__all__ = ["described", "show_event", "sub"]


def sub(  # noqa: PLR0913  # each is an option of the command
    filter: str,
    door: BrokerDoor,
    parameters: list[str],
    *,
    durable: str,
    count: int,
    lifetime_s: float | None,
    reorder_s: float | None,
    by_brokers: bool,
    as_json: bool,
) -> int:
    """Print events as they come, up to `count` or until Ctrl-C; read new parameters from stdin."""
    values = inputs.bindings(parameters)
    options = {
        "durable": durable,
        "acknowledge": "explicit" if durable else "automatic",
        "count": None if durable else count or None,
        "lifetime_s": lifetime_s,
        "reorder_s": reorder_s,
        "assembled_by": "brokers" if by_brokers else "client",
    }
    return asyncio.run(_hear(filter, door, values, options, count, as_json=as_json))


async def _hear(
    filter: str,
    door: BrokerDoor,
    values: dict[str, Any],
    options: dict[str, Any],
    count: int,
    *,
    as_json: bool,
) -> int:
    async with door.connect() as client:
        subscription = await client.subscribe(filter, on_gap=tell_gap, values=values, **options)
        helpers = [
            asyncio.create_task(_steer(subscription)),
            asyncio.create_task(_tell_when_in_force(subscription, client.broker)),
        ]
        heard = 0
        try:
            async for event in subscription:
                show_event(event, as_json=as_json)
                await event.ack()
                heard += 1
                if heard == count:
                    break
        finally:
            for each in helpers:
                each.cancel()
    return 0


async def _tell_when_in_force(subscription: Subscription, broker: str) -> None:
    """Say when whatever is published will be heard, wherever that is."""
    tell(f"hearing {subscription.filter} at {broker}; Ctrl-C ends it")
    try:
        await subscription.settled()
    except Unsettled as error:
        tell(str(error))
    except PalioError:
        pass  # the connection is lost, which is told by itself, or the subscription is over
    else:
        tell("in force wherever events are published")


async def _steer(subscription: Subscription) -> None:
    """Take `limit=20` from standard input as a new value; a mistake is told and changes nothing."""
    feed = LineFeed(_typed())
    while lines := await feed.take(1):
        for line in lines:
            given = line.strip()
            if not given:
                continue
            try:
                await subscription.update(**inputs.bindings(given.split()))
            except PalioError as error:
                tell(str(error).partition("\n")[0])
            else:
                tell(", ".join(f":{name} = {value!r}" for name, value in _shown(subscription)))


def _typed() -> Iterator[str]:
    """Lines of standard input, read past Python's own buffer.

    A thread that waits inside that buffer holds its lock, on which a program that ends would fail.
    """
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):  # something that only looks like a file
        yield from sys.stdin
        return
    rest = b""
    while data := os.read(descriptor, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _shown(subscription: Subscription) -> list[tuple[str, Any]]:
    return sorted(subscription.values.items())


def show_event(event: Event, *, as_json: bool) -> None:
    """Print an event on a line: its attributes as text, or all there is as JSON."""
    if as_json:
        line = json.dumps(described(event), default=_jsonable, ensure_ascii=False)
    else:
        line = f"{event.time:%H:%M:%S} {event.publisher} {event.seq}  " + " ".join(
            f"{name}={value!r}" for name, value in event.items()
        )
    print(line, flush=True)  # noqa: T201  # one line an event, at once


def described(event: Event) -> dict[str, Any]:
    """An event for programs; for a pattern with all its parts."""
    document: dict[str, Any] = {
        "publisher": event.publisher,
        "seq": event.seq,
        "time": event.time.isoformat(),
        "event": dict(event),
    }
    if event.parts:
        document["parts"] = [described(part) for part in event.parts]
    return document


def _jsonable(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)
