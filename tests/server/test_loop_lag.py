from __future__ import annotations

import asyncio
import logging
import time

import pytest

from palio.server.limits import HELD_S, IDLE_LAG_CHECK_S, LAG_CHECK_S
from palio.server.loop_lag import BOUNDS_S, LoopLagMonitor
from tests.server.helpers import until


def test_delays_are_counted_by_bounds() -> None:
    pulse = LoopLagMonitor()
    for delay in (0.0, 0.005, 0.006, 0.3, 99.0):
        pulse.beat(delay, 0.0)
    counts = dict(zip((*BOUNDS_S, None), pulse.delays.counts, strict=True))
    assert {bound: count for bound, count in counts.items() if count} == {
        0.005: 2, 0.01: 1, 0.5: 1, None: 1,
    }  # fmt: skip
    assert pulse.delays.sum_s == pytest.approx(99.311)


@pytest.mark.parametrize(("delay", "told"), [(HELD_S, 0), (0.051, 1)])
def test_a_loop_that_was_held_is_told_of(
    delay: float, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    pulse = LoopLagMonitor()
    pulse.held_by("Subscribe", 0.04)
    pulse.beat(delay, 2 * delay)  # since the last beat: some of it before the timer was due
    assert len(caplog.records) == told
    for record in caplog.records:
        assert record.levelno == logging.WARNING
        assert record.__dict__["details"] == {
            "seconds": 0.051, "computing_s": 0.051, "longest_message": "Subscribe", "its_s": 0.04,
        }  # fmt: skip


def test_it_is_not_told_over_and_over(caplog: pytest.LogCaptureFixture) -> None:
    pulse = LoopLagMonitor()
    for _ in range(100):
        pulse.beat(1.0, 1.0)
    assert len(caplog.records) == 1
    assert "longest_message" not in caplog.records[0].__dict__["details"]


async def test_a_loop_that_is_held_is_late(caplog: pytest.LogCaptureFixture) -> None:
    pulse = LoopLagMonitor()
    pulse.start()
    beats = sum(pulse.delays.counts)
    await until(lambda: sum(pulse.delays.counts) > beats)
    held = IDLE_LAG_CHECK_S + 10 * LAG_CHECK_S
    started = time.thread_time()
    while time.thread_time() < started + held:
        pass
    before = sum(pulse.delays.counts)
    await until(lambda: sum(pulse.delays.counts) > before)
    pulse.stop()
    details = caplog.records[-1].__dict__["details"]
    least_s = held - IDLE_LAG_CHECK_S - 2 * LAG_CHECK_S
    assert details["seconds"] >= details["computing_s"] >= least_s
    await asyncio.sleep(0)


async def test_an_idle_loop_is_looked_at_less_often_and_a_long_message_is_seen() -> None:
    pulse = LoopLagMonitor()
    pulse.start()
    await until(lambda: sum(pulse.delays.counts) > 0)  # from now on nothing is there to be late
    assert await _seconds_to_next_beat(pulse) > 5 * LAG_CHECK_S
    sum_s = pulse.delays.sum_s
    pulse.held_by("Subscribe", 3 * HELD_S)  # over before the next look was due
    await _seconds_to_next_beat(pulse)
    assert pulse.delays.sum_s >= sum_s + 3 * HELD_S
    assert await _seconds_to_next_beat(pulse) < IDLE_LAG_CHECK_S  # at work
    pulse.stop()


async def _seconds_to_next_beat(pulse: LoopLagMonitor) -> float:
    before, began = sum(pulse.delays.counts), time.perf_counter()
    await until(lambda: sum(pulse.delays.counts) > before)
    return time.perf_counter() - began
