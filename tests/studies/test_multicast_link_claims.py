"""Every claim on links by match rate can hold and can fail, on rows made up for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palio_studies.multicast_link_claims import LINK_CLAIMS
from palio_studies.study import Claim, Row
from tests.studies.multicast_rows import Tables, holds_and_fails, judged, made_up


def setting(method: str, column: str, value: float) -> Callable[[Tables], None]:
    """Other numbers of one method, at all match rates."""

    def spoil(tables: Tables) -> None:
        for row in tables["match-rate"]:
            if row["method"] == method:
                row[column] = value

    return spoil


def of_flooding(method: str, share: float) -> Callable[[Tables], None]:
    """So many of flooding's links of every class."""

    def spoil(tables: Tables) -> None:
        flooding = {
            (row["match"], row["seed"]): row
            for row in tables["match-rate"]
            if row["method"] == "flooding"
        }
        for row in tables["match-rate"]:
            if row["method"] == method:
                other = flooding[row["match"], row["seed"]]
                for kind in ("backbone", "intermediate", "fringe", "links"):
                    row[kind] = share * float(other[kind])

    return spoil


SPOILED: dict[str, Callable[[Tables], None]] = {
    "delivery": setting("neighbours", "missed", 1),
    "ideal": setting("neighbours", "links", 1.0),
    "most-brokers": setting("ideal", "wanted", 40.0),
    "selective": of_flooding("neighbours", 0.6),
    "flooding": of_flooding("CGM", 0.9),
    "backbone-clusters": setting("threshold CGM", "backbone", 5.0),
    "backbone-others": setting("approximated", "backbone", 7.0),
    "backbone-neighbours": setting("neighbours", "backbone", 4.1),
    "intermediate-best": of_flooding("approximated", 0.15),
    "intermediate-crossing": of_flooding("CGM", 0.9),
    "approximation": of_flooding("approximated", 1.01),
    "approximation-slight": of_flooding("approximated", 0.7),
    "fringe-clusters": setting("CGM", "fringe", 75.0),
    "fringe-imprecise": setting("approximated", "fringe", 60.0),
    "fringe-neighbours": setting("neighbours", "fringe", 90.0),
}


@pytest.mark.parametrize("claim", LINK_CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_holds_where_all_is_as_the_paper_says_and_fails_where_it_is_not(
    claim: Claim,
) -> None:
    holds_and_fails(claim, SPOILED[claim.name])


def test_waste_of_an_exact_method_is_noticed() -> None:
    tables = made_up()
    setting("CGM", "waste", 0.1)(tables)
    assert judged("delivery", tables).holds is False


def test_without_high_match_rates_some_are_not_decided() -> None:
    def is_low(row: Row) -> bool:
        return float(row["match"]) < 1

    tables = made_up()
    tables["match-rate"] = [row for row in tables["match-rate"] if is_low(row)]
    for name in ("most-brokers", "backbone-clusters", "fringe-imprecise"):
        assert judged(name, tables).holds is None
