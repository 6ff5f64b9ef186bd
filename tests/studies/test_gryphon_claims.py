"""Every claim can hold and can fail, on rows made up for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palio_studies.gryphon_claims import CLAIMS, FEW_MS, MANY
from palio_studies.results import Results
from palio_studies.study import Claim, Row, grid

SIZES = (1_000, 4_000, 16_000)
FACTORS = {"none": 10.0, "a": 5.0, "a+b": 4.0, "a+b+c": 2.0, "bound": 40.0}
SPACES = {"none": 10.0, "a": 2.0, "a+b": 4.0, "a+b+c": 8.0, "bound": 30.0}


def made_up() -> dict[str, list[Row]]:
    """Work grows with the square root, space is linear, and all is as the paper says."""
    rows: list[Row] = [
        {
            "engine": engine,
            "subscriptions": size,
            "seed": seed,
            "work": factor * size**0.5 * (1 + 0.001 * seed),
            "space": SPACES[engine] * size * (1 + 0.001 * seed),
            "matched": 5.0 * (1 + 0.001 * seed),
            "tests": 4.0,
            "add_us": 100.0 * (1 + 0.001 * seed),
            "event_us": factor * (1 + 0.001 * seed),
        }
        for engine, factor in FACTORS.items()
        for size in SIZES
        for seed in (1, 2, 3)
    ]
    experiments = ("growth", "fixed", "ranges", "times")
    worst = grid(engine=("none", "a"), subscriptions=SIZES)
    indexes = grid(engine=("a+b+c",), factored=range(4), work=(5,))
    return {
        **{name: [dict(row) for row in rows] for name in experiments},
        "worst": [
            {**row, "places": row["subscriptions"], "work": row["subscriptions"]} for row in worst
        ],
        "indexes": [{**row, "space": 10 * 3 ** int(row["factored"])} for row in indexes],
    }


Change = Callable[[Row, str], None]


def scaled(column: str, power: float, experiment: str) -> Change:
    """Let a column grow by a power of the size more than it does."""

    def change(row: Row, name: str) -> None:
        if name == experiment and row["engine"] != "bound":
            row[column] = float(row[column]) * float(row["subscriptions"]) ** power

    return change


def multiplied(engine: str, column: str, factor: float) -> Change:
    def change(row: Row, _: str) -> None:
        if row["engine"] == engine and column in row:
            row[column] = float(row[column]) * factor

    return change


WRONG: dict[str, Change] = {
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
    "ranges": scaled("work", 0.5, "ranges"),
}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_holds_fails_and_waits(claim: Claim) -> None:
    tables = made_up()
    found = claim.judge(Results(tables))
    assert found.holds is True, found.numbers
    for name, rows in tables.items():
        for row in rows:
            WRONG[claim.name](row, name)
    assert claim.judge(Results(tables)).holds is False
    assert claim.judge(Results({})).holds is None


def test_few_subscriptions_say_nothing_of_milliseconds() -> None:
    few = [row for row in made_up()["times"] if int(row["subscriptions"]) < MANY]
    claim = next(each for each in CLAIMS if each.name == "milliseconds")
    assert claim.judge(Results({"times": few})).holds is None
