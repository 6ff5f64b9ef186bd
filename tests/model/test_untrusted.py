"""Arrow bytes of any origin become batches of which nothing leads elsewhere, or are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from palio.model.events import conform
from palio.model.untrusted import decoded_bytes

WORDS = ["", "abc", None, "é" * 20, "a text that is too long to lie in a view"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(WORDS),
        pa.array(WORDS, pa.large_utf8()),
        pa.array(WORDS, pa.string_view()),
        pa.array(WORDS).cast(pa.binary()).cast(pa.binary_view()),
        pa.array(WORDS * 3).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), pa.array(WORDS[:2])),
        pa.array([b"1234", None], pa.binary(4)),
        pa.array([1, None, 3], pa.int8()),
        pa.array([True, None]),
        pa.nulls(7),
        pa.array([], pa.utf8()),
        pa.array([], pa.string_view()),
    ],
    ids=lambda column: str(column.type),
)
def test_what_a_column_becomes_is_no_more_than_was_reckoned(column: Any) -> None:
    for part in (column, column[1:], column[1:2]):
        batch = pa.record_batch({"x": part})
        batch.validate(full=True)
        reckoned = decoded_bytes(batch)
        assert conform(batch).nbytes <= reckoned + 8  # validity and the last offset
        texts = [each for each in part.to_pylist() if isinstance(each, str | bytes)]
        sizes = sum(len(each.encode() if isinstance(each, str) else each) for each in texts)
        assert reckoned == 8 * len(part) + sizes


def test_a_long_text_that_is_named_often_counts_as_often() -> None:
    long = pa.DictionaryArray.from_arrays(
        pa.array([0] * 100_000, pa.int8()), pa.array(["a" * 1_000_000])
    )
    batch = pa.record_batch({"x": long})
    assert batch.nbytes < 1_200_000
    assert decoded_bytes(batch) > 100_000 * 1_000_000


def test_views_that_share_a_text_count_one_by_one() -> None:
    one = pa.array(["a" * 100_000], pa.string_view())
    data: Any = one.buffers()
    many: Any = pa.Array.from_buffers(
        pa.string_view(), 1_000, [None, pa.py_buffer(data[1].to_pybytes() * 1_000), data[2]]
    )
    batch = pa.record_batch({"x": many})
    batch.validate(full=True)
    assert decoded_bytes(batch) > 1_000 * 100_000
