"""The demo's display: a live table on a terminal, a line a second elsewhere, nothing for JSON."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Sequence
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

import msgspec

from palio.cli.demo.audit import Promise
from palio.cli.reporting import show

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_FRAME_SECONDS: Final = 0.1
_HISTORY: Final = 24
_WIDE: Final = 100
"""Columns from which the whole history is shown, and not half of it."""

_PAIRED: Final = 80
"""Columns from which two symbols are shown side by side."""

_BLOCKS: Final = "▁▂▃▄▅▆▇█"


class BoardState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the demo at a moment."""

    seconds: float
    quotes: int
    prices: dict[str, float]
    brokers: dict[str, bool]
    """Which of them are up."""
    promises: tuple[Promise, ...]


def current_filter(promise: Promise) -> str:
    """The filter with the current values of its parameters."""
    text = promise.text
    for name, value in promise.values.items():
        text = text.replace(f":{name}", f"{value:.2f}")
    return text


def _counts(promise: Promise) -> str:
    """The deliveries in a few words."""
    lost = f" ({promise.lost} lost)" if promise.lost else ""
    limit = "".join(f" [{value:.2f}]" for value in promise.values.values())
    return f"{promise.name}{limit} {promise.received}{lost}"


class Board:
    """A display of the demo; this one shows nothing."""

    def draw(self, state: BoardState) -> None:
        """Show the state, if it is time to."""

    def print_line(self, line: str) -> None:
        """Show a line."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class PlainBoard(Board):
    """A line for every second of the market."""

    def __init__(self) -> None:
        self._next_second = 1

    def draw(self, state: BoardState) -> None:
        """Print a line if another second is full."""
        second = int(state.seconds)
        if second < self._next_second:
            return
        self._next_second = second + 1
        counts = "  ".join(map(_counts, state.promises))
        self.print_line(f"{second:>3} s  {counts}")

    def print_line(self, line: str) -> None:
        """Print it."""
        show(line)
        sys.stdout.flush()


class LiveBoard(Board):
    """Prices, brokers and subscribers on a terminal, drawn ten times a second."""

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

    def draw(self, state: BoardState) -> None:
        """Draw a frame if the last one is old enough."""
        if monotonic() - self._drawn_at < _FRAME_SECONDS:
            return
        self._drawn_at = monotonic()
        for symbol, price in state.prices.items():
            self._history.setdefault(symbol, deque(maxlen=_HISTORY)).append(price)
        self._live.update(self._frame(state), refresh=True)

    def print_line(self, line: str) -> None:
        """Print it, above the frame if there is one."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _frame(self, state: BoardState) -> RenderableType:
        from rich.console import Group
        from rich.padding import Padding
        from rich.text import Text

        title = Text.assemble(("palio demo", "bold"), (f"  {state.seconds:4.1f} s", "cyan"))
        title.append(f"  {state.quotes:,} quotes")
        for name, is_up in state.brokers.items():
            mark, style = ("●", "green") if is_up else ("✗", "bold red")
            title.append(f"  {mark} {name}", style)
        return Group("", title, "", Padding(self._market(), (0, 0, 0, 2)), _subscribers(state))

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
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("subscriber", style="bold", no_wrap=True)
    table.add_column("at", no_wrap=True)
    table.add_column("filter", style="cyan", min_width=18)
    table.add_column("received", justify="right", style="green", no_wrap=True)
    table.add_column("lost", justify="right", style="yellow", no_wrap=True)
    for each in state.promises:
        counts = (f"{each.received:,}", f"{each.lost:,}")
        table.add_row(each.name, each.broker, current_filter(each), *counts)
    return table


def sparkline(values: Sequence[float]) -> str:
    """A line of blocks from the lowest of some values to the highest.

    >>> sparkline([1, 2, 4])
    '▁▃█'
    """
    low, high = min(values), max(values)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(top * (value - low) / ((high - low) or 1))] for value in values)


def board_for(*, as_json: bool) -> Board:
    """The display for where the output goes."""
    if as_json:
        return Board()
    if sys.stdout.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb":
        return LiveBoard()
    return PlainBoard()
