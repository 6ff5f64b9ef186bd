"""`palio demo`: an embedded bus, a market, and subscribers whose interest moves.

Four of them: a *trader*, a class with two handlers whose thresholds are its fields; *bargains*,
whose limit follows the market; *rebounds*, a pattern; and a *ledger* that is too slow for what it
hears and is told what it lost. Whatever is published, changed and heard is also told to an audit
(audit.py), which recounts all of it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from statistics import fmean
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from palio.cli.demo.audit import Audit
from palio.cli.demo.board import (
    Board,
    BoardState,
    LiveBoard,
    PlainBoard,
    SilentBoard,
    SubscriberLine,
)
from palio.cli.demo.market import FIRST_PRICE, SYMBOLS, Market
from palio.cli.reporting import show
from palio.client.bus import Bus
from palio.client.events import Event, Gap
from palio.client.subscriber import Parameter, Subscriber, on
from palio.client.subscription import Subscription
from palio.language.parsing import parse

if TYPE_CHECKING:
    from palio.cli.demo.network import Outcome

__all__ = ["Demo", "Trader", "demo"]

BUY: Final = "symbol = 'IBM' AND price < :buy_below"
SELL: Final = "symbol = 'IBM' AND price > :sell_above"
BARGAINS: Final = "price < :limit"
REBOUNDS: Final = "symbol = 'SAP' AND change <= -1 THEN symbol = 'SAP' AND change >= 1 WITHIN 500ms"
LEDGER: Final = "volume > 500"

Second: TypeAlias = "Callable[[asyncio.Event], Coroutine[Any, Any, tuple[Outcome, ...]]]"

NEVER: Final = 1e9
"""A price that no quote reaches."""

_FOLLOW_TICKS: Final = 5
"""Ticks between two changes of the bargain limit."""

_LEDGER_CAPACITY: Final = 20
_LEDGER_TICKS: Final = 2
"""Ticks that the ledger takes to write one quote down; about three for it come at each."""

_START: Final = datetime(2026, 1, 1, 9, tzinfo=UTC)
"""The time at which the market opens, on the demo's own clock."""


class Trader(Subscriber):
    """Buys IBM when it is cheap, sells it with a profit; both thresholds move with every deal."""

    buy_below = Parameter(FIRST_PRICE)
    sell_above = Parameter(NEVER)

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self.deals = 0
        self.latest = ""

    @on(BUY)
    async def buy(self, price: float, event: Event) -> None:
        """Pay, and wait for 1% more."""
        self._audit.hear("trader buys", event)
        self._deal(f"bought at {price:.2f}")
        self._wait_for(buy_below=0.0, sell_above=round(price * 1.01, 2))

    @on(SELL)
    async def sell(self, price: float, event: Event) -> None:
        """Cash in, and wait for 1% less."""
        self._audit.hear("trader sells", event)
        self._deal(f"sold at {price:.2f}")
        self._wait_for(buy_below=round(price * 0.99, 2), sell_above=NEVER)

    def _deal(self, latest: str) -> None:
        self.deals += 1
        self.latest = latest

    def _wait_for(self, buy_below: float, sell_above: float) -> None:
        with self.assigning():  # one update: never both thresholds, never neither
            self.buy_below, self.sell_above = buy_below, sell_above
        self._audit.change("trader buys", buy_below=buy_below)
        self._audit.change("trader sells", sell_above=sell_above)


class WallPace:
    """Real time, for people to watch."""

    def __init__(self) -> None:
        self._begin = monotonic()

    def elapsed(self) -> float:
        """Seconds since it began."""
        return monotonic() - self._begin

    async def wait(self, seconds: float) -> None:
        """Let other tasks run for at least this number of seconds."""
        await asyncio.sleep(max(0.0, seconds))


class Demo:
    """One run of the market."""

    def __init__(
        self, seconds: float, rate: int, seed: int, board: Board, pace: WallPace | None = None
    ) -> None:
        self.seconds = seconds
        self._pace = pace or WallPace()
        self.market = Market(seed)
        self.audit = Audit()
        self._board = board
        self._interval = len(SYMBOLS) / rate
        self._now = _START
        self._latest: dict[str, str] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._trader = Trader(self.audit)
        self._is_open = True
        self._next_tick = asyncio.Event()

    async def run(self) -> None:
        """Open the market, close it after the given time, and settle."""
        async with Bus(clock=lambda: self._now) as bus, asyncio.TaskGroup() as consumers:
            await self._open(bus, consumers.create_task)
            await self._trade(bus)
            self._is_open = False
            self._next_tick.set()
            await bus.close()
        self.audit.settle()

    async def _open(self, bus: Bus, consume: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        trader = self._trader
        self.audit.promise("trader buys", parse(BUY), {"buy_below": trader.buy_below})
        self.audit.promise("trader sells", parse(SELL), {"sell_above": trader.sell_above})
        await bus.attach(trader)
        for name, text, capacity, values in (
            ("bargains", BARGAINS, 10_000, {"limit": FIRST_PRICE}),
            ("rebounds", REBOUNDS, 10_000, {}),
            ("ledger", LEDGER, _LEDGER_CAPACITY, {}),
        ):
            self.audit.promise(name, parse(text), values)
            self._subscriptions[name] = await bus.subscribe(
                text, capacity=capacity, on_gap=self._gap_of(name), values=values
            )
            consume(self._consume(name))

    def _gap_of(self, name: str) -> Callable[[Gap], None]:
        def told(gap: Gap) -> None:
            self.audit.lose(name, gap)
            self._latest[name] = f"lost {gap.count} of {gap.publisher}"

        return told

    async def _consume(self, name: str) -> None:
        async for event in self._subscriptions[name]:
            self.audit.hear(name, event)
            if name != "ledger":
                self._latest[name] = _in_short(event)
            else:
                for _ in range(_LEDGER_TICKS * self._is_open):  # after closing time it hurries
                    await self._next_tick.wait()

    async def _trade(self, bus: Bus) -> None:
        """Publish at the given rate; on a machine that cannot keep up the market closes in time."""
        for tick in range(max(1, round(self.seconds / self._interval))):
            for place, (exchange, quotes) in enumerate(self.market.tick()):
                self._now = _START + timedelta(seconds=tick * self._interval, microseconds=place)
                self.audit.publish(exchange, quotes, self._now)
                receipt = await bus.publish(quotes, publisher=exchange)
                self.audit.delivered += receipt.deliveries or 0
            if tick % _FOLLOW_TICKS == 0:
                await self._follow()
            if self._board.is_due(self._now - _START):
                self._board.draw(self.state())
            self._next_tick.set()
            self._next_tick = asyncio.Event()
            if self._pace.elapsed() >= self.seconds:
                break
            due = min((tick + 1) * self._interval, self.seconds)
            await self._pace.wait(due - self._pace.elapsed())

    async def _follow(self) -> None:
        """A bargain is what costs 2% less than the average of this moment."""
        limit = round(0.98 * fmean(self.market.prices.values()), 2)
        await self._subscriptions["bargains"].update(limit=limit)
        self.audit.change("bargains", limit=limit)

    def state(self) -> BoardState:
        """The state of the demo now."""
        return BoardState(
            time=self._now - _START,
            prices=dict(self.market.prices),
            lines=self._lines(),
            published=self.audit.published,
            delivered=self.audit.delivered,
            complaints=tuple(self.audit.complaints),
        )

    def _lines(self) -> tuple[SubscriberLine, ...]:
        trader = self._trader
        deals = f"{trader.latest}, deal {trader.deals}" if trader.deals else ""
        latest = {"trader buys": deals, "trader sells": "", **self._latest}
        texts = {"trader buys": BUY, "trader sells": SELL, "bargains": BARGAINS}
        texts |= {"rebounds": REBOUNDS, "ledger": LEDGER}
        return tuple(
            SubscriberLine(
                name=name,
                text=texts[name],
                values=dict(promise.values),
                matched=promise.matched,
                heard=promise.heard,
                left_out=promise.left_out,
                lost=promise.lost,
                gaps=promise.gaps,
                latest=latest.get(name, ""),
            )
            for name, promise in self.audit.promises.items()
        )


def _in_short(event: Event) -> str:
    last = f"{event['symbol']} at {event['price']:.2f}"
    if not event.parts:
        return last
    first = event.parts[0]
    return f"{first['symbol']} {first['change']:+.2f}%, then {event['change']:+.2f}%"


def demo(seconds: float, rate: int, seed: int, *, network: bool, spark: bool, as_json: bool) -> int:
    """Run the demo; 0 if all promises were kept."""
    board: Board
    if as_json:
        board = SilentBoard()
    elif sys.stdout.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb":
        board = LiveBoard()
    else:
        board = PlainBoard()
    one = Demo(seconds, rate, seed, board)
    missing = _missing_extras() if network else []
    second = None
    if network and "server" not in missing:
        second = _over_the_network(seed, board, spark=spark and "spark" not in missing)
    outcomes = asyncio.run(_play(one, board, second, missing))
    if as_json:
        brokers = [msgspec.to_builtins(each) for each in outcomes]
        show({"seed": seed, **one.state().as_dict(), "network": brokers})
    return 1 if one.audit.complaints or not all(each.is_kept for each in outcomes) else 0


def _missing_extras() -> list[str]:
    """Extras that a part needs and that are not installed."""
    needs = (("server", "prometheus_client"), ("spark", "pyspark"))
    return [extra for extra, module in needs if importlib.util.find_spec(module) is None]


def _over_the_network(seed: int, board: Board, *, spark: bool) -> Second:
    """The second and third part, which begin at once and go on when the curtain is up."""
    from palio.cli.demo.network import network_demo, table_of

    async def second(curtain: asyncio.Event) -> tuple[Outcome, ...]:
        def tell(line: str) -> None:
            board.tell(f"  {line}")

        outcomes = await network_demo(seed, tell, curtain, spark=spark)
        board.tell(table_of(outcomes))
        return outcomes

    return second


async def _play(
    one: Demo, board: Board, second: Second | None, missing: Sequence[str]
) -> tuple[Outcome, ...]:
    """The market; beside it the other parts start, which go on when it is closed."""
    curtain = asyncio.Event()
    others = None if second is None else asyncio.create_task(second(curtain))
    try:
        with board:
            await one.run()
        board.sum_up(one.state())
        if others is not None or missing:
            board.tell("\nThe same between processes:")
        for extra in missing:
            board.tell(f"(a part is left out: it needs pip install 'palio[{extra}]')")
        curtain.set()
        if others is None:
            return ()
        return await others
    finally:
        if others is not None:
            others.cancel()
            await asyncio.gather(others, return_exceptions=True)
