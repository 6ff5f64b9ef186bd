"""What is announced by columns is what is announced one by one, and by the definition."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from palio.errors import LimitExceeded
from palio.language.parsing import parse_advertisement
from palio.matching.index import Index
from palio.model.advertisements import Alternative, UnreadAdvertisement
from palio.model.events import to_batches
from palio.model.parcels import Parcel
from palio.model.row_parcels import RowParcel
from palio.routing.announcements import FEW_EVENTS, Announcements
from palio.routing.protocol import Matching, Selector
from palio.routing.reference_selector import ReferenceSelector
from tests.model.offers import announced, every_event, random_offer


def compiled() -> Selector:
    return Matching(Index())


@pytest.mark.parametrize("selector", [ReferenceSelector, compiled])
@pytest.mark.parametrize("offers", [1, 3])
def test_many_events_are_announced_as_the_definition_says(
    rng: random.Random, selector: Any, offers: int
) -> None:
    for _ in range(12):
        said = [random_offer(rng) for _ in range(offers)]
        many = Announcements([parse_advertisement(text) for text, _ in said], selector)
        for batch in to_batches(list(every_event())):
            parcel = Parcel("p", batch)
            expected = [any(announced(means, row) for _, means in said) for row in parcel.rows]
            assert many.announced_in(parcel).tolist() == expected


RESIDUALS = (
    "bid > ask * 1.01",
    "bid < ask AND x > 2",
    "x > 3 OR bid > ask",
    "LENGTH(s) > 2 AND x IS NOT NULL",
    "NOT (bid > ask) AND NOT (LENGTH(s) > 1)",
)


@pytest.mark.parametrize("text", RESIDUALS)
def test_a_residual_must_not_be_false(rng: random.Random, text: str) -> None:
    offer = parse_advertisement(text)
    values: dict[str, list[Any]] = {
        "bid": [None, 1.0, 2.5],
        "ask": [None, 1.0, 2.5],
        "x": [None, 1, 4],
        "s": [None, "a", "abc"],
    }
    rows = [
        {name: value for name, pool in values.items() if (value := rng.choice(pool)) is not None}
        for _ in range(200)
    ]
    for batch in to_batches(rows):
        parcel = Parcel("p", batch)
        found = Announcements([offer], compiled).announced_in(parcel).tolist()
        assert found == [offer.announces(row) for row in parcel.rows]
        assert len(set(found)) <= 2


@pytest.mark.parametrize("count", [FEW_EVENTS - 1, FEW_EVENTS, FEW_EVENTS + 1])
def test_few_events_are_tried_one_by_one(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    offer = parse_advertisement("x > 2")
    tried: list[Any] = []
    one_by_one = Alternative.announces

    def counted(self: Any, event: Any, *, open: bool) -> bool:
        tried.append(event)
        return one_by_one(self, event, open=open)

    monkeypatch.setattr(Alternative, "announces", counted)
    (batch,) = to_batches([{"x": at % 5} for at in range(count)])
    found = Announcements([offer], compiled).announced_in(Parcel("p", batch))
    assert found.tolist() == [at % 5 > 2 for at in range(count)]
    assert len(tried) == (count if count <= FEW_EVENTS else 0)


def test_what_an_engine_refuses_is_tried_one_by_one() -> None:
    class Full(ReferenceSelector):
        def add(self, *_: Any) -> None:
            raise LimitExceeded("text tests", limit="MAX_SCANS", maximum=1, actual=2)

    (batch,) = to_batches([{"s": "ab"[at % 2]} for at in range(2 * FEW_EVENTS)])
    offer = parse_advertisement("s LIKE '_' AND s != 'a'")
    found = Announcements([offer], Full).announced_in(Parcel("p", batch)).tolist()
    assert found == [offer.announces({"s": "ab"[at % 2]}) for at in range(2 * FEW_EVENTS)]


@pytest.mark.parametrize("rows", [FEW_EVENTS, FEW_EVENTS + 1])
@pytest.mark.parametrize(
    "offers", [["x = 0", "x = 1", "x = 2", "x = 3"], ["x = 0 OR x = 1 OR x = 2", "x = 3"]]
)
def test_no_more_alternatives_are_tested_than_allowed(rows: int, offers: list[str]) -> None:
    parsed = [parse_advertisement(offer) for offer in offers]
    announcements = Announcements(parsed, ReferenceSelector, max_alternatives=2)
    found = [
        announcements.announced_in(RowParcel("p", [{"x": number}] * rows)).all()
        for number in range(4)
    ]
    assert found == [True, True, False, False]


@pytest.mark.parametrize("rows", [FEW_EVENTS, FEW_EVENTS + 1])
def test_an_offer_of_a_newer_grammar_announces_everything(rows: int) -> None:
    announcements = Announcements([UnreadAdvertisement("x RESEMBLES 'y'")], ReferenceSelector)
    assert announcements.announced_in(RowParcel("p", [{"z": 1}] * rows)).all()


def test_what_was_announced_last_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    announces = Alternative.announces

    def watched(self: Alternative, event: Mapping[str, Any], *, open: bool) -> bool:
        tried.append(str(self))
        return announces(self, event, open=open)

    monkeypatch.setattr(Alternative, "announces", watched)
    offers = [parse_advertisement(f"x = {number}") for number in range(3)]
    announcements = Announcements(offers, ReferenceSelector)
    for _ in range(2):
        assert announcements.announced_in(RowParcel("p", [{"x": 2}])).all()
    assert tried == ["x = 0", "x = 1", "x = 2", "x = 2"]
