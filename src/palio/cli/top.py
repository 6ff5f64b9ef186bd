"""`palio top`: how a broker is doing, again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Self

import typer

from palio.cli.application import AsJson, with_broker
from palio.cli.connecting import BrokerAccess
from palio.cli.reporting import show
from palio.errors import InvalidInput, NoAnswer, NotPermitted, Unreachable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from palio.client.connection import Client

PATIENCE_S: Final = 5.0
"""Seconds without an answer after which the display shows that."""

RATES: Final = ("published", "routed", "delivered", "dropped")
"""Counts of a status that only grow."""


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
    # A broker that was restarted counts from nothing.
    is_same = before.status.get("epoch") == now.status.get("epoch") and seconds > 0
    rates = {
        name: round((now.status[name] - before.status[name]) / seconds, 1) if is_same else 0.0
        for name in RATES
        if name in now.status
    }
    return {**now.status, "per_second": rates}


@with_broker
def top(
    access: BrokerAccess,
    interval: Annotated[
        float, typer.Option(min=0.05, max=3600, metavar="SECONDS", help="Between two looks.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look for one interval, then end.")] = False,
    as_json: AsJson = False,
) -> int:
    """Watch a broker: rates, sessions, queues, custody, peers.

    A live view on a terminal, a line a look elsewhere, until Ctrl-C. For scripts: --once --json.
    """
    import asyncio

    from palio.protocol.limits import check_seconds

    check_seconds(interval, "--interval")
    if as_json and not once:
        raise InvalidInput("--json prints one document; give --once too")

    async def watch(client: Client) -> None:
        before = await _sample(client)
        if not once:
            await _redraw(client, before, interval)
            return
        await asyncio.sleep(interval)
        now = figures(before, await _sample(client))
        show(now if as_json else "\n".join(_plain(now)))

    access.ask(watch, warns=False)  # the screen shows it
    return 0


async def _redraw(client: Client, before: Sample, interval_s: float) -> None:
    """Show a sample each interval, or why there is none."""
    import asyncio

    with Screen() as screen:
        screen.draw(figures(before, before))
        while True:
            await asyncio.sleep(interval_s)
            try:
                sample = await _sample(client)
            except Unreachable as error:
                screen.show_problem(str(error))
                continue
            screen.draw(figures(before, sample))
            before = sample


async def _sample(client: Client) -> Sample:
    import asyncio

    try:
        async with asyncio.timeout(PATIENCE_S):
            status = await client.admin.status()
    except TimeoutError:
        raise NoAnswer(f"no answer from {client.broker} for {PATIENCE_S:.0f} s") from None
    if "limited" in status:
        raise NotPermitted(f"top shows a whole broker; the answer is limited: {status['limited']}")
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

    def show_problem(self, problem: str) -> None:
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
    state = "up" if peer["up"] else "DOWN"
    return name, state, f"{unseen} under way, {queued} queued{dropped}"


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


def _frame(now: Mapping[str, Any], problem: str = "") -> Text:
    from rich.text import Text

    frame = Text(no_wrap=True)
    for line in _plain(now):
        style = "red" if "DOWN" in line else "" if line.startswith(" ") else "bold"
        frame.append(f"{line}\n", style)
    return frame.append(problem or "Ctrl-C ends this", "red" if problem else "dim")
