from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import palio
from palio.cli.demo.audit import Audit
from palio.client.events import Event, Gap

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def event(seq: int, publisher: str = "p", **attributes: Any) -> Event:
    return Event(attributes, publisher, seq, NOON)


def audit_of(text: str, **values: Any) -> Audit:
    audit = Audit()
    audit.promise("one", palio.parse(text), values)
    return audit


def publish(audit: Audit, *xs: int, publisher: str = "p", seconds: float = 0) -> None:
    audit.publish(publisher, [{"x": x} for x in xs], NOON + timedelta(seconds=seconds))


def test_a_kept_promise() -> None:
    audit = audit_of("x > :low", low=1)
    publish(audit, 1, 2, 3)
    audit.hear("one", event(2, x=2))
    audit.hear("one", event(3, x=3))
    audit.delivered = 2
    audit.settle()
    assert audit.complaints == []
    promise = audit.promises["one"]
    assert (promise.matched, promise.heard, promise.left_out, audit.published) == (2, 2, 0, 3)


@pytest.mark.parametrize(
    ("heard", "complaint"),
    [
        ([1, 2], "never heard"),
        ([1, 3], "did not hear"),
        ([2, 1, 3], "did not hear"),
        ([1, 1, 2, 3], "did not hear"),
        ([1, 2, 3, 3], "not owed"),
        ([1, 2, 3, 4], "not owed"),
    ],
)
def test_what_is_missing_out_of_order_or_twice(heard: list[int], complaint: str) -> None:
    audit = audit_of("x < 4")
    publish(audit, 1, 2, 3, 4)
    for seq in heard:
        audit.hear("one", event(seq, x=seq))
    audit.delivered = 3
    audit.settle()
    assert complaint in audit.complaints[0]


def test_an_event_that_was_altered_or_is_of_another_publisher() -> None:
    for wrong in (event(1, x=2), event(1, "q", x=1), event(1, x=1, y=1)):
        audit = audit_of("x > 0")
        publish(audit, 1)
        audit.hear("one", wrong)
        assert "did not hear" in audit.complaints[0]


def test_what_parameters_left_out_is_not_missed() -> None:
    audit = audit_of("x > :low", low=0)
    publish(audit, 1, 2, 3, 1)
    audit.change("one", low=2)
    audit.hear("one", event(3, x=3))
    audit.delivered = 4
    audit.settle()
    assert audit.complaints == []
    assert audit.promises["one"].left_out == 3


def test_what_parameters_left_out_must_not_be_heard() -> None:
    audit = audit_of("x > :low", low=0)
    publish(audit, 1)
    audit.change("one", low=2)
    audit.hear("one", event(1, x=1))
    assert "does not want" in audit.complaints[0]


def test_gaps_name_exactly_what_was_lost() -> None:
    audit = audit_of("x > 0")
    publish(audit, 1, 0, 1)
    publish(audit, 1, 1, publisher="q")
    audit.lose("one", Gap("p", 1, 3, 2))
    audit.lose("one", Gap("q", 1, 1, 1))
    audit.hear("one", event(2, "q", x=1))
    audit.delivered = 4
    audit.settle()
    assert audit.complaints == []
    assert (audit.promises["one"].lost, audit.promises["one"].gaps) == (3, 2)


@pytest.mark.parametrize(
    "gap", [Gap("p", 1, 2, 2), Gap("p", 1, 3, 3), Gap("p", 3, 3, 1), Gap("q", 1, 1, 1)]
)
def test_a_gap_that_names_anything_else(gap: Gap) -> None:
    audit = audit_of("x > 0")
    publish(audit, 1, 0, 1)
    audit.lose("one", gap)
    assert "was told" in audit.complaints[0]


def test_patterns_are_recounted() -> None:
    audit = audit_of("x = 1 THEN x = 2 WITHIN 5s")
    publish(audit, 1)
    publish(audit, 1, seconds=6)
    publish(audit, 2, 2, seconds=11)
    audit.delivered = 1
    first, last = event(2, x=1), event(3, x=2)
    audit.hear("one", Event(dict(last), "p", 3, NOON, (first, last)))
    audit.settle()
    assert audit.complaints == []


def test_a_bus_that_counts_wrong() -> None:
    audit = audit_of("x > 0")
    publish(audit, 1)
    audit.hear("one", event(1, x=1))
    audit.delivered = 2
    audit.settle()
    assert audit.complaints == ["the bus: counts 2 deliveries, and there were 1"]


def test_complaints_are_bounded() -> None:
    audit = audit_of("x > 0")
    for seq in range(1_000):
        audit.hear("one", event(seq, x=1))
    assert len(audit.complaints) == 20
