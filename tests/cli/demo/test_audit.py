from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from palio.cli.demo.audit import Outcome, Promise, table_of
from palio.client.events import ANY_PUBLISHER, Gap

COUNTS = ("received", "lost", "missing", "wrong", "twice")


def promise_of(*prices: int, text: str = "price < :limit", **values: Any) -> Promise:
    """A promise, and quotes with the numbers 1, 2 and so on."""
    promise = Promise("some", "here", text, values or {"limit": 10})
    for number, price in enumerate(prices, start=1):
        promise.expect(number, {"price": price})
    return promise


def counts_of(promise: Promise) -> tuple[int, ...]:
    outcome = promise.outcome()
    return tuple(getattr(outcome, name) for name in COUNTS)


@pytest.mark.parametrize(
    ("numbers", "counts"),
    [
        ((1, 3), (2, 0, 0, 0, 0)),
        ((3, 1), (2, 0, 0, 0, 0)),
        ((1,), (1, 0, 1, 0, 0)),
        ((1, 2, 3), (3, 0, 0, 1, 0)),
        ((1, 3, 3), (3, 0, 0, 0, 1)),
        ((1, 3, 4), (3, 0, 0, 1, 0)),
    ],
)
def test_missing_wrong_and_repeated_deliveries_are_counted(
    numbers: Sequence[int], counts: tuple[int, ...]
) -> None:
    prices = (5, 10, 9)
    promise = promise_of(*prices)
    assert not promise.is_settled
    for number in numbers:
        promise.receive(number, {"price": prices[number - 1] if number < 4 else 5})
    assert counts_of(promise) == counts
    assert promise.outcome().expected == 2
    assert promise.outcome().is_kept == (counts[2:] == (0, 0, 0))
    assert promise.is_settled == (counts[2] == 0)


def test_an_altered_quote_is_wrong_and_the_one_promised_is_missing() -> None:
    for quote in ({"price": 6}, {"price": 5, "volume": 1}, {}):
        promise = promise_of(5)
        promise.receive(1, quote)
        assert counts_of(promise) == (1, 0, 1, 1, 0)


def test_gaps_must_count_what_is_owed_within_their_numbers() -> None:
    for gap, counts in (
        (Gap("p", 1, 3, 2), (1, 2, 0, 0, 0)),
        (Gap("p", 1, 3, 3), (1, 3, 0, 1, 0)),
        (Gap("p", 1, 2, 2), (1, 2, 1, 1, 0)),
        (Gap(ANY_PUBLISHER, 0, 0, 0), (1, 0, 2, 0, 0)),
    ):
        promise = promise_of(5, 10, 9, 8)
        promise.lose(gap)
        promise.receive(4, {"price": 8})
        assert counts_of(promise) == counts


def test_values_count_from_their_change_on() -> None:
    promise = promise_of(5, limit=10)
    promise.values["limit"] = 4
    promise.expect(2, {"price": 5})
    promise.expect(3, {"price": 3})
    assert promise.expected == 2
    promise.receive(3, {"price": 3})
    promise.receive(1, {"price": 5})
    assert promise.outcome().is_kept


def test_the_table_fits_a_narrow_terminal() -> None:
    table = table_of([Outcome("bargains", "london", "x", 1_234_567, 99_999, 999, 0, 0, 0)])
    heading, row = table.split("\n")
    assert heading.split() == ["at", "expected", *COUNTS]
    assert row.split() == ["bargains", "london", "1,234,567", "99,999", "999", "0", "0", "0"]
    assert len(heading) == 60
