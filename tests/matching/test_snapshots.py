"""Notes of changes, the small layers that readers make of them, and the job that merges all."""

from __future__ import annotations

import random
from typing import Any, Final

import numpy as np
import pytest

from palio.matching import building, held, snapshots, store, warming
from palio.matching.building import merged_layers
from palio.matching.compiled import CompiledLayer
from palio.matching.index import Index
from palio.matching.reference import Reference
from palio.matching.snapshots import MergeJob, State
from palio.matching.subscriptions import Subscription
from palio.model import Filter, to_batch, to_batches
from tests.matching.test_index import check_equal, pairs, parsed


def subscription(text: str) -> Subscription:
    return Subscription(parsed(text), {}, 0)


def owners(layers: tuple[CompiledLayer, ...]) -> list[int]:
    """The keys without a tombstone in some layer."""
    found = []
    for layer in layers:
        bits = np.unpackbits(layer.tombstones.view(np.uint8), bitorder="little")
        found += layer.keys[bits[: len(layer.keys)] == 0].tolist()
    return sorted(found)


def test_readers_keep_what_they_compiled() -> None:
    state = State(())
    state.note(1, subscription("x < 1"))
    first = state.snapshot(None).compiled
    assert state.snapshot(None).compiled is first
    state.note(2, subscription("x < 2"))
    second = state.snapshot(None).compiled
    assert second[0] is first[0]
    assert (owners(first), owners(second)) == ([1], [1, 2])
    state.note(1, None)
    assert owners(state.snapshot(None).compiled) == [2]
    assert owners(first) == [1], "a reader's layers never change"


@pytest.mark.parametrize("fan_out", [2, 4])
def test_small_layers_stay_few(fan_out: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "FAN_OUT", fan_out)
    state = State(())
    most = 0
    for key in range(100):
        text = f"x < {key}" if key % 3 else f"x < {key} AND LENGTH(s) > 1"
        state.note(key, subscription(text))
        layers = state.snapshot(None).compiled
        assert owners(layers) == list(range(key + 1))
        most = max(most, len(layers))
    levels = 1 + len(range(0, 100, fan_out)).bit_length()
    assert most <= 2 * fan_out * levels


def test_a_merge_takes_what_was_noted_and_later_notes_go_behind() -> None:
    state = State(())
    for key in range(5):
        state.note(key, subscription(f"x < {key}"))
    job = MergeJob(state, None)
    job()
    state.note(2, None)
    state.note(7, subscription("x > 7"))
    after = job.result
    assert after is not None
    assert len(after.layers) == 1
    assert owners(after.layers) == [0, 1, 2, 3, 4]
    for change in state.changes[job.count :]:
        after.note(*change)
    assert owners(after.snapshot(None).compiled) == [0, 1, 3, 4, 7]
    assert merged_layers((), None) == ()


def test_a_merge_takes_in_what_came_while_it_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(())
    for key in range(5):
        state.note(key, subscription(f"x < {key}"))

    def merging(*arguments: Any) -> Any:
        for key in range(5, 25):
            state.note(key, subscription(f"x < {key}"))
        state.note(3, None)
        return merged_layers(*arguments)

    monkeypatch.setattr(snapshots, "merged_layers", merging)
    job = MergeJob(state, None)
    job()
    assert job.result is not None
    assert job.count == 26
    assert owners(job.result.snapshot(None).compiled) == [key for key in range(25) if key != 3]


SHAPES: Final = (
    "x IN ({0}, {1})",
    "x = {0} OR y = {0}",
    "s LIKE '%{0}%' AND x < {1}",
    "x = {0} AND LENGTH(s) > {1}",
    "x > {0}",
)


def shaped(key: int) -> Filter:
    return parsed(SHAPES[key % len(SHAPES)].format(key % 40, key % 7))


def test_with_a_spare_thread_filters_of_any_shape_are_compiled_in_slices(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was added, nobody compiles or joins much at once; the rest is left to jobs, whenever
    these are done.
    """
    warming.warm()
    compiled: list[int] = []
    sizes: list[int] = []
    compile_, join = snapshots._compiled, building.joined

    def compiling(added: Any, *others: Any) -> Any:
        compiled.append(sum(map(held.work_of, added.values())))
        return compile_(added, *others)

    def joining(layers: Any, *others: Any) -> Any:
        sizes.append(sum(map(building.size_of, layers)))
        return join(layers, *others)

    monkeypatch.setattr(snapshots, "_compiled", compiling)
    monkeypatch.setattr(building, "joined", joining)
    monkeypatch.setattr(store, "CATCH_UP_WORK", 30)
    monkeypatch.setattr(store, "WRITER_WORK", 60)
    monkeypatch.setattr(store, "MERGE_LAYERS", 12)
    monkeypatch.setattr(store, "SLICE_JOINED", 300)
    jobs: list[Any] = []
    index, reference = Index(jobs.append), Reference()
    events = [{"x": n, "y": 40 - n, "s": f"a{n}b"} for n in range(40)]
    (batch,) = to_batches(events)
    most_work = compiled_by_jobs = 0
    for key in range(600):
        if key % 7 == 3:
            index.remove(key - 3)
            reference.remove(key - 3)
        for engine in (index, reference):
            engine.add(key, shaped(key), destination=key % 11)
        most_work = max(most_work, held.work_of(Subscription(shaped(key), {}, 0)))
        assert max(compiled, default=0) <= 60 + most_work
        assert max(sizes, default=0) <= 300
        if rng.random() < 0.02:
            assert pairs(index, batch) == pairs(reference, batch)
        if jobs and rng.random() < 0.05:
            jobs.pop()()
            compiled_by_jobs += sum(compiled)
            compiled.clear()  # what a job does holds nobody up
            sizes.clear()
    assert compiled_by_jobs > 0
    assert pairs(index, batch) == pairs(reference, batch)
    assert index.explain_plan(1).layers
    check_equal(index, reference, events)


def test_without_one_a_batch_compiles_what_was_noted_and_a_single_event_does_not() -> None:
    index, event = Index(), {"x": 1, "s": "a1"}
    for key in range(20):
        index.add(key, shaped(key))
    latest = index._store._state.latest
    assert index.match_event(event).tolist() == matched(20, event)
    assert index._store._state.latest is latest
    assert latest.count == 0
    assert index.match(to_batch(event)).keys.tolist() == matched(20, event)
    assert index._store._state.latest.count == 20


def matched(count: int, event: dict[str, Any]) -> list[int]:
    return [key for key in range(count) if shaped(key).matches(event)]


def test_constants_are_not_checked_again_when_they_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[Any] = []
    index = Index()
    index.add(1, parsed("x IN (1, 2, 3, 5) AND y = 1"))
    monkeypatch.setattr("palio.model.expressions.canonical", checked.append)
    assert index.match_event({"x": 2, "y": 1}).tolist() == [1]
    assert checked == []
