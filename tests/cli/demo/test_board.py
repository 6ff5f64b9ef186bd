from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from palio.cli.demo.audit import Promise
from palio.cli.demo.board import (
    Board,
    BoardState,
    LiveBoard,
    PlainBoard,
    current_filter,
    sparkline,
)

PROMISES = (
    Promise("bargains", "london", "price < :limit", {"limit": 98.5}),
    Promise("ticker", "london", "EXISTS price", {}),
)
PROMISES[0].received = 1_234
PROMISES[1].received, PROMISES[1].lost = 40, 61


def state(seconds: float = 1.5, **changes: Any) -> BoardState:
    given: dict[str, Any] = {
        "seconds": seconds,
        "prices": {"IBM": 101.5, "SAP": 98.1},
        "brokers": {"berlin": True, "tokyo": False},
        "promises": PROMISES,
        "quotes": 2_000,
    }
    return BoardState(**{**given, **changes})


def test_a_filter_is_shown_with_the_current_values() -> None:
    assert current_filter(PROMISES[0]) == "price < 98.50"


def test_lines_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal above the frame, without colours or line breaks of its own."""
    line = "  [12] quotes " + 100 * "x"
    PlainBoard().print_line(line)
    Board().print_line(line)
    assert capsys.readouterr().out == f"{line}\n"
    terminal = io.StringIO()
    with LiveBoard(Console(file=terminal, force_terminal=True, width=80)) as board:
        board.draw(state())
        board.print_line(line)
    assert f"{line}\n" in terminal.getvalue()


def test_a_plain_board_prints_a_line_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainBoard() as board:
        for seconds in (0.5, 0.9, 1.0, 1.5, 3.2, 3.9, 4.1):
            board.draw(state(seconds))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "3", "4"]
    assert lines[0] == "  1 s  bargains [98.50] 1234  ticker 40 (61 lost)"


def test_for_programs_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with Board() as board:
        board.draw(state())
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_live_board_shows_prices_brokers_and_subscribers(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr("palio.cli.demo.board.monotonic", lambda: now[0])
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    with LiveBoard(console) as board:
        for price in range(90, 131):
            board.draw(state(prices={"IBM": price, "SAP": 98.1, "BMW": 5.0, "SIE": 6.0}))
            now[0] += 0.11 if price < 129 else 0.01
    shown = out.getvalue()
    for text in ("palio demo", "129.00", "▲", "█", "bargains", "1,234", "2,000", "✗ tokyo"):
        assert text in shown
    assert "130.00" not in shown, "a frame that came too soon"
    lines = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", shown.replace("\r", "\n")).splitlines()
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(
    ("values", "line"), [([1], "▁"), ([2, 2], "▁▁"), ([1, 2, 3, 8], "▁▂▃█"), ([8, 1], "█▁")]
)
def test_sparklines(values: list[float], line: str) -> None:
    assert sparkline(values) == line
