"""Every claim on subscriptions that change can hold and can fail, on rows made up for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palio_studies.multicast_drift_claims import DRIFT_CLAIMS
from palio_studies.results import Results
from palio_studies.study import Claim
from tests.studies.multicast_rows import Tables, holds_and_fails, judged, made_up, setting

SPOILED: dict[str, Callable[[Tables], None]] = {
    "drift-fixed": setting("drift", "links", 62.0, method="CGM", period=4),
    "drift-waste": setting("drift", "waste", 62.0, method="kept"),
    "drift-few": setting("drift", "waste", 67.0, method="a few groups"),
    "drift-pays": setting("drift", "replan_links", 41_000.0, method="anew"),
}


@pytest.mark.parametrize("claim", DRIFT_CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_holds_where_it_should_and_fails_where_not(claim: Claim) -> None:
    holds_and_fails(claim, SPOILED[claim.name])


@pytest.mark.parametrize("claim", DRIFT_CLAIMS, ids=lambda claim: claim.name)
def test_where_drift_was_not_run_nothing_is_decided(claim: Claim) -> None:
    assert claim.check(Results({})).holds is None


def test_the_first_period_tells_nothing_of_plans_that_begin_alike() -> None:
    tables = made_up()
    setting("drift", "waste", 1_000.0, method="kept", period=1)(tables)
    assert judged("drift-waste", tables).numbers == judged("drift-waste", made_up()).numbers


def test_many_groups_that_move_are_not_few() -> None:
    tables = made_up()
    setting("drift", "moved", 12_000, method="a few groups", period=2)(tables)
    assert judged("drift-few", tables).holds is True
    setting("drift", "moved", 12_000, method="a few groups")(tables)
    assert judged("drift-few", tables).holds is False


def test_a_plan_that_spares_nothing_never_pays() -> None:
    tables = made_up()
    setting("drift", "links", 161.0, method="anew")(tables)
    found = judged("drift-pays", tables)
    assert found.holds is False
    assert "anew at 0.1%: never" in found.numbers
