from __future__ import annotations

import io
import re
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from palio.cli.demo.board import (
    BoardState,
    LiveBoard,
    PlainBoard,
    SilentBoard,
    SubscriberLine,
    sparkline,
)


def line(name: str = "bargains", **changes: Any) -> SubscriberLine:
    known = {"text": "price < :limit", "values": {"limit": 98.5}, "latest": "SAP at 98.10"}
    counts = {"matched": 1_300, "heard": 1_234, "left_out": 5, "lost": 61, "gaps": 7}
    return SubscriberLine(**{"name": name, **known, **counts, **changes})


def state(seconds: float = 1.5, **changes: Any) -> BoardState:
    return BoardState(
        **{
            "time": timedelta(seconds=seconds),
            "prices": {"IBM": 101.5, "SAP": 98.1},
            "lines": (line(), line("ledger", text="volume > 500", values={}, lost=0)),
            "published": 2_000,
            "delivered": 1_300,
            "complaints": (),
            **changes,
        }
    )


def test_a_filter_is_shown_with_the_values_of_now() -> None:
    assert line().hears == "price < 98.50"
    assert line(text="price > :limit", values={"limit": 1e9}).hears == "price > ∞"


def test_the_verdict() -> None:
    assert state().verdict.startswith(
        "2,000 quotes made 1,300 deliveries: 2,468 heard, 10 left out"
    )
    assert state().verdict.endswith("A recount by brute force agrees.")
    wrong = state(complaints=("ledger: never heard it",)).verdict
    assert "DISAGREE" in wrong
    assert wrong.endswith("\nledger: never heard it")


def test_for_programs() -> None:
    document = state(complaints=("no",)).as_dict()
    assert (document["agreed"], document["complaints"]) == (False, ["no"])
    assert document["subscribers"][1]["name"] == "ledger"


def test_lines_are_told_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal above the frame, without colours or line breaks of its own."""
    line = "  [12] kernels " + 100 * "x"
    PlainBoard().tell(line)
    SilentBoard().tell(line)
    assert capsys.readouterr().out == f"{line}\n"
    terminal = io.StringIO()
    with LiveBoard(Console(file=terminal, force_terminal=True, width=80)) as board:
        board.draw(state())
        board.tell(line)
    assert f"{line}\n" in terminal.getvalue()


def test_a_plain_board_prints_a_line_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainBoard() as board:
        for time in (0.5, 0.9, 1.0, 1.5, 3.2, 3.9, 4.1):
            if board.is_due(timedelta(seconds=time)):
                board.draw(state(time))
        board.sum_up(state())
    lines = capsys.readouterr().out.splitlines()
    assert [text.split()[0] for text in lines[:3]] == ["1", "3", "4"]
    assert lines[0] == "  1 s  bargains 1234  ledger 1234  lost 61  (price < 98.50)"
    assert "bargains          1,300    1,234         5       61      7" in lines
    assert lines[-1] == state().verdict


def test_a_silent_board_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with SilentBoard() as board:
        assert not board.is_due(timedelta(seconds=5))
        board.draw(state())
        board.sum_up(state())
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("terminal", [True, False])
def test_a_live_board_shows_prices_and_subscribers(
    width: int, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palio.cli.demo.board.monotonic", lambda: 1_000.0)
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None)
    with LiveBoard(console) as board:
        assert board.is_due(timedelta(0))
        for price in range(90, 130):
            board.draw(state(prices={"IBM": price, "SAP": 98.1, "BMW": 5.0, "SIE": 6.0}))
        assert not board.is_due(timedelta(seconds=9))
        frame = out.getvalue()
    board.sum_up(state())
    shown = out.getvalue()
    if terminal:
        for text in ("palio demo", "129.00", "▲", "bargains", "1,234", "2,000 quotes"):
            assert text in frame
        assert "█" in frame
    assert "matched" in shown
    assert shown.rstrip().endswith("agrees.")
    lines = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", shown.replace("\r", "\n")).splitlines()
    assert max(map(len, lines)) == width


@pytest.mark.parametrize(
    ("values", "line"), [([1], "▁"), ([2, 2], "▁▁"), ([1, 2, 3, 8], "▁▂▃█"), ([8, 1], "█▁")]
)
def test_sparklines(values: list[float], line: str) -> None:
    assert sparkline(values) == line
