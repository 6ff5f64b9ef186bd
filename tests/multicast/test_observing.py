"""Where events go, against conditions written in Python."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

import palio
from palio.errors import InvalidInput
from palio.model.events import to_batches
from palio.multicast import traffic as traffic_room
from palio.multicast.broker_sets import named
from palio.multicast.traffic import Observed

WISHES = [
    ("b1", "price < :limit AND symbol = 'IBM'", {"limit": 50}),
    ("b2", "symbol IN ('IBM', 'MSFT')", {}),
    ("b3", "price BETWEEN 40 AND 60", {}),
    ("b3", "symbol = 'X'", {}),
]


def wanted(event: dict[str, object]) -> tuple[str, ...]:
    price, symbol = event["price"], event["symbol"]
    assert isinstance(price, int)
    found = []
    if price < 50 and symbol == "IBM":
        found.append("b1")
    if symbol in {"IBM", "MSFT"}:
        found.append("b2")
    if 40 <= price <= 60 or symbol == "X":
        found.append("b3")
    return tuple(found)


@pytest.mark.parametrize("as_batches", [True, False])
def test_traffic_is_where_events_go(as_batches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_room, "JOINED_AT", 700)
    random = Random(7)
    events = [
        {"price": random.randint(1, 100), "symbol": random.choice(["IBM", "MSFT", "AAPL", "X"])}
        for _ in range(2_000)
    ]
    observed = Observed(["b1", "b2", "b3", "b4"])
    for broker, text, values in WISHES:
        observed.subscribe(palio.parse_filter(text), broker, values)
    for first in range(0, len(events), 250):
        part = events[first : first + 250]
        if as_batches:
            for batch in to_batches(part):
                observed.take(batch)
        else:
            observed.take_rows(part)
    expected = Counter(map(wanted, events))
    nobody = expected.pop(())
    traffic = observed.traffic()
    found = {
        named(row, traffic.brokers): share * (2_000 - nobody)
        for row, share in zip(traffic.sets, traffic.shares, strict=True)
    }
    assert found == pytest.approx(dict(expected))
    assert (observed.tally.events, observed.tally.unwanted) == (2_000, nobody)


def test_a_broker_is_known_and_nothing_observed_is_nothing() -> None:
    observed = Observed(["b1"])
    with pytest.raises(InvalidInput, match="'b2' is no broker"):
        observed.subscribe(palio.parse_filter("a = 1"), "b2")
    assert len(observed.traffic()) == 0
