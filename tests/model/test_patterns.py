"""Patterns: first match, restart on completion, the order of publication, the window, the late."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palio
from palio.errors import InvalidFilter, LimitExceeded
from palio.language.parsing import parse_pattern
from palio.model import patterns
from palio.model.filters import TRUE
from palio.model.limits import MAX_PATTERN_PENDING, MAX_PATTERN_STEPS
from palio.model.patterns import Monitor, Occurrence, Pattern
from tests import strategies as our

START = datetime(2026, 1, 31, tzinfo=UTC)


def at(second: float, value: int, seq: int = 0, publisher: str = "p") -> Occurrence:
    """`n = value`, published at a second."""
    return Occurrence(START + timedelta(seconds=second), publisher, seq, {"n": value})


def line(values: Sequence[int]) -> list[Occurrence]:
    """One event a second."""
    return [at(second, value, second) for second, value in enumerate(values)]


def found(matches: Sequence[tuple[Occurrence, ...]]) -> list[list[int]]:
    """The seconds of each match."""
    return [[int((each.time - START).total_seconds()) for each in match] for match in matches]


def expected_matches(shape: Pattern, occurrences: Sequence[Occurrence]) -> list[list[int]]:
    """The matches by siena 3.2, over the events in the order of publication."""
    whole: list[list[Occurrence]] = []
    partial: list[Occurrence] = []
    for each in sorted(occurrences, key=lambda one: (one.time, one.publisher, one.seq)):
        if partial and shape.within is not None and each.time - partial[0].time > shape.within:
            partial = []
        if shape.steps[len(partial)].matches(each.event):
            partial.append(each)
        if len(partial) == len(shape.steps):
            whole.append(partial)
            partial = []
    return found([tuple(match) for match in whole])


THREE = "n = 1 THEN n = 2 THEN n = 3"


@pytest.mark.parametrize(
    ("text", "values", "matches"),
    [
        (THREE, [1, 2, 3], [[0, 1, 2]]),
        (THREE, [1, 1, 2, 2, 3, 3], [[0, 2, 4]]),
        (THREE, [3, 2, 1, 2, 3], [[2, 3, 4]]),
        (THREE, [1, 2, 3, 1, 2, 3], [[0, 1, 2], [3, 4, 5]]),
        (THREE, [1, 9, 2, 9, 3], [[0, 2, 4]]),
        (THREE, [1, 2], []),
        ("n = 1 THEN n = 1", [1, 1, 1, 1, 1], [[0, 1], [2, 3]]),
        ("n > 0 THEN n > 0 THEN n > 0", [1, 2, 3, 4], [[0, 1, 2]]),
        (f"{THREE} WITHIN 2s", [1, 2, 3], [[0, 1, 2]]),
        (f"{THREE} WITHIN 2s", [1, 2, 9, 3], []),
        (f"{THREE} WITHIN 2s", [1, 1, 2, 3], []),  # the first 1 counts until its time is up
        ("n = 1 THEN n = 2 WITHIN 1s", [1, 9, 1, 2], [[2, 3]]),
        ("n = 1 THEN n = 2 WITHIN 1s", [1, 9, 2], []),
    ],
)
def test_matching(text: str, values: list[int], matches: list[list[int]]) -> None:
    monitor = Monitor(parse_pattern(text))
    complete = [match for each in line(values) for match in monitor.push([each])]
    assert found(complete) == matches
    assert found(complete) == expected_matches(parse_pattern(text), line(values))


SHAPES = st.sampled_from(
    [
        *(THREE, "n = 1 THEN n = 1", "n = 1 THEN n >= 1 WITHIN 2s", "n < 3 THEN n > 1 THEN n = 1"),
        *(f"{THREE} WITHIN 3s", "n = 1 THEN n = 2 OR n = 3 THEN n = 2 WITHIN 5s"),
    ]
).map(parse_pattern)


@our.examples(200)
@given(SHAPES, st.lists(st.integers(1, 3), max_size=20), our.SEEDS)
def test_any_order_of_arrival_within_the_window_gives_the_same(
    shape: Pattern, values: list[int], seed: int
) -> None:
    occurrences = line(values)
    rng = random.Random(seed)
    window = rng.randint(0, 5)
    arrival = sorted(occurrences, key=lambda each: each.time.timestamp() + rng.uniform(0, window))
    monitor = Monitor(shape, window=timedelta(seconds=window))
    complete = []
    while arrival:
        size = rng.randint(1, 4)
        complete += monitor.push(arrival[:size])
        arrival = arrival[size:]
    complete += monitor.flush()
    assert monitor.late == 0
    assert found(complete) == expected_matches(shape, occurrences)


@our.examples(100)
@given(SHAPES, st.lists(st.integers(1, 3), max_size=15), our.SEEDS)
def test_late_events_are_counted_and_take_no_part(
    shape: Pattern, values: list[int], seed: int
) -> None:
    arrival = line(values)
    random.Random(seed).shuffle(arrival)
    monitor = Monitor(shape, window=timedelta(seconds=2))
    taken, complete = [], []
    for each in arrival:
        late = monitor.late
        complete += monitor.push([each])
        if monitor.late == late:
            taken.append(each)
    complete += monitor.flush()
    assert monitor.late == len(arrival) - len(taken)
    assert found(complete) == expected_matches(shape, taken)


def test_an_event_is_late_once_one_after_it_was_released() -> None:
    monitor = Monitor(parse_pattern(THREE), window=timedelta(seconds=2))
    monitor.push([at(0, 1), at(5, 9)])  # releases second 0
    monitor.push([at(0, 2, publisher="a")])  # before (0, "p", 0): late
    assert monitor.late == 1
    monitor.push([at(0, 2, publisher="q"), at(4, 3)])  # after it: in time
    assert found(monitor.flush()) == [[0, 0, 4]]
    assert monitor.late == 1


def test_ties_in_time_are_broken_by_publisher_then_count() -> None:
    monitor = Monitor(parse_pattern(THREE))
    batch = [at(0, 3, 2, "b"), at(0, 2, 1, "b"), at(0, 1, 9, "a")]
    (match,) = monitor.push(batch)
    assert [(each.publisher, each.seq) for each in match] == [("a", 9), ("b", 1), ("b", 2)]


def test_the_same_event_twice_is_one() -> None:
    """Delivery may repeat: in the window it is dropped, after it it is late."""
    monitor = Monitor(parse_pattern("n = 1 THEN n = 1"), window=timedelta(seconds=5))
    assert monitor.push([at(0, 1), at(0, 1)]) == []
    assert monitor.flush() == []
    assert monitor.push([at(0, 1)]) == []
    assert monitor.late == 1
    assert found([monitor.progress]) == [[0]]


def test_the_window_holds_back_and_flush_lets_go() -> None:
    monitor = Monitor(parse_pattern("n = 1 THEN n = 2"), window=timedelta(seconds=10))
    assert monitor.push([at(1, 2)]) == []
    assert monitor.push([at(0, 1)]) == []
    assert monitor.progress == ()
    assert found(monitor.push([at(11, 9)])) == [[0, 1]]
    assert monitor.flush() == []


def test_what_was_published_by_some_time_may_be_let_go_by_itself() -> None:
    monitor = Monitor(parse_pattern("n = 1 THEN n = 2"), window=timedelta(seconds=10))
    monitor.push([at(0, 1), at(1, 2), at(1, 1, 1), at(2, 2)])
    assert monitor.earliest == START
    assert found(monitor.flush(START + timedelta(seconds=1))) == [[0, 1]]
    assert monitor.earliest == START + timedelta(seconds=2)
    assert [monitor.is_late(each) for each in (at(0, 9), at(1, 9, 1), at(1, 9, 2), at(2, 9))] == [
        *(True, True, False, False)
    ]
    assert found(monitor.flush()) == [[1, 2]]
    assert monitor.late == 0


def test_other_values_keep_of_the_partial_match_what_they_still_want() -> None:
    shape = parse_pattern("n = 1 THEN n = :second THEN n = 3")
    monitor = Monitor(shape, {"second": 2})
    monitor.push(line([1, 2]))
    monitor.rebind({"second": 4})
    assert found([monitor.progress]) == [[0]]
    assert found(monitor.push([at(2, 3, 2), at(3, 4, 3), at(4, 3, 4)])) == [[0, 3, 4]]


def test_parameters_of_the_steps() -> None:
    shape = parse_pattern("n < :low THEN n > :high")
    assert shape.variables == {"low", "high"}
    values = {"low": 2, "high": 5}
    for monitor in (Monitor(shape, values), Monitor(shape.bind(values))):
        assert found(monitor.push(line([2, 1, 5, 6]))) == [[1, 3]]


def test_the_number_of_steps_is_bounded() -> None:
    for count in (2, MAX_PATTERN_STEPS - 1, MAX_PATTERN_STEPS):
        assert len(Pattern((TRUE,) * count).steps) == count
        assert len(parse_pattern(" THEN ".join(["n = 1"] * count)).steps) == count
    with pytest.raises(LimitExceeded, match="MAX_PATTERN_STEPS"):
        Pattern((TRUE,) * (MAX_PATTERN_STEPS + 1))
    with pytest.raises(LimitExceeded, match="MAX_PATTERN_STEPS"):
        palio.parse(" THEN ".join(["n = 1"] * (MAX_PATTERN_STEPS + 1)))


def test_what_is_no_pattern_is_refused() -> None:
    with pytest.raises(InvalidFilter, match="two filters or more"):
        Pattern((TRUE,))
    for within in (timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(InvalidFilter, match="positive duration"):
            Pattern((TRUE, TRUE), within)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_the_window_holds_back_so_many_events_and_no_more(
    monkeypatch: pytest.MonkeyPatch, over: int
) -> None:
    """At the limit nothing is released early; one beyond it, the oldest is."""
    assert MAX_PATTERN_PENDING == 100_000
    monkeypatch.setattr(patterns, "MAX_PATTERN_PENDING", 50)
    monitor = Monitor(parse_pattern("n = 1 THEN n = 2"), window=timedelta(days=1))
    monitor.push(line([1] + [9] * (50 + over - 1)))
    assert len(monitor.progress) == max(0, over)
    monitor.push([at(0, 1, seq=-1)])
    assert monitor.late == max(0, over)


@our.examples(50)
@given(SHAPES)
def test_patterns_print_and_compare_by_structure(shape: Pattern) -> None:
    assert palio.parse(str(shape)) == shape
    assert hash(palio.parse(str(shape))) == hash(shape)
    assert eval(repr(shape), {"palio": palio}) == shape
    assert shape != shape.steps[0]
