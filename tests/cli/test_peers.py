"""`palio peer`, with real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import palio
from palio.cli.peers import left
from palio.client.answers import DrainStatus
from palio.errors import Unsettled
from tests.cli.brokers import PATIENCE_S, broker
from tests.cli.helpers import Palio


def test_a_broker_is_added_listed_and_removed(run: Palio, tmp_path: Path) -> None:
    with broker("b1", tmp_path / "b1") as one, broker("b2") as two:
        added = run("peer", "add", two, "--broker", one)
        assert (added.status, added.out) == (0, f"b2 is linked, at {two}.\n")
        assert run("peer", "list", "--broker", one).out == f"b2  {two}  added  up\n"
        assert run("peer", "list", "--broker", two).out == "b1  dials this broker  up\n"
        removed = run("peer", "remove", "b1", "--broker", two)
        assert (removed.status, removed.out) == (0, "b1 is linked no longer.\n")
        assert run("peer", "list", "--broker", one).out == ""
        refused = run("peer", "add", two, "--broker", one)
        assert refused.status == 2
        assert "'b1' was removed from the peers of 'b2'" in refused.err
        again = run("peer", "add", one, "--broker", two)
        assert again.out.endswith(
            "has no data directory: after a restart the link is to be added again.\n"
        )
        assert run("peer", "list", "--broker", two, "--json").document["peers"] == [
            {"peer": "b1", "url": one, "kind": "added", "up": True}
        ]


def test_a_configured_neighbour_is_removed_until_a_restart(run: Palio, tmp_path: Path) -> None:
    with broker("b1", tmp_path / "b1") as one, broker("b2", tmp_path / "b2", one) as two:
        with palio.SyncClient(two) as client:
            while not any(each["up"] for each in client.admin.peers()):
                pass
        removed = run("peer", "remove", "b1", "--broker", two)
        assert removed.out.splitlines() == [
            "b1 is linked no longer.",
            f"It is dialled again after a restart; take {one} out of peers.urls.",
        ]
        assert run("peer", "list", "--broker", one).out == ""


def test_what_cannot_be_added_is_told(run: Palio) -> None:
    with broker("b1") as one, broker("b1") as namesake:
        for url, words in (
            ("palio://127.0.0.1:1", "palio://127.0.0.1:1 cannot be reached"),
            (one, f"{one} is 'b1' itself"),
            (namesake, "as this broker is"),
            ("http://x", "no address of a broker"),
        ):
            outcome = run("peer", "add", url, "--broker", one)
            assert outcome.status == 2
            assert words in outcome.err


def test_real_brokers_find_each_other_when_the_one_between_them_is_gone() -> None:
    with broker("b1") as one, ExitStack() as between:
        two = between.enter_context(broker("b2", None, one))
        with (
            broker("b3", None, two) as three,
            palio.SyncClient(one) as ann,
            palio.SyncClient(three) as bob,
        ):
            heard = ann.subscribe("x > 0")
            while len(ann.admin.topology()["brokers"]) < 3:
                pass
            ann.settled()
            between.close()
            while not any(each["up"] for each in ann.admin.peers()):
                pass
            with pytest.raises(Unsettled, match="beyond b2,"):
                ann.settled(timeout=0.0)
            bob.publish({"x": 1})
            assert heard.receive(timeout=PATIENCE_S)["x"] == 1


# --- drain ---


@pytest.fixture
def urls(tmp_path: Path) -> Iterator[list[str]]:
    """Two linked brokers."""
    with broker("b1", tmp_path / "b1") as one, broker("b2", tmp_path / "b2", one) as two:
        with palio.SyncClient(one) as client:
            while not client.admin.query("status")["peers"].get("b2", {}).get("up"):
                pass
        yield [one, two]


def test_a_drained_broker_is_empty_and_another_has_what_it_had(run: Palio, urls: list[str]) -> None:
    with palio.SyncClient(urls[0], name="ann") as ann:
        ann.subscribe("x > 0", durable_name="kept")
        outcome = run("peer", "drain", "--broker", urls[0])
        assert (outcome.status, outcome.out) == (
            0,
            "b1 is empty: it may be stopped, and nothing is lost.\n",
        )
        assert ann.broker == "b2"
        assert "b1  leaving" in run("topology", "--broker", urls[1]).out
        assert run("peer", "drain", "--undo", "--broker", urls[0]).out == "b1 is in service.\n"
        assert "leaving" not in run("topology", "--broker", urls[0]).out


def test_what_nobody_can_take_is_told(run: Palio) -> None:
    with broker() as url, palio.SyncClient(url, name="ann"):
        outcome = run("peer", "drain", "--broker", url, "--timeout", "0")
        assert outcome.status == 1
        assert outcome.out.startswith("b1 is in service again, after 0 s. Left: 1 client. No other")
        found = run("peer", "drain", "--broker", url, "--timeout", "0", "--json").document
        assert (found["broker"], found["clients"], found["done"]) == ("b1", 1, False)


def test_what_is_left_is_told_in_words() -> None:
    remains = DrainStatus(
        clients=0,
        durable_subscriptions=2,
        entries=1_000,
        neighbours=1,
        unreached=["b7"],
        done=False,
    )
    told = "Left: 2 durable subscriptions, 1,000 durable events. Not informed yet: b7."
    assert left(remains) == told
    remains["durable_subscriptions"] = remains["entries"] = 0
    assert left(remains).startswith("Nothing is left; it waits for what is on its way.")
