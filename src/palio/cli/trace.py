"""`palio trace`: where an event would go, hop by hop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from palio.cli import inputs
from palio.cli.connecting import BrokerDoor
from palio.cli.reporting import show
from palio.errors import InvalidInput

__all__ = ["trace"]


def trace(event: str, door: BrokerDoor, *, as_json: bool) -> int:
    """Print where an event would go, hop by hop; 1 if nobody listens."""
    listed = list(inputs.events(event))
    if len(listed) != 1:
        raise InvalidInput(f"trace takes one event, not {len(listed)}")
    found = asyncio.run(door.ask(lambda client: client.trace(listed[0][1])))
    hops = found["hops"]
    limited = {"limited": found["limited"]} if "limited" in found else {}
    hops.sort(key=lambda hop: hop.get("path", [hop["broker"]]))
    is_heard = any(hop.get("sessions") or hop.get("durable") for hop in hops)
    if as_json:
        show({"heard": is_heard, "hops": hops, **limited})
    else:
        is_addressed = any(hop.get("multicast") for hop in hops)
        for hop in hops:
            for line in _hop(hop, is_addressed=is_addressed):
                show(line)
        if limited:
            show(limited["limited"])
        elif not is_heard:
            show("nobody listens")
    return 0 if is_heard else 1


def _hop(hop: Mapping[str, Any], *, is_addressed: bool = False) -> Iterator[str]:
    """One broker's part of a trace: where it is, and a line for each thing that it would do. Where
    events are addressed only the first broker sends them: it says how.
    """
    if hop.get("unreachable"):
        yield f"{hop['broker']}: not reachable; nobody knows about it and what is beyond"
        return
    if hop.get("withheld"):
        asker = hop["path"][-2]
        yield f"{hop['broker']}: does not tell; {asker} has no grant `monitor` there"
        return
    yield " > ".join(hop["path"])
    for each in hop["matched"]:
        values = "".join(f", :{key} = {value!r}" for key, value in each["parameters"].items())
        yield f"    heard by {each['durable'] or each['subscriber']}: {each['filter']}{values}"
    for subscription in hop["kept_for"]:
        yield f"    if durable, kept for {subscription}"
    yield from _casts(hop.get("multicast") or {"groups": [], "by_links": []})
    if hop["forwards"] and not is_addressed:
        yield f"    sent on to {', '.join(hop['forwards'])}"
    if not (hop["sessions"] or hop["durable"] or hop["forwards"]):
        yield "    stops here: nothing matches"


def _casts(multicast: Mapping[str, Any]) -> Iterator[str]:
    for each in multicast["groups"]:
        vain = f"; in vain to {', '.join(each['in_vain'])}" if each["in_vain"] else ""
        yield f"    by group {each['group']} to {', '.join(each['to'])}{vain}"
    if multicast["by_links"]:
        yield f"    by links to {', '.join(multicast['by_links'])}"
