"""Tables of bounds: compiled and plain code say the same, whatever comes and goes."""

from __future__ import annotations

import pytest

from palio.matching import warming
from palio.matching.kernels import registry
from palio.routing.bounds_tables import FEW, BoundsTable, Pool, rows_around, rows_within
from palio.routing.normalized import Bounds
from palio.simulation import Randomness
from tests.conftest import seeds


def holds(outer: Bounds, inner: Bounds) -> bool:
    return all(
        low <= least and most <= high
        for (low, high), (least, most) in zip(outer, inner, strict=True)
    )


def bounds(random: Randomness, width: int) -> Bounds:
    found = []
    for _ in range(width):
        low = random.below(10)
        found.append((float(low), float(low + random.below(5))))
    return tuple(found)


@pytest.fixture(params=["plain", "compiled"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = warming.warm() if request.param == "compiled" else None
    monkeypatch.setattr(registry, "ready", lambda: ready)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("seed", seeds(1, nightly=100))
def test_tables_in_one_pool(seed: int) -> None:
    random = Randomness(seed)
    pool = Pool()
    widths = [0, 1, 1, 2, 3]
    tables = [BoundsTable(pool) for _ in widths]
    known: list[dict[int, Bounds]] = [{} for _ in widths]
    for number in range(900):
        grows = number % 300 < 200  # beyond a few, to nothing, and again
        which = random.below(len(widths))
        if grows:
            row = bounds(random, widths[which])
            tables[which].add(number, row)
            known[which][number] = row
        elif known[which]:
            gone = random.choice(list(known[which]))
            tables[which].remove(gone)
            del known[which][gone]
        if number % 7:
            continue
        wanted = [bounds(random, width) for width in widths]
        expected = {
            row
            for rows, inner in zip(known, wanted, strict=True)
            for row, outer in rows.items()
            if holds(outer, inner)
        }
        found = rows_around(tables, wanted)
        assert set(found) == expected
        assert len(found) == len(expected)
        within = rows_within(tables[1], 2.0, 9.0)
        assert set(within.tolist()) == {
            row for row, outer in known[1].items() if holds(((2.0, 9.0),), outer)
        }


def test_a_table_has_a_region_from_when_it_is_worth_it_until_it_is_empty() -> None:
    pool = Pool()
    table = BoundsTable(pool)
    sizes = []
    for number in range(FEW + 1):
        table.add(number, ((0.0, 1.0),))
        sizes.append(table.size)
    assert [size > 0 for size in sizes] == [*([False] * FEW), True]
    start = table.start
    for number in range(FEW + 1):
        table.remove(number)
    assert table.size == 0
    assert pool.reserve(sizes[-1]) == start  # it is used again


def test_a_pool_keeps_what_it_holds_when_it_grows() -> None:
    pool = Pool()
    table = BoundsTable(pool)
    for number in range(1_000):
        table.add(number, ((float(number), float(number)),))
    assert rows_around([table], [[(7.0, 7.0)]]) == [7]
    assert rows_within(table, 998.0, 2_000.0).tolist() == [998, 999]
