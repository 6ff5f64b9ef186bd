"""Every other claim can hold and can fail, on rows made up for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palio_studies.multicast_claims import CLAIMS
from palio_studies.multicast_drift_claims import DRIFT_CLAIMS
from palio_studies.multicast_link_claims import LINK_CLAIMS
from palio_studies.study import Claim
from tests.studies.multicast_rows import Tables, holds_and_fails, setting

OTHERS = CLAIMS[len(LINK_CLAIMS) : -len(DRIFT_CLAIMS)]

SPOILED: dict[str, Callable[[Tables], None]] = {
    "regional": setting("regionalism", "intermediate", 60.0, method="CGM", regionalism=1.0),
    "regional-late": setting("regionalism", "intermediate", 60.0, method="CGM", regionalism=0.6),
    "regional-clusters": setting(
        "regionalism", "intermediate", 11.0, method="CGM", regionalism=1.0
    ),
    "regional-approximation": setting(
        "regionalism", "intermediate", 11.0, method="approximated", regionalism=1.0
    ),
    "publisher-regional": setting(
        "regionalism", "intermediate", 50.0, kind="publisher-regional", method="neighbours"
    ),
    "regions-found": setting("regionalism", "regionalism_found", 0.5, regionalism=1.0),
    "latency-equal": setting("latency", "latency_ms", 43.0, method="threshold CGM"),
    "latency-neighbours": setting("latency", "latency_ms", 41.0, method="neighbours", rate=100.0),
    "latency-rates": setting("latency", "latency_ms", 41.0, method="CGM"),
    "groups": setting("groups", "needed", 9e4, method="CGM"),
    "prices": setting("prices", "price", 1.5, planner="CGM", prices="backbone dear"),
    "prices-planned": setting("prices", "price", 3.1, planner="hybrid", by_price="yes"),
    "prices-optimum": setting("prices", "price", 0.9, planner="hybrid", by_price="yes"),
}


@pytest.mark.parametrize("claim", OTHERS, ids=lambda claim: claim.name)
def test_a_claim_holds_where_all_is_as_the_paper_says_and_fails_where_it_is_not(
    claim: Claim,
) -> None:
    holds_and_fails(claim, SPOILED[claim.name])


def test_claims_have_names_of_their_own() -> None:
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
