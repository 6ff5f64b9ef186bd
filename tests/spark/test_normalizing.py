from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from palio.errors import InvalidInput
from palio.spark.normalizing import normalized
from palio.spark.plan import Normalize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_become_events(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT '1' AS id, '/s' AS source, 't' AS type, '2026-01-01T00:00:00Z' AS time, "
        """'{"x": 1, "y": {"z": "a"}, "tags": [1]}' AS data, named_struct('b.c', 2) AS `o'dd`, """
        "array(1) AS list, 3 AS `data.x`"
    )
    schema = "x BIGINT, y STRUCT<z: STRING>, tags ARRAY<INT>"
    found = normalized(rows, Normalize(json={"data": schema}, cloudevents=True))
    assert dict(found.dtypes) == {
        "id": "string",
        "source": "string",
        "type": "string",
        "time": "timestamp",
        "data.x": "int",
        "data.y.z": "string",
        "o'dd.b.c": "int",
    }
    (row,) = found.collect()
    assert (row["data.x"], row["data.y.z"], row["o'dd.b.c"]) == (3, "a", 2)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (Normalize(json={"none": "x INT"}), "normalize.json: the source has no column 'none'"),
        (Normalize(json={"n": "x INT"}), "column 'n' is int, no text"),
        (Normalize(cloudevents=True), "normalize.cloudevents: .* no column 'id'; it has n, data"),
    ],
)
def test_what_is_not_there_is_told(spark: SparkSession, how: Normalize, message: str) -> None:
    rows = spark.sql("SELECT 1 AS n, '{}' AS data")
    with pytest.raises(InvalidInput, match=message):
        normalized(rows, how)


def test_data_as_text_needs_a_schema(spark: SparkSession) -> None:
    rows = spark.sql("SELECT '1' AS id, '/s' AS source, 't' AS type, '{}' AS data")
    with pytest.raises(InvalidInput, match=r"'data' is text; give its schema under normalize.json"):
        normalized(rows, Normalize(cloudevents=True))
