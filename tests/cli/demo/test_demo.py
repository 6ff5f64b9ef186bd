from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Callable
from typing import Any

import pytest

from palio.cli.demo import demo as demo_module
from palio.cli.demo import network
from palio.cli.demo.board import BoardState, SilentBoard
from palio.cli.demo.demo import Demo, WallPace
from palio.cli.demo.network import Outcome
from palio.client.bus import Bus
from palio.client.events import Published
from palio.errors import Unreachable
from tests.cli.helpers import Palio
from tests.client.helpers import turns

QUICK = ["--seconds", "0.3", "--rate", "2000", "--no-network"]


class NoTime(WallPace):
    """Time that passes only by waiting, and takes none."""

    def __init__(self) -> None:
        self._elapsed = 0.0

    def elapsed(self) -> float:
        return self._elapsed

    async def wait(self, seconds: float) -> None:
        self._elapsed += seconds
        await turns(20)


def result(seconds: float = 5, rate: int = 200, seed: int = 1) -> BoardState:
    one = Demo(seconds, rate, seed, SilentBoard(), NoTime())
    asyncio.run(one.run())
    return one.state()


@pytest.mark.parametrize("seed", range(5))
def test_the_demo_keeps_its_promises_and_shows_what_it_is_for(seed: int) -> None:
    state = result(seed=seed)
    assert state.complaints == ()
    assert state.published == 1_002
    lines = {line.name: line for line in state.lines}
    assert list(lines) == ["trader buys", "trader sells", "bargains", "rebounds", "ledger"]
    for line in lines.values():
        assert line.matched == line.heard + line.left_out + line.lost
        assert line.heard > 0
        assert line.latest or line.name == "trader sells"
    assert state.delivered == sum(line.matched for line in lines.values())
    assert lines["ledger"].gaps > 10
    assert lines["bargains"].left_out > 0
    assert lines["bargains"].values["limit"] != 100


def test_a_seed_decides_everything() -> None:
    assert result(seed=3) == result(seed=3)
    assert result(seed=3) != result(seed=4)


def test_json(palio: Palio) -> None:
    outcome = palio("demo", *QUICK, "--seed", "7", "--json")
    assert outcome.status == 0
    document = outcome.document
    assert (document["seed"], document["agreed"], document["complaints"]) == (7, True, [])
    assert document["deliveries"] == sum(line["matched"] for line in document["subscribers"])


def test_away_from_a_terminal_it_prints_plain_lines(palio: Palio) -> None:
    outcome = palio("demo", *QUICK)
    assert outcome.status == 0
    assert outcome.err == ""
    assert outcome.out.endswith("A recount by brute force agrees.\n")
    assert "\x1b" not in outcome.out


@pytest.mark.parametrize(
    ("environment", "live"), [({}, True), ({"CI": "true"}, False), ({"TERM": "dumb"}, False)]
)
def test_on_a_terminal_it_is_live_unless_that_makes_no_sense(
    palio: Palio, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], live: bool
) -> None:
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    for name in ("CI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert palio("demo", *QUICK).status == 0
    assert ("\x1b[" in terminal.getvalue()) is live
    assert "agrees." in terminal.getvalue()


class Forgetful(Bus):
    """Loses one event of every call, and says nothing."""

    async def publish(
        self, events: Any, *, publisher: str = "bus", durable: bool = False
    ) -> Published:
        receipt = await super().publish(events[:-1], publisher=publisher, durable=durable)
        return Published(receipt.first_seq, receipt.last_seq + 1, receipt.deliveries)


def test_a_bus_that_loses_events_is_found_out(
    palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palio.cli.demo.demo.Bus", Forgetful)
    outcome = palio("demo", *QUICK)
    assert outcome.status == 1
    assert "DISAGREE" in outcome.out
    outcome = palio("demo", *QUICK, "--json")
    assert outcome.status == 1
    assert outcome.document["agreed"] is False
    assert outcome.document["complaints"]


class Interrupted(SilentBoard):
    """Ctrl-C while a frame is drawn."""

    def is_due(self, *_: object) -> bool:
        return True

    def draw(self, *_: object) -> None:
        raise KeyboardInterrupt


def test_interrupting_leaves_nothing_running() -> None:
    one = Demo(60, 200, 1, Interrupted())
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(one.run())
    assert one.audit.published > 0


@pytest.mark.parametrize(
    ("seconds", "rate", "quotes"), [(1, 1, 6), (0.1, 20_000, 1_998), (60, 60, 3_600)]
)
def test_it_ends_on_time(seconds: float, rate: int, quotes: int) -> None:
    pace = NoTime()
    one = Demo(seconds, rate, 1, SilentBoard(), pace)
    asyncio.run(one.run())
    assert pace.elapsed() == pytest.approx(seconds, rel=0.01)
    assert one.state().published == quotes
    assert one.state().complaints == ()


class Late(NoTime):
    """A machine on which everything takes ten times as long."""

    async def wait(self, seconds: float) -> None:
        await super().wait(10 * max(seconds, 0.01))


def test_on_a_slow_machine_it_ends_on_time_all_the_same() -> None:
    pace = Late()
    one = Demo(2, 200, 1, SilentBoard(), pace)
    asyncio.run(one.run())
    assert pace.elapsed() < 2.5
    assert one.state().published < 200
    assert one.state().complaints == ()


async def test_real_time_passes_by_waiting() -> None:
    pace = WallPace()
    await pace.wait(0.001)
    await pace.wait(-1)
    assert pace.elapsed() >= 0.001


# --- the parts together ---


def test_the_other_parts_start_beside_the_market_and_go_on_after_it(
    palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def network_demo(
        _seed: int, tell: Callable[[str], None], curtain: asyncio.Event, *, spark: bool
    ) -> tuple[Outcome, ...]:
        tell("starting")
        assert not curtain.is_set()
        await curtain.wait()
        tell(f"acting, {spark}")
        return (Outcome("bargains", "london", "price < :limit", 7, 7, 0, 0, 0),)

    monkeypatch.setattr(network, "network_demo", network_demo)
    outcome = palio("demo", *QUICK[:-1], "--no-spark")
    assert outcome.status == 0
    told = ["  starting\n", "recount by brute force agrees.", "\nThe same between processes:\n"]
    told += ["  acting, False\n", "bargains          london", "seen agree.\n"]
    places = [outcome.out.find(text) for text in told]
    assert places == sorted(places)
    assert places[0] == 0


def test_a_part_that_fails_is_told_after_the_market(
    palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def network_demo(*_: Any, **__: Any) -> tuple[Outcome, ...]:
        raise Unreachable("broker berlin does not start")

    monkeypatch.setattr(network, "network_demo", network_demo)
    outcome = palio("demo", *QUICK[:-1])
    assert outcome.status == 2
    assert "agrees." in outcome.out
    assert outcome.err == "palio: broker berlin does not start\n"


def test_a_part_that_is_not_installed_is_left_out(
    palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_module, "_missing_extras", lambda: ["server"])
    outcome = palio("demo", *QUICK[:-1])
    assert outcome.status == 0
    assert outcome.out.endswith("it needs pip install 'palio[server]')\n")
