from __future__ import annotations

import pyarrow as pa
import pytest

from palio.errors import InvalidEvent
from palio.spark.reshaping import reshaped

BATCH = pa.record_batch({"n": [1, 2], "x": [1.0, 2.5], "s": ["3", "b"]})


def schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


def test_columns_come_in_the_order_of_the_schema_and_missing_ones_are_null() -> None:
    target = schema(s=pa.utf8(), new=pa.int64(), n=pa.int64())
    found = reshaped(BATCH, target, "b1")
    assert found.schema == target
    assert found.to_pydict() == {"s": ["3", "b"], "new": [None, None], "n": [1, 2]}


def test_values_that_fit_another_type_take_it() -> None:
    target = schema(n=pa.int32(), x=pa.float32())
    assert reshaped(BATCH, target, "b1").to_pydict() == {"n": [1, 2], "x": [1.0, 2.5]}


@pytest.mark.parametrize("name", ["x", "s"])
def test_a_value_that_does_not_fit_is_an_error(name: str) -> None:
    with pytest.raises(InvalidEvent, match=f"{name!r} of events from b1 .* does not fit"):
        reshaped(BATCH, pa.schema([(name, pa.int64())]), "b1")


def test_or_null_by_itself_where_that_is_asked_for() -> None:
    target = pa.schema([("x", pa.int64()), ("s", pa.int64())])
    found = reshaped(BATCH, target, "b1", permissive=True)
    assert found.to_pydict() == {"x": [1, None], "s": [3, None]}


def test_no_rows_are_no_rows() -> None:
    target = pa.schema([("x", pa.int64())])
    assert reshaped(BATCH.slice(0, 0), target, "b1", permissive=True).num_rows == 0
