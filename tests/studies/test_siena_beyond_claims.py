"""Each claim beyond the paper can hold, can fail, and says when too little was run."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from palio_studies.results import Results
from palio_studies.siena_beyond_claims import BEYOND_CLAIMS
from palio_studies.study import Claim, Row

Tables = dict[str, list[Row]]


def load_rows() -> list[Row]:
    rows: list[Row] = []
    for architecture, parties, load in product(("hs", "as", "hy"), (10, 100), (0.5, 2.0, 8.0)):
        bearable = 1.2 if parties == 100 else 1.5 if architecture == "hs" else 4.5
        rows.append(
            {
                "architecture": architecture,
                "parties": parties,
                "load": load,
                "seed": 1,
                "bearable": bearable,
                "busiest": load / bearable,
                "at_root": float(architecture == "hs"),
                "latency_ms": 100.0 if load < bearable else 100.0 * load / bearable * 3,
            }
        )
    return rows


def delegation_rows() -> list[Row]:
    return [
        {
            "architecture": architecture,
            "sources": sources,
            "steps": 3,
            "parties": parties,
            "seed": 1,
            "occurrences": 2 * parties,
            "notification_cost": 20.0 * parties
            if architecture == "pa"
            else 100.0 * parties**0.7 * sources,
        }
        for architecture, sources, parties in product(("aa", "pa"), (1, 2), (3, 300))
    ]


def sizes_rows() -> list[Row]:
    rows: list[Row] = []
    for architecture, sites, crowd in product(
        ("ce", "hs", "as", "aa"), (100, 1_000, 10_000), (0.1, 1.0, 3.0, 10.0)
    ):
        reached = sites * min(crowd, 3.0) ** 0.2
        extra = {"ce": sites * crowd * (sites / 10), "hs": 200.0}.get(architecture, 0.0)
        rows.append(
            {
                "architecture": architecture,
                "sites": sites,
                "parties_per_site": crowd,
                "seed": 1,
                "total": reached + extra,
                "worst_site": 20.0 if architecture == "hs" else 10.0,
            }
        )
    return rows


def as_expected() -> Tables:
    """Made-up numbers with which every claim holds."""
    return {"load": load_rows(), "delegation": delegation_rows(), "sizes": sizes_rows()}


SPOILT: dict[str, tuple[str, str, Callable[[Row], Any]]] = {
    "7a": ("load", "bearable", lambda row: 2.0),
    "7b": ("load", "bearable", lambda row: 1.0 if row["architecture"] == "hs" else 2.0),
    "7c": ("load", "latency_ms", lambda row: 100.0 * float(row["load"])),
    "8a": ("delegation", "occurrences", lambda row: len(str(row["architecture"] == "aa"))),
    "8b": ("delegation", "notification_cost", lambda row: 5.0),
    "8c": ("delegation", "notification_cost", lambda row: 5.0),
    "9a": ("sizes", "total", lambda row: row["parties_per_site"]),
    "9b": ("sizes", "total", lambda row: row["parties_per_site"]),
    "9c": ("sizes", "worst_site", lambda row: 10.0),
    "9d": ("sizes", "total", lambda row: row["parties_per_site"]),
}


@pytest.mark.parametrize("claim", BEYOND_CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_holds_fails_and_waits(claim: Claim) -> None:
    held = claim.check(Results(as_expected()))
    assert held.holds is True, held.numbers
    tables = as_expected()
    experiment, column, change = SPOILT[claim.name.partition(":")[0]]
    for row in tables[experiment]:
        row[column] = change(row)
    spoilt = claim.check(Results(tables))
    assert spoilt.holds is False, spoilt.numbers
    assert claim.check(Results({})).holds is None


def test_the_root_is_the_bottleneck_only_if_its_link_is_the_busiest() -> None:
    tables = as_expected()
    for row in tables["load"]:
        row["at_root"] = 0.5
    assert BEYOND_CLAIMS[0].check(Results(tables)).holds is False


def test_two_sizes_do_not_tell_whether_hierarchies_even_out() -> None:
    claim = next(each for each in BEYOND_CLAIMS if each.name.startswith("9b"))
    rows = [row for row in sizes_rows() if int(row["sites"]) < 10_000]
    assert claim.check(Results({"sizes": rows})).holds is None


@pytest.mark.parametrize(
    ("number", "experiment", "column", "least"),
    [
        ("7b", "load", "parties", 100),
        ("7c", "load", "load", 8.0),
        ("8c", "delegation", "parties", 300),
        ("9a", "sizes", "parties_per_site", 10.0),
        ("9b", "sizes", "sites", 10_000),
        ("9c", "sizes", "sites", 10_000),
        ("9d", "sizes", "sites", 10_000),
    ],
)
def test_a_claim_waits_for_what_it_is_about(
    number: str, experiment: str, column: str, least: float
) -> None:
    """Without the largest runs, or with these alone, nothing is said."""
    claim = next(each for each in BEYOND_CLAIMS if each.name.startswith(number))
    rows = as_expected()[experiment]
    some = [
        row for row in rows if (float(row[column]) == least) == (number in ("7c", "9b", "9c", "9d"))
    ]
    assert claim.check(Results({experiment: some})).holds is None
