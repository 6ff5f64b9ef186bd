"""Layers are merged in time, by the right thread, and no change made meanwhile is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from palio.matching import building, snapshots, store, warming
from palio.matching.index import Index
from palio.matching.reference import Reference
from palio.matching.snapshots import State
from tests.matching.test_index import check_equal, parsed

Job = Callable[[], Any]


@pytest.fixture
def jobs() -> list[Job]:
    """The jobs of the spare thread of an index that are not done yet."""
    return []


def add_rows(index: Index, reference: Reference, keys: range, value: int) -> None:
    skeleton = parsed("x >= :v AND s = 'a'")
    index.add_many(keys, skeleton, {"v": [value] * len(keys)})
    for key in keys:
        reference.add(key, skeleton, {"v": value})


EVENTS = [{"x": n, "s": "a"} for n in range(12)]


def test_readers_never_go_back_in_time(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    """While a result is put in place, readers see every change that they saw before."""
    monkeypatch.setattr(store, "MERGE_ROWS", 4)
    monkeypatch.setattr(snapshots, "CHASES", 0)
    index = Index(jobs.append)
    for key in range(4):
        index.add(key, parsed("s = 'a'"))
    (job,) = jobs

    def merged(*arguments: Any) -> Any:
        for key in range(4, 8):
            index.add(key, parsed("s = 'a'"))
        return building.merged_layers(*arguments)

    monkeypatch.setattr(snapshots, "merged_layers", merged)
    job()
    noted = State.note
    seen: list[list[int]] = []

    def noting(state: State, *change: Any) -> None:
        seen.append(index.match_event({"s": "a"}).tolist())
        noted(state, *change)

    monkeypatch.setattr(State, "note", noting)
    index.add(8, parsed("s = 'b'"))
    assert len(seen) > 1
    assert all(each == list(range(8)) for each in seen)


@pytest.mark.parametrize("mode", ["job", "thread"])
def test_merging_goes_on_after_a_failure(
    mode: str, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MERGE_ROWS", 4)
    fails = True

    def merged(*arguments: Any) -> Any:
        if fails:
            raise MemoryError
        return building.merged_layers(*arguments)

    def submit(job: Job) -> None:
        if mode == "thread" and fails:
            raise RuntimeError("can't start new thread")
        jobs.append(job)

    monkeypatch.setattr(snapshots, "merged_layers", merged)
    index = Index(submit)
    for key in range(4):
        if mode == "thread" and key == 3:
            with pytest.raises(RuntimeError):
                index.add(key, parsed("s = 'a'"))
        else:
            index.add(key, parsed("s = 'a'"))
    if mode == "job":
        with pytest.raises(MemoryError):
            jobs.pop()()
    fails = False
    key = 4
    while not jobs:
        index.add(key, parsed("s = 'a'"))
        key += 1
        assert key <= 12, "it is asked for again"
    jobs.pop()()
    index.remove(0)
    assert index._store._job is None
    assert len(index._store.layers) == 1
    assert index.match_event({"s": "a"}).tolist() == list(range(1, key))


def test_a_job_that_fails_is_not_asked_for_again_with_every_change(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MERGE_ROWS", 4)
    monkeypatch.setattr(store, "MERGE_LAYERS", 1)
    monkeypatch.setattr(snapshots, "merged_layers", lambda *_: 1 // 0)
    index = Index(jobs.append)
    asked = 0
    for key in range(20):
        index.add(key, parsed("s = 'a'"))
        while jobs:
            asked += 1
            with pytest.raises(ZeroDivisionError):
                jobs.pop()()
    assert asked == 20 // 4


def test_compiling_that_failed_is_asked_for_again(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    warming.warm()
    monkeypatch.setattr(store, "CATCH_UP_CHANGES", 4)
    index = Index(jobs.append)
    for key in range(6):
        index.add(key, parsed("s = 'a'"))
    (job,) = jobs
    with monkeypatch.context() as failing:
        failing.setattr(State, "snapshot", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            job()
    assert index.match_event({"s": "a"}).tolist() == list(range(6))
    index.add(6, parsed("s = 'a'"))
    assert len(jobs) == 2
    jobs.pop()()
    assert index._store._state.latest.count == 7
    assert index.match_event({"s": "a"}).tolist() == list(range(7))


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_writer_compiles_if_the_spare_thread_does_not_keep_up(
    extra: int, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    warming.warm()
    monkeypatch.setattr(store, "WRITER_WORK", 20)
    index = Index(jobs.append)
    for key in range(10 + extra):  # each is two units of work
        index.add(key, parsed("s = 'a'"))
    assert index._store._state.latest.count == (0 if extra < 0 else 10)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_without_kernels_a_writer_compiles_what_is_much(
    extra: int, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ready", lambda: None)
    monkeypatch.setattr(store, "WRITER_WORK", 20)
    index = Index(jobs.append)
    for key in range(10 + extra):  # each is two units of work
        index.add(key, parsed("s = 'a'"))
    assert index._store._state.latest.count == (0 if extra < 0 else 10)
    assert not jobs


def test_what_is_added_in_bulk_does_not_begin_merging_anew(
    jobs: list[Job], rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job is of use whatever came meanwhile: changes, tables, and changes of these."""
    warming.warm()
    monkeypatch.setattr(store, "MERGE_ROWS", 30)
    index, reference = Index(jobs.append), Reference()
    asked: list[Job] = []
    for step in range(120):
        move = rng.random()
        key = rng.randrange(80)
        if move < 0.2:
            first = rng.randrange(70)
            add_rows(index, reference, range(first, first + rng.randrange(1, 12)), step % 9)
        elif move < 0.4 and key in index:
            for engine in (index, reference):
                engine.remove(key)
        elif move < 0.6 and key in index and index.subscription(key).values:
            for engine in (index, reference):
                engine.bind(key, {"v": step % 5})
        else:
            for engine in (index, reference):
                engine.add(key, parsed(f"x < {step % 11} OR s = 'b'"))
        assert len(jobs) <= 1, "one job at a time"
        if jobs and rng.random() < 0.1:
            asked.append(jobs[0])
            jobs.pop()()
        check_equal(index, reference, EVENTS)
    assert len(asked) > 2


def test_a_job_lands_though_tables_come_all_the_time(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MERGE_ROWS", 8)
    index, reference = Index(jobs.append), Reference()
    for number in range(8):
        add_rows(index, reference, range(2 * number, 2 * number + 2), number)
    (job,) = jobs
    before = len(index._store.layers)
    for number in range(8, 11):
        add_rows(index, reference, range(2 * number, 2 * number + 2), number)
    assert jobs == [job]
    job()
    index.remove(0)
    reference.remove(0)
    assert len(index._store.layers) < before
    check_equal(index, reference, EVENTS)


@pytest.mark.parametrize("extra", [-1, 0])
def test_layers_of_tables_are_counted(extra: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MERGE_LAYERS", 6)
    index, reference = Index(), Reference()
    for number in range(7 + extra):
        add_rows(index, reference, range(2 * number, 2 * number + 2), number)
    assert len(index._store.layers) == (6 if extra else 1)
    check_equal(index, reference, EVENTS)
