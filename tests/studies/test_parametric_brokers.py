from __future__ import annotations

import asyncio

import pytest

from palio import connect
from palio_studies.namespaces import why_not
from palio_studies.parametric_brokers import TIMED, RealClient, run_brokers
from palio_studies.parametric_runs import WAYS, Swinger
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
async def test_a_real_client_takes_what_its_newest_value_lets_through(way: str) -> None:
    async with broker() as (_, (host, port)), connect(f"palio://{host}:{port}") as connection:
        client = RealClient(connection)
        swinger = Swinger(client, 0, "<=", WAYS[way], 1)
        await client.settled()
        await connection.publish({"type": 0, "value": 500, "number": 1})
        swinger.swing(0)
        number = 1
        async with asyncio.timeout(PATIENCE_S):
            while not client.received:
                number += 1
                await connection.publish({"type": 0, "value": 500, "number": number})
        swinger.update()
        await client.stop()
        assert (client.doubled, client.spurious) == (0, 0)
        assert {each.event["value"] for each in client.received} == {500}


async def test_what_a_real_client_heard_is_counted_by_its_newest_value() -> None:
    async with broker() as (_, (host, port)), connect(f"palio://{host}:{port}") as connection:
        client = RealClient(connection)
        swinger = Swinger(client, 0, "<=", WAYS["UPD"], 1)
        client.hear(1, 100, 0)
        client.hear(1, 100, 0)  # by another subscription, too
        client.hear(2, 500, 0)
        assert (len(client.received), client.doubled, client.spurious) == (1, 1, 1)
        swinger.swing(0)
        client.hear(3, 500, 500_000)
        assert swinger.heard({}, 1_000_000).delays_ms == [500.0]
        await client.stop()
