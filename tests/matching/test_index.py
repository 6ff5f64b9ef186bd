"""The index equals the reference by every plan, for any batch and any number of readers."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

import palio
from palio.errors import InvalidBinding, InvalidInput
from palio.matching import snapshots, store, warming
from palio.matching.index import Index
from palio.matching.kernels import registry
from palio.matching.reference import Reference
from palio.matching.segment import Costs
from palio.model import Filter, to_batch, to_batches
from tests.strategies import combined, fresh, nearby, some_bindings, some_test

PLANS: Final = ("fallback", "few", "many")

ROWS: Final = 10
"""Of a table of parameters."""


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each plan in turn, forced on every part of every index of the test."""
    chosen = str(request.param)
    monkeypatch.setattr(warming, "FALLBACK_PAIRS", 1 << 62)
    if chosen == "fallback":
        monkeypatch.setattr(registry, "_loaded", [])
    else:
        warming.warm()
        costs = {"few": 0.0 if chosen == "few" else 1.0, "many": 0.5}
        monkeypatch.setattr(Costs, "of", lambda *_: costs)
    return chosen


def some_filters(rng: random.Random, count: int) -> Iterator[Filter]:
    """Filters of every shape; a third and more have three or more tests."""
    made = 0
    while made < count:
        tests = [some_test(rng, variables=True) for _ in range(rng.choice((1, 2, 3, 3, 4, 5)))]
        try:
            yield fresh(combined(rng, tests))
        except InvalidInput:  # too many alternatives, or constants that cannot be compared
            continue
        made += 1


def some_events(rng: random.Random, filters: list[Filter], count: int) -> list[dict[str, Any]]:
    return list(nearby(*filters, seed=rng.randrange(1 << 30), count=count))


def parsed(text: str) -> Filter:
    filter = palio.parse(text)
    assert isinstance(filter, Filter)
    return filter


def pairs(engine: Reference | Index, batch: pa.RecordBatch) -> list[tuple[int, int]]:
    rows, keys = engine.match(batch)
    return list(zip(rows.tolist(), keys.tolist(), strict=True))


def check_equal(index: Index, reference: Reference, events: list[dict[str, Any]]) -> None:
    first = 0
    for batch in to_batches(events):
        expected = pairs(reference, batch)
        assert pairs(index, batch) == expected
        for row in range(0, batch.num_rows, 4):  # some of them one at a time, as mappings
            keys = [key for at, key in expected if at == row]
            assert index.match_event(events[first + row]).tolist() == keys
            alone = index.route(batch.slice(row, 1))
            assert index.route_event(events[first + row]) == list(alone)
        first += batch.num_rows
    assert len(index) == len(reference)


def usable(filter: Filter, bindings: dict[str, Any]) -> dict[str, Any] | None:
    chosen = {name: bindings[name] for name in filter.variables}
    try:
        filter.bind(chosen)
    except InvalidInput:
        return None
    return chosen


def test_many_events_fill_several_blocks(plan: str, rng: random.Random) -> None:
    index, reference = Index(), Reference()
    for key in range(200):
        text = f"x >= {rng.randrange(50)} AND y < {rng.randrange(50)} AND z IN ({key % 5}, 7)"
        for engine in (index, reference):
            engine.add(key, parsed(text))
    draw = np.random.default_rng(rng.randrange(1 << 30))
    batch = pa.record_batch({name: draw.integers(0, 50, 1300) for name in "xyz"})
    narrow = batch.slice(3, 700)
    assert pairs(index, narrow) == pairs(reference, narrow)
    assert plan in PLANS


def test_slices_and_nulls_are_read_in_place(plan: str) -> None:
    index, reference = Index(), Reference()
    texts = ["n > 1", "n IS NULL", "s STARTS WITH 'b'", "ok", "NOT ok", "f <= 2.5", "s = 'bcd'"]
    for key, text in enumerate(texts):
        for engine in (index, reference):
            engine.add(key, parsed(text))
    rows = 40
    batch = pa.record_batch(
        {
            "n": pa.array([None if row % 3 == 0 else row % 4 for row in range(rows)], pa.int64()),
            "s": pa.array([None if row % 5 == 0 else "abcd"[row % 4 :] for row in range(rows)]),
            "ok": pa.array([None if row % 7 == 0 else row % 2 == 0 for row in range(rows)]),
            "f": pa.array([None if row % 4 == 0 else row / 4 for row in range(rows)]),
        }
    )
    for start, length in ((0, rows), (1, 30), (13, 20), (39, 1), (5, 0)):
        part = batch.slice(start, length)
        assert pairs(index, part) == pairs(reference, part)
    assert plan in PLANS


@pytest.mark.parametrize("null_every", [0, 3])
def test_tables_equal_single_filters(plan: str, rng: random.Random, null_every: int) -> None:
    skeletons = [
        ("x >= :low AND x < :high", ("number", "other")),
        ("x = :low OR y != :high AND s STARTS WITH :text", ("number", "other", "text")),
        ("x IN (1, :low, :high) AND s NOT LIKE 'a%b'", ("number", "other")),
        ("x > y + :low AND x < :high", ("number", "other")),
    ]
    columns_of = {"number": "low", "other": "high", "text": "text"}
    index, reference = Index(), Reference()
    first = 0
    events: list[dict[str, Any]] = [{}]
    for text, kinds in skeletons:
        skeleton = parsed(text)
        rows = [some_bindings(rng) for _ in range(ROWS)]
        columns = {}
        for kind in kinds:
            listed = [float(row[kind]) if kind != "text" else row[kind] for row in rows]
            if null_every:
                listed = [None if rng.randrange(null_every) == 0 else value for value in listed]
            columns[columns_of[kind]] = listed
        keys = list(range(first, first + ROWS))
        rng.shuffle(keys)
        index.add_many(keys, skeleton, columns)
        for place, key in enumerate(keys):
            subscription = index._subscriptions[key]
            reference.add(key, subscription.filter, subscription.values)
            events += [
                {"x": columns["low"][place], "y": rng.choice((1, 2.5)), "s": "ab"},
                {"x": columns["high"][place], "s": "b"},
            ]
        first += ROWS
    events = [
        {name: value for name, value in event.items() if value is not None} for event in events
    ]
    check_equal(index, reference, events)
    index.bind(3, {"low": 1.0}) if "low" in index._subscriptions[3].values else None
    check_equal_after_removal(index, reference, events)
    assert plan in PLANS


def check_equal_after_removal(
    index: Index, reference: Reference, events: list[dict[str, Any]]
) -> None:
    for key in (3, ROWS + 5, 3 * ROWS - 1, 3 * ROWS):
        index.remove(key)
        reference.remove(key)
    check_equal(index, reference, events)
    index.merge()
    check_equal(index, reference, events)


@pytest.mark.parametrize("mmap", [True, False])
def test_saved_and_loaded(plan: str, rng: random.Random, tmp_path: Path, mmap: bool) -> None:
    index, reference = Index(), Reference()
    filters = []
    for key, filter in enumerate(some_filters(rng, 15)):
        bindings = usable(filter, some_bindings(rng))
        if bindings is not None:
            filters.append(filter.bind(bindings))
            for engine in (index, reference):
                engine.add(key, filter, bindings, destination=key % 3)
    skeleton = parsed("n < :limit AND s != ':0'")
    index.add_many([100, 101], skeleton, {"limit": [3, None]}, destinations=[7, 8])
    reference.add(100, skeleton, {"limit": 3}, destination=7)
    reference.add(101, parsed("s != ':0'"), destination=8)
    index.save(tmp_path)
    loaded = Index.load(tmp_path, mmap=mmap)
    events = some_events(rng, filters, 12)
    check_equal(loaded, reference, events)
    event = {"n": 2.5, "s": "a"}
    for engine in (loaded, reference):
        engine.bind(100, {"limit": 2})
        engine.remove(101)
    check_equal(loaded, reference, [*events, event])
    loaded.save(tmp_path / "again")
    check_equal(Index.load(tmp_path / "again"), reference, [*events, event])
    assert plan in PLANS


def test_what_is_no_saved_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no saved index"):
        Index.load(tmp_path)


def test_a_set_that_stands_still_becomes_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    warming.warm()
    jobs: list[Any] = []
    index, reference = Index(jobs.append), Reference()
    index.add_many(range(2_000), parsed("x = :v"), {"v": [key % 50 for key in range(2_000)]})
    for key in range(2_000):
        reference.add(key, parsed("x = :v"), {"v": key % 50})
    for engine in (index, reference):
        for key in range(0, 200, 2):
            engine.bind(key, {"v": 7})
    batch = pa.record_batch({"x": range(10)})
    monkeypatch.setattr(store, "IDLE_MERGE_PAIRS", 2_500)

    def recent_rows() -> int:
        return index.explain_plan(10).recent

    for _ in range(3):
        index.match(batch)
    assert (recent_rows(), len(jobs)) == (100, 1)
    for _ in range(3):
        index.match(batch)  # it is being done
    (job,) = jobs
    index.bind(1, {"v": 7})
    index.match(batch)
    job()
    assert recent_rows() == 101  # somebody has seen more meanwhile
    for _ in range(3):
        index.match(batch)
    jobs.pop()()
    assert recent_rows() == 0
    assert len(index.explain_plan(10).layers) == 1
    for engine in (index, reference):
        engine.bind(1, {"v": 1})
        engine.remove(2)
    assert pairs(index, batch) == pairs(reference, batch)
    assert recent_rows() == 1
    index.merge()
    assert pairs(index, batch) == pairs(reference, batch)


@pytest.mark.parametrize("filters", [1, 50, 4_000])
def test_a_small_set_becomes_one_part_once_single_events_cost_as_much(filters: int) -> None:
    warming.warm()
    jobs: list[Any] = []
    index = Index(jobs.append)
    for key in range(filters):
        index.add(key, parsed("x = :v"), {"v": key % 50})
    index.merge()
    jobs.clear()
    index.bind(0, {"v": 7})
    assert index.explain_plan(1).recent == 1
    enough = (
        store.ROW_MERGE_PAIRS * (store.FIXED_MERGE_ROWS + filters + 1) // store.SINGLE_EVENT_PAIRS
    )
    for _ in range(enough // 2):
        index.match_event({"x": 7})
    assert not jobs
    for _ in range(enough // 2 + 2):
        index.match_event({"x": 7})
    (job,) = jobs
    job()
    assert index.explain_plan(1).recent == 0
    assert 0 in index.match_event({"x": 7}).tolist()


def test_readers_never_see_half_a_change(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every filter matches exactly one row under any value, so that a torn read would show."""
    monkeypatch.setattr(store, "IDLE_MERGE_PAIRS", 2_000)
    warming.warm()
    values, filters = 20, 300
    with ThreadPoolExecutor(3) as pool:
        index = Index(pool.submit)
        index.add_many(range(filters), parsed("x = :v"), {"v": [0] * filters})
        batch = pa.record_batch({"x": range(values)})
        stop = threading.Event()

        def read() -> int:
            reads = 0
            while not stop.is_set():
                found = index.match(batch)
                assert np.array_equal(np.sort(found.keys), np.arange(filters))
                reads += 1
            return reads

        readers = [pool.submit(read) for _ in range(2)]
        try:
            for _ in range(1500):
                index.bind(rng.randrange(filters), {"v": rng.randrange(values)})
        finally:
            stop.set()
        assert all(reader.result() > 0 for reader in readers)


def test_a_change_during_a_read_is_neither_lost_nor_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next reader sees what is noted while one compiles, on top of what that kept."""
    index, reference = Index(), Reference()
    original = snapshots._changed
    late: list[tuple[int, dict[str, Any]]] = [(0, {"v": 9}), (1, {"v": 8})]

    def interrupted(*arguments: Any) -> Any:
        while late:
            index.bind(*late.pop())
        return original(*arguments)

    for engine in (index, reference):
        for key in range(6):
            engine.add(key, parsed("x = :v"), {"v": key})
    batch = pa.record_batch({"x": range(10)})
    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "_changed", interrupted)
        patched.setattr(registry, "_loaded", [])
        index.match(batch)
    for engine in (index, reference):
        engine.bind(0, {"v": 9})
        engine.bind(1, {"v": 8})
        engine.remove(5)
    assert pairs(index, batch) == pairs(reference, batch)


def test_a_small_script_never_starts_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_loaded", [])
    jobs: list[Any] = []
    index = Index(jobs.append)
    index.add(1, parsed("x = 1"))
    batch = pa.record_batch({"x": range(100)})
    monkeypatch.setattr(warming, "WARM_PAIRS", 300)
    monkeypatch.setattr(registry, "_missed", [0])
    for _ in range(3):
        index.match(batch)
    assert jobs == []
    index.match(batch)
    index.match(batch)
    assert jobs == [warming.warm]


def test_many_filters_load_the_kernels_before_any_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_loaded", [])
    monkeypatch.setattr(registry, "_missed", [0])
    jobs: list[Any] = []
    index = Index(jobs.append, int)
    enough = warming.WARM_PAIRS // warming.ADDED_PAIRS
    for key in range(enough):
        index.add(key, parsed("x = 1"))
    assert int not in jobs
    for key in range(enough):
        index.add(key, parsed("x = 2"))
    assert jobs.count(int) == 1, "loading takes a while"


def test_filters_that_hear_nothing_load_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_loaded", [])
    monkeypatch.setattr(registry, "_missed", [0])
    monkeypatch.setattr(warming, "ADDED_PAIRS", 1 << 62)
    jobs: list[Any] = []
    Index(jobs.append).add(1, parsed("x = 1"))
    assert jobs == []


def test_empty_batches_and_empty_indexes(plan: str) -> None:
    index = Index()
    event = to_batch({"x": 1})
    assert pairs(index, event) == []
    index.add(1, parsed("TRUE"))
    index.add(2, parsed("FALSE"))
    assert pairs(index, event) == [(0, 1)]
    assert pairs(index, event.slice(0, 0)) == []
    assert pairs(index, to_batch({})) == [(0, 1)]
    assert plan in PLANS


def test_a_column_of_lists_is_refused_with_what_does_it() -> None:
    index = Index()
    with pytest.raises(InvalidBinding, match="one by one, with add") as refused:
        index.add_many([1, 2], parsed("x IN :some"), {"some": [[1, 2], [3]]})
    assert refused.value.name == "some"
    assert len(index) == 0


def test_errors_change_nothing() -> None:
    index = Index()
    index.add(1, parsed("x < :limit"), {"limit": 5})
    with pytest.raises(InvalidBinding, match="no parameter :lim"):
        index.bind(1, {"lim": 6})
    with pytest.raises(InvalidBinding, match=":limit"):
        index.add(1, parsed("y < :limit"))
    with pytest.raises(KeyError):
        index.remove(2)
    with pytest.raises(KeyError):
        index.bind(2, {})
    assert pairs(index, to_batch({"x": 4})) == [(0, 1)]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("s STARTS WITH :p AND x > :y", {"y": 1}),
        ("s STARTS WITH :p", {}),
        ("s STARTS WITH :p AND x > :y", {"y": 1, "p": 5}),
        ("x > :y", {"y": 1, "z": 2}),
    ],
)
def test_values_that_a_filter_cannot_use_are_refused_and_nothing_is_added(
    text: str, values: dict[str, Any]
) -> None:
    index = Index()
    reference = Reference()
    filter = palio.language.parse_filter(text)
    outcomes = []
    for engine in (index, reference):
        try:
            engine.add(1, filter, values)
            outcomes.append("added")
        except InvalidInput as error:
            outcomes.append(type(error).__name__)
    assert outcomes[0] == outcomes[1]
    assert len(index) == len(reference)


@pytest.mark.parametrize("number", [1 << 63, 1 << 70, -(1 << 63) - 1])
@pytest.mark.parametrize("text", ["x < 5", "x != 5"])
def test_a_number_of_more_than_64_bits_changes_nothing(number: int, text: str) -> None:
    index = Index()
    index.add(1, parsed("x < 5"))
    with pytest.raises(InvalidInput, match="64-bit"):
        index.add(number, parsed(text))
    with pytest.raises(InvalidInput, match="64-bit"):
        index.add(1, parsed(text), destination=number)
    with pytest.raises(InvalidInput, match="64-bit"):
        index.add_many([number], parsed(text), {})
    with pytest.raises(InvalidInput, match="64-bit"):
        index.add_many([1], parsed(text), {}, destinations=[number])
    index.add_many([3], parsed(text), {})
    assert number not in index
    with pytest.raises(KeyError):
        index.remove(number)
    with pytest.raises(KeyError):
        index.bind(number, {})
    index.remove(3)
    assert (len(index), index.route_event({"x": 4})) == (1, [1])


@pytest.mark.parametrize("number", [(1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("text", ["x < 5", "x != 5"])
def test_a_number_of_64_bits_is_taken(number: int, text: str) -> None:
    index = Index()
    index.add(number, parsed(text), destination=-number - 1)
    assert index.route_event({"x": 4}) == [-number - 1]
    assert index.match_event({"x": 4}).tolist() == [number]


def test_a_spare_thread_is_asked_to_merge_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MERGE_ROWS", 1)
    jobs: list[Any] = []
    alone, helped = Index(), Index(jobs.append)
    for index in (alone, helped):
        index.add_many(range(160), parsed("x < :v"), {"v": list(range(160))})
        for key in range(160 // store.SPARE_SHARE):
            assert jobs == []
            index.bind(key, {"v": -1})
    assert len(jobs) == 1
    assert len(alone._store._state.changes) == 160 // store.SPARE_SHARE
    for key in range(160 // store.MERGE_SHARE):
        alone.bind(key, {"v": -1})
    assert len(alone._store._state.changes) == 160 // store.SPARE_SHARE, "merged on the way"
