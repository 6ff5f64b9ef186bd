"""DedupWindow: the numbers that have come, and no others."""

from __future__ import annotations

from itertools import compress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.protocol import dedup_window as module
from palio.protocol.dedup_window import BLOCK, DedupWindow
from palio.protocol.limits import MAX_PUBLISHERS, WINDOW_BLOCKS


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, unique=True), max_size=12))
def test_a_window_is_a_set(steps: list[list[int]]) -> None:
    windows, had = DedupWindow(), set[int]()
    for step in steps:
        asked = sorted(step)
        fresh = windows.fresh("p", asked)
        assert fresh == [each not in had for each in sorted(step)]
        windows.add("p", list(compress(asked, fresh)))
        had.update(step)
    everything = list(range(61))
    assert windows.fresh("p", everything) == [each not in had for each in range(61)]


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
        fresh = seen.fresh("p", list(asked))
        assert fresh == [each not in had for each in asked]
        seen.add("p", list(asked))
        had.update(asked)


def test_the_newest_blocks_are_remembered() -> None:
    windows = DedupWindow()
    for block in range(WINDOW_BLOCKS + 1):
        windows.add("p", [block * BLOCK])
    asked = [0, BLOCK, WINDOW_BLOCKS * BLOCK]
    assert windows.fresh("p", asked) == [True, False, False]


def test_the_publisher_heard_of_longest_ago_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MAX_PUBLISHERS >= 2
    monkeypatch.setattr(module, "MAX_PUBLISHERS", 2)
    windows = DedupWindow()
    for publisher, number in (("p", 1), ("q", 1), ("p", 2), ("r", 1)):
        windows.add(publisher, [number])
    assert all(windows.fresh("q", [1]))
    assert not any(windows.fresh("p", [1]))


def test_a_number_that_is_forgotten_is_fresh_again() -> None:
    window = DedupWindow()
    window.add("p", list(range(BLOCK)))  # all of a block, which others share
    window.add("q", list(range(BLOCK)))
    window.discard("p", 7)
    window.discard("p", 3 * BLOCK)
    window.discard("nobody", 7)
    assert window.fresh("p", [6, 7, 8]) == [False, True, False]
    assert not any(window.fresh("q", [7]))
