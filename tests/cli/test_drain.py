"""`palio peer drain`: a broker hands over what it has, or says what it has left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import palio
from palio.cli.drain import left
from palio.client.answers import Remains
from tests.cli.brokers import broker
from tests.cli.helpers import Palio


@pytest.fixture
def run(palio: Palio) -> Palio:
    """The command, under a name that leaves `palio` to the package."""
    return palio


@pytest.fixture
def urls(tmp_path: Path) -> Iterator[list[str]]:
    """Two linked brokers."""
    with broker("b1", tmp_path / "b1") as one, broker("b2", tmp_path / "b2", one) as two:
        with palio.SyncClient(one) as client:
            while not client.ask("status")["peers"].get("b2", {}).get("up"):
                pass
        yield [one, two]


def test_a_drained_broker_is_empty_and_another_has_what_it_had(run: Palio, urls: list[str]) -> None:
    with palio.SyncClient(urls[0], name="ann") as ann:
        ann.subscribe("x > 0", durable="kept")
        outcome = run("peer", "drain", "--at", urls[0])
        assert (outcome.status, outcome.out) == (
            0,
            "b1 is empty: it may be stopped, and nothing is lost.\n",
        )
        assert ann.broker == "b2"
        assert "b1  leaving" in run("topology", "--at", urls[1]).out
        assert run("peer", "drain", "--undo", "--at", urls[0]).out == "b1 is in service.\n"
        assert "leaving" not in run("topology", "--at", urls[0]).out


def test_what_nobody_can_take_is_told(run: Palio) -> None:
    with broker() as url, palio.SyncClient(url, name="ann"):
        outcome = run("peer", "drain", "--at", url, "--timeout", "0")
        assert outcome.status == 1
        assert outcome.out.startswith("b1 is in service again, after 0 s. Left: 1 client. No other")
        found = run("peer", "drain", "--at", url, "--timeout", "0", "--json").document
        assert (found["broker"], found["clients"], found["done"]) == ("b1", 1, False)


def test_what_is_left_is_told_in_words() -> None:
    remains = Remains(
        clients=0,
        durable_subscriptions=2,
        entries=1_000,
        neighbours=1,
        unreached=["b7"],
        done=False,
    )
    told = "Left: 2 durable subscriptions, 1,000 durable events. Not told yet: b7."
    assert left(remains) == told
    remains["durable_subscriptions"] = remains["entries"] = 0
    assert left(remains).startswith("Nothing is left; it waits for what is on its way.")
