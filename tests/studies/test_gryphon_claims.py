"""Every claim can hold and can fail, on rows made up for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palio_studies.gryphon_claims import CLAIMS, FEW_MS, MANY
from palio_studies.results import Results
from palio_studies.study import Claim, Row

SIZES = (1_000, 4_000, 16_000)
SEEDS = (1, 2, 3)
FACTORS = {"none": 10.0, "a": 5.0, "a+b": 4.0, "a+b+c": 2.0, "bound": 40.0}
SPACES = {"none": 10.0, "a": 2.0, "a+b": 4.0, "a+b+c": 8.0, "bound": 30.0}
EXPERIMENTS = ("growth", "fixed", "ranges", "skew")

Tables = dict[str, list[Row]]


def made_up() -> Tables:
    """Work grows with the square root, space is linear, and all is as the paper says."""
    tables: Tables = {name: [] for name in EXPERIMENTS}
    for name in EXPERIMENTS:
        for size in SIZES:
            for seed in SEEDS:
                noise = 1 + 0.001 * seed
                for engine, factor in FACTORS.items():
                    tables[name].append(
                        {
                            "engine": engine,
                            "subscriptions": size,
                            "seed": seed,
                            "values": 10,
                            "skew": 0.0,
                            "work": factor * size**0.5 * noise,
                            "space": SPACES[engine] * size * noise,
                            "matched": 5.0 * noise,
                            "tests": 4.0,
                            "add_us": 100.0 * noise,
                        }
                    )
    tables["times"] = [
        {
            "engine": engine,
            "subscriptions": size,
            "seed": seed,
            "event_us": FACTORS[engine] * (1 + 0.001 * seed),
        }
        for engine in ("none", "a", "a+b", "a+b+c")
        for size in SIZES
        for seed in SEEDS
    ]
    tables["worst"] = [
        {"engine": engine, "subscriptions": size, "places": 2 * size, "work": 2.0 * size}
        for engine in ("none", "a")
        for size in SIZES
    ]
    tables["indexes"] = [
        {"engine": "a+b+c", "factored": factored, "seed": 1, "space": 10 * 3**factored, "work": 5}
        for factored in range(4)
    ]
    return tables


def scaled(column: str, power: float, *experiments: str) -> Callable[[Row, str], None]:
    """Let a column grow by a power of the size more than it does."""

    def change(row: Row, name: str) -> None:
        if name in experiments and row["engine"] != "bound":
            row[column] = float(row[column]) * float(row["subscriptions"]) ** power

    return change


def multiplied(engine: str, column: str, factor: float) -> Callable[[Row, str], None]:
    def change(row: Row, _: str) -> None:
        if row["engine"] == engine and column in row:
            row[column] = float(row[column]) * factor

    return change


WRONG: dict[str, Callable[[Row, str], None]] = {
    "matches held": scaled("matched", 0.5, "growth"),
    "sublinear": scaled("work", 0.5, "growth"),
    "theorem": multiplied("none", "work", 5.0),
    "closed form": scaled("work", 0.2, "growth"),
    "worst case": scaled("work", -0.5, "worst"),
    "space": scaled("space", 0.3, "fixed"),
    "building": scaled("add_us", 0.3, "fixed"),
    "collapsing": multiplied("a", "work", 3.0),
    "collapsing, time": multiplied("a", "event_us", 3.0),
    "successor sets": multiplied("a+b", "work", 3.0),
    "successor sets, time": multiplied("a+b", "event_us", 3.0),
    "successor sets, space": scaled("space", 0.3, "fixed"),
    "successor sets, space, matches held": scaled("space", 0.3, "growth"),
    "factoring": multiplied("a+b+c", "work", 3.0),
    "few index attributes": lambda row, _: row.update(space=10),
    "milliseconds": multiplied("a", "event_us", 1000 * FEW_MS),
    "other events": multiplied("none", "work", 5.0),
    "ranges": scaled("work", 0.5, "ranges"),
}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_holds_where_all_is_as_it_says(claim: Claim) -> None:
    found = claim.check(Results(made_up()))
    assert found.holds is True, found.numbers
    assert found.numbers


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_fails_where_it_is_not(claim: Claim) -> None:
    tables = made_up()
    for name, rows in tables.items():
        for row in rows:
            WRONG[claim.name](row, name)
    assert claim.check(Results(tables)).holds is False


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_without_runs_is_open(claim: Claim) -> None:
    assert claim.check(Results({})).holds is None


def test_few_subscriptions_say_nothing_of_milliseconds() -> None:
    tables = made_up()
    tables["times"] = [row for row in tables["times"] if int(row["subscriptions"]) < MANY]
    claim = next(each for each in CLAIMS if each.name == "milliseconds")
    assert claim.check(Results(tables)).holds is None
