"""Merged sets of rows match like their parts, and keep no cut that nobody uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from palio.matching.compile.merge import merged
from palio.matching.compile.ranges import (
    DomainChoice,
    Range,
    RowTemplate,
    compile_templates,
    ranges_of,
)
from palio.matching.compile.rows import CompiledRows
from palio.matching.kernels import fallback
from palio.model.constraints import Constraint, domain_of
from palio.model.operators import Op
from tests.matching.kernels.test_kernels import some_rows


def test_merged_rows_match_like_their_parts(seed: int) -> None:
    draw = np.random.default_rng(seed)
    parts = [some_rows(draw, 30), some_rows(draw, 60)]
    kept = [draw.random(part.rows) < 0.7 for part in parts]
    whole = merged(parts, kept)
    batch = pa.record_batch({f"a{at}": draw.integers(0, 40, 100) for at in range(8)})

    def matches(rows: CompiledRows, wanted: Any) -> list[tuple[int, int]]:
        codes = fallback.code_batch(rows.universe, batch)
        return fallback.match_rows(rows, rows.row_owners, codes, wanted)

    separate = {
        pair for part, keep in zip(parts, kept, strict=True) for pair in matches(part, keep)
    }
    assert set(matches(whole, np.ones(whole.rows, np.bool_))) == separate


def mixed_kinds(values: list[Any]) -> CompiledRows:
    """A row `x = value` for each value of any kind, and one with a text test."""
    domains = [domain_of(Constraint.of("x", "=", value)) for value in values]
    domains.append(domain_of(Constraint.of("x", "LIKE", f"%{len(values)}")))
    terms = [DomainChoice("x", domains, np.arange(len(domains)))]
    return compile_templates([RowTemplate(np.arange(len(domains)), terms)])


def test_only_cuts_in_use_come_along() -> None:
    several = [mixed_kinds([True, 5, "a", b"a"]), mixed_kinds([7, "a", "b"])]
    kept = [part.row_owners < len(part.row_owners) - 1 for part in several]
    kept[0] &= several[0].row_owners != 1
    whole = merged(several, kept)
    cuts = whole.universe.cuts["x"]
    assert cuts.numbers.ints.tolist() == [7, 8]
    assert cuts.strings == [b"a", b"a\0", b"b", b"b\0"]
    assert (cuts.true, len(cuts.binaries), whole.universe.tests) == (True, 2, ())
    codes = [whole.universe.code_of("x", value) for value in (None, True, 7, "a", b"a", "c")]
    assert len(set(codes)) == 6
    assert codes[2] == whole.universe.code_of("x", 7)


def test_rows_do_not_grow_with_changes_that_were_undone() -> None:
    whole = merged([], [])
    for round_ in range(50):
        ranges = ranges_of("x", Op.LT, np.array([round_ + 0.5]), None)
        assert isinstance(ranges, Range)
        fresh = compile_templates([RowTemplate(np.array([1]), [ranges])])
        whole = merged([whole, fresh], [np.zeros(whole.rows, np.bool_), np.ones(1, np.bool_)])
    assert (whole.rows, len(whole.universe.number_ints)) == (1, 1)
