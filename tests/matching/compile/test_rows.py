"""Rows in order: intersections, contradictions, prefixes."""

from __future__ import annotations

import numpy as np

from palio.matching.compile.ranges import RowTemplate, compile_templates, ranges_of
from palio.matching.compile.rows import (
    PREFIX_DEPTH,
    CompiledRows,
    prefixes_of,
    shared_prefixes,
)
from palio.model.operators import Op


def compiled_rows(*columns: tuple[str, Op, list[int]]) -> CompiledRows:
    terms = []
    for name, op, values in columns:
        ranges = ranges_of(name, op, np.array(values), None)
        assert ranges is not None
        terms.append(ranges)
    return compile_templates([RowTemplate(np.arange(len(columns[0][2])) * 10, terms)])


def test_ranges_on_one_attribute_are_one_predicate() -> None:
    found = compiled_rows(("x", Op.GE, [1, 5, 4]), ("x", Op.LT, [3, 5, 6]), ("y", Op.EQ, [0, 0, 0]))
    assert sorted(found.row_owners.tolist()) == [0, 20], "5 <= x < 5 has no rows"
    assert np.diff(found.row_offsets).tolist() == [2, 2]
    assert len(found.predicate_slots) == 3


def test_equal_predicates_are_kept_once_and_rows_are_in_order() -> None:
    found = compiled_rows(("x", Op.EQ, [1, 2, 1, 2]), ("y", Op.LE, [9, 8, 9, 7]))
    rows = [
        tuple(found.row_predicates[first:end].tolist())
        for first, end in zip(found.row_offsets[:-1], found.row_offsets[1:], strict=True)
    ]
    assert rows == sorted(rows)
    assert all(list(row) == sorted(row) for row in rows)
    assert len(found.predicate_slots) == 5


def test_prefixes_are_cut_at_their_depth() -> None:
    offsets = np.array([0, 2, 2, 2 + PREFIX_DEPTH + 1])
    ids = np.concatenate([[3, 4], np.arange(PREFIX_DEPTH + 1)])
    prefixes = prefixes_of(offsets, ids)
    assert prefixes.shape == (3, PREFIX_DEPTH)
    assert prefixes[0, :3].tolist() == [3, 4, -1]
    assert prefixes[1].tolist() == [-1] * PREFIX_DEPTH
    assert prefixes[2].tolist() == list(range(PREFIX_DEPTH))
    assert shared_prefixes(np.array([[1, 2], [1, 3], [1, 3], [2, -1]])).tolist() == [0, 1, 2, 0, 0]
