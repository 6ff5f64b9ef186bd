"""Every claim can hold, can fail and can be left open, on rows made up for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest

from palio_studies.proxy_claims import CLAIMS
from palio_studies.proxy_groups import FAULTS
from palio_studies.proxy_runs import REGISTERED, SHORTENED
from palio_studies.results import Results
from palio_studies.study import Claim, Row

Tables = dict[str, list[Row]]


def rows(columns: str, values: Iterable[tuple[Any, ...]], **others: float) -> list[Row]:
    return [{**dict(zip(columns.split(), each, strict=True)), **others} for each in values]


def made_up() -> Tables:
    """As the paper says."""
    return {
        "designs": rows(
            "design sources receivers seed source_lines watched_pairs watched_most most_sent",
            (
                values
                for s, r, seed in product((1, 30), (3, 10, 100), (1, 2))
                for values in (
                    ("distributed", s, r, seed, r, s * r, r, r),
                    ("single proxy", s, r, seed, 0, s + r, s + r, r),
                    ("multi-proxy", s, r, seed, 0, 150, 5, 4),
                )
            ),
        ),
        "locality": rows(
            "organization network locality seed stretch entries lines",
            (
                values
                for network, near, seed in product(("grid", "random"), (0.0, 1.0), (1, 2))
                for values in (
                    ("mesh", network, near, seed, 1.0, 100, 200),
                    (
                        "hierarchy",
                        network,
                        near,
                        seed,
                        1.5 - 0.02 * near + seed / 1e3,
                        5,
                        20 - 5 * near,
                    ),
                    (SHORTENED, network, near, seed, 1.2, 8, 20),
                    (REGISTERED, network, near, seed, 1.2, 5, 12),
                )
            ),
            lines_most=60,
            entries_most=25,
            requests=100,
        ),
        "sizes": rows(
            "organization proxies seed entries entries_most",
            (
                (name, size, seed, 5.0 if name == "hierarchy" else size / 2, size / 2)
                for name, size, seed in product(("mesh", "hierarchy"), (16, 100), (1, 2))
            ),
        ),
        "groups": rows(
            "brokers beats_per_s fault is_noticed spare others_missed_s",
            (
                (size, 4.0 * (size - 1), fault, fault != "none", spare, 3.0 if spare else 30.0)
                for size, fault, spare in product((3, 10, 30), FAULTS, (False, True))
            ),
            multicast_beats_per_s=2_000,
            noticed_s=12.0,
            others_after_s=0.0,
            back_after_s=1.0,
        ),
    }


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
    "registrations: state": where("organization", REGISTERED, lines=30),
    "registrations: sporadic sources": where("organization", REGISTERED, sporadic=0.5),
    "failures: heartbeats by link": where("spare", False, multicast_beats_per_s=1.0),
    "failures: hop by hop": lambda row: (
        "brokers" in row and row.update(beats_per_s=row["brokers"] ** 2)
    ),
    "failures: noticed": where("fault", "none", is_noticed=True),
    "failures: state again": where("fault", "child killed", back_after_s=15.0),
    "failures: another parent": where("fault", "parent silent", others_missed_s=30.0),
}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_holds_or_fails_by_the_numbers_and_is_open_without(claim: Claim) -> None:
    tables = made_up()
    for row in tables["locality"]:
        row["lines_most"] = 40 if row["organization"] == REGISTERED else 60
        if row["organization"] in ("hierarchy", REGISTERED):
            row["sporadic"] = 1.0
    found = claim.judge(Results(tables))
    assert found.holds is True, found.numbers
    for row in (row for rows in tables.values() for row in rows):
        WRONG[claim.name](row)
    assert claim.judge(Results(tables)).holds is False
    assert claim.judge(Results({})).holds is None


def test_a_hierarchy_whose_interval_holds_the_shortest_way_is_left_open() -> None:
    tables = made_up()
    for row in tables["locality"]:
        if row["organization"] == "hierarchy":
            row["stretch"] = 1.0 + 0.2 * float(row["locality"])
    claim = next(each for each in CLAIMS if each.name == "mesh: latency")
    assert claim.judge(Results(tables)).holds is None
