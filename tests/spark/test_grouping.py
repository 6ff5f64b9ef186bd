"""Plans of multicast groups from an archive."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from palio.errors import InvalidInput
from palio.multicast.broker_sets import named
from palio.multicast.planners import PlanLimits
from palio.spark import plan_groups
from palio.spark.grouping import traffic_of

WISHES = [
    {"id": 1, "filter": "price < 30", "subscriber": "b1"},
    {"id": 2, "filter": "symbol = 'IBM'", "subscriber": "b1"},
    {"id": 3, "filter": "symbol IN ('IBM', 'MSFT') AND price > 50", "subscriber": "b2"},
    {"id": 4, "filter": "price BETWEEN 20 AND 60", "subscriber": "b4"},
]


def brokers_of(price: int, symbol: str) -> tuple[str, ...]:
    found = []
    if price < 30 or symbol == "IBM":
        found.append("b1")
    if symbol in {"IBM", "MSFT"} and price > 50:
        found.append("b2")
    if 20 <= price <= 60:
        found.append("b4")
    return tuple(found)


@pytest.mark.usefixtures("spark")
def test_a_plan_is_made_for_where_an_archive_went(tmp_path: Path) -> None:
    drawn = random.Random(5)
    quotes = [(drawn.randint(1, 100), drawn.choice(["IBM", "MSFT", "X"])) for _ in range(3_000)]
    events = [{"price": price, "symbol": symbol} for price, symbol in quotes]
    for part in range(3):
        rows = events[part * 1_000 : part * 1_000 + 1_000]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{part}.parquet")
    brokers = ["b1", "b2", "b3", "b4"]
    limits = PlanLimits(groups=7)
    made, report, traffic = plan_groups(tmp_path, WISHES, brokers, method="ideal", limits=limits)
    expected = Counter(brokers_of(*each) for each in quotes)
    wanted = 3_000 - expected.pop(())
    found = {
        named(row, traffic.brokers): share * wanted
        for row, share in zip(traffic.sets, traffic.shares, strict=True)
    }
    assert found == pytest.approx(dict(expected))
    assert report.waste == pytest.approx(0, abs=1e-9)
    assert made.group_count == len(expected)
    assert made.brokers == tuple(brokers)
    named_only = plan_groups(tmp_path, WISHES, limits=limits)
    assert named_only.traffic.brokers == ("b1", "b2", "b4")
    with pytest.raises(InvalidInput, match="'b4' is a subscriber, and no broker"):
        plan_groups(tmp_path, WISHES, ["b1", "b2"])
    with pytest.raises(InvalidInput, match="nothing to plan for"):
        plan_groups(tmp_path, [{"id": 1, "filter": "price > 1000", "subscriber": "b1"}])


def test_ids_that_are_numbers_are_names_of_brokers() -> None:
    table = pa.table({"subscribers": [[7], [7, 11]], "count": [1, 1]})
    assert traffic_of(table, None).brokers == ("11", "7")
