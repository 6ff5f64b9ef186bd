"""Checks of claims, put together from what is measured, when that holds, and how it is told.

    Claim(
        "root",
        "The root is overloaded.",
        "hs over as is at least 2 with the most objects",
        check(
            ratios("costs", "worst_site", "objects", of={"routing": "hs"}, over={"routing": "as"}),
            lambda factors: factors[-1] >= 2,
            "hs over as {} objects",
        ),
    )

What no such row can say is a function of results to evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from palio_studies.names import Value
from palio_studies.results import Mean, Results
from palio_studies.study import Evidence, TooLittle

Check: TypeAlias = Callable[[Results], Evidence]

AT: Final = "{1:,.3g} at {0:,}"
"""How a number (1) and its place (0) are told."""


def check(
    measure: Callable[[Results], Mapping[Any, Any]],
    holds: Callable[[Sequence[Any]], bool | None],
    told: str = "{}",
    *,
    each: str = AT,
    least: int = 1,
    lacking: str = "nothing was run",
) -> Check:
    """A claim on numbers by their places, of which it takes at least so many.

    `told` has `{}` where the numbers go, and `each` says how one of them is told.
    """

    def judge(results: Results) -> Evidence:
        numbers = measure(results)
        needed(len(numbers) >= least, lacking)
        return Evidence(holds(list(numbers.values())), told.format(listed(numbers, each)))

    return judge


def needed(is_there: object, lacking: str) -> None:
    """Leave a claim undecided unless this is there."""
    if not is_there:
        raise TooLittle(lacking)


def listed(numbers: Mapping[Any, Any] | Iterable[tuple[Any, Any]], each: str = AT) -> str:
    """Numbers and their places, as a reader wants them.

    >>> listed({10: 1.25, 1000: 3.0})
    '1.25 at 10, 3 at 1,000'
    """
    pairs = numbers.items() if isinstance(numbers, Mapping) else numbers
    return ", ".join(each.format(place, number) for place, number in pairs)


def ratios(
    experiment: str,
    column: str,
    along: str,
    *,
    of: Mapping[str, Value],
    over: Mapping[str, Value],
    **where: Value,
) -> Callable[[Results], dict[Any, float]]:
    """How many times the means of one kind of runs are those of another, along a third column."""

    def measure(results: Results) -> dict[Any, float]:
        above, below = (
            results.line(experiment, column, along, **{**where, **kind}) for kind in (of, over)
        )
        return {place: above[place] / below[place] for place in above if place in below}

    return measure


def rises(values: Sequence[float]) -> bool:
    """Whether none is less than the one before."""
    return list(values) == sorted(values)


def at_most(mean: Mean, limit: float) -> bool | None:
    """Whether a mean is at most so much; None if its interval leaves that open."""
    if mean.high <= limit:
        return True
    return False if mean.low > limit else None


def within(mean: Mean, low: float, high: float) -> bool | None:
    """Whether a mean is between two limits; None if its interval leaves that open."""
    if low <= mean.low and mean.high <= high:
        return True
    return False if mean.high < low or mean.low > high else None


def is_below(one: Mean, other: Mean) -> bool | None:
    """Whether a mean is less than another; None if their intervals meet."""
    if one.high < other.low:
        return True
    return None if one.low < other.high and one.value < other.value else False


def all_hold(verdicts: Iterable[bool | None]) -> bool | None:
    """Whether all of several verdicts hold; None if that depends on an open one."""
    known = list(verdicts)
    if False in known:
        return False
    return None if None in known else True
