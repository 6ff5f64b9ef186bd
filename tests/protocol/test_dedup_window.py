"""DedupWindow: the numbers that have come, and no others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.protocol import dedup_window as module
from palio.protocol.dedup_window import BLOCK, DedupWindow
from palio.protocol.limits import MAX_PUBLISHERS, WINDOW_BLOCKS


def numbers(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, unique=True), max_size=12))
def test_a_window_is_a_set(steps: list[list[int]]) -> None:
    windows, had = DedupWindow(), set[int]()
    for step in steps:
        asked = numbers(*sorted(step))
        fresh = windows.fresh("p", asked)
        assert fresh.tolist() == [each not in had for each in sorted(step)]
        windows.add("p", asked[fresh])
        had.update(step)
    everything = numbers(*range(61))
    assert windows.fresh("p", everything).tolist() == [each not in had for each in range(61)]


@given(
    st.lists(
        st.tuples(st.integers(BLOCK - 9, BLOCK + 9), st.integers(1, 9), st.integers(1, 2)),
        max_size=8,
    )
)
def test_ranges_reach_from_one_block_into_the_next(steps: list[tuple[int, int, int]]) -> None:
    seen, had = DedupWindow(), set[int]()
    for first, count, step in steps:
        asked = range(first, first + count * step, step)
        fresh = seen.fresh("p", numbers(*asked)).tolist()
        assert fresh == [each not in had for each in asked]
        seen.add("p", numbers(*asked))
        had.update(asked)


def test_the_newest_blocks_are_remembered() -> None:
    windows = DedupWindow()
    for block in range(WINDOW_BLOCKS + 1):
        windows.add("p", numbers(block * BLOCK))
    asked = numbers(0, BLOCK, WINDOW_BLOCKS * BLOCK)
    assert windows.fresh("p", asked).tolist() == [True, False, False]


def test_the_publisher_heard_of_longest_ago_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MAX_PUBLISHERS >= 2
    monkeypatch.setattr(module, "MAX_PUBLISHERS", 2)
    windows = DedupWindow()
    for publisher, number in (("p", 1), ("q", 1), ("p", 2), ("r", 1)):
        windows.add(publisher, numbers(number))
    assert windows.fresh("q", numbers(1)).all()
    assert not windows.fresh("p", numbers(1)).any()


def test_a_number_that_is_forgotten_is_fresh_again() -> None:
    window = DedupWindow()
    window.add("p", numbers(*range(BLOCK)))  # all of a block, which others share
    window.add("q", numbers(*range(BLOCK)))
    window.discard("p", 7)
    window.discard("p", 3 * BLOCK)
    window.discard("nobody", 7)
    assert window.fresh("p", numbers(6, 7, 8)).tolist() == [False, True, False]
    assert not window.fresh("q", numbers(7)).any()
