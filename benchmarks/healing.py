"""A hierarchy of real brokers that are killed, paused and cut off: when do deliveries go on?

    python -m benchmarks.healing [--brokers 100] [--routing general] [--docs docs]
    python -m benchmarks.healing --brokers 7 --faults "an inner broker is killed"
    python -m benchmarks.healing --brokers 100 --publishers 2 --listeners 6 --rate 1

Brokers are `palio serve` processes with all settings at their defaults, each in a network
namespace, and links take 10 ms each way (`healing_network`); it takes Linux and the permission to
make namespaces. Live and durable publishers send a few events a second each; listeners in all
branches hear all of them. Of each fault the table tells pairs of a publisher and a listener between
which links are left, those that have to find a way, and all of them after the fault has ended: how
many were interrupted, when the last of them heard events in time again, and what was lost. What
comes late while nothing happens is the machine's doing: it needs time for a hundred processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import isinf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from benchmarks.healing_load import LATE_S, RATE, Listener, Load, Outage, Publisher
from benchmarks.healing_network import (
    FANOUT,
    Hierarchy,
    HierarchyFleet,
    hierarchy,
    within_reach,
)
from benchmarks.matching_results import replace
from benchmarks.namespaces import why_not
from palio.routing.algorithms import find_algorithm

Row = dict[str, Any]

FAULT_S: Final = 16.0
"""How long a fault stays: longer than silence is noticed and a broker's session is kept."""
AFTER_S: Final = 30.0
LONG_AFTER_S: Final = 90.0
"""How long the network is watched once it has ended: where many come back at once, longer."""
IDLE_S: Final = 10.0
REST_S: Final = 60.0
"""How long durable events may take to arrive in the end."""
BEGIN: Final = "<!-- measured: python -m benchmarks.healing --docs docs -->"

LINKED: Final = "links are left"
LOOKING: Final = "needs another path"
CUT_OFF: Final = "cut off"
AFTER: Final = "after its end"
"""Of which pairs a row tells, in which time."""

DEFAULTS: Final[Mapping[str, float]] = MappingProxyType({})


class Crowd(NamedTuple):
    """Who publishes and listens, and how much: 100 brokers on 2 cores bear less than 13 do."""

    publishers: int = 4
    """Live ones, and as many durable ones."""
    listeners: int = 12
    """The most that hear live events."""
    rate: float = RATE
    """Events a second of each publisher."""


CROWD: Final = Crowd()


class Fault(NamedTuple):
    """Something that happens to a network, and how it ends."""

    name: str
    victims: Callable[[Hierarchy], tuple[str, ...]]
    """Brokers that are gone as long as it lasts."""
    begin: Callable[[HierarchyFleet, tuple[str, ...]], Awaitable[None]]
    end: Callable[[HierarchyFleet, tuple[str, ...]], Awaitable[None]]
    cuts: Callable[[Hierarchy], Callable[[str, str], bool]] = lambda _: lambda _one, _other: False
    """Which lines are silent meanwhile."""
    lasts_s: float = FAULT_S
    after_s: float = AFTER_S
    """How long the network is watched once it has ended."""


async def _kill(fleet: HierarchyFleet, victims: tuple[str, ...]) -> None:
    for name in victims:
        await fleet.kill(name)


async def _start(fleet: HierarchyFleet, victims: tuple[str, ...]) -> None:
    await asyncio.gather(*map(fleet.start, victims))


async def _pause(fleet: HierarchyFleet, victims: tuple[str, ...]) -> None:
    for name in victims:
        fleet.pause(name)


async def _go_on(fleet: HierarchyFleet, victims: tuple[str, ...]) -> None:
    for name in victims:
        fleet.go_on(name)


async def _nothing(fleet: HierarchyFleet, victims: tuple[str, ...]) -> None:
    """Lines fall silent anyway, and speak again."""


def _child(place: int) -> Callable[[Hierarchy], tuple[str, ...]]:
    return lambda shape: (_children(shape)[place % len(_children(shape))],)


def _children(shape: Hierarchy) -> list[str]:
    return [name for name, parent in shape.parents.items() if parent == "b1"]


def _uplink(shape: Hierarchy) -> Callable[[str, str], bool]:
    ends = {"b1", _children(shape)[0]}
    return lambda one, other: {one, other} == ends


def _branch(shape: Hierarchy) -> Callable[[str, str], bool]:
    inside = set(shape.below(_children(shape)[-1]))
    return lambda one, other: (one in inside) != (other in inside)


FAULTS: Final = (
    Fault("nothing happens", lambda _: (), _nothing, _nothing, lasts_s=0.0),
    Fault("a link falls silent", lambda _: (), _nothing, _nothing, _uplink),
    Fault("an inner broker is killed", _child(0), _kill, _start),
    Fault("an inner broker is killed and starts again", _child(1), _kill, _start, lasts_s=0.0),
    Fault("an inner broker pauses", _child(2), _pause, _go_on),
    Fault("a branch is cut off", lambda _: (), _nothing, _nothing, _branch),
    Fault(
        "several inner brokers are killed", Hierarchy.several, _kill, _start, after_s=LONG_AFTER_S
    ),
    Fault("the root is killed", lambda _: ("b1",), _kill, _start),
)


def load_of(shape: Hierarchy, crowd: Crowd = CROWD) -> Load:
    """Clients at leaves in all branches, which no fault strikes; and one who hears durable events
    at a broker that is killed.
    """
    places = shape.leaves(crowd.listeners)
    publishers = [
        Publisher(f"{kind} {place}", place, durable=kind == "durable", rate=crowd.rate)
        for kind in ("live", "durable")
        for place in places[:: max(1, len(places) // crowd.publishers)]
    ]
    listeners = [Listener(f"hears {place}", place, durable=False) for place in places]
    struck = _child(1)(shape)[0]
    listeners += [
        Listener(f"keeps {place}", place, durable=True) for place in (*places[1::3], struck)
    ]
    return Load(publishers, listeners)


async def _struck(fleet: HierarchyFleet, load: Load, fault: Fault) -> list[Row]:
    shape = fleet.shape
    victims, is_silent = fault.victims(shape), fault.cuts(shape)
    left = [
        (one, other)
        for one, other in shape.links
        if not {one, other} & {*victims} and not is_silent(one, other)
    ]
    pairs = [pair for pair in load.pairs if pair.listener.broker not in victims]
    linked = {name: within_reach(left, name) for name in {p.publisher.broker for p in pairs}}
    cut_off = [pair for pair in pairs if is_silent(pair.publisher.broker, pair.listener.broker)]
    near = [pair for pair in pairs if pair.listener.broker in linked[pair.publisher.broker]]
    far = [pair for pair in pairs if pair not in near and pair not in cut_off]
    began = time.monotonic()
    fleet.hush(is_silent)
    await fault.begin(fleet, victims)
    await asyncio.sleep(fault.lasts_s)
    ending = time.monotonic()
    await fault.end(fleet, victims)
    fleet.speak()
    ended = time.monotonic()
    await asyncio.sleep(fault.after_s)
    judged = time.monotonic() - fault.after_s / 4
    is_short = not fault.lasts_s
    last = ending - LATE_S  # what is published after that may be late for what its end does
    rows = []
    for which, some, since, until in (
        (LINKED, near, began, judged if is_short else last),
        (LOOKING, far, began, last),
        (CUT_OFF, cut_off, began, last),
        (AFTER, [] if is_short else list(load.pairs), ended, judged),
    ):
        for durable in (False, True):
            chosen = [pair for pair in some if pair.publisher.durable == durable]
            if chosen:
                rows.append(_row(fault, which, durable, load.outage(chosen, since, until)))
    return rows


def _row(fault: Fault, which: str, durable: bool, found: Outage) -> Row:
    resumed_s = None if isinf(found.resumed_s) else round(found.resumed_s, 2)
    return {
        "fault": fault.name,
        "pairs": which,
        "events": "durable" if durable else "live",
        **found._asdict(),
        "resumed_s": resumed_s,
    }


async def _idle(fleet: HierarchyFleet) -> Row:
    """What a network takes in which nothing is published."""
    before = fleet.spent()
    await asyncio.sleep(IDLE_S)
    after = fleet.spent()
    count = len(fleet.names)
    return {
        "cpu_ms_a_broker_s": 1e3 * (after.cpu_s - before.cpu_s) / IDLE_S / count,
        "bytes_a_link_s": (after.link_bytes - before.link_bytes) / IDLE_S / len(fleet.shape.links),
        "memory_mb_a_broker": after.memory_bytes / count / 1e6,
    }


async def run(
    shape: Hierarchy,
    routing: str,
    faults: tuple[Fault, ...],
    limits: Mapping[str, float] = DEFAULTS,
    crowd: Crowd = CROWD,
) -> Row:
    """One network, from its start to its end. `limits` are settings of `[limits]`."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        fleet = HierarchyFleet(shape, Path(folder), routing, limits)
        async with fleet, load_of(shape, crowd) as load:
            started_s = time.monotonic() - began
            idle = await _idle(fleet)
            algorithm = find_algorithm(routing)
            await load.begin(fleet.url, advertising=algorithm.takes_advertisements)
            rows = []
            for fault in faults:
                rows += await _struck(fleet, load, fault)
            load.cease()
            with suppress(TimeoutError):
                async with asyncio.timeout(REST_S):
                    while load.lacking():  # noqa: ASYNC110  # other processes tell nobody
                        await asyncio.sleep(0.1)
            return {
                "brokers": len(shape.names),
                "links": len(shape.links),
                "routing": routing,
                "crowd": crowd._asdict(),
                "started_s": started_s,
                "idle": idle,
                "faults": rows,
                "durable_lost": load.lacking(),
                "unreachable": await fleet.unreached("b1"),
                **load.repeated(),
            }


def as_markdown(found: list[Row]) -> str:
    """A table of faults, and what else there is to tell of each network."""
    head = ["fault", "routing", *(f"{which}, s" for which in (LINKED, LOOKING, AFTER))]
    head += ["live events lost", "of them unreported"]
    lines = [head, ["---"] * len(head)]
    for name in dict.fromkeys(row["fault"] for each in found for row in each["faults"]):
        for each in found:
            rows = [row for row in each["faults"] if row["fault"] == name]
            times = [_slowest(rows, which) for which in (LINKED, LOOKING, AFTER)]
            sums = [str(sum(row[column] for row in rows)) for column in ("lost", "untold")]
            lines.append([name, each["routing"], *times, *sums])
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n\n".join([table, *map(_rest, found)])


def _slowest(rows: list[Row], which: str) -> str:
    some = [row for row in rows if row["pairs"] == which]
    if not some:
        return ""
    if any(row["resumed_s"] is None for row in some):
        return "not"
    return f"{max(row['resumed_s'] for row in some):.1f}"


def _rest(found: Row) -> str:
    idle, crowd = found["idle"], found["crowd"]
    return (
        f"`{found['routing']}`, {found['brokers']} brokers, {found['links']} links, "
        f"{crowd['publishers']} publishers of each kind with {crowd['rate']:g} events a second: "
        "durable events "
        f"lost {found['durable_lost']}; live events doubled {found['twice']}, out of order "
        f"{found['disordered']}; durable ones doubled {found['durable_twice']}, out of order "
        f"{found['durable_disordered']}; brokers that the root does not reach in the end "
        f"{len(found['unreachable'])}. Idle, a broker takes {idle['cpu_ms_a_broker_s']:.1f} ms of "
        f"CPU a second and {idle['memory_mb_a_broker']:.0f} MB, a link "
        f"{idle['bytes_a_link_s']:.0f} bytes a second."
    )


def renew(found: Row, docs: Path) -> None:
    """Put a run in place of the last one by the same routing, in JSON and in the page."""
    page = docs / "measured" / "healing.json"
    known = json.loads(page.read_text(encoding="utf-8")) if page.exists() else []
    known = [each for each in known if each["routing"] != found["routing"]]
    known = sorted([*known, found], key=lambda each: str(each["routing"]))
    page.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    replace(as_markdown(known), docs / "concepts" / "healing.md", BEGIN)


def main() -> None:
    """Print the table, or put it into the documentation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--fanout", type=int, default=FANOUT)
    parser.add_argument("--routing", default="general")
    parser.add_argument("--publishers", type=int, default=CROWD.publishers, help="of each kind")
    parser.add_argument("--listeners", type=int, default=CROWD.listeners)
    parser.add_argument("--rate", type=float, default=RATE, help="events a second of a publisher")
    parser.add_argument("--faults", nargs="*", default=[fault.name for fault in FAULTS])
    parser.add_argument("--json", type=Path, help="a file for all that was counted")
    parser.add_argument("--docs", type=Path, help="the folder of the documentation, to be renewed")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        raise SystemExit(f"no network namespaces: {reason}")
    chosen = tuple(fault for fault in FAULTS if fault.name in given.faults)
    shape = hierarchy(given.brokers, given.fanout)
    crowd = Crowd(given.publishers, given.listeners, given.rate)
    found = asyncio.run(run(shape, given.routing, chosen, crowd=crowd))
    print(as_markdown([found]))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if given.docs is not None:
        renew(found, given.docs)


if __name__ == "__main__":
    main()
