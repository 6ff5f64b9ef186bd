"""`palio plan apply`: a plan is in use once all have joined, and who has not is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import palio
from palio.multicast.documents import encode
from palio.multicast.listed import flooding
from tests.cli.brokers import broker
from tests.cli.helpers import Palio


@pytest.fixture
def run(palio: Palio) -> Palio:
    """The command, under a name that leaves `palio` to the package."""
    return palio


@pytest.fixture
def urls() -> Iterator[list[str]]:
    """Two linked brokers without a multicast way."""
    with (
        broker("b1", routing="flooded") as one,
        broker("b2", None, one, routing="flooded") as two,
        palio.SyncClient(one) as client,
    ):
        while "b2" not in client.topology()["brokers"]:
            pass
        yield [one, two]


@pytest.fixture
def plan(tmp_path: Path) -> str:
    file = tmp_path / "plan.json"
    file.write_bytes(encode(flooding(("b1", "far"))))
    return str(file)


def test_brokers_without_a_multicast_way_know_the_plan_and_go_by_links(
    run: Palio, urls: list[str], plan: str
) -> None:
    outcome = run("plan", "apply", plan, "--at", urls[0])
    assert outcome.status == 0, outcome.err
    first, last = outcome.out.splitlines()
    assert first.startswith("flooding, 1 groups for 2 brokers, applied at b1, epoch 20")
    assert last == "By links, for they have no multicast way: b1, b2"
    assert "not known in this network: far" in outcome.err
    assert "in no group, and get events by links: b2" in outcome.err
    shown = run("topology", "--at", urls[1]).out.splitlines()
    assert shown[:2] == ["b2  by links", "└── b1  by links"]
    assert shown[-1] == f"plan: {first}"

    again = json.loads(run("plan", "apply", plan, "--at", urls[1], "--json").out)
    assert (again["in_use"], again["links"], again["waiting"]) == (True, ["b1", "b2"], [])
    assert again["plan"]["origin"] == "b2"

    ended = run("plan", "apply", "--none", "--at", urls[1])
    assert (ended.status, ended.out) == (0, "No plan is in use: brokers send by links.\n")
    assert run("topology", "--at", urls[0]).out == "b1\n└── b2\n"
    assert run("plan", "apply", "--none", "--at", urls[1], "--json").document["plan"] is None


def test_who_has_not_joined_in_time_is_named(run: Palio, plan: str) -> None:
    with broker("b1", routing="flooded", peer_grace_s=0.1) as one, palio.SyncClient(one) as client:
        with broker("b2", None, one, routing="flooded", peer_grace_s=0.1):
            while "b2" not in client.topology()["brokers"]:
                pass
        while client.topology()["brokers"]["b2"]["reachable"]:
            pass
        outcome = run("plan", "apply", plan, "--at", one, "--timeout", "0.2")
        assert outcome.status == 1
        assert outcome.out.splitlines()[-1] == "Not joined within 0.2 s: b2"
        assert "not in force beyond b2" in outcome.err


def test_what_is_no_plan_and_no_choice_is_refused(run: Palio, plan: str, tmp_path: Path) -> None:
    for arguments in ((), (plan, "--none")):
        refused = run("plan", "apply", *arguments)
        assert (refused.status, "name a plan, or say --none" in refused.err) == (2, True)
    (tmp_path / "none.json").write_text("{}")
    refused = run("plan", "apply", str(tmp_path / "none.json"))
    assert (refused.status, "no plan of groups" in refused.err) == (2, True)
    shown = run("plan", "apply", "--help").out
    assert "Example: palio plan apply plan.json --at palio://" in shown
