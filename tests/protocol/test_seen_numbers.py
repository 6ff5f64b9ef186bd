"""SeenNumbers: the numbers that have come, and no others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.protocol import seen_numbers as module
from palio.protocol.limits import MAX_PUBLISHERS, WINDOW_BLOCKS
from palio.protocol.seen_numbers import (
    BLOCK,
    AddNumbers,
    DropNumbers,
    ForgetNumbers,
    SeenNumbers,
    Writes,
    united,
)


def numbers(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def added(writes: Writes) -> list[AddNumbers]:
    return [each for each in writes if isinstance(each, AddNumbers)]


def stored(writes: Writes) -> list[AddNumbers]:
    """What a journal holds after some writes."""
    kept: dict[str, bytes] = {}
    for write in writes:
        if isinstance(write, AddNumbers):
            kept[write.key] = united(kept.get(write.key, b""), write.bits)
        else:
            kept.pop(write.key, None)
    return [AddNumbers(key, bits) for key, bits in kept.items()]


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, unique=True), max_size=12))
def test_a_window_is_a_set(steps: list[list[int]]) -> None:
    windows, had = SeenNumbers(), set[int]()
    writes: Writes = []
    for step in steps:
        asked = numbers(*sorted(step))
        fresh = windows.fresh("p", asked)
        assert fresh.tolist() == [each not in had for each in sorted(step)]
        writes += windows.add("p", asked[fresh])
        had.update(step)
    everything = numbers(*range(61))
    again = SeenNumbers(stored(writes))
    assert again.fresh("p", everything).tolist() == [each not in had for each in range(61)]


@given(
    st.lists(
        st.tuples(st.integers(BLOCK - 9, BLOCK + 9), st.integers(1, 9), st.integers(1, 2)),
        max_size=8,
    )
)
def test_ranges_reach_from_one_block_into_the_next(steps: list[tuple[int, int, int]]) -> None:
    seen, had = SeenNumbers(), set[int]()
    for first, count, step in steps:
        asked = range(first, first + count * step, step)
        fresh = seen.fresh("p", numbers(*asked)).tolist()
        assert fresh == [each not in had for each in asked]
        seen.add("p", numbers(*asked))
        had.update(asked)


def test_a_block_takes_a_bit_a_number_however_they_come() -> None:
    windows = SeenNumbers()
    for number in range(0, BLOCK, 2):
        writes = windows.add("p", numbers(number))
        assert sum(len(write.bits) for write in added(writes)) <= BLOCK // 8


def test_what_could_not_be_written_is_taken_back() -> None:
    windows = SeenNumbers()
    kept = windows.add("p", numbers(0))
    failed = windows.add("p", numbers(1, 2, BLOCK))
    later = windows.add("p", numbers(3))
    windows.take_back(added(failed))
    everything = numbers(0, 1, 2, 3, BLOCK)
    assert windows.fresh("p", everything).tolist() == [False, True, True, False, True]
    again = SeenNumbers(stored([*kept, *later]))
    assert again.fresh("p", everything).tolist() == [False, True, True, False, True]


@given(st.lists(st.tuples(st.sets(st.integers(0, 20), min_size=1), st.booleans()), max_size=8))
def test_a_journal_holds_what_was_written_and_nothing_else(
    steps: list[tuple[set[int], bool]],
) -> None:
    """Whatever fails, and however late that is told."""
    windows, on_disk, failures = SeenNumbers(), set[int](), list[AddNumbers]()
    writes: Writes = []
    for step, fails in steps:
        asked = numbers(*sorted(step))
        fresh = asked[windows.fresh("p", asked)]
        done = windows.add("p", fresh)
        if fails:
            failures += added(done)
        else:
            writes += done
            on_disk.update(fresh.tolist())
    windows.take_back(failures)
    for found in (windows, SeenNumbers(stored(writes))):
        seen = ~found.fresh("p", numbers(*range(21)))
        assert set(np.flatnonzero(seen).tolist()) == on_disk


def test_what_was_forgotten_meanwhile_is_not_taken_back() -> None:
    windows = SeenNumbers()
    failed = windows.add("p", numbers(1))
    windows.forget("p")
    windows.take_back(added(failed))
    assert windows.fresh("p", numbers(1)).all()


def test_the_newest_blocks_are_remembered() -> None:
    windows = SeenNumbers()
    writes = [
        write
        for block in range(WINDOW_BLOCKS + 1)
        for write in windows.add("p", numbers(block * BLOCK))
    ]
    assert writes[-1] == DropNumbers("p#0")
    assert windows.fresh("p", numbers(0, BLOCK, WINDOW_BLOCKS * BLOCK)).tolist() == [
        True,
        False,
        False,
    ]
    assert [write.key for write in stored(writes)] == [
        f"p#{block}" for block in range(1, WINDOW_BLOCKS + 1)
    ]


def test_the_publisher_heard_of_longest_ago_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MAX_PUBLISHERS >= 2
    monkeypatch.setattr(module, "MAX_PUBLISHERS", 2)
    windows = SeenNumbers()
    windows.add("p", numbers(1))
    windows.add("q", numbers(1))
    assert added(windows.add("p", numbers(2)))[-1].bits
    assert windows.add("r", numbers(1))[-1] == DropNumbers("q#0")
    assert windows.fresh("q", numbers(1)).all()
    assert not windows.fresh("p", numbers(1)).any()


def test_a_prefix_is_forgotten() -> None:
    windows = SeenNumbers()
    windows.add("a\np", numbers(1))
    windows.add("b\np", numbers(1))
    assert windows.forget("a\n") == ForgetNumbers("a\n")
    assert windows.fresh("a\np", numbers(1)).all()
    assert not windows.fresh("b\np", numbers(1)).any()
