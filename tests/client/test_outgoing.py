from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from palio.client.outgoing import batches
from palio.errors import InvalidEvent


def test_events_and_batches_become_batches_of_the_models_types() -> None:
    assert batches({"x": 1})[0].to_pylist() == [{"x": 1}]
    assert [batch.num_rows for batch in batches([{"x": 1}, {"x": "a"}, {"x": "b"}])] == [1, 2]
    narrow = pa.record_batch({"x": pa.array([1], pa.int8())})
    assert batches(narrow)[0].schema.field("x").type == pa.int64()
    assert batches([]) == []


@pytest.mark.parametrize(
    "wrong",
    [7, [7], {"$seq": 1}, [{"x": 1}, {"$x": 1}], pa.record_batch({"$time": [1]}), {"x": object()}],
    ids=["number", "list", "system", "second", "batch", "object"],
)
def test_what_is_no_event_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidEvent):
        batches(wrong)
