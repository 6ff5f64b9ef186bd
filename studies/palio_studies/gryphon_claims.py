"""gryphon's claims: what the paper says of its tree, and how it is checked (gryphon 3 to 5).

Exponents are fitted to all runs over the number of subscriptions, with their 95% interval. What one
optimization saves is found seed by seed, between trees of the same subscriptions. An interval that
holds the limit itself decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from palio.matching.tree.bound import exponent
from palio_studies.averages import Mean, fitted_exponent, mean_of
from palio_studies.results import Results
from palio_studies.study import Claim, Evidence, Row

__all__ = ["ATTRIBUTES", "CLAIMS", "VALUES"]

ATTRIBUTES: Final = 30
VALUES: Final = 10

_TREES: Final = ("none", "a", "a+b", "a+b+c")

LINEAR: Final = (0.9, 1.1)
"""An exponent between these, with its interval, is called linear."""

_SUBLINEAR: Final = 0.95
"""...and below this, with its interval, less than linear."""

MANY: Final = 10_000
"""The paper speaks of tens of thousands of subscriptions."""

FEW_MS: Final = 4.0
"""Its number of milliseconds is lost; on its machine of 1999 few were few."""


def _fitted(results: Results, experiment: str, engine: str, column: str) -> Mean | None:
    rows = results.rows(experiment, engine=engine)
    if len({row["subscriptions"] for row in rows}) < 3:
        return None
    xs = [float(row["subscriptions"]) for row in rows]
    return fitted_exponent(xs, [float(row[column]) for row in rows])


def _exponents(
    results: Results, experiment: str, column: str, engines: tuple[str, ...] = _TREES
) -> dict[str, Mean]:
    found = {name: _fitted(results, experiment, name, column) for name in engines}
    return {name: each for name, each in found.items() if each is not None}


def _at_most(found: Mean, limit: float) -> bool | None:
    """Whether something is at most so much; None if its interval leaves that open."""
    if found.high <= limit:
        return True
    return False if found.low > limit else None


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    known = list(verdicts)
    if False in known:
        return False
    return None if None in known else True


def _told(found: Mapping[str, Mean]) -> str:
    return ", ".join(f"{name} {each}" for name, each in found.items())


_TOO_FEW: Final = Evidence(None, "too few sizes: an exponent needs three")


def _largest(results: Results, experiment: str) -> int:
    return max((int(row["subscriptions"]) for row in results.rows(experiment)), default=0)


def _saved(results: Results, experiment: str, column: str, before: str, after: str) -> Mean | None:
    """What share of a column one optimization saves at the largest size."""
    size = _largest(results, experiment)
    was, now = (
        {row["seed"]: row for row in results.rows(experiment, engine=engine, subscriptions=size)}
        for engine in (before, after)
    )
    if not was or was.keys() != now.keys():
        return None
    return mean_of([1 - float(now[seed][column]) / float(was[seed][column]) for seed in was])


def _saving(share: Mean) -> bool | None:
    """Whether anything is saved; None if the interval leaves that open."""
    return _at_most(Mean(-share.value, share.half, share.runs), 0.0)


def _percent(share: Mean) -> str:
    return str(Mean(100 * share.value, 100 * share.half, share.runs)) + "%"


# --- growth ---


def _sublinear(results: Results) -> Evidence:
    found = _exponents(results, "growth", "work")
    if not found:
        return _TOO_FEW
    below = _all(_at_most(each, _SUBLINEAR) for each in found.values())
    return Evidence(below, f"exponents: {_told(found)}")


def _held(results: Results) -> Evidence:
    matched = _fitted(results, "growth", "none", "matched")
    if matched is None:
        return _TOO_FEW
    means = [each.value for each in results.mean("growth", "matched", ["subscriptions"]).values()]
    numbers = f"{min(means):.3g} to {max(means):.3g} matches an event, exponent {matched}"
    return Evidence(matched.low <= 0.05 and matched.high >= -0.05, numbers)


def _below(results: Results, experiment: str, engine: str) -> Evidence:
    """Whether no run visits more than the bound."""

    def key(row: Row) -> tuple[object, ...]:
        return row["subscriptions"], row["values"], row["skew"], row["seed"]

    most = {key(row): float(row["work"]) for row in results.rows(experiment, engine="bound")}
    shares = [
        float(row["work"]) / most[key(row)] for row in results.rows(experiment, engine=engine)
    ]
    if not shares:
        return Evidence(None, "nothing was run")
    numbers = f"{len(shares)} runs visit {100 * min(shares):.1f}% to {100 * max(shares):.1f}% of it"
    return Evidence(max(shares) <= 1, numbers)


def _bounded(results: Results) -> Evidence:
    return _below(results, "growth", "none")


def _closed_form(results: Results) -> Evidence:
    found = _fitted(results, "growth", "none", "work")
    if found is None:
        return _TOO_FEW
    most = exponent(ATTRIBUTES, VALUES)
    return Evidence(_at_most(found, most), f"fitted {found}, 1 - l is {most:.3f}")


def _worst(results: Results) -> Evidence:
    found = _exponents(results, "worst", "work", ("none", "a"))
    if not found:
        return _TOO_FEW
    rows = results.rows("worst", engine="none")
    whole = all(row["work"] == row["places"] for row in rows)
    low, high = LINEAR
    linear = all(low <= each.value <= high for each in found.values())
    numbers = f"exponents: {_told(found)}; {'all' if whole else 'not all'} of the tree is visited"
    return Evidence(whole and linear, numbers)


# --- space ---


def _linear(results: Results, experiment: str, engine: str) -> Evidence:
    found = _fitted(results, experiment, engine, "space")
    if found is None:
        return _TOO_FEW
    tests = results.mean(experiment, "tests", ["subscriptions"])
    few, many = (tests[size].value for size in (min(tests), max(tests)))
    numbers = f"exponent {found}; a subscription has {few:.2g} to {many:.2g} tests"
    return Evidence(_at_most(found, LINEAR[1]), numbers)


def _linear_tree(results: Results) -> Evidence:
    grown = _linear(results, "fixed", "none")
    shares = []
    for experiment in ("growth", "fixed"):
        spaces = results.mean(experiment, "space", ["engine", "subscriptions"])
        shares += [
            each.value / spaces["bound", size].value
            for (engine, size), each in spaces.items()
            if engine == "none"
        ]
    if grown.holds is None:
        return grown
    numbers = f"{grown.numbers}; {100 * max(shares):.0f}% of N K edges at the most"
    return Evidence(_all([grown.holds, max(shares) <= 1]), numbers)


def _linear_sets(results: Results) -> Evidence:
    return _linear(results, "fixed", "a+b")


def _linear_sets_held(results: Results) -> Evidence:
    return _linear(results, "growth", "a+b")


def _linear_building(results: Results) -> Evidence:
    found = _fitted(results, "fixed", "none", "add_us")
    if found is None:
        return _TOO_FEW
    return Evidence(_at_most(found, LINEAR[1] - 1), f"exponent {found}")


# --- optimizations ---


def _saves(results: Results, before: str, after: str) -> Evidence:
    work = _saved(results, "growth", "work", before, after)
    if work is None:
        return Evidence(None, "nothing was run")
    size = _largest(results, "growth")
    numbers = f"{_percent(work)} fewer places at {size:,} subscriptions"
    space = _saved(results, "growth", "space", before, after)
    if space is not None:
        numbers += f", {1 - space.value:.2g} times the space"
    return Evidence(_saving(work), numbers)


def _collapsing(results: Results) -> Evidence:
    return _saves(results, "none", "a")


def _successors(results: Results) -> Evidence:
    return _saves(results, "a", "a+b")


def _factoring(results: Results) -> Evidence:
    return _saves(results, "a+b", "a+b+c")


def _saves_time(results: Results, before: str, after: str) -> Evidence:
    time = _saved(results, "times", "event_us", before, after)
    if time is None:
        return Evidence(None, "nothing was run")
    size = _largest(results, "times")
    return Evidence(_saving(time), f"{_percent(time)} less time at {size:,} subscriptions")


def _collapsing_time(results: Results) -> Evidence:
    return _saves_time(results, "none", "a")


def _successors_time(results: Results) -> Evidence:
    return _saves_time(results, "a", "a+b")


def _few_index_attributes(results: Results) -> Evidence:
    spaces = results.mean("indexes", "space", ["factored"], engine="a+b+c")
    if len(spaces) < 3:
        return Evidence(None, "too few numbers of index attributes")
    works = results.mean("indexes", "work", ["factored"], engine="a+b+c")
    growth = [spaces[key].value / spaces[(0,)].value for key in spaces]
    told = ", ".join(
        f"{key[0]}: {rate:.1f} times the space, {works[key].value:.1f} places"
        for key, rate in zip(spaces, growth, strict=True)
    )
    return Evidence(all(few < more for few, more in pairwise(growth[1:])), told)


# --- in milliseconds ---


def _milliseconds(results: Results) -> Evidence:
    size = _largest(results, "times")
    if size < MANY:
        return Evidence(None, f"too few subscriptions: {size:,}")
    found = results.mean("times", "event_us", ["engine"], subscriptions=size)
    named = {key[0]: each.value / 1000 for key, each in found.items()}
    told = ", ".join(f"{name} {each:.3g} ms" for name, each in named.items())
    return Evidence(all(named[name] < FEW_MS for name in _TREES), f"at {size:,}: {told}")


# --- beyond equality and uniform events ---


def _skewed(results: Results) -> Evidence:
    return _below(results, "skew", "none")


def _ranges(results: Results) -> Evidence:
    found = _exponents(results, "ranges", "work", ("a", "a+b"))
    if not found:
        return _TOO_FEW
    bounded = _below(results, "ranges", "a")
    below = [_at_most(each, _SUBLINEAR) for each in found.values()]
    return Evidence(
        _all([*below, bounded.holds]), f"exponents: {_told(found)}; of the bound, {bounded.numbers}"
    )


CLAIMS: Final = (
    Claim(
        "matches held",
        "The workload is such that the matches of an event do not depend on the number of "
        "subscriptions.",
        "the exponent of matches over subscriptions is 0, to 0.05",
        _held,
    ),
    Claim(
        "sublinear",
        "The expected time to match a random event grows less than linearly with the number of "
        "subscriptions.",
        "the exponent of places visited, with its interval, is at most 0.95 for every tree",
        _sublinear,
    ),
    Claim(
        "theorem",
        "No set of N subscriptions makes a search visit more than the theorem says.",
        "no run visits more places than the bound with its constants",
        _bounded,
    ),
    Claim(
        "closed form",
        "Matching takes O((K N)^(1-l)), l = ln V / (ln V + ln K).",
        "the exponent of the tree without optimizations, with its interval, is not above 1 - l",
        _closed_form,
    ),
    Claim(
        "worst case",
        "In the worst case it is linear: all subscriptions of one value or `*`, and the event of "
        "those values.",
        "the whole tree is visited, and the exponent is 1, to 0.1",
        _worst,
    ),
    Claim(
        "space",
        "Space is O(N K): linear in the number of subscriptions.",
        "never more than N K edges, and an exponent, with its interval, not above 1.1 where "
        "subscriptions are of the same kind at all sizes",
        _linear_tree,
    ),
    Claim(
        "building",
        "Pre-processing takes O(N K): a subscription costs the same however many there are.",
        "the exponent of the time of one subscription, with its interval, is not above 0.1 where "
        "subscriptions are of the same kind at all sizes",
        _linear_building,
    ),
    Claim(
        "collapsing",
        "Collapsing chains of `*` (a) visits fewer places where many attributes are rarely tested.",
        "the saving is above 0 with its interval",
        _collapsing,
    ),
    Claim(
        "collapsing, time",
        "...and takes less time.",
        "the saving is above 0 with its interval",
        _collapsing_time,
    ),
    Claim(
        "successor sets",
        "Successor sets (b) improve the search further.",
        "the saving of places over (a) is above 0 with its interval",
        _successors,
    ),
    Claim(
        "successor sets, time",
        "...and take less time than (a).",
        "the saving is above 0 with its interval",
        _successors_time,
    ),
    Claim(
        "successor sets, space",
        "Successor sets take more space, but still linear.",
        "the exponent of edges and entries of (a+b), with its interval, is not above 1.1, "
        "where subscriptions are of the same kind at all sizes",
        _linear_sets,
    ),
    Claim(
        "successor sets, space, matches held",
        "...also where the matches of an event are held.",
        "the same",
        _linear_sets_held,
        "Matches are held by longer subscriptions: with their number grows that of the tests of "
        "each, and that of the branches that are pending at a node.",
    ),
    Claim(
        "factoring",
        "Factoring out index attributes (c) improves the search further, for more space.",
        "the saving of places over (a+b) is above 0 with its interval",
        _factoring,
    ),
    Claim(
        "few index attributes",
        "The number of index attributes must be small, since what does not care about them is in "
        "the subtrees of all their values.",
        "from the first index attribute on, space grows with each",
        _few_index_attributes,
    ),
    Claim(
        "milliseconds",
        "Tens of thousands of subscriptions are matched in a few milliseconds an event.",
        f"under {FEW_MS:g} ms in every tree at {MANY:,} subscriptions or more",
        _milliseconds,
    ),
    Claim(
        "other events",
        "The analysis extends to other distributions of events.",
        "no run with Zipf events visits more than the bound with those probabilities",
        _skewed,
    ),
    Claim(
        "ranges",
        "(Left open by the paper:) ranges are matched in sublinear time, within a bound.",
        "the exponent is at most 0.95 with its interval, and no run visits more than the bound",
        _ranges,
    ),
)
