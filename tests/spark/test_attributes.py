from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from palio.errors import InvalidEvent
from palio.spark.attributes import (
    EXACT_DIGITS,
    attributes_of,
    fit,
    is_attribute,
    reshaped,
)
from tests.strategies import shown

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "reference" / "spark.md"
UTC: Final = dt.UTC
NOON: Final = dt.datetime(2026, 1, 1, 12, tzinfo=UTC)

KINDS: Final = {
    "boolean": pa.bool_(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.utf8(),
    "bytes": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "the nearest float64": pa.float64(),
    "timestamp of its midnight in UTC": pa.timestamp("us", tz="UTC"),
}

ARROW: Final = {
    **{str(each): each for each in (pa.bool_(), pa.int8(), pa.int64(), pa.uint8(), pa.uint32())},
    **{str(each): each for each in (pa.uint64(), pa.float16(), pa.float32(), pa.float64())},
    **{str(each): each for each in (pa.utf8(), pa.large_utf8(), pa.string_view())},
    **{str(each): each for each in (pa.binary(), pa.large_binary(), pa.timestamp("ns"))},
    **{str(each): each for each in (pa.timestamp("us"), pa.timestamp("us", tz="UTC"))},
    "date32": pa.date32(),
    "decimal128(p, 0)": pa.decimal128(20, 0),
    "decimal128(p, s)": pa.decimal128(20, 2),
    "list": pa.list_(pa.int64()),
    "map": pa.map_(pa.utf8(), pa.int64()),
    "null": pa.null(),
    "struct": pa.struct([("x", pa.int64())]),
}


def table() -> list[list[str]]:
    """Rows of the table of types: Spark, Arrow, attribute."""
    part = DOCUMENT.read_text(encoding="utf-8").partition("## Columns as attributes")[2]
    lines = [line for line in part.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


CASES: Final = [(name, row[2]) for row in table() for name in re.findall(r"`([^`]+)`", row[1])]


def test_the_table_names_every_type_once() -> None:
    names = [name for name, _ in CASES]
    assert sorted(names) == sorted(set(names))
    assert set(names) == set(ARROW)


@pytest.mark.parametrize(("name", "says"), CASES)
def test_the_table_of_types(name: str, says: str) -> None:
    given = ARROW[name]
    if says.startswith(("absent", "its fields")):
        assert not is_attribute(given)
        return
    assert is_attribute(given)
    batch = pa.record_batch({"x": pa.nulls(2, given)})
    kind = next(text for text in sorted(KINDS, key=len, reverse=True) if says.startswith(text))
    assert fit(batch).events.schema.field("x").type == KINDS[kind]


@pytest.mark.parametrize(
    ("given", "value", "attribute"),
    [
        (pa.int8(), -128, -128),
        (pa.uint64(), 2**63 - 1, 2**63 - 1),
        (pa.float32(), 0.5, 0.5),
        (pa.decimal128(38, 0), Decimal(2**63 - 1), 2**63 - 1),
        (pa.decimal128(3, -2), Decimal(100), 100),
        (pa.decimal128(10, 2), Decimal("0.10"), 0.1),
        (pa.decimal256(60, 20), Decimal("-1e-15"), -1e-15),
        (pa.decimal128(38, 10), Decimal("12345678901234.5"), 12345678901234.5),
        (pa.date32(), dt.date(1969, 12, 31), dt.datetime(1969, 12, 31, tzinfo=UTC)),
        (pa.date64(), dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=UTC)),
        (pa.timestamp("us"), NOON.replace(tzinfo=None), NOON),
        (pa.timestamp("s", tz="America/New_York"), NOON, NOON),
        (pa.timestamp("ns"), 1_000, dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        (pa.dictionary(pa.int8(), pa.utf8()), "a", "a"),
        (pa.large_utf8(), "é", "é"),
        (pa.binary(2), b"ab", b"ab"),
    ],
    ids=shown,
)
def test_values_are_kept_exactly(given: pa.DataType, value: Any, attribute: Any) -> None:
    fitted = fit(pa.record_batch({"x": pa.array([value, None], given)}))
    assert fitted.misfits == []
    assert fitted.events.column(0).to_pylist() == [attribute, None]


@pytest.mark.parametrize(
    ("given", "value", "reason"),
    [
        (pa.uint64(), 2**63, "beyond int64"),
        (pa.decimal128(38, 0), Decimal(2**63), "beyond int64"),
        (pa.decimal128(38, 3), Decimal("1" + "0" * 12 + "1.001"), "more than 15 digits"),
        (pa.timestamp("ns"), 1_001, "finer than microseconds"),
        (pa.timestamp("s"), 2**55, "out of range"),
    ],
    ids=shown,
)
def test_what_does_not_fit_is_a_misfit_of_its_row_only(
    given: pa.DataType, value: Any, reason: str
) -> None:
    column = pa.array([None, value, 0 if not pa.types.is_decimal(given) else Decimal(0)], given)
    events, misfits = fit(pa.record_batch({"y": [1, 2, 3], "x": column}))
    assert events.column(1).null_count == 2
    assert events.column(0).to_pylist() == [1, 2, 3]
    assert [(each.rows.tolist(), each.attribute) for each in misfits] == [([1], "x")]
    assert reason in misfits[0].reason


@pytest.mark.parametrize("digits", [EXACT_DIGITS - 1, EXACT_DIGITS, EXACT_DIGITS + 1])
def test_the_limit_of_digits(digits: int) -> None:
    value = Decimal("1" * (digits - 1) + ".1")
    misfits = fit(pa.record_batch({"x": pa.array([value], pa.decimal128(38, 10))})).misfits
    assert bool(misfits) == (digits > EXACT_DIGITS)


def test_a_batch_of_the_models_own_types_is_handed_on() -> None:
    batch = pa.record_batch({"x": pa.array([1]), "s": pa.array(["a"])})
    assert fit(batch).events is batch


def test_fields_have_dotted_names_and_a_columns_own_name_goes_first() -> None:
    inner = pa.struct([("x", pa.int64()), ("deep", pa.struct([("y", pa.utf8())]))])
    schema = pa.schema([("data", inner), ("data.x", pa.utf8()), ("tags", pa.list_(pa.utf8()))])
    assert attributes_of(schema) == {
        "data.x": ("data.x",),
        "data.deep.y": ("data", "deep", "y"),
    }


# --- columns of another schema ---


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
