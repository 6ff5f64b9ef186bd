from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from palio.client.events import Event, Gap, LateGap, PublishReceipt

TIME = datetime(2026, 1, 1, tzinfo=UTC)


def test_an_event_is_a_mapping_of_its_attributes() -> None:
    event = Event({"price": 9.5, "symbol": "IBM"}, "ticker", 3, TIME)
    assert dict(event) == {"price": 9.5, "symbol": "IBM"}
    assert event == {"symbol": "IBM", "price": 9.5}
    assert event["price"] == 9.5
    assert event.get("volume") is None
    assert "symbol" in event
    assert len(event) == 2
    with pytest.raises(KeyError):
        event["volume"]


def test_an_event_says_where_it_came_from() -> None:
    event = Event({"price": 9.5}, "ticker", 3, TIME)
    assert (event.publisher, event.seq, event.time, event.parts) == ("ticker", 3, TIME, ())
    assert repr(event) == "Event({'price': 9.5}, publisher='ticker', seq=3)"


def test_an_event_cannot_be_written_to() -> None:
    event = Event({"price": 9.5}, "ticker", 3, TIME)
    with pytest.raises(TypeError):
        event["price"] = 1  # type: ignore[index]  # that is the point


def test_an_event_survives_pickling() -> None:
    part = Event({"a": 1}, "p", 1, TIME)
    event = Event({"b": 2}, "p", 2, TIME, (part,))
    copy = pickle.loads(pickle.dumps(event))
    assert (copy, copy.publisher, copy.seq, copy.time) == (event, "p", 2, TIME)
    assert copy.parts == (part,)


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        (Gap("p", 4, 4, 1), "lost 1 event of 'p', number 4"),
        (Gap("p", 4, 9, 3), "lost 3 events of 'p', numbers 4 to 9"),
        (Gap("*", 0, 0, 0, "b2: x"), "live events may have been lost: b2: x"),
        (
            Gap("*", 0, 0, 0, "the history of 'b' begins now"),
            "durable events may have been lost: the history of 'b' begins now",
        ),
        (
            LateGap("p", 4, 4, 1),
            (
                "too late for the pattern: 1 event of 'p', number 4; "
                "a larger reorder_timeout waits longer"
            ),
        ),
    ],
)
def test_a_gap_reads_well(gap: Gap, text: str) -> None:
    assert str(gap) == text


def test_a_receipt_names_its_promise() -> None:
    assert PublishReceipt(1, 3, 5).level == "memory"
