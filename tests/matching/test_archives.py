"""Filters in files: all that a parameter can be comes back, foreign files are refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path

import pytest

import palio
from palio.errors import InvalidInput
from palio.matching.archives import FILTERS, Written, read_filters, write_filters
from palio.matching.manifest import write_arrow
from palio.matching.tree.tree import Tree
from palio.model import Filter, to_batch
from palio.model.values import Value
from tests.matching.damage import forged


@pytest.mark.parametrize(
    "value",
    [1, -(2**63), 0.1, math.inf, True, "é\0", b"\xff", datetime(2026, 1, 31, 12, 0, 0, 1, UTC)],
    ids=str,
)
def test_values_come_back(value: Value, tmp_path: Path) -> None:
    filter = palio.parse("x = :x AND y IN ('a''b', 'c') OR z LIKE 'a%'")
    assert isinstance(filter, Filter)
    write_filters(tmp_path / "f", [Written.of(-7, filter, {"x": value}, 9)], {"schema": ("x",)})
    settings, rows = read_filters(tmp_path / "f")
    (row,) = rows
    assert settings == {"schema": ["x"]}
    assert (row.key, row.destination) == (-7, 9)
    assert row.read() == (filter, {"x": value})


def test_an_empty_engine_has_a_file_too(tmp_path: Path) -> None:
    Tree().save(tmp_path / "tree")
    assert len(Tree.load(tmp_path / "tree")) == 0


def test_other_files_are_refused(tmp_path: Path) -> None:
    write_filters(tmp_path / "f", [])
    write_arrow(tmp_path / "f" / FILTERS, to_batch({"x": 1}))
    forged(tmp_path / "f", FILTERS)
    with pytest.raises(InvalidInput, match="not of filters"):
        read_filters(tmp_path / "f")
    with pytest.raises(InvalidInput, match="holds no saved engine"):
        read_filters(tmp_path / "missing")
