"""`palio peer add`, `remove` and `list`: the neighbours of a broker, while it runs."""

from __future__ import annotations

import asyncio
from typing import Final

from palio.cli.connecting import BrokerDoor
from palio.cli.reporting import show
from palio.client.connection import Client

__all__ = ["add", "list_peers", "remove"]

_WORDS: Final = {
    "configured": "configured",
    "added": "added",
    "found": "found in the place of another",
    "dials": "dials this broker",
}


def add(url: str, door: BrokerDoor, *, as_json: bool) -> int:
    """Link a broker to another; return when the link is up."""
    added = asyncio.run(door.ask(lambda client: client.add_peer(url)))
    if as_json:
        show(added)
        return 0
    show(f"{added['peer']} is linked, at {added['url']}.")
    if not added["remembered"]:
        show("That broker has no data directory: after a restart the link is to be added again.")
    return 0


def remove(name: str, door: BrokerDoor, *, as_json: bool) -> int:
    """Part a broker from a neighbour; return when the link is gone."""
    removed = asyncio.run(door.ask(lambda client: client.remove_peer(name)))
    if as_json:
        show(removed)
        return 0
    show(f"{removed['peer']} is linked no longer.")
    if removed["configured"]:
        urls = ", ".join(removed["configured"])
        show(f"It is dialled again after a restart; take {urls} out of peers.urls.")
    return 0


def list_peers(door: BrokerDoor, *, as_json: bool) -> int:
    """Print the neighbours of a broker."""
    peers = asyncio.run(door.ask(Client.peers))
    if as_json:
        show({"peers": peers})
        return 0
    for each in peers:
        parts = (
            each["peer"] or "nobody yet",
            each["url"],
            _WORDS[each["kind"]],
            "up" if each["up"] else "down",
        )
        show("  ".join(part for part in parts if part))
    return 0
