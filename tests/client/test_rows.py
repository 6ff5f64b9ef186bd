from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.client.rows import MAX_FORMS, Forms
from palio.errors import InvalidEvent
from palio.model.events import to_batch
from palio.model.limits import MAX_LONE_BYTES
from tests.strategies import shown, values


@given(st.dictionaries(st.sampled_from("abc"), values()))
def test_a_gathered_row_is_the_event(event: dict[str, Any]) -> None:
    found = Forms().of(event)
    if found is not None:
        form, row = found
        batch = form.gather([row, row])
        assert batch.schema == to_batch(event).schema
        assert repr(batch.to_pylist()) == repr([form.event(row)] * 2) == repr([event] * 2)


def test_the_same_form_is_the_same_object() -> None:
    forms = Forms()
    one, other, third = forms.of({"x": 1}), forms.of({"x": 2}), forms.of({"x": 2.0})
    assert one is not None
    assert other is not None
    assert third is not None
    assert one[0] is other[0]
    assert one[0] is not third[0]


@pytest.mark.parametrize(
    "event", [{}, {"x": None}, {"t": datetime(2026, 1, 1, tzinfo=UTC)}, {"x": 1, "y": None}]
)
def test_what_must_be_looked_at_has_no_form(event: dict[str, Any]) -> None:
    assert Forms().of(event) is None


def test_a_bad_name_is_refused_each_time() -> None:
    forms = Forms()
    for _ in range(2):
        with pytest.raises(InvalidEvent, match="system"):
            forms.of({"$x": 1})


@pytest.mark.parametrize("count", [MAX_FORMS - 1, MAX_FORMS, MAX_FORMS + 1])
def test_forms_are_bounded(count: int) -> None:
    forms = Forms()
    for number in range(count):
        forms.of({f"x{number}": 1})
    assert len(forms._forms) == (count if count <= MAX_FORMS else 1)


@given(st.dictionaries(st.sampled_from("abc"), values()))
def test_a_lone_row_is_the_event(event: dict[str, Any]) -> None:
    found = Forms().of(event)
    if found is not None:
        form, row = found
        parcel = form.lone(row)
        assert parcel is not None
        assert repr(parcel.event) == repr(event)
        assert parcel.batch.equals(to_batch(event))


@pytest.mark.parametrize("bad", [2**63, "half \ud800", "x" * (MAX_LONE_BYTES + 1)], ids=shown)
def test_what_does_not_fit_or_is_large_is_no_lone_row(bad: Any) -> None:
    found = Forms().of({"x": type(bad)()})
    assert found is not None
    form, good = found
    assert form.lone(good) is not None
    assert form.lone((bad,)) is None
