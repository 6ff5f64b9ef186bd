"""Each claim can hold, can fail, and says when too little was run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from palio_studies.results import Results
from palio_studies.siena_claims import CLAIMS
from palio_studies.siena_runs import MODEL_DEGREE
from palio_studies.study import Claim, Row

OBJECTS = (1, 10, 100)
PARTIES = (1, 3, 10, 100, 300, 1000)

Tables = dict[str, list[Row]]


def as_the_paper_says() -> Tables:
    """Made-up numbers with which every claim holds."""
    costs: list[Row] = []
    for objects in OBJECTS:
        for parties in PARTIES:
            for seed in range(1, 7):
                reached = min(parties, 100) ** 0.5
                total = {
                    "as": 1000 * reached,
                    "hs": 1000 * reached * (1 + objects / 10),
                    "ce": 5000.0 * parties * objects,
                    "aa": 1000 * reached * (1 + (seed % 2 if parties <= 10 else 0)),
                }
                for architecture, cost in total.items():
                    noise = 1 + 0.01 * seed
                    costs.append(
                        {
                            "architecture": architecture,
                            "objects": objects,
                            "parties": parties,
                            "seed": seed,
                            "total": cost * noise,
                            "cost_per_subscription": 1000.0 / parties,
                            "cost_per_notification": 10.0 * parties
                            + (50 if architecture == "hs" else 0),
                            "worst_site": (0.9 + objects / 20) if architecture == "hs" else 1.0,
                        }
                    )
    growth: list[Row] = [
        {"architecture": name, "sites": size, "seed": 1, "links_per_subscription": links}
        for name, size, links in (
            ("as", 100, 99.0),
            ("as", 1000, 999.0),
            ("hs", 100, 4.0),
            ("hs", 1000, 6.0),
        )
    ]
    vain: list[Row] = [
        {
            "architecture": name,
            "parties": parties,
            "n": n,
            "seed": 1,
            "cost_per_notification": (100.0 if name == "hs" else 0.0)
            + (500.0 / n if parties else 0.0),
        }
        for name in ("hs", "as")
        for parties in (0, 10)
        for n in (1, 100)
    ]
    wanted: list[Row] = [
        {"architecture": name, "parties": 1, "seed": 1, "worst_site": 1.0} for name in ("hs", "as")
    ]
    networks: list[Row] = [
        {
            "sites": 100,
            "seed": seed,
            "mean_degree": MODEL_DEGREE + 0.1 * (-1) ** seed,
            "mean_hops": 8.0,
        }
        for seed in range(1, 11)
    ]
    return {
        "costs": costs,
        "growth": growth,
        "vain": vain,
        "wanted": wanted,
        "networks": networks,
    }


def spoil(tables: Tables, experiment: str, column: str, change: Callable[[Row], Any]) -> Tables:
    for row in tables[experiment]:
        row[column] = change(row)
    return tables


SPOILT: dict[str, tuple[str, str, Callable[[Row], Any]]] = {
    "the networks are those of the model": ("networks", "mean_degree", lambda row: 4.0),
    "1a": ("costs", "total", lambda row: row["parties"]),
    "1b": ("costs", "total", lambda row: row["parties"]),
    "2a": ("costs", "total", lambda row: 7),
    "2b": ("costs", "total", lambda row: 7),
    "3a": ("costs", "total", lambda row: 7 + float(row["seed"])),
    "3b": ("costs", "total", lambda row: 9 if row["architecture"] == "aa" else 1),
    "4a": ("growth", "links_per_subscription", lambda row: row["sites"]),
    "4b": ("costs", "cost_per_subscription", lambda row: 5),
    "5a": (
        "costs",
        "cost_per_notification",
        lambda row: row["parties"] * (2 if row["architecture"] == "hs" else 1),
    ),
    "5b": ("vain", "cost_per_notification", lambda row: 100.0),
    "6a": ("costs", "worst_site", lambda row: 3 if row["architecture"] == "hs" else 2),
    "6b": ("costs", "worst_site", lambda row: 2),
}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_holds_fails_and_waits(claim: Claim) -> None:
    assert claim.check(Results(as_the_paper_says())).holds is True
    experiment, column, change = SPOILT[claim.name.partition(":")[0]]
    spoilt = claim.check(Results(spoil(as_the_paper_says(), experiment, column, change)))
    assert spoilt.holds is False, spoilt.numbers
    assert claim.check(Results({})).holds is None
