"""The demo's display: a live table on a terminal, a line a second elsewhere, nothing for JSON."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from palio.cli.reporting import show

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

__all__ = ["Board", "BoardState", "LiveBoard", "PlainBoard", "SilentBoard", "SubscriberLine"]


class SubscriberLine(msgspec.Struct, frozen=True, kw_only=True):
    """One subscriber's row of the display."""

    name: str
    text: str
    values: dict[str, float]
    matched: int
    heard: int
    left_out: int
    lost: int
    gaps: int
    latest: str = ""

    @property
    def hears(self) -> str:
        """The filter with the current values of its parameters."""
        text = self.text
        for name, value in self.values.items():
            text = text.replace(f":{name}", f"{value:.2f}" if value < _ENDLESS else "∞")
        return text


_ENDLESS: Final = 1e6
"""No subscriber of the demonstration wants a price above this."""


class BoardState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the demo at a moment."""

    time: timedelta
    prices: dict[str, float]
    lines: tuple[SubscriberLine, ...]
    published: int
    delivered: int
    complaints: tuple[str, ...]

    @property
    def lost(self) -> int:
        """Events that slow consumers lost."""
        return sum(line.lost for line in self.lines)

    @property
    def verdict(self) -> str:
        """The finding of the audit, in words."""
        if self.complaints:
            return "\n".join(["What was promised and what was seen DISAGREE:", *self.complaints])
        heard = sum(line.heard for line in self.lines)
        left_out = sum(line.left_out for line in self.lines)
        return (
            f"{self.published:,} quotes made {self.delivered:,} deliveries: {heard:,} heard, "
            f"{left_out:,} left out because a parameter had moved on, "
            f"{self.lost:,} lost by a slow consumer, which was told. "
            "A recount by brute force agrees."
        )

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "quotes": self.published,
            "deliveries": self.delivered,
            "agreed": not self.complaints,
            "complaints": list(self.complaints),
            "subscribers": [msgspec.to_builtins(line) for line in self.lines],
        }


class Board(AbstractContextManager["Board"], ABC):
    """A display of a run of the demo."""

    def is_due(self, time: timedelta) -> bool:  # noqa: ARG002  # boards that draw go by it
        """Whether it is time to draw again, `time` after the market opened."""
        return False

    def draw(self, state: BoardState) -> None:
        """Show how things stand."""

    @abstractmethod
    def tell(self, line: str) -> None:
        """Show a line, at any time."""

    @abstractmethod
    def sum_up(self, state: BoardState) -> None:
        """Show what was promised and what was seen."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class SilentBoard(Board):
    """Shows nothing."""

    def tell(self, line: str) -> None:
        """Show nothing."""

    def sum_up(self, state: BoardState) -> None:
        """Show nothing."""


class PlainBoard(Board):
    """A line for every second of the market, and a plain table at the end."""

    def __init__(self) -> None:
        self._next_second = 1

    def is_due(self, time: timedelta) -> bool:
        """Whether another second is full."""
        return time.total_seconds() >= self._next_second

    def draw(self, state: BoardState) -> None:
        """Print a line."""
        second = int(state.time.total_seconds())
        self._next_second = second + 1
        heard = "  ".join(f"{line.name} {line.heard}" for line in state.lines)
        (limit,) = (line.hears for line in state.lines if line.name == "bargains")
        show(f"{second:>3} s  {heard}  lost {state.lost}  ({limit})")

    def tell(self, line: str) -> None:
        """Print it."""
        show(line)
        sys.stdout.flush()

    def sum_up(self, state: BoardState) -> None:
        """Print a table and the verdict."""
        show(f"\n{'':<14}{'matched':>9}{'heard':>9}{'left out':>10}{'lost':>9}{'gaps':>7}")
        for line in state.lines:
            counts = f"{line.matched:>9,}{line.heard:>9,}{line.left_out:>10,}"
            show(f"{line.name:<14}{counts}{line.lost:>9,}{line.gaps:>7,}")
        show(f"\n{state.verdict}")


_FRAME_SECONDS: Final = 0.1
_HISTORY: Final = 24
_WIDE: Final = 100
"""Columns from which the whole history is shown, and not half of it."""

_PAIRED: Final = 80
"""Columns from which two symbols are shown side by side."""

_BLOCKS: Final = "▁▂▃▄▅▆▇█"


class LiveBoard(Board):
    """Prices and subscribers on a terminal, drawn ten times a second."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self.console = console or Console()
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._history: dict[str, deque[float]] = {}
        self._drawn_at = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def is_due(self, time: timedelta) -> bool:  # noqa: ARG002  # frames go by people's time
        """Whether the last frame is old enough."""
        return monotonic() - self._drawn_at >= _FRAME_SECONDS

    def draw(self, state: BoardState) -> None:
        """Draw a frame."""
        self._drawn_at = monotonic()
        for symbol, price in state.prices.items():
            self._history.setdefault(symbol, deque(maxlen=_HISTORY)).append(price)
        self._live.update(self._frame(state), refresh=True)

    def _frame(self, state: BoardState) -> RenderableType:
        from rich.console import Group
        from rich.padding import Padding
        from rich.text import Text

        title = Text.assemble(
            ("palio demo", "bold"),
            (f"  {state.time.total_seconds():4.1f} s", "cyan"),
            f"  {state.published:,} quotes, {state.delivered:,} deliveries",
        )
        return Group(title, "", Padding(self._market(), (0, 0, 0, 2)), "", _subscribers(state))

    def _market(self) -> Table:
        """For each symbol its price, the change over the stretch that is drawn, and its shape."""
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        width = _HISTORY if self.console.width >= _WIDE else _HISTORY // 2
        abreast = 2 if self.console.width >= _PAIRED else 1
        for _ in range(abreast):
            table.add_column(style="bold")
            table.add_column(justify="right")
            table.add_column(justify="right", no_wrap=True)
            table.add_column(width=width, no_wrap=True)
        cells = [
            _market_cells(symbol, list(history)[-width:])
            for symbol, history in self._history.items()
        ]
        for first in range(0, len(cells), abreast):
            table.add_row(*chain.from_iterable(cells[first : first + abreast]))
        return table

    def tell(self, line: str) -> None:
        """Print it, above the frame if there is one."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def sum_up(self, state: BoardState) -> None:
        """Print the table of the recount and the verdict."""
        table = _table()
        for heading in ("matched", "heard", "left out", "lost", "gaps"):
            table.add_column(heading, justify="right")
        for line in state.lines:
            counts = (line.matched, line.heard, line.left_out, line.lost, line.gaps)
            table.add_row(line.name, line.text, *(f"{count:,}" for count in counts))
        self.console.print(table)
        self.console.print(state.verdict, style="red" if state.complaints else "green")


def _market_cells(symbol: str, history: Sequence[float]) -> tuple[str, ...]:
    change = 100 * (history[-1] / history[0] - 1)
    color, arrow = ("green", "▲") if change >= 0 else ("red", "▼")
    return (
        symbol,
        f"{history[-1]:.2f}",
        f"[{color}]{arrow} {abs(change):4.1f}%[/]",
        f"[{color}]{sparkline(history)}[/]",
    )


def _subscribers(state: BoardState) -> Table:
    table = _table()
    table.add_column("heard", justify="right", style="green")
    table.add_column("left out", justify="right")
    table.add_column("lost", justify="right", style="yellow")
    table.add_column("latest", ratio=3, no_wrap=True)
    for line in state.lines:
        counts = (f"{line.heard:,}", f"{line.left_out:,}", f"{line.lost:,}")
        table.add_row(line.name, line.hears, *counts, line.latest)
    return table


def _table() -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False)
    table.add_column("subscriber", style="bold", no_wrap=True)
    table.add_column("hears", ratio=4, style="cyan")
    return table


def sparkline(values: Sequence[float]) -> str:
    """A line of blocks from the lowest of some values to the highest.

    >>> sparkline([1, 2, 4])
    '▁▃█'
    """
    low, high = min(values), max(values)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(top * (each - low) / ((high - low) or 1))] for each in values)
