from __future__ import annotations

from typing import Any

import pytest

from palio_studies.parametric_claims import CLAIMS, factors
from palio_studies.parametric_workloads import RESUBSCRIPTIONS, UPD, WAYS
from palio_studies.results import Results
from palio_studies.study import Evidence, Row

SUB_FIRST, USUB_FIRST = RESUBSCRIPTIONS


def row(way: str, **others: Any) -> Row:
    usual: Row = {
        "workload": "AT",
        "engine": "rete",
        "joined": False,
        "service_ms": 0.0,
        "updates_per_s": 100,
        "events_per_s": 600,
        "way": way,
        "seed": 1,
        "delay_ms": 100.0,
        "unheard": 0.0,
        "spurious_per_s": 10.0,
        "spurious_share": 0.01,
        "delivered_per_s": 1000.0,
        "missed": 0.0,
    }
    return {**usual, **others}


def check(name: str, rows: list[Row], experiment: str = "adaptation", **tables: Any) -> Evidence:
    (claim,) = (each for each in CLAIMS if each.name == name)
    return claim.check(Results({experiment: rows, **tables}))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_nothing_is_decided_without_runs(claim: Any) -> None:
    assert claim.check(Results({})).holds is None


@pytest.mark.parametrize(
    ("name", "column", "enough", "little"),
    [
        ("delay", "delay_ms", 700.0, 500.0),
        ("spurious", "spurious_per_s", 70.0, 50.0),
        ("throughput", "delivered_per_s", 100.0, 200.0),
    ],
)
def test_a_factor_is_the_greatest_anywhere(
    name: str, column: str, enough: float, little: float
) -> None:
    rows = [row(UPD), row(SUB_FIRST)]
    assert check(name, [*rows, row(USUB_FIRST, **{column: enough})]).holds is True
    assert check(name, [*rows, row(USUB_FIRST, **{column: little})]).holds is False


def test_factors_compare_what_has_all_else_in_common() -> None:
    rows = [row(UPD), row(SUB_FIRST, joined=True, delay_ms=900.0)]
    assert factors(Results({"adaptation": rows}), "adaptation", "delay_ms") == []
    rows.append(row(UPD, joined=True, delay_ms=300.0, unheard=0.5))
    (found,) = factors(Results({"adaptation": rows}), "adaptation", "delay_ms")
    assert (found.times, found.ours, found.theirs) == (3.0, 300.0, 900.0)
    assert str(found) == "3.0 or more (300 : 900; AT, rete, 100/s, joined, SUB, USUB)"


def test_of_a_few_events_no_factor_is_taken() -> None:
    rows = [row(UPD, spurious_per_s=0.5), row(SUB_FIRST, spurious_per_s=4.0)]
    assert factors(Results({"adaptation": rows}), "adaptation", "spurious_per_s") == []


def test_real_brokers_have_claims_of_their_own() -> None:
    rows = [row(UPD), row(SUB_FIRST, delay_ms=800.0)]
    assert check("delay", [], brokers=rows).holds is None
    found = check("brokers-delay", [], brokers=rows)
    assert found.holds is True
    assert check("brokers-throughput", [], brokers=rows).holds is False
    rows[1]["delivered_per_s"] = 100.0
    assert check("brokers-throughput", [], brokers=rows).holds is True
    assert "real brokers, 100/s" in found.numbers


@pytest.mark.parametrize("last", [SUB_FIRST, USUB_FIRST])
@pytest.mark.parametrize(("left", "holds"), [(400.0, True), (600.0, False)])
def test_siena_ends_where_half_is_gone_in_either_order(left: float, holds: bool, last: str) -> None:
    rows = [
        row(way, engine="siena", workload="scaling", updates_per_s=rate)
        for way in WAYS
        for rate in (10, 100)
    ]
    for each in rows:
        if each["updates_per_s"] == 100 and each["way"] != UPD:
            each["delivered_per_s"] = left if each["way"] == last else 100.0
    assert check("siena-ends", rows, "scaling").holds is holds


@pytest.mark.parametrize(("theirs", "holds"), [(450.0, True), (900.0, False), (200.0, False)])
def test_the_factor_of_scaling_is_near_the_papers(
    theirs: float,
    holds: bool,
) -> None:
    at = {"workload": "scaling", "updates_per_s": 1000, "joined": True}
    rows = [row(UPD, **at), row(SUB_FIRST, **at, delivered_per_s=theirs)]
    assert check("scaling-2.25", rows, "scaling").holds is holds
    assert check("scaling-2.25", [row(UPD), row(SUB_FIRST)], "scaling").holds is None


@pytest.mark.parametrize(("left", "holds"), [(950.0, True), (500.0, False)])
def test_throughput_is_retained_with_and_without_joining(left: float, holds: bool) -> None:
    rows = [
        row(UPD, updates_per_s=10),
        row(UPD, updates_per_s=100, delivered_per_s=left),
        row(UPD, updates_per_s=10, joined=True),
        row(UPD, updates_per_s=1000, joined=True),
    ]
    assert check("scaling-retained", rows, "scaling").holds is holds
    assert check("scaling-retained", rows[:2], "scaling").holds is None


@pytest.mark.parametrize(("left", "holds"), [(500.0, True), (900.0, False)])
def test_the_engine_that_keeps_more_degrades_more_gracefully(left: float, holds: bool) -> None:
    rows = [
        row(way, engine=engine, updates_per_s=rate)
        for way in (SUB_FIRST, USUB_FIRST)
        for engine in ("rete", "siena")
        for rate in (10, 100)
    ]
    for each in rows:
        if each["updates_per_s"] == 100:
            each["delivered_per_s"] = 800.0 if each["engine"] == "rete" else left
    # At a rate that one of them was not run at there is nothing to compare.
    rows.append(row(SUB_FIRST, updates_per_s=1000, delivered_per_s=1.0))
    assert check("graceful", rows).holds is holds
    assert check("graceful", [each for each in rows if each["engine"] == "rete"]).holds is None


@pytest.mark.parametrize(("share", "holds"), [(0.03, True), (0.01, False)])
def test_spurious_events_follow_delay(share: float, holds: bool) -> None:
    rows = [
        row(SUB_FIRST, updates_per_s=10),
        row(SUB_FIRST, delay_ms=300.0, spurious_share=share),
    ]
    assert check("spurious-follows-delay", rows).holds is holds
    rows[1]["delay_ms"] = 120.0
    assert check("spurious-follows-delay", rows).holds is None


@pytest.mark.parametrize(("theirs", "holds"), [(50.0, True), (10.0, False)])
def test_re_subscribers_of_one_engine_beside_updates_of_the_other(
    theirs: float,
    holds: bool,
) -> None:
    rows = [
        row(way, engine=engine, seed=seed, spurious_per_s=amount + seed)
        for seed in (1, 2, 3)
        for way, engine, amount in (
            (UPD, "siena", 10.0),
            (SUB_FIRST, "rete", theirs),
            (USUB_FIRST, "rete", theirs),
        )
    ]
    assert check("rete-spurious", rows).holds is holds
    assert check("rete-spurious", rows[:6]).holds is None


def test_gaps_are_those_of_brokers_that_are_not_behind() -> None:
    rows = [row(UPD), row(SUB_FIRST), row(USUB_FIRST, missed=0.01)]
    assert check("gaps", rows).holds is True
    assert check("gaps", [*rows[:2], row(USUB_FIRST, missed=0.01, unheard=0.1)]).holds is False
    assert check("gaps", [row(UPD, missed=0.01), *rows[1:]]).holds is False
    real = [row(UPD, doubled_per_s=0.0), row(SUB_FIRST, doubled_per_s=7.0)]
    assert check("gaps", rows[:2], brokers=real).holds is True
    real[0]["doubled_per_s"] = 1.0
    assert check("gaps", rows, brokers=real).holds is False
