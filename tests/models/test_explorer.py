"""The search finds what breaks, by the shortest way, and what can never end well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from tests.models.explorer import explore


class Hour(NamedTuple):
    at: int


@dataclass(frozen=True)
class Clock:
    """It goes on by one hour, or by two, up to 12; somewhere it may stop."""

    forbidden: int = -1
    stops_at: int = -1

    def initial(self) -> Hour:
        return Hour(0)

    def actions(self, state: Hour) -> Iterator[tuple[tuple[object, ...], Hour]]:
        if state.at != self.stops_at:
            for hours in (1, 2):
                if state.at + hours <= 12:
                    yield ("it goes on by", hours), Hour(state.at + hours)

    def broken(self, state: Hour) -> str:
        return "forbidden" if state.at == self.forbidden else ""

    def is_quiet(self, state: Hour) -> bool:
        return state.at == 12

    def describe(self, state: Hour) -> str:
        return f"it is {state.at}"


def test_a_model_without_errors_is_searched_whole() -> None:
    assert explore(Clock()) == (13, 23, "", "")


def test_a_counterexample_is_the_shortest_story() -> None:
    found = explore(Clock(forbidden=5))
    assert found.broken == "forbidden"
    *steps, state = found.story.splitlines()
    assert len(steps) == 3
    assert all("it goes on by" in step for step in steps)
    assert state.endswith("it is 5")


def test_what_can_never_end_well_is_found() -> None:
    found = explore(Clock(stops_at=11))
    assert found.broken == "stuck"
    assert found.story.endswith("it is 11")


def test_a_model_that_is_too_large_is_refused() -> None:
    with pytest.raises(MemoryError, match="more than 5 states; make the model smaller"):
        explore(Clock(), most=5)
