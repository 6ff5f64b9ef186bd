from __future__ import annotations

import time

import pyarrow as pa
import pytest

from palio.model.events import to_batch
from palio.model.parcels import Parcel
from palio.protocol.messages import Deliver
from palio.server.counters import LATENCY_BOUNDS_S, SAMPLE_S, DeliveryLatency, Histogram


def test_a_bound_counts_what_is_not_above_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.0, 0.1, 0.11, 1.0, 1.1):
        histogram.observe(seconds)
    assert histogram.counts == [2, 2, 1]
    assert histogram.sum_s == pytest.approx(2.31)


def published(ago_s: float, rows: int = 1) -> Parcel:
    events = pa.record_batch({"x": list(range(rows))}) if rows > 1 else to_batch({"x": 1})
    return Parcel.of("ann", events).stamped("ann", 1, round((time.time() - ago_s) * 1e6))


@pytest.mark.parametrize("rows", [1, 3])
def test_what_is_handed_over_is_sampled(rows: int) -> None:
    now = [1.0]
    latency = DeliveryLatency(lambda: now[0])
    parcel = published(7.0, rows)
    for _ in range(3):
        latency.sample(Deliver(parcel))
    assert latency.live.counts[LATENCY_BOUNDS_S.index(10.0)] == sum(latency.live.counts) == 1
    assert latency.live.sum_s == pytest.approx(7.0, abs=2.0)
    for step, count in ((SAMPLE_S / 2, 1), (SAMPLE_S, 2)):
        now[0] += step
        latency.sample(Deliver(published(0.0, rows)))
        assert sum(latency.live.counts) == count


def test_what_came_from_a_durable_queue_counts_apart() -> None:
    latency = DeliveryLatency(lambda: 1.0)
    latency.sample(Deliver(published(100.0), entry=4))
    latency.sample(Deliver(published(0.0)))
    assert (sum(latency.live.counts), latency.durable.counts[-1]) == (1, 1)


def test_an_event_of_a_clock_that_is_ahead_counts_as_one_without_delay() -> None:
    latency = DeliveryLatency()
    latency.sample(Deliver(published(-100.0)))
    assert (latency.live.counts[0], latency.live.sum_s) == (1, 0.0)


def test_what_has_no_time_is_not_observed() -> None:
    latency = DeliveryLatency()
    nothing = Parcel("ann", pa.record_batch({"x": [1]}).slice(1)).stamped("ann", 1, 1)
    for parcel in (nothing, Parcel.of("ann", to_batch({"x": 1}))):
        latency.sample(Deliver(parcel))
    assert not sum(latency.live.counts)
