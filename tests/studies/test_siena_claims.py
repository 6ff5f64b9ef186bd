"""Each claim can hold, can fail, and says when too little was run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from palio_studies.results import Results
from palio_studies.siena_claims import CLAIMS
from palio_studies.study import Row, grid

BY_NUMBER: Final = {claim.name.partition(":")[0]: claim for claim in CLAIMS}

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


def is_hierarchy(run: Any) -> bool:
    return bool(run["architecture"] == "hs")


def as_expected() -> dict[str, list[Row]]:
    """Made-up numbers with which every claim holds."""
    two = ["hs", "as"]
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
    }


SPOILT: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
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
