"""Tables in and out: what is published as a table comes as events, and events come as a table."""

from __future__ import annotations

from typing import Any

import duckdb
import pandas as pd  # type: ignore[import-untyped]  # it has no types here
import polars as pl
import pyarrow as pa
import pytest

import palio
from palio.errors import InvalidEvent

COLUMNS = {"symbol": ["IBM", "SAP", None], "price": [9.5, 12.0, 7.0], "size": [1, 2, 3]}


def tables() -> list[Any]:
    frame = pd.DataFrame(COLUMNS)
    return [
        pa.table(COLUMNS),
        pa.record_batch(COLUMNS),
        frame,
        frame.set_index("symbol").reset_index(),
        pl.DataFrame(COLUMNS),
        duckdb.from_df(frame).arrow(),
        pa.concat_tables([pa.table(COLUMNS).slice(at, 1) for at in range(3)]),
    ]


@pytest.mark.parametrize("number", range(7))
async def test_a_table_is_published_row_by_row(number: int) -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("price < 10")
        await bus.publish(tables()[number])
        got = [dict(await sub.receive(timeout=5)) for _ in range(2)]
        assert got == [{"symbol": "IBM", "price": 9.5, "size": 1}, {"price": 7.0, "size": 3}]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (pd.DataFrame({"x": [[1, 2]]}), "x"),
        (pa.table({"$seq": [1]}), r"\$seq"),
        (pa.chunked_array([[1, 2]]), "no table of events"),
        (pd.DataFrame({"a": [1], "b": [1]}).set_axis(["a", "a"], axis=1), "a"),
    ],
)
async def test_a_table_that_is_none_of_events_is_refused_whole(table: Any, problem: str) -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("TRUE")
        with pytest.raises(InvalidEvent, match=problem):
            await bus.publish(table)
        assert sub.pending == 0


async def test_pending_events_come_as_one_table() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x >= 0")
        await bus.publish([{"x": 1}, {"x": 2, "y": "a"}])
        await bus.publish({"x": 0.5})
        table = await sub.to_arrow()
        assert table.drop_columns(["$seq", "$time"]).to_pylist() == [
            {"x": 1.0, "y": None},
            {"x": 2.0, "y": "a"},
            {"x": 0.5, "y": None},
        ]
        assert (await sub.to_arrow()).num_rows == 0
        await bus.publish({"x": 7})
        assert (await sub.to_pandas(timeout=0.1))["x"].tolist() == [7]


async def test_events_whose_types_differ_are_no_table() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("EXISTS x")
        await bus.publish([{"x": 1}, {"x": "a"}])
        with pytest.raises(InvalidEvent, match="do not fit into one table"):
            await sub.to_arrow()


def test_tables_come_without_await_too() -> None:
    with palio.SyncBus() as bus:
        sub = bus.subscribe("price < 10")
        bus.publish(pd.DataFrame(COLUMNS))
        assert sub.to_pandas(timeout=0.2)["size"].tolist() == [1, 3]
