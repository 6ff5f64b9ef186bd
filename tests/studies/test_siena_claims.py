"""Each claim can hold, can fail, and says when too little was run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from palio_studies.results import Results
from palio_studies.siena_claims import CLAIMS
from palio_studies.siena_runs import MODEL_DEGREE
from palio_studies.study import Row, grid

BY_NUMBER: Final = {claim.name.partition(":")[0]: claim for claim in CLAIMS}
MODEL: Final = "the networks are those of the model"

Measures = Mapping[str, Callable[[Any], float]]


def rows(columns: Mapping[str, Any], measures: Measures) -> list[Row]:
    """A row for each combination of parameters, with what is made up of these."""
    sets = grid(**columns)
    return [{**each, **{name: of(each) for name, of in measures.items()}} for each in sets]


def total(run: Any) -> float:
    reached = 1000 * min(run["parties"], 100) ** 0.5
    costs = {
        "as": reached,
        "hs": reached * (1 + run["objects"] / 10),
        "ce": 5000.0 * run["parties"] * run["objects"],
        "aa": reached * (1 + (run["seed"] % 2 if run["parties"] <= 10 else 0)),
    }
    return float(costs[run["architecture"]] * (1 + 0.01 * run["seed"]))


def bearable(run: Any) -> float:
    return 1.2 if run["parties"] == 100 else 1.5 if is_hierarchy(run) else 4.5


def among_sites(run: Any) -> float:
    extra = {"ce": run["sites"] ** 2 * run["parties_per_site"] / 10, "hs": 200.0}
    reached = run["sites"] * min(run["parties_per_site"], 3.0) ** 0.2
    return float(reached + extra.get(run["architecture"], 0.0))


def is_hierarchy(run: Any) -> bool:
    return bool(run["architecture"] == "hs")


def as_expected() -> dict[str, list[Row]]:
    """Made-up numbers with which every claim holds."""
    two = ["hs", "as"]
    crowds = {"architecture": [*two, "hy"], "parties": [10, 100], "load": [0.5, 2.0, 8.0]}
    sites = {"architecture": ["ce", *two, "aa"], "sites": [100, 1_000, 10_000]}
    return {
        "costs": rows(
            {
                "architecture": [*two, "ce", "aa"],
                "objects": [1, 10, 100],
                "parties": [1, 3, 10, 100, 300, 1000],
                "seed": [1, 2, 3, 4, 5, 6],
            },
            {
                "total": total,
                "cost_per_subscription": lambda run: 1000.0 / run["parties"],
                "cost_per_notification": lambda run: 10 * run["parties"] + 50 * is_hierarchy(run),
                "worst_site": lambda run: 0.9 + run["objects"] / 20 if is_hierarchy(run) else 1.0,
            },
        ),
        "growth": rows(
            {"architecture": two, "sites": [100, 1000]},
            {
                "links_per_subscription": lambda run: (
                    run["sites"] ** 0.3 if is_hierarchy(run) else run["sites"] - 1
                )
            },
        ),
        "vain": rows(
            {"architecture": two, "parties": [0, 10], "n": [1, 100]},
            {
                "cost_per_notification": lambda run: (
                    100 * is_hierarchy(run) + 50 * run["parties"] / run["n"]
                )
            },
        ),
        "wanted": rows({"architecture": two, "parties": [1]}, {"worst_site": lambda _: 1.0}),
        "networks": rows(
            {"sites": [100], "seed": list(range(1, 11))},
            {
                "mean_degree": lambda run: MODEL_DEGREE + 0.1 * (-1) ** run["seed"],
                "mean_hops": lambda _: 8.0,
            },
        ),
        "load": rows(
            crowds,
            {
                "bearable": bearable,
                "busiest": lambda run: run["load"] / bearable(run),
                "at_root": is_hierarchy,
                "latency_ms": lambda run: (
                    100.0 if run["load"] < bearable(run) else 300.0 * run["load"] / bearable(run)
                ),
            },
        ),
        "delegation": rows(
            {"architecture": ["aa", "pa"], "sources": [1, 2], "parties": [3, 300]},
            {
                "steps": lambda _: 3,
                "seed": lambda _: 1,
                "occurrences": lambda run: 2 * run["parties"],
                "notification_cost": lambda run: (
                    20.0 * run["parties"]
                    if run["architecture"] == "pa"
                    else 100.0 * run["parties"] ** 0.7 * run["sources"]
                ),
            },
        ),
        "sizes": rows(
            sites | {"parties_per_site": [0.1, 1.0, 3.0, 10.0]},
            {"total": among_sites, "worst_site": lambda run: 20.0 if is_hierarchy(run) else 10.0},
        ),
    }


SPOILT: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    MODEL: ("networks", "mean_degree", lambda _: 4.0),
    "1a": ("costs", "total", lambda run: run["parties"]),
    "1b": ("costs", "total", lambda run: run["parties"]),
    "2a": ("costs", "total", lambda _: 7),
    "2b": ("costs", "total", lambda _: 7),
    "3a": ("costs", "total", lambda run: 7 + run["seed"]),
    "3b": ("costs", "total", lambda run: 9 if run["architecture"] == "aa" else 1),
    "4a": ("growth", "links_per_subscription", lambda run: run["sites"]),
    "4b": ("costs", "cost_per_subscription", lambda _: 5),
    "5a": ("costs", "cost_per_notification", lambda run: run["parties"] * (1 + is_hierarchy(run))),
    "5b": ("vain", "cost_per_notification", lambda _: 100.0),
    "6a": ("costs", "worst_site", lambda run: 2 + is_hierarchy(run)),
    "6b": ("costs", "worst_site", lambda _: 2),
    "7a": ("load", "at_root", lambda _: 0.5),
    "7b": ("load", "bearable", lambda run: 1.0 if is_hierarchy(run) else 2.0),
    "7c": ("load", "latency_ms", lambda run: 100.0 * run["load"]),
    "8a": ("delegation", "occurrences", lambda run: int(run["architecture"] == "aa")),
    "8b": ("delegation", "notification_cost", lambda _: 5.0),
    "8c": ("delegation", "notification_cost", lambda _: 5.0),
    "9a": ("sizes", "total", lambda run: run["parties_per_site"]),
    "9b": ("sizes", "total", lambda run: run["parties_per_site"]),
    "9c": ("sizes", "worst_site", lambda _: 10.0),
    "9d": ("sizes", "total", lambda run: run["parties_per_site"]),
}
"""What makes each claim fail: a column of an experiment, and what stands there instead."""


@pytest.mark.parametrize("number", BY_NUMBER)
def test_a_claim_holds_fails_and_waits(number: str) -> None:
    claim, tables = BY_NUMBER[number], as_expected()
    held = claim.judge(Results(tables))
    assert held.holds is True, held.numbers
    experiment, column, change = SPOILT[number]
    for row in tables[experiment]:
        row[column] = change(row)
    spoilt = claim.judge(Results(tables))
    assert spoilt.holds is False, spoilt.numbers
    assert claim.judge(Results({})).holds is None


@pytest.mark.parametrize(
    ("number", "experiment", "kept"),
    [
        ("7b", "load", lambda run: run["parties"] < 100),
        ("7c", "load", lambda run: run["load"] == 8.0),
        ("8c", "delegation", lambda run: run["parties"] < 300),
        ("9a", "sizes", lambda run: run["parties_per_site"] < 10.0),
        ("9b", "sizes", lambda run: run["sites"] < 10_000),
        ("9c", "sizes", lambda run: run["sites"] == 10_000),
        ("9d", "sizes", lambda run: run["sites"] == 10_000),
    ],
)
def test_a_claim_waits_for_what_it_is_about(
    number: str, experiment: str, kept: Callable[[Row], bool]
) -> None:
    some = [row for row in as_expected()[experiment] if kept(row)]
    assert some
    assert BY_NUMBER[number].judge(Results({experiment: some})).holds is None
