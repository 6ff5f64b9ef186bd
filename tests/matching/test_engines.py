"""The index against the reference while filters come, go and change: 10**7 pairs a night."""

from __future__ import annotations

import os
import random
from typing import Any, Final

import pyarrow as pa
import pytest

from palio.errors import InvalidInput
from palio.matching import building, store, warming
from palio.matching.index import Index
from palio.matching.kernels import registry
from palio.matching.protocol import Matcher
from palio.matching.reference import Reference
from palio.matching.segment import Costs
from palio.model import Filter, to_batches
from tests.matching.test_index import PLANS, some_events, some_filters, usable
from tests.strategies import some_bindings

PAIRS: Final = int(os.environ.get("PALIO_CAMPAIGN_PAIRS", "10_000_000"))
"""Pairs of an event and a filter that a nightly run compares (a smaller number is a rehearsal)."""

ROUNDS: Final = 34
PAIRS_BY_DEFAULT: Final = 2_000
FILTERS: Final = 250
THREE: Final = 3


class Campaign:
    """Both engines live through the same changes; counts the pairs on which they agreed."""

    def __init__(self, rng: random.Random, filters: int) -> None:
        self.rng = rng
        self.reference = Reference()
        self.index = Index()
        self.filters: dict[int, Filter] = {}
        self.supply = some_filters(rng, 1_000_000)
        self.pairs = self.added = self.of_three = 0
        for key in range(filters):
            self.add(key)

    def add(self, key: int) -> None:
        """A filter in place of what the key had."""
        while True:
            filter = next(self.supply)
            long = max(map(len, map(_conditions, filter.conjunctions)), default=0) >= THREE
            if not long and self.of_three < 0.4 * self.added:
                continue
            values = usable(filter, some_bindings(self.rng))
            if values is None:
                continue
            break
        for engine in (self.reference, self.index):
            engine.add(key, filter, values, destination=key % 9)
        self.filters[key] = filter
        self.added += 1
        self.of_three += long

    def change(self) -> None:
        """One filter is added, replaced, removed, or given other values."""
        key, move = self.rng.randrange(2 * FILTERS), self.rng.random()
        if key in self.filters and move < 0.3:
            for engine in (self.reference, self.index):
                engine.remove(key)
            del self.filters[key]
        elif key in self.filters and move < 0.7:
            values = usable(self.filters[key], some_bindings(self.rng)) or {}
            some = dict(list(values.items())[: self.rng.randint(1, 3)])
            refused = [_refuses(engine, key, some) for engine in (self.reference, self.index)]
            assert len(set(refused)) == 1, (key, some, refused)
        else:
            self.add(key)

    def compare(self, events: int) -> None:
        """Both on events that are near the filters' own constants."""
        some = self.rng.sample(sorted(self.filters), min(20, len(self.filters)))
        bound = [self.filters[key].bind(self.reference._values[key]) for key in some]
        for batch in to_batches(some_events(self.rng, bound, events)):
            expected = self.reference.match(batch)
            found = self.index.match(batch)
            assert found.rows.tolist() == expected.rows.tolist()
            assert found.keys.tolist() == expected.keys.tolist()
            assert self.index.count(batch) == self.reference.count(batch)
            self.compare_routes(batch)
            self.pairs += batch.num_rows * len(self.filters)
            self.compare_event(batch.slice(0, 1).to_pylist()[0], expected.keys[expected.rows == 0])

    def compare_routes(self, batch: pa.RecordBatch) -> None:
        """Compare the rows that go to each destination."""
        found, expected = self.index.route(batch), self.reference.route(batch)
        assert found.keys() == expected.keys()
        assert all((found[key] == expected[key]).all() for key in expected)

    def compare_event(self, event: dict[str, Any], expected: Any) -> None:
        """Both on one event that is no batch."""
        destinations = sorted({key % 9 for key in expected.tolist()})
        for engine in (self.reference, self.index):
            assert engine.match_event(event).tolist() == expected.tolist(), type(engine)
            assert engine.route_event(event) == destinations, type(engine)


def _conditions(conjunction: Any) -> tuple[Any, ...]:
    return (*conjunction.constraints, *conjunction.residuals)


def _refuses(engine: Matcher, key: int, values: dict[str, Any]) -> bool:
    try:
        engine.bind(key, values)
    except InvalidInput:
        return True
    return False


def live(rng: random.Random, monkeypatch: pytest.MonkeyPatch, plan: str, pairs: int) -> Campaign:
    """An incarnation of so many pairs, under one plan of the index."""
    monkeypatch.setattr(warming, "FALLBACK_PAIRS", 1 << 62)
    monkeypatch.setattr(store, "MERGE_ROWS", rng.choice((12, 40, 4096)))
    monkeypatch.setattr(building, "FAN_OUT", rng.choice((2, 3, 4)))
    if plan == "fallback":
        monkeypatch.setattr(registry, "_loaded", [])
    else:
        warming.warm()
        costs = {"few": 0.0 if plan == "few" else 1.0, "many": 0.5}
        monkeypatch.setattr(Costs, "of", lambda *_: costs)
    campaign = Campaign(rng, min(FILTERS, pairs // 50))
    while campaign.pairs < pairs:
        for _ in range(rng.randrange(12)):
            campaign.change()
        campaign.compare(min(60, pairs // 100))
    return campaign


@pytest.mark.parametrize("plan", PLANS)
def test_engines_agree(rng: random.Random, monkeypatch: pytest.MonkeyPatch, plan: str) -> None:
    campaign = live(rng, monkeypatch, plan, PAIRS_BY_DEFAULT)
    assert campaign.of_three >= 0.3 * campaign.added


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(ROUNDS))
def test_engines_agree_on_many_pairs(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    campaign = live(rng, monkeypatch, PLANS[number % len(PLANS)], -(-PAIRS // ROUNDS))
    assert campaign.of_three >= 0.3 * campaign.added
    assert campaign.pairs >= PAIRS // ROUNDS
