"""Few events are matched at once where each takes long."""

from __future__ import annotations

import logging

import pytest

from palio.language.parsing import parse_filter
from palio.matching import warming
from palio.matching.kernels import registry
from palio.model.functions import CASE_COST
from palio.protocol.limits import MAX_BATCH_ROWS
from palio.server import run as engines_room
from palio.server.limits import COMPILED_PAIRS, COUNT_AGAIN_S, FEW_ROWS, PLAIN_PAIRS, RESIDUALS
from palio.server.run import Engines, load_kernels


@pytest.fixture(params=["plain", "compiled"])
def pairs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How much is matched at once: the engine is plain Python, or is not."""
    is_compiled = request.param == "compiled"
    monkeypatch.setattr(registry, "ready", lambda: object() if is_compiled else None)
    monkeypatch.setattr(engines_room, "COMPILED_PAIRS", 1_000 * FEW_ROWS)
    monkeypatch.setattr(engines_room, "PLAIN_PAIRS", 100 * FEW_ROWS)
    return FEW_ROWS * (1_000 if is_compiled else 100)


class Clock:
    """A clock that stands still until it is told to go on."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_more_filters_there_are_the_fewer_events_are_matched_at_once(pairs: int) -> None:
    clock = Clock()
    engines = Engines(clock)
    one, other = engines.new_index(), engines.new_selector()
    assert engines.rows_at_once() == min(MAX_BATCH_ROWS, pairs)
    for key in range(20):
        one.add(key, parse_filter(f"x = {key}"))
        other.add(key, parse_filter(f"x = {key}"), {}, key)
    clock.now += COUNT_AGAIN_S / 2
    assert engines.rows_at_once() == min(MAX_BATCH_ROWS, pairs)
    clock.now += 2 * COUNT_AGAIN_S
    assert engines.rows_at_once() == pairs // 40
    for key in range(20, 2_000):
        one.add(key, parse_filter(f"x = {key}"))
    clock.now += 2 * COUNT_AGAIN_S
    assert engines.rows_at_once() == FEW_ROWS
    del one
    clock.now += 2 * COUNT_AGAIN_S
    assert engines.rows_at_once() == pairs // 20


def test_few_events_are_taken_where_filters_compute(pairs: int) -> None:
    clock = Clock()
    engines = Engines(clock)
    index = engines.new_index()

    def rows() -> int:
        clock.now += 2 * COUNT_AGAIN_S
        return engines.rows_at_once()

    for key in range(5):
        index.add(key, parse_filter(f"SUBSTRING(s, {key + 1}) = 'x'"))
    assert index.residual_cost == 5 * 8
    assert rows() == min(pairs // 5, RESIDUALS // 40)
    index.add(0, parse_filter("x > y * 2"))  # by column, on the whole
    index.remove(1)
    assert index.residual_cost == 3 * 8 + 1
    index.add(0, parse_filter("s = t IGNORE CASE"))
    assert index.residual_cost == 3 * 8 + 3 + 2 * CASE_COST
    for key in range(RESIDUALS // 8):
        index.add(key, parse_filter(f"SUBSTRING(s, {key + 1}) = 'x'"))
    assert rows() == 1
    for key in range(RESIDUALS // 8):
        index.add(key, parse_filter("x = 1"))
    assert index.residual_cost == 0
    assert rows() == FEW_ROWS


def test_what_is_compiled_takes_more() -> None:
    assert FEW_ROWS < PLAIN_PAIRS // 1_000 < COMPILED_PAIRS // 1_000
    assert COMPILED_PAIRS // 1_000 >= MAX_BATCH_ROWS


def test_kernels_that_must_be_compiled_are_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(warming, "warm", lambda: None)
    with caplog.at_level(logging.INFO):
        monkeypatch.setattr(registry, "are_on_disk", lambda: True)
        load_kernels()
        assert not caplog.records
        monkeypatch.setattr(registry, "are_on_disk", lambda: False)
        load_kernels()
    assert [each.message for each in caplog.records] == ["kernels_compiling"]
