"""The brokers' part of the demo: real processes, and a recount that can disagree."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from palio.cli.demo import network
from palio.cli.demo.kernels import CompilingKernels
from palio.cli.demo.network import Listener, network_demo, table_of
from palio.cli.demo.spark import Row


def heard(listener: Listener, *ids: int) -> Listener:
    listener.heard += ids
    return listener


def listener(**values: Any) -> Listener:
    made = Listener("some", "here", "price < :limit")
    made.values = values
    return made


@pytest.mark.parametrize(
    ("ids", "counts", "is_kept"),
    [
        ((1, 2), (0, 0, 0), True),
        ((1,), (1, 0, 0), False),
        ((1, 2, 3), (0, 1, 0), False),
        ((1, 2, 2), (0, 0, 1), False),
    ],
)
def test_an_outcome_tells_what_is_missing_unwanted_and_doubled(
    ids: tuple[int, ...], counts: tuple[int, int, int], is_kept: bool
) -> None:
    one = listener(limit=10)
    for number, price in ((1, 5), (2, 9), (3, 10)):
        one.expect({"id": number, "price": price})
    outcome = heard(one, *ids).outcome
    assert (outcome.missing, outcome.unwanted, outcome.doubled) == counts
    assert outcome.is_kept == is_kept
    assert ("DISAGREE" in table_of((outcome,))) != is_kept


def test_what_was_seen_elsewhere_is_held_against_the_same_promise() -> None:
    one = heard(listener(limit=10), 1, 1)
    one.expect({"id": 1, "price": 5})
    assert (one.outcome.doubled, one.outcome.broker) == (1, "here")
    outcome = one.seen_again("there", [1])
    assert (outcome.broker, outcome.is_kept) == ("there", True)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which the kernels take for ever to compile, or so it seems."""
    code = "import time; print('compiling', flush=True); time.sleep(1e6)"
    monkeypatch.setattr(
        network,
        "CompilingKernels",
        partial(CompilingKernels, command=(sys.executable, "-c", code)),
    )


@pytest.mark.usefixtures("compiled")
async def test_three_brokers_keep_their_promises_though_one_is_killed() -> None:
    """They begin behind the curtain; who compiles kernels holds nobody up."""
    told: list[str] = []
    curtain = asyncio.Event()

    def tell(line: str) -> None:
        told.append(line)
        if line == "kernels: compiling":
            curtain.set()

    outcomes = await network_demo(1, tell, curtain)
    assert [each.subscriber for each in outcomes] == ["bargains", "big deals", "ledger (durable)"]
    assert all(each.is_kept and each.promised > 50 for each in outcomes), outcomes
    assert told[0] == "kernels: compiling"
    assert told[1] == "three brokers start in the background"
    assert told[2].startswith("three brokers in a mesh")
    assert any("was killed" in line for line in told)
    assert told[-1].startswith("kernels: none compiled so far")


class Rehearsed:
    """Stands in for Spark: it finds nothing, and is not ready when it is asked."""

    is_ready = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def found(self, archive: Path, rows: Sequence[Row]) -> dict[str, list[int]]:
        assert list(archive.rglob("*.parquet"))  # noqa: ASYNC240  # nobody waits
        assert len({row.id for row in rows}) == 3
        assert len(rows) == 4, "one of them moved its limit"
        return {row.id: [] for row in rows}


async def test_spark_says_that_it_starts_and_its_answer_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "Backtester", Rehearsed)
    told: list[str] = []
    curtain = asyncio.Event()
    curtain.set()
    outcomes = await network_demo(1, told.append, curtain, spark=True)
    assert told[0] == "Spark starts in the background"
    assert told[-2] == "Spark is still starting"
    assert "matched again on Spark" in told[-1]
    assert [each.is_kept for each in outcomes] == [True] * 3 + [False] * 3
    assert [each.broker for each in outcomes[3:]] == ["spark"] * 3
