"""gryphon's claims: what the paper says of its tree, and how it is checked (gryphon 3 to 5).

Exponents are fitted to all runs over the number of subscriptions, with their 95% interval. What one
optimization saves is found seed by seed, between trees of the same subscriptions. An interval that
holds the limit itself decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Final

from palio_studies.checks import Check, all_hold, at_most, check, listed, needed, within
from palio_studies.gryphon_bound import exponent
from palio_studies.results import Mean, Results, fitted_exponent, mean_of
from palio_studies.study import SEEN, Claim, Evidence, Row

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

HELD: Final = 0.05
"""An exponent between this and less, with its interval, is called none."""

NAMED: Final = "{0} {1}"
NOTHING: Final = "nothing was run"


def _exponent(results: Results, experiment: str, engine: str, column: str) -> Mean:
    rows = results.rows(experiment, engine=engine)
    sizes = [float(row["subscriptions"]) for row in rows]
    needed(len(set(sizes)) >= 3, "too few sizes: an exponent needs three")
    return fitted_exponent(sizes, [float(row[column]) for row in rows])


def _exponents(
    results: Results, experiment: str, column: str, engines: Sequence[str] = _TREES
) -> dict[str, Mean]:
    return {name: _exponent(results, experiment, name, column) for name in engines}


def _all_at_most(limit: float, means: Sequence[Mean]) -> bool | None:
    return all_hold(at_most(mean, limit) for mean in means)


def _rises_at_most(
    limit: float, experiment: str, column: str, told: str, engines: Sequence[str] = _TREES
) -> Check:
    """A claim that the exponents of a column, with their intervals, are at most so much."""
    return check(
        partial(_exponents, experiment=experiment, column=column, engines=engines),
        partial(_all_at_most, limit),
        told,
        each=NAMED if len(engines) > 1 else "{1}",
    )


def _largest(results: Results, experiment: str) -> int:
    return max(results.values(experiment, "subscriptions"), default=0)


def _held(results: Results) -> Evidence:
    matched = _exponent(results, "growth", "none", "matched")
    means = results.line("growth", "matched", "subscriptions").values()
    numbers = f"{min(means):.3g} to {max(means):.3g} matches an event, exponent {matched}"
    return Evidence(within(matched, -HELD, HELD), numbers)


def _bounded(results: Results, experiment: str, engine: str = "none") -> Evidence:
    """Whether no run visits more than the bound."""

    def key(row: Row) -> tuple[object, ...]:
        return row["subscriptions"], row["seed"]

    most = {key(row): float(row["work"]) for row in results.rows(experiment, engine="bound")}
    shares = [
        float(row["work"]) / most[key(row)] for row in results.rows(experiment, engine=engine)
    ]
    needed(shares, NOTHING)
    numbers = f"{len(shares)} runs visit {100 * min(shares):.1f}% to {100 * max(shares):.1f}% of it"
    return Evidence(max(shares) <= 1, numbers)


def _worst(results: Results) -> Evidence:
    found = _exponents(results, "worst", "work", ("none", "a"))
    whole = all(row["work"] == row["places"] for row in results.rows("worst", engine="none"))
    low, high = LINEAR
    linear = all_hold(within(each, low, high) for each in found.values())
    visited = "all" if whole else "not all"
    return Evidence(
        all_hold([whole, linear]),
        f"exponents: {listed(found, NAMED)}; {visited} of the tree is visited",
    )


def _linear(results: Results, experiment: str, engine: str) -> Evidence:
    found = _exponent(results, experiment, engine, "space")
    tests = list(results.line(experiment, "tests", "subscriptions").values())
    numbers = f"exponent {found}; a subscription has {tests[0]:.2g} to {tests[-1]:.2g} tests"
    return Evidence(at_most(found, LINEAR[1]), numbers)


def _linear_tree(results: Results) -> Evidence:
    grown = _linear(results, "fixed", "none")
    if grown.holds is None:
        return grown
    shares: list[float] = []
    for experiment in ("growth", "fixed"):
        tree, bound = (
            results.line(experiment, "space", "subscriptions", engine=engine)
            for engine in ("none", "bound")
        )
        shares += [space / bound[size] for size, space in tree.items()]
    numbers = f"{grown.numbers}; {100 * max(shares):.0f}% of N K edges at the most"
    return Evidence(all_hold([grown.holds, max(shares) <= 1]), numbers)


def _share_saved(
    results: Results, experiment: str, column: str, before: str, after: str
) -> Mean | None:
    """What share of a column one optimization saves at the largest size."""
    size = _largest(results, experiment)
    was, now = (
        {row["seed"]: row for row in results.rows(experiment, engine=engine, subscriptions=size)}
        for engine in (before, after)
    )
    if not was or was.keys() != now.keys():
        return None
    return mean_of([1 - float(now[seed][column]) / float(was[seed][column]) for seed in was])


def _saves(
    results: Results, before: str, after: str, experiment: str = "growth", column: str = "work"
) -> Evidence:
    """Whether anything is saved; open if the interval leaves that open."""
    share = _share_saved(results, experiment, column, before, after)
    if share is None:
        return Evidence(None, NOTHING)
    percent = Mean(100 * share.value, 100 * share.half, share.runs)
    fewer = "fewer places" if column == "work" else "less time"
    numbers = f"{percent}% {fewer} at {_largest(results, experiment):,} subscriptions"
    if column == "work":
        space = _share_saved(results, experiment, "space", before, after)
        numbers += f", {1 - space.value:.2g} times the space" if space else ""
    return Evidence(at_most(Mean(-share.value, share.half, share.runs), 0.0), numbers)


_saves_time: Final = partial(_saves, experiment="times", column="event_us")


def _few_index_attributes(results: Results) -> Evidence:
    spaces, works = (
        results.line("indexes", column, "factored", engine="a+b+c") for column in ("space", "work")
    )
    needed(len(spaces) >= 3, "too few numbers of index attributes")
    growth = {key: space / spaces[0] for key, space in spaces.items()}
    told = ", ".join(
        f"{key}: {rate:.1f} times the space, {works[key]:.1f} places"
        for key, rate in growth.items()
    )
    return Evidence(all(few < more for few, more in pairwise(list(growth.values())[1:])), told)


def _milliseconds(results: Results) -> Evidence:
    size = _largest(results, "times")
    needed(size >= MANY, f"too few subscriptions: {size:,}")
    found = results.line("times", "event_us", "engine", subscriptions=size)
    named = {engine: time / 1000 for engine, time in found.items()}
    told = f"at {size:,}: {listed(named, '{0} {1:.3g} ms')}"
    return Evidence(all(named[name] < FEW_MS for name in _TREES), told)


def _ranges(results: Results) -> Evidence:
    found = _exponents(results, "ranges", "work", ("a", "a+b"))
    bounded = _bounded(results, "ranges", "a")
    return Evidence(
        all_hold([_all_at_most(_SUBLINEAR, list(found.values())), bounded.holds]),
        f"exponents: {listed(found, NAMED)}; of the bound, {bounded.numbers}",
    )


_CLOSED_FORM: Final = exponent(ATTRIBUTES, VALUES)

CLAIMS: Final = (
    Claim(
        "matches held",
        "The workload is such that the matches of an event do not depend on the number of "
        "subscriptions.",
        f"the exponent of matches over subscriptions, with its interval, is 0, to {HELD}",
        _held,
    ),
    Claim(
        "sublinear",
        "The expected time to match a random event grows less than linearly with the number of "
        "subscriptions.",
        "the exponent of places visited, with its interval, is at most 0.95 for every tree",
        _rises_at_most(_SUBLINEAR, "growth", "work", "exponents: {}"),
    ),
    Claim(
        "theorem",
        "No set of N subscriptions makes a search visit more than the theorem says.",
        "no run visits more places than the bound with its constants",
        partial(_bounded, experiment="growth"),
    ),
    Claim(
        "closed form",
        "Matching takes O((K N)^(1-l)), l = ln V / (ln V + ln K).",
        "the exponent of the tree without optimizations, with its interval, is not above 1 - l",
        _rises_at_most(
            _CLOSED_FORM, "growth", "work", f"fitted {{}}, 1 - l is {_CLOSED_FORM:.3f}", ("none",)
        ),
    ),
    Claim(
        "worst case",
        "In the worst case it is linear: all subscriptions of one value or `*`, and the event of "
        "those values.",
        "the whole tree is visited, and the exponent, with its interval, is 1, to 0.1",
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
        _rises_at_most(LINEAR[1] - 1, "fixed", "add_us", "exponent {}", ("none",)),
    ),
    Claim(
        "collapsing",
        "Collapsing chains of `*` (a) visits fewer places where many attributes are rarely tested.",
        "the saving is above 0 with its interval",
        partial(_saves, before="none", after="a"),
    ),
    Claim(
        "collapsing, time",
        "...and takes less time.",
        "the saving is above 0 with its interval",
        partial(_saves_time, before="none", after="a"),
    ),
    Claim(
        "successor sets",
        "Successor sets (b) improve the search further.",
        "the saving of places over (a) is above 0 with its interval",
        partial(_saves, before="a", after="a+b"),
    ),
    Claim(
        "successor sets, time",
        "...and take less time than (a).",
        "the saving is above 0 with its interval",
        partial(_saves_time, before="a", after="a+b"),
    ),
    Claim(
        "successor sets, space",
        "Successor sets take more space, but still linear.",
        "the exponent of edges and entries of (a+b), with its interval, is not above 1.1, "
        "where subscriptions are of the same kind at all sizes",
        partial(_linear, experiment="fixed", engine="a+b"),
    ),
    Claim(
        "successor sets, space, matches held",
        "...also where the matches of an event are held.",
        "the same",
        partial(_linear, experiment="growth", engine="a+b"),
        "Matches are held by longer subscriptions: with their number grows that of the tests of "
        "each, and that of the branches that are pending at a node.",
        SEEN,
    ),
    Claim(
        "factoring",
        "Factoring out index attributes (c) improves the search further, for more space.",
        "the saving of places over (a+b) is above 0 with its interval",
        partial(_saves, before="a+b", after="a+b+c"),
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
        "ranges",
        "(Left open by the paper:) ranges are matched in sublinear time, within a bound.",
        "the exponent is at most 0.95 with its interval, and no run visits more than the bound",
        _ranges,
    ),
)
