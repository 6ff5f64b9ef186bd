from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import ArrayType, LongType, StructType

from palio.spark.archive import push

SCHEMA = (
    StructType()
    .add("n", "long")
    .add("x", "double")
    .add("s", "string")
    .add("at", "timestamp")
    .add("b", "binary")
    .add("a", ArrayType(LongType()))
    .add("data", StructType().add("y", "integer"))
    .add("dec", "decimal(10,2)")
)
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (EqualTo(("n",), 1), "n = 1"),
        (GreaterThan(("n",), 1), "n > 1"),
        (GreaterThanOrEqual(("n",), 1), "n >= 1"),
        (LessThan(("x",), 1.5), "x < 1.5"),
        (LessThanOrEqual(("x",), 1.5), "x <= 1.5"),
        (In(("n",), [1, 2]), "n IN (1, 2)"),  # type: ignore[arg-type]  # a list is what comes
        (IsNull(("x",)), "x IS NULL"),
        (IsNotNull(("s",)), "s IS NOT NULL"),
        (StringStartsWith(("s",), "a"), "s STARTS WITH 'a'"),
        (StringEndsWith(("s",), "a"), "s ENDS WITH 'a'"),
        (StringContains(("s",), "a"), "s CONTAINS 'a'"),
        (Not(EqualTo(("s",), "a")), "s != 'a'"),
        (Not(IsNull(("x",))), "x IS NOT NULL"),
        (EqualTo(("data", "y"), 1), "data.y = 1"),
        (EqualTo(("at",), AT), "at = TIMESTAMP '2026-01-01T00:00:00Z'"),
    ],
    ids=str,
)
def test_what_means_the_same_is_taken_over(given: Filter, text: str) -> None:
    pushed = push([given], SCHEMA)
    assert (str(pushed.filter), pushed.left) == (text, [])


@pytest.mark.parametrize(
    "given",
    [
        GreaterThan(("x",), 1.0),  # true of NaN in Spark
        GreaterThanOrEqual(("x",), 1.0),
        Not(LessThan(("x",), 1.0)),
        EqualNullSafe(("n",), 1),
        In(("n",), [1, None]),  # type: ignore[arg-type]  # a list is what comes
        EqualTo(("a",), [1]),
        EqualTo(("dec",), 1),
        EqualTo(("nowhere",), 1),
        EqualTo(("at",), AT.replace(tzinfo=None)),
        EqualTo(("x",), float("nan")),
    ],
    ids=str,
)
def test_what_does_not_is_left_to_spark(given: Filter) -> None:
    pushed = push([given], SCHEMA)
    assert (str(pushed.filter), pushed.left) == ("TRUE", [given])


def test_all_that_is_taken_over_must_hold() -> None:
    given: list[Any] = [LessThan(("n",), 5), EqualNullSafe(("n",), 1), EqualTo(("s",), "a")]
    pushed = push(given, SCHEMA)
    assert str(pushed.filter) == "n < 5 AND s = 'a'"
    assert pushed.left == [given[1]]
