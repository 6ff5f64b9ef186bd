"""An index in files: for whom, saved again, and less what is gone. Damage: `test_manifest.py`."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from palio.language.parsing import parse_filter
from palio.matching.index import Index
from palio.model.filters import Conjunction, Filter
from palio.model.operators import Op
from tests.matching.damage import saved
from tests.modes import modes_below, umask
from tests.strategies import some_constraint


def test_an_index_is_for_its_owner_only(tmp_path: Path) -> None:
    with umask(0):
        saved(tmp_path / "index")
    assert modes_below(tmp_path / "index") == ({0o700}, {0o600})


def test_an_index_that_is_saved_again_leaves_readers_what_they_have(tmp_path: Path) -> None:
    index = Index()
    index.add_many(range(100), parse_filter("x = :x"), {"x": list(range(100))})
    index.save(tmp_path)
    loaded = Index.load(tmp_path)
    other = Index()
    other.add(1, parse_filter("x = 3"))
    other.save(tmp_path)
    assert loaded.match(pa.record_batch({"x": [7]})).keys.tolist() == [7]
    assert Index.load(tmp_path).match(pa.record_batch({"x": [3]})).keys.tolist() == [1]


def test_filters_that_were_loaded_and_removed_are_not_saved_again(tmp_path: Path) -> None:
    index = Index()
    for key in range(5):
        index.add(key, parse_filter("x = :x AND LENGTH(s) > 1"), {"x": key}, destination=-key)
    index.save(tmp_path / "first")
    loaded = Index.load(tmp_path / "first")
    loaded.remove(3)
    loaded.bind(4, {"x": 0})
    loaded.save(tmp_path / "second")
    again = Index.load(tmp_path / "second")
    assert (len(again), 3 in again) == (4, False)
    assert again.route_event({"x": 0, "s": "ab"}) == [-4, 0]
    assert again.subscription(4).values == {"x": 0}


@pytest.mark.parametrize("op", Op)
def test_filters_of_every_operator_are_loaded_as_they_were_saved(
    op: Op, rng: random.Random, tmp_path: Path
) -> None:
    some = [Filter.of([Conjunction.of([some_constraint(rng, ops=[op])])]) for _ in range(20)]
    index = Index()
    for key, filter in enumerate(some):
        index.add(key, filter)
    index.save(tmp_path)
    loaded = Index.load(tmp_path)
    assert [loaded.subscription(key).filter for key in range(len(some))] == some
