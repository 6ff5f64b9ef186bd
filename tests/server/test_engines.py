"""Few events are matched at once where each takes long."""

from __future__ import annotations

import logging

import pytest

from palio.language.parsing import parse_filter
from palio.protocol.limits import MAX_BATCH_ROWS
from palio.routing import kernels
from palio.server import engines as engines_room
from palio.server.engines import Engines, load_kernels
from palio.server.limits import COMPILED_PAIRS, FEW_ROWS, PLAIN_PAIRS


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def pairs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How much is matched at once: the engine is plain Python, or is not."""
    monkeypatch.setattr(engines_room, "ready", lambda: object() if request.param else None)
    monkeypatch.setattr(engines_room, "COMPILED_PAIRS", 1_000 * FEW_ROWS)
    monkeypatch.setattr(engines_room, "PLAIN_PAIRS", 100 * FEW_ROWS)
    return FEW_ROWS * (1_000 if request.param else 100)


def test_the_more_filters_there_are_the_fewer_events_are_matched_at_once(pairs: int) -> None:
    engines = Engines()
    one, other = engines.new(), engines.new()
    assert engines.rows_at_once() == min(MAX_BATCH_ROWS, pairs)
    for key in range(50):
        one.add(key, parse_filter(f"x = {key}"))
        other.add(key, parse_filter(f"x = {key}"))
    assert engines.rows_at_once() == pairs // 50
    for key in range(50, 2_000):
        one.add(key, parse_filter(f"x = {key}"))
    assert engines.rows_at_once() == FEW_ROWS
    del one
    assert engines.rows_at_once() == pairs // 50


def test_what_is_compiled_takes_more() -> None:
    assert FEW_ROWS < PLAIN_PAIRS // 1_000 < COMPILED_PAIRS // 1_000
    assert COMPILED_PAIRS // 1_000 >= MAX_BATCH_ROWS


def test_kernels_that_must_be_compiled_are_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "warm", lambda: None)
    with caplog.at_level(logging.INFO):
        monkeypatch.setattr(kernels, "are_on_disk", lambda: True)
        load_kernels()
        assert not caplog.records
        monkeypatch.setattr(kernels, "are_on_disk", lambda: False)
        load_kernels()
    assert [each.message for each in caplog.records] == [
        "compiling the engine's kernels takes a minute; plain Python until then"
    ]
