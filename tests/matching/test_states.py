"""Notes of changes, the small parts that readers make of them, and the job that joins all."""

from __future__ import annotations

import numpy as np
import pytest

from palio.matching import states
from palio.matching.parts import Part
from palio.matching.states import MergeJob, State, merged_parts
from palio.matching.subscriptions import Subscription
from tests.matching.test_index import parsed


def subscription(text: str) -> Subscription:
    return Subscription(parsed(text), {}, 0)


def owners(parts: tuple[Part, ...]) -> list[int]:
    """The keys that live in any part."""
    found = []
    for part in parts:
        dead = np.unpackbits(part.dead.view(np.uint8), bitorder="little")
        found += part.owners[dead[: len(part.owners)] == 0].tolist()
    return sorted(found)


def test_readers_keep_what_they_compiled() -> None:
    state = State(())
    state.note(1, subscription("x < 1"))
    first = state.seen_by(None).parts
    assert state.seen_by(None).parts is first
    state.note(2, subscription("x < 2"))
    second = state.seen_by(None).parts
    assert second[0] is first[0]
    assert (owners(first), owners(second)) == ([1], [1, 2])
    state.note(1, None)
    assert owners(state.seen_by(None).parts) == [2]
    assert owners(first) == [1], "a reader's parts never change"


@pytest.mark.parametrize("fan_out", [2, 4])
def test_small_parts_stay_few(fan_out: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "FAN_OUT", fan_out)
    state = State(())
    most = 0
    for key in range(100):
        text = f"x < {key}" if key % 3 else f"x < {key} AND LENGTH(s) > 1"
        state.note(key, subscription(text))
        parts = state.seen_by(None).parts
        assert owners(parts) == list(range(key + 1))
        most = max(most, len(parts))
    levels = 1 + len(range(0, 100, fan_out)).bit_length()
    assert most <= 2 * fan_out * levels


def test_a_merge_takes_what_was_noted_and_later_notes_go_behind() -> None:
    state = State(())
    for key in range(5):
        state.note(key, subscription(f"x < {key}"))
    job = MergeJob(state, None)
    state.note(2, None)
    state.note(7, subscription("x > 7"))
    job()
    after = job.result
    assert after is not None
    assert len(after.parts) == 1
    assert owners(after.parts) == [0, 1, 2, 3, 4]
    for change in state.changes[job.count :]:
        after.note(*change)
    assert owners(after.seen_by(None).parts) == [0, 1, 3, 4, 7]
    assert merged_parts((), None) == ()


def test_a_merge_takes_in_what_came_while_it_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "FEW_CHANGES", 3)
    state = State(())
    for key in range(5):
        state.note(key, subscription(f"x < {key}"))
    job = MergeJob(state, None)
    for key in range(5, 25):
        state.note(key, subscription(f"x < {key}"))
    state.note(3, None)
    job()
    assert job.result is not None
    assert len(state.changes) - job.count <= 3
    assert owners(job.result.seen_by(None).parts) == [key for key in range(25) if key != 3]
