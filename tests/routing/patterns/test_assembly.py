"""One pattern's monitor: holding back, and moving house with all that it knows."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from palio.language.parsing import parse_pattern
from palio.model.patterns import Monitor, Occurrence, place_of
from palio.routing.patterns import assembly as assembly_module
from palio.routing.patterns.assembly import MAX_LATE_PUBLISHERS, Assembly, follows, is_occurrence
from palio.routing.patterns.messages import AssemblyProgress, TooLate
from tests.conftest import seeds

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
END: Final = START + timedelta(days=1)


AB: Final = parse_pattern("x = 'a' THEN x = 'b'")


def events(letters: str, first: int = 0) -> list[Occurrence]:
    return [
        Occurrence(START + timedelta(seconds=first + n), "p", first + n, {"x": letter})
        for n, letter in enumerate(letters)
    ]


def seqs(found: list[tuple[Occurrence, ...]]) -> list[tuple[int, ...]]:
    return [tuple(each.seq for each in parts) for parts in found]


def test_what_is_held_twice_is_taken_once() -> None:
    assembly = Assembly(AB)
    assembly.push(events("ab"))
    assembly.push(events("ab"))
    assert seqs(assembly.release(END)) == [(0, 1)]
    assert assembly.late == 0


def test_release_stops_at_the_time_it_is_given() -> None:
    assembly = Assembly(AB)
    assembly.push(events("abab"))
    assert seqs(assembly.release(START + timedelta(seconds=2))) == [(0, 1)]
    assert assembly.earliest == START + timedelta(seconds=3)
    assert seqs(assembly.release(END)) == [(2, 3)]
    assert assembly.earliest is None


def test_a_waiting_assembly_only_collects() -> None:
    assembly = Assembly(AB, is_waiting=True)
    assembly.push(events("ab"))
    assert assembly.release(END) == []
    assembly.resume(AssemblyProgress())
    assert seqs(assembly.release(END)) == [(0, 1)]


def test_an_assembly_goes_on_where_another_one_stopped() -> None:
    one = Assembly(AB)
    one.push(events("aab"))
    one.release(START)
    known = one.stop()
    assert [each.seq for each in known.taken] == [0]
    assert [each.seq for each in known.held] == [1, 2]
    other = Assembly(AB, is_waiting=True)
    other.push(events("aaba"))  # what it collected overlaps what it is told
    other.resume(known)
    assert seqs(other.release(END)) == [(0, 2)]
    assert other.late == 0
    assert [each.seq for each in other.stop().taken] == [3]


@pytest.mark.parametrize("seed", seeds(30, nightly=3_000))
def test_however_often_it_moves_it_finds_what_one_monitor_finds(seed: int) -> None:
    rng = random.Random(seed)
    whole = parse_pattern(rng.choice(["x = 'a' THEN x = 'b'", "x != 'b' THEN x = 'a' THEN x != 'a'",
                                "x = 'a' THEN x = 'b' WITHIN 3s"]))  # fmt: skip
    published = events("".join(rng.choice("abc") for _ in range(40)))
    arriving = sorted(published, key=lambda each: each.seq + rng.uniform(0, 5))
    found = []
    here, there = Assembly(whole), None
    for now, event in enumerate(arriving):
        here.push([event])
        if there is not None:
            there.push([event])
            if rng.random() < 0.3:
                there.resume(here.stop())
                here, there = there, None
        elif rng.random() < 0.2:
            there = Assembly(whole, is_waiting=True)
        found += here.release(START + timedelta(seconds=now - 6))
    found += here.release(END)
    assert found == Monitor(whole).push(published)


@pytest.mark.parametrize(
    ("letters", "is_one"),
    [("ab", True), ("a", False), ("ba", False), ("aab", False), ("abab", False)],
)
def test_what_is_an_occurrence(letters: str, is_one: bool) -> None:
    assert is_occurrence(AB, tuple(events(letters))) is is_one


def test_what_a_monitor_may_know() -> None:
    (one,) = events("a")
    assert follows(AB, AssemblyProgress())
    assert follows(AB, AssemblyProgress((one,), after=place_of(one)))
    assert not follows(AB, AssemblyProgress((one,)))
    assert not follows(AB, AssemblyProgress(tuple(events("ab")), after=place_of(events("ab")[1])))
    assert not follows(AB, AssemblyProgress(tuple(events("b")), after=place_of(one)))


@pytest.mark.parametrize("is_waiting", [False, True])
@pytest.mark.parametrize(("count", "is_full"), [(99, False), (100, False), (101, True)])
def test_no_more_is_held_back_than_may_be(
    monkeypatch: pytest.MonkeyPatch, count: int, is_full: bool, is_waiting: bool
) -> None:
    monkeypatch.setattr(assembly_module, "MAX_PATTERN_PENDING", 100)
    assembly = Assembly(AB, is_waiting=is_waiting)
    assembly.push(events("a" * count))
    assert assembly.is_full is (is_full and not is_waiting)
    assert assembly.late == (is_full and is_waiting)
    assembly.release(START - timedelta(seconds=1))
    assert len(assembly.stop().held) == min(count, 100)


@pytest.mark.parametrize(
    "publishers", [MAX_LATE_PUBLISHERS - 1, MAX_LATE_PUBLISHERS, MAX_LATE_PUBLISHERS + 1]
)
def test_late_events_are_told_by_publisher_as_far_as_there_are_few(publishers: int) -> None:
    assembly = Assembly(AB)
    assembly.push([Occurrence(END, "first", 1, {"a": 1})])
    assembly.release(END)
    for number in range(publishers):
        assembly.push([Occurrence(START, f"p{number}", seq, {"a": 1}) for seq in (3, 5)])
    told = assembly.late_reports(7)
    assert told[0] == TooLate(7, "p0", 3, 5, 2)
    assert len(told) == min(publishers, MAX_LATE_PUBLISHERS + 1)
    if publishers > MAX_LATE_PUBLISHERS:
        assert told[-1] == TooLate(7, "*", 0, 0, 2)
    assert (assembly.late, assembly.has_late, assembly.late_reports(7)) == (
        2 * publishers,
        False,
        [],
    )
