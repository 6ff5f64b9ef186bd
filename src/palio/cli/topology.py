"""`palio topology`, `trace` and `top`: what a network looks like, and how a broker is doing."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from palio.cli import inputs
from palio.cli.pub import BrokerDoor
from palio.cli.reporting import show
from palio.client.connection import Client
from palio.errors import InvalidInput, NotPermitted, Unreachable
from palio.protocol.durations import check_seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

__all__ = ["Sample", "Screen", "figures", "retire", "top", "topology", "trace"]

Answer = TypeVar("Answer")

PATIENCE_S: Final = 5.0
"""Seconds that a broker may take to answer before the display says so."""

RATES: Final = ("published", "routed", "delivered", "dropped")
"""Counts of a status that only grow."""


# --- topology ---


def topology(door: BrokerDoor, *, as_json: bool) -> int:
    """Print the brokers that one of them knows of, as a tree from that one."""
    found = asyncio.run(_asked(door, Client.topology))
    if as_json:
        show(found)
    else:
        for line in _tree(found["asked"], found["brokers"]):
            show(line)
    return 0


def retire(broker: str, door: BrokerDoor) -> int:
    """Say of a broker that it is gone for good; return when all others know."""

    async def say() -> None:
        async with door.connect() as client:
            await client.retire(broker)

    asyncio.run(say())
    show(f"{broker} is gone for good; all others know.")
    return 0


async def _asked(door: BrokerDoor, question: Callable[[Client], Awaitable[Answer]]) -> Answer:
    async with door.connect() as client:
        return await question(client)


def _tree(root: str, brokers: Mapping[str, Any]) -> Iterator[str]:
    """Each broker below the one through which it is reached first, then what is in no tree."""
    parents: dict[str, str] = {root: ""}
    queue = [root]
    for name in queue:
        for other in _neighbours(name, brokers):
            if other not in parents and brokers[other]["reachable"]:
                parents[other] = name
                queue.append(other)
    yield from _branch(root, "", "", brokers, parents)
    links = {
        (min(name, other), max(name, other))
        for name in parents
        for other in _neighbours(name, brokers)
        if other in parents and name not in (parents[other], other) and parents[name] != other
    }
    if links:
        yield f"also linked: {', '.join(f'{one} - {other}' for one, other in sorted(links))}"
    for name in sorted(brokers.keys() - parents.keys()):
        yield f"{name}  not reachable"
        yield from _keeps(brokers[name], "    ")


def _branch(
    name: str,
    lead: str,
    below: str,
    brokers: Mapping[str, Any],
    parents: Mapping[str, str],
) -> Iterator[str]:
    yield f"{lead}{name}"
    children = [each for each in sorted(parents) if parents[each] == name]
    yield from _keeps(brokers[name], below + ("│     " if children else "      "))
    for child in children:
        is_last = child == children[-1]
        corner, bar = ("└── ", "    ") if is_last else ("├── ", "│   ")
        yield from _branch(child, below + corner, below + bar, brokers, parents)


def _neighbours(name: str, brokers: Mapping[str, Any]) -> list[str]:
    return [each for each in sorted(brokers[name]["links"]) if each in brokers]


def _keeps(broker: Mapping[str, Any], lead: str) -> Iterator[str]:
    for subscription in broker["durable_subscriptions"]:
        yield f"{lead}keeps events for {subscription}"


# --- trace ---


def trace(event: str, door: BrokerDoor, *, as_json: bool) -> int:
    """Print where an event would go, hop by hop; 1 if nobody listens."""
    listed = list(inputs.events(event))
    if len(listed) != 1:
        raise InvalidInput(f"trace takes one event, not {len(listed)}")
    found = asyncio.run(_asked(door, lambda client: client.trace(listed[0][1])))
    hops = found["hops"]
    limited = {"limited": found["limited"]} if "limited" in found else {}
    hops.sort(key=lambda hop: hop.get("path", [hop["broker"]]))
    is_heard = any(hop.get("sessions") or hop.get("durable") for hop in hops)
    if as_json:
        show({"heard": is_heard, "hops": hops, **limited})
    else:
        for hop in hops:
            for line in _hop(hop):
                show(line)
        if limited:
            show(limited["limited"])
        elif not is_heard:
            show("nobody listens")
    return 0 if is_heard else 1


def _hop(hop: Mapping[str, Any]) -> Iterator[str]:
    """One broker's part of a trace: where it is, and a line for each thing that it would do."""
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
    if hop["forwards"]:
        yield f"    sent on to {', '.join(hop['forwards'])}"
    if not (hop["sessions"] or hop["durable"] or hop["forwards"]):
        yield "    stops here: nothing matches"


# --- top ---


class Sample(NamedTuple):
    """A broker's status, and when it was given, by the monotonic clock."""

    at: float
    status: Mapping[str, Any]


def figures(before: Sample, now: Sample) -> dict[str, Any]:
    """A status with what its counts grew by in a second.

    >>> before, now = (Sample(t, {"published": 50 * t}) for t in (1.0, 3.0))
    >>> figures(before, now)["per_second"]
    {'published': 50.0}
    """
    seconds = now.at - before.at
    # A broker that was started anew counts from nothing.
    is_same = before.status.get("epoch") == now.status.get("epoch") and seconds > 0
    rates = {
        name: round((now.status[name] - before.status[name]) / seconds, 1) if is_same else 0.0
        for name in RATES
        if name in now.status
    }
    return {**now.status, "per_second": rates}


def top(door: BrokerDoor, *, interval_s: float, once: bool, as_json: bool) -> int:
    """Show how a broker is doing, again and again until Ctrl-C; or once."""
    check_seconds(interval_s, "--interval")
    if as_json and not once:
        raise InvalidInput("--json prints one document; give --once too")
    try:
        asyncio.run(_watch(door, interval_s, once=once, as_json=as_json))
    except KeyboardInterrupt:
        return 0
    return 0


async def _watch(door: BrokerDoor, interval_s: float, *, once: bool, as_json: bool) -> None:
    async with door.connect(tells=False) as client:  # the screen says it
        before = await _sample(client)
        if once:
            await asyncio.sleep(interval_s)
            now = figures(before, await _sample(client))
            if as_json:
                show(now)
            else:
                show("\n".join(_plain(now)))
            return
        with Screen() as screen:
            screen.draw(figures(before, before))
            while True:
                await asyncio.sleep(interval_s)
                try:
                    sample = await _sample(client)
                except Unreachable as error:
                    screen.complain(str(error))
                    continue
                screen.draw(figures(before, sample))
                before = sample


async def _sample(client: Client) -> Sample:
    try:
        async with asyncio.timeout(PATIENCE_S):
            status = await client.status()
    except TimeoutError:
        raise Unreachable(f"no answer from {client.broker} for {PATIENCE_S:.0f} s") from None
    if "limited" in status:
        raise NotPermitted(f"top shows a whole broker, and it tells you {status['limited']}")
    return Sample(time.monotonic(), status)


class Screen:
    """A view that is drawn over itself on a terminal, and one line a sample elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False, screen=self._is_terminal)
        self._latest: Mapping[str, Any] = {}

    @property
    def _is_terminal(self) -> bool:
        return self._console.is_terminal

    def __enter__(self) -> Self:
        if self._is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal:
            self._live.stop()

    def draw(self, now: Mapping[str, Any]) -> None:
        """Show a sample."""
        self._latest = now
        if self._is_terminal:
            self._live.update(_frame(now), refresh=True)
        else:
            show(_line(now))
            sys.stdout.flush()

    def complain(self, problem: str) -> None:
        """Show that there is no newer sample, and why."""
        if self._is_terminal:
            self._live.update(_frame(self._latest, problem), refresh=True)
        else:
            show(problem)


def _line(now: Mapping[str, Any]) -> str:
    """A sample on a line."""
    rates = "  ".join(f"{name} {rate:,.0f}/s" for name, rate in now["per_second"].items())
    down = [name for name, peer in now["peers"].items() if not peer["up"]]
    peers = f"  down: {', '.join(down)}" if down else ""
    custody = f"custody {now['custody_entries']:,}"
    return f"{now['broker']}  {rates}  sessions {now['connected']}  {custody}{peers}"


def _plain(now: Mapping[str, Any]) -> Iterator[str]:
    """A sample as lines of text."""
    for heading, rows in _sections(now):
        yield heading
        width = max(len(row[0]) for row in rows)
        for name, *cells in rows:
            yield f"  {name:<{width}}  {'  '.join(cells)}"


def _sections(now: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """The sections of the display: headings, each with rows of cells."""
    rates = now["per_second"]
    counts: list[tuple[str, ...]] = [
        (name, f"{rates[name]:,.0f}/s", f"{now[name]:,} in all") for name in rates
    ]
    yield f"{now['broker']}: events", counts
    yield (
        "clients",
        [
            ("sessions", f"{now['connected']:,} connected, {now['sessions']:,} in all"),
            ("subscriptions", f"{now['subscriptions']:,}"),
            ("queued", _bytes(now["queued_bytes"])),
        ],
    )
    waiting: Mapping[str, int] = now["custody_waiting"]
    longest = sorted(waiting.items(), key=lambda each: (-each[1], each[0]))
    yield (
        "custody",
        [
            ("batches held", f"{now['custody_entries']:,}"),
            *((name, f"{count:,} waiting") for name, count in longest),
        ],
    )
    if now["peers"]:
        yield "peers", [_peer(name, peer) for name, peer in sorted(now["peers"].items())]


def _peer(name: str, peer: Mapping[str, Any]) -> tuple[str, ...]:
    unseen, queued = _bytes(peer["unseen_bytes"]), _bytes(peer["queued_bytes"])
    dropped = f", {peer['dropped']:,} dropped" if peer["dropped"] else ""
    missing = f", {peer['missing']:,} subscriptions missing" if peer.get("missing") else ""
    state = "up" if peer["up"] else "DOWN"
    return name, state, f"{unseen} under way, {queued} queued{dropped}{missing}"


def _bytes(count: int) -> str:
    """A size for people.

    >>> _bytes(999), _bytes(4 << 20)
    ('999 B', '4.0 MiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _frame(now: Mapping[str, Any], problem: str = "") -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for heading, rows in _sections(now):
        parts += [Text(heading, style="bold"), _table(rows)]
    parts.append(Text(problem or "Ctrl-C ends this", style="red" if problem else "dim"))
    return Group(*parts)


def _table(rows: Sequence[tuple[str, ...]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2), pad_edge=True)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for row in rows:
        style = "red" if "DOWN" in row else ""
        table.add_row(*(Text(cell, style=style) for cell in row))
    return table
