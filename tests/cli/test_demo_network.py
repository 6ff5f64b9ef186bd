"""The brokers' part of the demo: real processes, and a recount that can disagree."""

from __future__ import annotations

from typing import Any

import pytest

from palio.cli.demo_network import Listener, network_demo, table_of


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


def test_three_brokers_keep_their_promises_though_one_is_killed() -> None:
    told: list[str] = []
    outcomes = network_demo(1, told.append)
    assert [each.subscriber for each in outcomes] == ["bargains", "big deals", "ledger (durable)"]
    assert all(each.is_kept and each.promised > 50 for each in outcomes), outcomes
    assert any("was killed" in line for line in told)
