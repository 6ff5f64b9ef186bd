"""Every claim can hold and can fail, on rows made up for it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from palio_studies.proxy_claims import CLAIMS
from palio_studies.proxy_repair import FAULTS
from palio_studies.proxy_runs import SHORTENED
from palio_studies.results import Results
from palio_studies.study import Claim, Row

Tables = dict[str, list[Row]]


def made_up() -> Tables:
    """As the paper says."""
    tables: Tables = {"designs": [], "locality": [], "sizes": [], "prices": [], "groups": []}
    designs = ("distributed", "single proxy", "multi-proxy")
    for design, sources, receivers, seed in product(designs, (1, 30), (3, 10, 100), (1, 2)):
        pairs = {"distributed": sources * receivers, "multi-proxy": 150}
        most = {"multi-proxy": 5, "distributed": receivers}
        tables["designs"].append(
            {
                "design": design,
                "sources": sources,
                "receivers": receivers,
                "seed": seed,
                "source_lines": receivers if design == "distributed" else 0,
                "watched_pairs": pairs.get(design, sources + receivers),
                "watched_most": most.get(design, sources + receivers),
                "most_sent": 4 if design == "multi-proxy" else receivers,
            }
        )
    organizations = ("mesh", "mesh, one tree", "hierarchy", SHORTENED)
    for name, network, locality, seed in product(
        organizations, ("grid", "random"), (0.0, 1.0), (1, 2)
    ):
        is_mesh, saved = name == "mesh", 0.3 if name == SHORTENED else 0.0
        tables["locality"].append(
            {
                "organization": name,
                "network": network,
                "locality": locality,
                "seed": seed,
                "stretch": 1.0 if is_mesh else 1.5 - saved - 0.02 * locality + 0.001 * seed,
                "entries": 100 if is_mesh else 5 + 10 * saved,
                "lines": 200 if is_mesh else 20 - 5 * locality,
            }
        )
    for name, size, seed in product(organizations, (16, 100), (1, 2)):
        is_tree = name == "hierarchy"
        tables["sizes"].append(
            {
                "organization": name,
                "proxies": size,
                "seed": seed,
                "entries": 5.0 if is_tree else size / 2,
                "entries_most": size / 2,
            }
        )
    for price, seed in product((0.1, 1.0, 10.0), (1, 2)):
        tables["prices"].append(
            {"price": price, "seed": seed, "stretch": 1.5 - 0.1 / price, "entries": 5 + 1 / price}
        )
    for size, fault, spare in product((3, 10, 30), FAULTS, (False, True)):
        missed = {"parent killed": 30.0, "parent silent": 30.0}.get(fault, 0.0)
        tables["groups"].append(
            {
                "brokers": size,
                "fault": fault,
                "spare": spare,
                "seed": 1,
                "beats_per_s": 4.0 * (size - 1),
                "is_noticed": fault != "none",
                "noticed_s": 0.0 if fault == "none" else 12.0,
                "others_missed_s": 3.0 if spare and missed else missed,
                "others_after_s": 0.0,
                "back_after_s": 1.0,
            }
        )
    return tables


Change = Callable[[Any], object]


def where(column: str, value: object, **change: object) -> Change:
    """Rows with this value in a column are changed."""
    return lambda row: row.get(column) == value and row.update(change)


WRONG: dict[str, Change] = {
    "distributed: state": where("design", "multi-proxy", source_lines=1),
    "distributed: heartbeats": where("design", "distributed", watched_pairs=1),
    "single proxy: heartbeats": where("design", "single proxy", watched_most=1),
    "single proxy: traffic": where("design", "single proxy", most_sent=4),
    "mesh: latency": where("organization", "mesh", stretch=1.1),
    "hierarchy: state": where("organization", "hierarchy", entries=50.0),
    "hierarchy: root": where("organization", "hierarchy", entries_most=10),
    "locality: state": where("organization", "hierarchy", lines=20),
    "locality: latency": where("organization", "hierarchy", stretch=1.5),
    "shortcuts: latency for state": where("organization", SHORTENED, entries=5),
    "shortcuts: what they have to be worth": where("price", 1.0, entries=5),
    "failures: hop by hop": lambda row: (
        "brokers" in row and row.update(beats_per_s=row["brokers"] ** 2)
    ),
    "failures: noticed": where("fault", "none", is_noticed=True),
    "failures: state again": where("fault", "child killed", back_after_s=15.0),
    "failures: another parent": where("fault", "parent silent", others_missed_s=30.0),
}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_holds_where_all_is_as_it_says(claim: Claim) -> None:
    found = claim.check(Results(made_up()))
    assert found.holds is True, found.numbers
    assert found.numbers


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_fails_where_it_is_not(claim: Claim) -> None:
    tables = made_up()
    for rows in tables.values():
        for row in rows:
            WRONG[claim.name](row)
    assert claim.check(Results(tables)).holds is False


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_without_runs_is_open(claim: Claim) -> None:
    assert claim.check(Results({})).holds is None


def test_a_hierarchy_whose_interval_holds_the_shortest_way_is_left_open() -> None:
    tables = made_up()
    for row in tables["locality"]:
        if row["organization"] == "hierarchy":
            row["stretch"] = 1.0 + 0.2 * float(row["locality"])
    claim = next(each for each in CLAIMS if each.name == "mesh: latency")
    assert claim.check(Results(tables)).holds is None
