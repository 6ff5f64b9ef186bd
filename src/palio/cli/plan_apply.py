"""`palio plan apply`: a plan is put in use, and who has joined its groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from palio.cli import inputs
from palio.cli.connecting import BrokerDoor, ProgressLine
from palio.cli.reporting import show, tell
from palio.cli.topology import described
from palio.client.connection import Client
from palio.client.subscription import SETTLE_PATIENCE_S
from palio.errors import NotPermitted, Unsettled

if TYPE_CHECKING:
    from palio.client.answers import PlanInUse, Topology
    from palio.multicast.plans import GroupPlan

__all__ = ["apply_plan", "end_plan"]

AGAIN_S: Final = 0.1
"""How often it is asked who has joined."""


class _Joining(NamedTuple):
    """How far brokers have come with a plan."""

    plan: PlanInUse | None
    by: dict[str, list[str]]
    """Brokers by what they do with it: `joined`, `links` or `waiting`."""

    @classmethod
    def of(cls, topology: Topology) -> _Joining:
        by: dict[str, list[str]] = {"joined": [], "links": [], "waiting": []}
        for name, each in topology["brokers"].items():
            standing = "joined" if each["multicast"] == "moved" else each["multicast"]
            by[standing or "waiting"].append(name)
        return cls(topology["plan"], by)


def end_plan(door: BrokerDoor, *, as_json: bool) -> int:
    """No plan is to be in use; 1 if some brokers could not be told."""
    return asyncio.run(door.ask(lambda client: _end(client, as_json=as_json)))


async def _end(client: Client, *, as_json: bool) -> int:
    untold: tuple[str, ...] = ()
    try:
        await client.apply_plan(None)
    except Unsettled as error:
        untold = error.brokers
    if as_json:
        show({"plan": None, "waiting": list(untold)})
    elif untold:
        show(f"No plan is in use, but {', '.join(untold)} could not be told yet.")
    else:
        show("No plan is in use: brokers send by links.")
    return 1 if untold else 0


def apply_plan(path: Path, door: BrokerDoor, timeout_s: float, *, as_json: bool) -> int:
    """Put the plan of a file in use; 1 if not all brokers have joined in time."""
    from palio.multicast.documents import decode

    document = inputs.text_of(str(path), is_text=False).encode()
    made, _ = decode(document)
    return asyncio.run(
        door.ask(lambda client: _apply(client, document, made, timeout_s, as_json=as_json))
    )


async def _apply(
    client: Client, document: bytes, made: GroupPlan, timeout_s: float, *, as_json: bool
) -> int:
    until = asyncio.get_running_loop().time() + timeout_s
    try:
        await client.apply_plan(document, patience=min(timeout_s, SETTLE_PATIENCE_S))
    except Unsettled as error:
        tell(str(error))
    try:
        first = await client.topology()
    except NotPermitted as error:
        tell(f"the plan is applied; who has joined is not told here: {error}")
        return 0
    doubts = _doubts(made, first)
    for problem, names in doubts.items():
        tell(f"{problem}: {', '.join(names)}")
    applied = first["plan"]
    if applied is not None and not as_json:
        show(described(applied))
    joining = await _joined(client, applied, until)
    is_ours = joining.plan is not None and applied is not None and joining.plan == applied
    if as_json:
        show({"plan": applied, "in_use": is_ours, **joining.by, "doubts": doubts})
    else:
        for line in _outcome(joining, timeout_s, is_ours=is_ours):
            show(line)
    return 0 if is_ours and not joining.by["waiting"] else 1


async def _joined(client: Client, applied: PlanInUse | None, until: float) -> _Joining:
    """How it stands once all have joined, another plan counts, or time is over."""
    line: ProgressLine | None = None
    while True:
        joining = _Joining.of(await client.topology())
        waiting = len(joining.by["waiting"])
        total = sum(map(len, joining.by.values()))
        line = line or ProgressLine(f"of {total:,} brokers have joined")
        line.show(total - waiting)
        if not waiting or joining.plan != applied or asyncio.get_running_loop().time() >= until:
            line.end()
            return joining
        await asyncio.sleep(AGAIN_S)


def _outcome(joining: _Joining, timeout_s: float, *, is_ours: bool) -> Iterator[str]:
    by = joining.by
    if not is_ours:
        origin = "" if joining.plan is None else f" at {joining.plan['origin']}"
        yield f"Another plan was applied{origin} meanwhile, and counts."
        return
    if by["joined"]:
        yield f"{len(by['joined']):,} brokers have joined."
    if by["links"]:
        yield f"By links, for they have no multicast way: {', '.join(by['links'])}"
    if by["waiting"]:
        yield f"Not joined within {timeout_s:g} s: {', '.join(by['waiting'])}"


def _doubts(made: GroupPlan, topology: Topology) -> dict[str, list[str]]:
    """What somebody may not have meant, with the brokers that it concerns."""
    known = set(topology["brokers"])
    grouped = {name for name, count in zip(made.brokers, made.joins, strict=True) if count}
    found = {
        "brokers of the plan that are not known in this network": set(made.brokers) - known,
        "brokers that are in no group, and get events by links": known - grouped,
    }
    return {problem: sorted(names) for problem, names in found.items() if names}
