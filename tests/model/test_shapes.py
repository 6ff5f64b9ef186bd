"""A shape is what a schema says of events, and tells which values are one of these."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from palio.model.events import SEQ, to_batch
from palio.model.shapes import Shape
from tests.strategies import shown

VALUES = (True, 2**63 - 1, 0.5, "é", b"\xff", datetime(2026, 1, 1, tzinfo=UTC))
SCHEMA = to_batch(dict(zip("bifsyt", VALUES, strict=True))).schema


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((0, each) for each in (1, 0.0, "x")),
        *((1, each) for each in (True, 1.0, 2**63, -(2**63) - 1, "1")),
        *((2, each) for each in (1, "x", False)),
        *((3, each) for each in (b"x", 1, ["x"])),
        *((4, each) for each in ("x", 1)),
        *((5, each) for each in (1, "2026-01-01T00:00:00Z")),
    ],
    ids=shown,
)
def test_a_value_of_another_type_does_not_fit(place: int, value: Any) -> None:
    shape = Shape.of(SCHEMA)
    assert shape.fits(VALUES)
    assert shape.fits([None] * 6)
    assert not shape.fits([*VALUES[:place], value, *VALUES[place + 1 :]])
    assert not shape.fits(VALUES[:-1])
    assert not shape.fits((*VALUES, None))


def test_integers_fit_up_to_their_limits() -> None:
    shape = Shape.of(to_batch({"x": 1, "y": 1}).schema)
    assert shape.fits((-(2**63), 2**63 - 1))
    assert shape.fits((None, -(2**63)))
    assert not shape.fits((0, 2**63))
    assert not shape.fits((None, -(2**63) - 1))


def test_shapes_are_their_schemas() -> None:
    named = Shape.of(SCHEMA.with_metadata({"made": "by pandas"}))
    assert named == Shape.of(SCHEMA)
    assert hash(named) == hash(Shape.of(SCHEMA))
    assert not named.schema.metadata
    assert Shape.of(SCHEMA) != Shape.of(SCHEMA.append(pa.field("x", pa.int64())))
    assert repr(Shape.of(SCHEMA)) == "Shape(b, i, f, s, y, t)"
    assert named.stamped is named.stamped
    assert named.stamped.names[-2:] == (SEQ, "$time")


def test_columns_of_other_types_keep_them() -> None:
    fields: list[Any] = [("x", pa.int8()), ("y", pa.utf8())]
    schema = pa.schema(fields)
    shape = Shape.of(schema)
    assert shape.schema.equals(schema)
    assert shape != Shape(("x", "y"), (int, str))
    assert not shape.fits((1, "a"))
