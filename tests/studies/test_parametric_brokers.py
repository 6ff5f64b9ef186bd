from __future__ import annotations

import asyncio
import random

import pytest

from palio import connect
from palio.testing.namespaces import why_not
from palio_studies.parametric_brokers import TIMED, AdaptingListener, run_brokers
from palio_studies.parametric_workloads import UPD, WAYS
from palio_studies.study import Point, Row
from tests.server.helpers import PATIENCE_S
from tests.server.test_run import broker


def test_a_line_of_real_brokers_has_a_row_for_each_way_and_rate() -> None:
    if reason := why_not():
        pytest.skip(reason)
    parameters: Row = {"brokers": 2, "rates": "5", "window_s": 1.0}
    rows = run_brokers(Point("brokers", parameters, 1))
    assert sorted(str(row["way"]) for row in rows) == sorted(WAYS)
    assert all(set(row) == {"way", "updates_per_s", *TIMED} for row in rows)
    assert all(float(row["delivered_per_s"]) > 0 for row in rows)
    assert all(float(row["delay_ms"]) > 40 for row in rows)  # four ways of 10 ms at the least


@pytest.mark.parametrize("way", WAYS)
async def test_a_listener_takes_what_its_newest_value_lets_through(way: str) -> None:
    async with broker() as (_, (host, port)), connect(f"palio://{host}:{port}") as client:
        listener = AdaptingListener(client, 0, way, random.Random(1))
        await listener.begin()
        await client.publish({"type": 0, "value": 500, "number": 1})
        listener.change(swing=True)
        number = 1
        async with asyncio.timeout(PATIENCE_S):
            while not listener.delivered:
                number += 1
                await client.publish({"type": 0, "value": 500, "number": number})
        listener.change(swing=False)
        await listener.stop()
        assert listener.changes == 2
        assert (listener.doubled, listener.spurious) == (0, 0)


async def test_what_a_listener_heard_is_counted_by_its_newest_value() -> None:
    async with broker() as (_, (host, port)), connect(f"palio://{host}:{port}") as client:
        listener = AdaptingListener(client, 0, UPD, random.Random(1))
        await listener.begin()
        now = asyncio.get_running_loop().time()
        listener.hear(1, 100, now)
        listener.hear(1, 100, now)  # by another subscription, too
        listener.hear(2, 500, now)
        assert (listener.delivered, listener.doubled, listener.spurious) == (1, 1, 1)
        listener.change(swing=True)
        swung = asyncio.get_running_loop().time()
        listener.hear(3, 100, swung + 0.1)  # matched before, too
        assert listener.delays_ms(swung + 1)[1] == 1
        listener.hear(4, 500, swung + 0.5)
        (delay,), unheard = listener.delays_ms(swung + 1)
        assert unheard == 0
        assert delay == pytest.approx(500, abs=50)
        assert listener.delays_ms(swung + 0.1) == ([], 0)  # too near the end to tell
        await listener.stop()
