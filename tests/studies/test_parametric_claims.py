"""Every claim can hold, can fail and can be left open, on rows made up for it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from palio_studies.parametric_claims import CLAIMS, IMPROVEMENTS, factors
from palio_studies.parametric_runs import RESUBSCRIPTIONS, UPD, WAYS
from palio_studies.results import Results
from palio_studies.study import Claim, Row

SUB_FIRST, USUB_FIRST = RESUBSCRIPTIONS


def row(way: str, **others: Any) -> Row:
    usual: Row = {
        "workload": "AT",
        "engine": "rete",
        "joined": False,
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
        "doubled": 0,
    }
    return {**usual, **others}


def made_up() -> dict[str, list[Row]]:
    """As the paper says."""
    adaptation, scaling = [], []
    for way, engine, rate, seed in product(WAYS, ("siena", "rete"), (10, 100), (1, 2, 3)):
        given: dict[str, Any] = {"engine": engine, "updates_per_s": rate, "seed": seed}
        if way != UPD and rate == 100:
            given |= {"delay_ms": 700.0, "spurious_per_s": 70.0, "spurious_share": 0.07}
            given |= {"delivered_per_s": 100.0 if engine == "siena" else 500.0}
        adaptation.append(row(way, missed=0.0 if way == UPD else 0.01, **given))
        delivered = 400.0 if way != UPD and rate == 100 else 1000.0
        scaling.append(row(way, **{**given, "delay_ms": 100.0, "delivered_per_s": delivered}))
    for way, rate in product(WAYS, (10, 1000)):
        delivered = 450.0 if way != UPD and rate == 1000 else 1000.0
        scaling.append(row(way, updates_per_s=rate, joined=True, delivered_per_s=delivered))
    return {"adaptation": adaptation, "scaling": scaling}


def where(change: Row, **given: Any) -> Callable[[Row], object]:
    """Rows with these values are changed."""
    return lambda each: given.items() <= each.items() and each.update(change)


WRONG: dict[str, Callable[[Row], object]] = {
    "delay": where({"delay_ms": 500.0}, delay_ms=700.0),
    "spurious": where({"spurious_per_s": 50.0}, spurious_per_s=70.0),
    "throughput": where({"delivered_per_s": 200.0}, delivered_per_s=100.0),
    "siena-ends": where({"delivered_per_s": 600.0}, engine="siena", way=USUB_FIRST),
    "scaling-2.25": where({"delivered_per_s": 900.0}, updates_per_s=1000),
    "scaling-retained": where({"delivered_per_s": 500.0}, updates_per_s=100, way=UPD),
    "graceful": where({"delivered_per_s": 900.0}, engine="siena", updates_per_s=100),
    "spurious-follows-delay": where({"spurious_share": 0.01}, spurious_share=0.07),
    "rete-spurious": where({"spurious_per_s": 10.0}, spurious_per_s=70.0),
    "gaps": where({"missed": 0.01}, way=UPD),
}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_holds_or_fails_by_the_numbers_and_is_open_without(claim: Claim) -> None:
    tables = made_up()
    found = claim.judge(Results(tables))
    assert found.holds is True, found.numbers
    for each in (each for rows in tables.values() for each in rows):
        WRONG[claim.name](each)
    assert claim.judge(Results(tables)).holds is False
    assert claim.judge(Results({})).holds is None


def test_factors_compare_what_has_all_else_in_common() -> None:
    rows = [row(UPD), row(SUB_FIRST, joined=True, delay_ms=900.0)]
    assert factors(Results({"adaptation": rows}), "adaptation", "delay_ms") == []
    rows.append(row(UPD, joined=True, delay_ms=300.0, unheard=0.5))
    (found,) = factors(Results({"adaptation": rows}), "adaptation", "delay_ms")
    assert (found.times, found.ours, found.theirs) == (3.0, 300.0, 900.0)
    assert str(found) == "3.0 (300 : 900; AT, rete, 100/s, joined, SUB, USUB)"
    assert found.unheard == (0.5, 0.0)
    rows[1]["unheard"] = 0.5
    (found,) = factors(Results({"adaptation": rows}), "adaptation", "delay_ms")
    assert str(found) == "3.0 or more (300 : 900; AT, rete, 100/s, joined, SUB, USUB)"


@pytest.mark.parametrize(
    ("theirs_ms", "unheard", "holds"),
    [
        (500.0, (0.0, 0.0), False),
        (500.0, (0.0, 0.2), None),  # a lower bound
        (700.0, (0.0, 0.2), True),  # 7 times or more
        (700.0, (0.2, 0.2), None),  # what updates took is not known
    ],
)
def test_a_lower_bound_decides_only_what_it_reaches(
    theirs_ms: float, unheard: tuple[float, float], holds: bool | None
) -> None:
    (claim,) = (each for each in CLAIMS if each.name == "delay")
    ours, theirs = unheard
    rows = [
        row(UPD, unheard=ours),
        row(SUB_FIRST, delay_ms=theirs_ms, unheard=theirs),
    ]
    assert claim.judge(Results({"adaptation": rows})).holds is holds


def test_improvements_are_told_by_workload_and_engine() -> None:
    head, *lines = IMPROVEMENTS.cells(Results(made_up()))
    assert head == ["", "improvement", "siena", "siena, linear UPD", "rete"]
    assert lines == [
        ["AT", "delay", "7.0", "-", "7.0"],
        ["AT", "spurious events", "7.0", "-", "7.0"],
        ["AT", "throughput", "10.0", "-", "2.0"],
    ]
    assert len(IMPROVEMENTS.cells(Results({}))) == 1


def test_of_a_few_events_no_factor_is_taken() -> None:
    rows = [row(UPD, spurious_per_s=0.5), row(SUB_FIRST, spurious_per_s=4.0)]
    assert factors(Results({"adaptation": rows}), "adaptation", "spurious_per_s") == []


def test_gaps_are_those_of_brokers_that_are_not_behind() -> None:
    (claim,) = (each for each in CLAIMS if each.name == "gaps")
    rows = [row(UPD), row(SUB_FIRST, missed=0.01)]
    assert claim.judge(Results({"adaptation": rows})).holds is True
    rows[1]["unheard"] = 0.1
    assert claim.judge(Results({"adaptation": rows})).holds is None
    rows[1] |= {"unheard": 0.0, "missed": 0.0}
    assert claim.judge(Results({"adaptation": rows})).holds is False
    rows[1]["doubled"] = 7
    assert claim.judge(Results({"adaptation": rows})).holds is True
    rows[0]["doubled"] = 1
    assert claim.judge(Results({"adaptation": rows})).holds is False
