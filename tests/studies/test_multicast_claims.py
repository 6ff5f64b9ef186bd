"""Claims of the multicast study hold and fail where they should, on rows made up for them."""

from __future__ import annotations

from typing import Final

import pytest

from palio_studies.multicast_claims import CLAIMS
from palio_studies.results import Results
from palio_studies.study import Evidence, Row, Value

MATCHES: Final = (0.01, 0.1, 1.0, 10.0)
OF_FLOODING: Final = {
    "ideal": (0.1, 0.3, 0.7, 0.99),
    "flooding": (1.0, 1.0, 1.0, 1.0),
    "CGM": (0.2, 0.4, 0.9, 1.2),
    "CGM by likeness": (0.2, 0.5, 1.0, 1.3),
    "threshold CGM": (0.2, 0.4, 0.95, 1.2),
    "neighbours": (0.2, 0.3, 0.8, 1.4),
    "approximated": (0.8, 0.9, 0.95, 1.0),
    "approximated, in order": (0.8, 0.9, 0.94, 1.0),
    "unicast": (0.4, 0.8, 2.0, 5.0),
}
"""Intermediate links by match rate."""
BACKBONE: Final = {"CGM": 10.0, "threshold CGM": 10.0, "neighbours": 3.9}
FRINGE: Final = {
    "ideal": 60.0,
    "CGM": 68.0,
    "neighbours": 120.0,
    "unicast": 90.0,
    "flooding": 101.0,
}


def links_of(method: str, place: int, seed: int) -> Row:
    share = OF_FLOODING[method][place]
    is_exact = method in {"ideal", "CGM", "CGM by likeness", "unicast"}
    return {
        "method": method,
        "match": MATCHES[place],
        "seed": seed,
        "kind": "non-regional",
        "regionalism": 0.0,
        "missed": 0,
        "intermediate": 100 * share,
        "backbone": BACKBONE.get(method, 4.0),
        "fringe": FRINGE.get(method, 85.0 if place else 40.0),
        "links": 205 * share,
        "sends": 9.0 if method in {"CGM", "threshold CGM"} else 1.0,
        "wanted": (1.0, 10.0, 58.0, 99.0)[place],
        "waste": 0.0 if is_exact else 5.0,
    }


def judged(claim: str, experiment: str, column: str, value: Value, **where: Value) -> Evidence:
    """What a claim says if all is as the paper says, but for a value in rows that have others."""
    seeds = (1, 2)
    tables = {
        "match-rate": [
            links_of(method, place, seed)
            for method in OF_FLOODING
            for place in range(len(MATCHES))
            for seed in seeds
        ],
    }
    for row in tables[experiment]:
        if all(row[name] == wanted for name, wanted in where.items()):
            row[column] = value
    return next(each for each in CLAIMS if each.name == claim).judge(Results(tables))


SPOILED: Final[tuple[tuple[str, str, str, float, dict[str, Value]], ...]] = (
    ("ideal", "match-rate", "links", 1.0, {"method": "neighbours"}),
    ("most-brokers", "match-rate", "wanted", 40.0, {"method": "ideal"}),
    ("selective", "match-rate", "intermediate", 60.0, {"method": "neighbours"}),
    ("flooding", "match-rate", "links", 100.0, {"method": "CGM"}),
    ("backbone-clusters", "match-rate", "backbone", 5.0, {"method": "threshold CGM"}),
    ("backbone-others", "match-rate", "backbone", 7.0, {"method": "approximated"}),
    ("backbone-neighbours", "match-rate", "backbone", 4.1, {"method": "neighbours"}),
    ("intermediate-best", "match-rate", "intermediate", 15.0, {"method": "approximated"}),
    ("intermediate-crossing", "match-rate", "intermediate", 90.0, {"method": "CGM"}),
    ("approximation-slight", "match-rate", "intermediate", 70.0, {"method": "approximated"}),
    ("fringe-imprecise", "match-rate", "fringe", 60.0, {"method": "approximated"}),
    ("fringe-neighbours", "match-rate", "fringe", 90.0, {"method": "neighbours"}),
    ("prices", "match-rate", "backbone", 4.0, {"method": "CGM"}),
)


@pytest.mark.parametrize("spoiled", SPOILED, ids=lambda spoiled: spoiled[0])
def test_a_claim_holds_where_all_is_as_the_paper_says_and_fails_where_it_is_not(
    spoiled: tuple[str, str, str, float, dict[str, Value]],
) -> None:
    claim, experiment, column, value, where = spoiled
    assert judged(claim, experiment, column, value, seed=0).holds is True
    assert judged(claim, experiment, column, value, **where).holds is False


def test_without_high_match_rates_some_are_not_decided() -> None:
    low = Results({"match-rate": [links_of("ideal", 0, 1)]})
    found = {each.name: each for each in CLAIMS}
    for name in ("most-brokers", "backbone-clusters", "fringe-imprecise"):
        assert found[name].judge(low) == Evidence(None, "no match rate of 1% was run")


def test_a_claim_is_as_the_function_that_checks_it_says() -> None:
    claim = next(each for each in CLAIMS if each.name == "selective")
    assert claim.says == (
        "Where subscriptions are highly selective, CGM, threshold CGM and neighbour matching do "
        "significantly better than flooding."
    )
