"""The demo on brokers in virtual time, and with lies that it must see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import combinations, count
from pathlib import Path
from typing import Any, Self

import pytest

import palio.testing
from palio.cli.demo import market as demo_module
from palio.cli.demo.audit import Promise, Quote
from palio.cli.demo.market import Demo
from palio.client.connection import Client
from palio.client.events import PublishReceipt
from palio.errors import Unreachable
from palio.simulation.topologies import Topology
from tests.cli.helpers import Palio

QUICK = ["--seconds", "1"]


class VirtualFleet:
    """Stands in for the processes: the same brokers on a virtual network."""

    network: palio.testing.Network

    def __init__(self, names: tuple[str, ...], _folder: Path) -> None:
        self.names = names
        links = tuple(combinations(names, 2))
        type(self).network = palio.testing.Network(Topology(names, links))

    def url(self, name: str) -> str:
        return name

    async def kill(self, name: str) -> None:
        self.network.kill(name)

    async def start(self, name: str) -> None:
        self.network.restart(name)

    async def linked(self) -> None:
        await self.network.up()

    async def __aenter__(self) -> Self:
        await self.network.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.network.__aexit__(*error)


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers and time are virtual: a market of hours takes as long as its quotes need."""

    def connect(url: str, *, name: str) -> Client:
        return VirtualFleet.network.client(url, name=name)

    monkeypatch.setattr(demo_module, "Fleet", VirtualFleet)
    monkeypatch.setattr(demo_module, "connect", connect)
    monkeypatch.setattr(asyncio, "run", palio.testing.run)


@pytest.mark.usefixtures("virtual")
@pytest.mark.parametrize(("seconds", "rate"), [(4, 200), (0.1, 2_000), (60, 6)])
def test_all_promises_are_kept_and_shown(seconds: float, rate: int, tmp_path: Path) -> None:
    lines: list[str] = []
    one = Demo(seconds, rate, 1, lines.append)
    asyncio.run(one.run(tmp_path))
    outcomes = {name: promise.outcome() for name, promise in one.promises.items()}
    assert all(outcome.is_kept for outcome in outcomes.values())
    assert outcomes["ledger"].received == one.quotes >= 180
    assert one.quotes >= 0.9 * seconds * rate
    assert one.moves >= 1
    assert outcomes["bargains"].expected < one.quotes
    assert outcomes["ticker"].lost > 0
    assert outcomes["ticker"].received + outcomes["ticker"].lost == one.quotes
    (back,) = (line for line in lines if "is back" in line)
    assert int(back.split("; ")[1].split()[0]) >= 60
    killed = next(line for line in lines if "is killed" in line)
    assert lines.index(killed) < lines.index(back)
    seconds_shown = [line.split()[0] for line in lines if line[4:6] == "s "]
    assert seconds_shown == sorted(set(seconds_shown), key=int), "a line a second at the most"
    assert len(seconds_shown) >= int(seconds) - 1


def forgets(quotes: list[Quote]) -> list[Quote]:
    return quotes[:-1]


def repeats(quotes: list[Quote]) -> list[Quote]:
    return [*quotes, quotes[-1]]


def alters(quotes: list[Quote]) -> list[Quote]:
    return [*quotes[:-1], {**quotes[-1], "volume": quotes[-1]["volume"] + 1}]


@pytest.mark.usefixtures("virtual")
@pytest.mark.parametrize("lie", [forgets, repeats, alters])
def test_a_lie_about_the_quotes_is_seen(
    palio: Palio, monkeypatch: pytest.MonkeyPatch, lie: Callable[[list[Quote]], list[Quote]]
) -> None:
    publish = Client.publish
    calls = count(1)

    async def lying(client: Client, quotes: list[Quote], **options: Any) -> PublishReceipt:
        return await publish(client, lie(quotes) if next(calls) == 5 else quotes, **options)

    monkeypatch.setattr(Client, "publish", lying)
    outcome = palio("demo", *QUICK)
    assert outcome.status == 1
    assert outcome.out.endswith("What was promised and what was received DISAGREE.\n")


@pytest.mark.usefixtures("virtual")
def test_a_delivery_that_comes_twice_or_not_at_all_is_seen(
    palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = Promise.receive

    def lie(promise: Promise, number: int, quote: Quote) -> None:
        if number != 7:
            receive(promise, number, quote)
        if number == 8:
            receive(promise, number, quote)

    monkeypatch.setattr(Promise, "receive", lie)
    outcome = palio("demo", *QUICK, "--json")
    assert outcome.status == 1
    document = json.loads(outcome.out)
    assert (document["seed"], document["agreed"]) == (1, False)
    ledger = document["subscribers"][-1]
    assert (ledger["missing"], ledger["wrong"], ledger["twice"]) == (1, 0, 1)


@pytest.mark.usefixtures("virtual")
@pytest.mark.parametrize("at_first", [True, False])
def test_a_broker_that_does_not_start_is_an_error(
    palio: Palio, monkeypatch: pytest.MonkeyPatch, at_first: bool
) -> None:
    async def fail(*_: object) -> None:
        raise Unreachable("broker tokyo does not start")

    monkeypatch.setattr(VirtualFleet, "__aenter__" if at_first else "start", fail)
    outcome = palio("demo", *QUICK)
    assert outcome.status == 2
    assert outcome.err == "palio: broker tokyo does not start\n"
