"""Counts of a run agree with what they count, and engines that disagree end it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palio.matching.protocol import Matches
from palio.model import Constraint
from palio.model.expressions import Literal
from palio_studies.gryphon_bound import visits_at_most
from palio_studies.gryphon_runs import TREES, count_places, count_worst_case, drawn_for, time_events
from palio_studies.study import Point, Value
from palio_studies.tree.tree import Tree

BASE: dict[str, Value] = {
    "attributes": 5,
    "values": 3,
    "matches": 3.0,
    "decay": 0.0,
    "ranges": False,
    "factored": 2,
    "subscriptions": 60,
}


def rows_of(**changes: Value) -> dict[str, Any]:
    rows = count_places(Point("growth", {**BASE, **changes}, 1))
    return {str(row["engine"]): row for row in rows}


def test_the_tree_without_optimizations_has_a_node_for_each_prefix() -> None:
    """Counted again from the subscriptions alone, as gryphon 3 draws it."""
    drawn = drawn_for(Point("growth", BASE, 1))
    names = drawn.workload.names
    prefixes: set[tuple[Any, ...]] = set()
    for each in drawn.filters:
        wanted = {test.name: _constant(test) for test in each.conjunctions[0].constraints}
        for depth in range(len(names) + 1):
            prefixes.add(tuple(wanted.get(name) for name in names[:depth]))
    events = drawn.events.to_pylist()
    visited = sum(
        all(value is None or event[name] == value for name, value in zip(names, path, strict=False))
        for event in events
        for path in prefixes
    )
    row = rows_of()["none"]
    assert row["edges"] == len(prefixes) - 1
    assert row["work"] == pytest.approx(visited / len(events))


def _constant(test: Constraint) -> Any:
    assert isinstance(test, Constraint)
    assert isinstance(test.operand, Literal)
    return test.operand.value


def test_all_engines_are_counted_and_the_plain_ones_as_they_must_be() -> None:
    rows = rows_of()
    assert list(rows) == [*TREES, "bound"]
    assert rows["bound"]["work"] == visits_at_most(5, 3, 60)
    assert rows["bound"]["space"] == 60 * 5
    for row in rows.values():
        assert row["space"] == int(row["edges"]) + int(row["successors"])
    assert rows["a"]["edges"] < rows["none"]["edges"]
    assert rows["a"]["successors"] == 0 < rows["a+b"]["successors"]


def test_ranges_are_not_factored() -> None:
    assert "a+b+c" not in rows_of(ranges=True, values=10)


def test_a_run_is_the_same_again_but_for_times() -> None:
    one, other = ([{**row, "add_us": 0} for row in rows_of().values()] for _ in range(2))
    assert one == other


def test_engines_that_disagree_end_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tree, "match", lambda self, events: _nothing())
    with pytest.raises(AssertionError, match="none and the index disagree"):
        rows_of()


def _nothing() -> Matches:
    return Matches(np.array([], np.int64), np.array([], np.int64))


def test_every_engine_is_timed() -> None:
    rows = time_events(Point("times", BASE, 1))
    assert [row["engine"] for row in rows] == [*TREES, "index"]
    assert all(float(row["event_us"]) > 0 for row in rows)


def test_the_worst_case_visits_all_there_is() -> None:
    rows = count_worst_case(Point("worst", {"attributes": 4}, 1))
    assert [row["subscriptions"] for row in rows] == [16] * 3
    plain = rows[0]
    assert plain["work"] == plain["places"] == 2**5 - 1
