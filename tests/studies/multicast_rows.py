"""Rows of the multicast study, made up so that all is as the paper says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from palio_studies.multicast_scenes import PUBLISHER_REGIONAL, REGIONAL
from palio_studies.results import Results
from palio_studies.study import Claim, Evidence, Row, Value

__all__ = ["Tables", "holds_and_fails", "judged", "made_up", "setting"]

Tables = dict[str, list[Row]]

SEEDS: Final = (1, 2)
MATCHES: Final = (0.01, 0.1, 1.0, 10.0)
DEGREES: Final = (0.0, 0.6, 0.9, 1.0)

OF_FLOODING: Final = {
    "ideal": (0.1, 0.3, 0.7, 0.99),
    "flooding": (1.0, 1.0, 1.0, 1.0),
    "CGM": (0.2, 0.4, 0.9, 1.2),
    "CGM by likeness": (0.2, 0.5, 1.0, 1.3),
    "threshold CGM": (0.2, 0.4, 0.95, 1.2),
    "neighbours": (0.2, 0.4, 0.9, 1.4),
    "approximated": (0.8, 0.9, 0.95, 1.0),
    "unicast": (0.4, 0.8, 2.0, 5.0),
}
"""Intermediate links by match rate."""
BACKBONE: Final = {"ideal": 4.0, "CGM": 10.0, "threshold CGM": 10.0, "neighbours": 3.9}
REGIONAL_LINKS: Final = {"ideal": (70.0, 66.0, 50.0, 10.0), "flooding": (100.0,) * 4}
LATENCY: Final = {"neighbours": 54.0}
PRICES: Final = {
    "fringe dear": {"CGM": 2.0},
    "intermediate dear": {"neighbours": 2.0},
    "backbone dear": {"approximated": 2.0},
    "equal prices": {},
}
DRIFT: Final = {
    "ideal": (35.0, 0.0, 0),
    "flooding": (200.0, 90.0, 0),
    "CGM": (50.0, 0.0, 0),
    "neighbours": (70.0, 12.0, 0),
    "kept": (160.0, 66.0, 0),
    "anew": (150.0, 60.0, 23_000),
    "a few groups": (151.0, 61.0, 1_500),
}
"""Links, waste, and memberships that are others, in periods after the first."""
EXACT: Final = {"ideal", "CGM", "CGM by likeness", "unicast"}


def made_up() -> Tables:
    """Fresh rows of every experiment."""
    return {
        "match-rate": [
            _links(method, place, seed)
            for method in OF_FLOODING
            for place in range(len(MATCHES))
            for seed in SEEDS
        ],
        "regionalism": [
            _regional(method, place, kind, seed)
            for method in OF_FLOODING
            for place in range(len(DEGREES))
            for kind in (REGIONAL, PUBLISHER_REGIONAL)
            for seed in SEEDS
        ],
        "latency": [
            _latency(method, match, rate, seed)
            for method in OF_FLOODING
            for match in (0.1, 1.0)
            for rate in (100.0, 8_000.0)
            for seed in SEEDS
        ],
        "groups": [
            {"brokers": 100, "clusters": clusters, "method": method, "needed": needed, "seed": 1}
            for clusters in (5, 10)
            for method, needed in (("CGM", 1e6 / clusters), ("threshold CGM, up to 3", 1e3))
        ],
        "prices": [
            {**row, "match": match, "regionalism": 0.0, "seed": seed}
            for match in (0.1, 1.0)
            for seed in SEEDS
            for row in _prices()
        ],
        "drift": [
            _drift(method, match, period, seed)
            for method in DRIFT
            for match in (0.01, 0.1)
            for period in (1, 2, 3, 4)
            for seed in SEEDS
        ],
    }


def holds_and_fails(claim: Claim, spoil: Callable[[Tables], None]) -> None:
    """A claim holds where all is as the paper says, and fails where something is not."""
    good = claim.check(Results(made_up()))
    assert good.holds, good.numbers
    tables = made_up()
    spoil(tables)
    assert claim.check(Results(tables)).holds is False


def setting(experiment: str, column: str, value: float, **where: Value) -> Callable[[Tables], None]:
    """Another number in those rows that have some values."""

    def spoil(tables: Tables) -> None:
        for row in tables[experiment]:
            if all(row[name] == wanted for name, wanted in where.items()):
                row[column] = value

    return spoil


def judged(check: str, tables: Tables) -> Evidence:
    """What the claim of this name says of rows."""
    from palio_studies.multicast_claims import CLAIMS

    return next(each for each in CLAIMS if each.name == check).check(Results(tables))


def _links(method: str, place: int, seed: int) -> Row:
    share = OF_FLOODING[method][place]
    sends = 9.0 if method in {"CGM", "threshold CGM"} else 1.0
    fringe = {"ideal": 60.0, "CGM": 68.0, "neighbours": 120.0, "unicast": 90.0}
    return {
        "method": method,
        "kind": "non-regional",
        "match": MATCHES[place],
        "regionalism": 0.0,
        "seed": seed,
        "intermediate": 100 * share,
        "backbone": BACKBONE.get(method, 4.0),
        "fringe": fringe.get(method, 85.0 if method != "flooding" else 101.0),
        "links": 205 * share,
        "sends": sends,
        "wanted": (1.0, 10.0, 58.0, 99.0)[place],
        "missed": 0,
        "waste": 0.0 if method in EXACT else 5.0,
    }


def _regional(method: str, place: int, kind: str, seed: int) -> Row:
    links = REGIONAL_LINKS.get(method, (95.0, 92.0, 70.0, 10.2))[place]
    if method == "approximated":
        links = (90.0, 88.0, 85.0, 80.0)[place]
    return {
        **_links(method, 2, seed),
        "kind": kind,
        "regionalism": DEGREES[place],
        "intermediate": links,
        "links": 3 * links,
        "regionalism_found": (0.0, 0.1, 0.4, 1.0)[place],
        "regions_found": (0.1, 0.2, 0.6, 1.0)[place],
    }


def _latency(method: str, match: float, rate: float, seed: int) -> Row:
    takes = LATENCY.get(method, 40.0)
    if method == "CGM" and rate > 1_000:
        takes = 60.0
    return {
        "method": method,
        "match": match,
        "regionalism": 0.0,
        "rate": rate,
        "ambient": 0.3,
        "seed": seed,
        "latency_ms": takes,
        "matched": 8.0 if method == "neighbours" else 2.0,
    }


def _prices() -> list[Row]:
    planners = ("flooding", "CGM", "threshold CGM", "neighbours", "approximated", "hybrid", "ideal")
    found: list[Row] = []
    for prices, cheap in PRICES.items():
        costs = {"optimum": 1.0, **{name: cheap.get(name, 3.0) for name in planners}, "ideal": 1.1}
        for planner, price in costs.items():
            row: Row = {"prices": prices, "planner": planner, "by_price": "no", "price": price}
            found.append(row)
            if planner in {"neighbours", "hybrid"}:
                found.append({**row, "by_price": "yes", "price": 0.9 * price})
    return found


def _drift(method: str, match: float, period: int, seed: int) -> Row:
    links, waste, moved = DRIFT[method]
    return {
        "method": method,
        "match": match,
        "learned": 4_000,
        "drift": 0.2,
        "period": period,
        "seed": seed,
        "links": links,
        "sent": 1.0,
        "waste": waste,
        "moved": moved if period > 1 else 0,
        "replan_links": 12_000.0 if moved and period > 1 else 0.0,
    }
