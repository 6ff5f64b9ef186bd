"""Mappings are coded as batches are, and what is no event is refused alike."""

from __future__ import annotations

import enum
import re
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from palio.errors import InvalidEvent, LimitExceeded
from palio.matching import coding, warming
from palio.matching.coding import Coder
from palio.matching.compile.ranges import DomainChoice, RowTemplate, compile_templates
from palio.matching.index import Index
from palio.matching.kernels import fallback
from palio.matching.segment import Segment
from palio.model import to_batch
from palio.model.constraints import Constraint, domain_of
from palio.model.limits import MAX_ATTRIBUTES, MAX_NAME_CHARS
from tests.matching.test_index import parsed
from tests.strategies import shown


class Color(enum.StrEnum):
    RED = "red"


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

CONSTANTS: list[Any] = [
    *(-1, 0, 7, 2**53 + 1, 2**63 - 1, -(2**63), 0.5, -0.0, -2.5, 1e300, 2.0**53),
    *("", "a", "red", "z\u00e9", True, b"", b"ab", NOON),
]

VALUES: list[Any] = [
    *CONSTANTS,
    *(1, 6, 8, 2**53, 2**53 + 2, float("inf"), -float("inf"), float("nan"), 7.0, 5e-324),
    *(False, "re", "z", "\u00e9", "b" * 200, b"a", bytearray(b"ab"), np.int16(7), np.float32(0.5)),
    *(Color.RED, datetime(2026, 1, 1, tzinfo=UTC), None),
]


def some_segment() -> Segment:
    """A filter for each constant and comparison, so that each has its cuts."""
    domains = [
        domain_of(Constraint.of("x", op, constant))
        for constant in CONSTANTS
        for op in (("=",) if isinstance(constant, bool) else ("=", "<", ">="))
    ]
    rows = np.arange(len(domains))
    return Segment(
        compile_templates([RowTemplate(rows, [DomainChoice("x", domains, rows)])]), warming.warm()
    )


@pytest.mark.parametrize("value", VALUES, ids=shown)
def test_a_value_has_the_code_of_its_column(value: Any) -> None:
    segment = some_segment()
    universe = segment.compiled.universe
    coder, codes = Coder(universe), np.full((1, 1), -1, np.int32)
    expected = fallback.code_batch(universe, to_batch({"x": value}))
    for _ in range(2):  # when it is new, and when it has been seen
        coder.code({"x": value, "y": value}, codes)
        assert codes.tolist() == expected.tolist()


def test_a_boolean_is_not_the_number_that_equals_it() -> None:
    index = Index()
    for key, text in enumerate(("x = 1", "x = TRUE", "x = 1.0")):
        index.add(key, parsed(text))
    warming.warm()
    found = [index.match_event({"x": value}).tolist() for value in (1, True, 1.0, True, 1)]
    assert found == [[0, 2], [1], [0, 2], [1], [0, 2]]


def test_text_tests_hold_on_texts_of_their_kind() -> None:
    warming.warm()
    index = Index()
    index.add(1, parsed("x ENDS WITH 'ed'"))
    index.add(2, parsed("NOT x LIKE '%e%'"))
    for value in ("red", Color.RED, "blau", b"red", 7, None):
        event = {"x": value}
        assert index.match_event(event).tolist() == index.match(to_batch(event)).keys.tolist()


@pytest.mark.parametrize(
    "event",
    [{"x": object()}, {"other": [1]}, {"x": 2**63}, {"x": "\ud800"}, {"": 1}, {3: 1}, {"\ud800": 1},
     {"n" * (MAX_NAME_CHARS + 1): 1}, {"other": NOON.replace(tzinfo=None)}, {"other": 2**64}],
    ids=shown,
)  # fmt: skip
def test_refuses_what_a_batch_refuses(event: Any) -> None:
    coder, codes = Coder(some_segment().compiled.universe), np.zeros((1, 1), np.int32)
    with pytest.raises((InvalidEvent, LimitExceeded)) as expected:
        to_batch(event)
    for _ in range(2):
        with pytest.raises(type(expected.value), match=re.escape(str(expected.value))):
            coder.code(event, codes)


def test_a_name_that_was_fine_with_one_value_is_refused_with_another() -> None:
    coder, codes = Coder(some_segment().compiled.universe), np.zeros((1, 1), np.int32)
    coder.code({"other": 1.0}, codes)
    with pytest.raises(InvalidEvent, match="other"):
        coder.code({"other": object()}, codes)


@pytest.mark.parametrize("width", [MAX_ATTRIBUTES - 1, MAX_ATTRIBUTES, MAX_ATTRIBUTES + 1])
def test_width(width: int) -> None:
    coder, codes = Coder(some_segment().compiled.universe), np.zeros((1, 1), np.int32)
    event = {f"a{at}": 1 for at in range(width)} | {"absent": None}
    if width <= MAX_ATTRIBUTES:
        coder.code(event, codes)
        return
    with pytest.raises(LimitExceeded):
        coder.code(event, codes)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding, "MAX_SEEN", 3)
    coder, codes = Coder(some_segment().compiled.universe), np.zeros((1, 1), np.int32)
    for at in range(5):
        coder.code({"x": at, f"n{at}": 1.0}, codes)
        assert len(coder._slots["x"].seen) == min(at + 1, 3)
        assert codes[0, 0] == coder.universe.code_of("x", at)
