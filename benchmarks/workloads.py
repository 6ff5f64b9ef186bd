"""The workloads of the matching benchmarks, from fixed seeds: filters as tables, events as batches.

A workload is a wide table of constants, one column for each (attribute, operator) of a conjunction,
null where a filter has no such constraint; that is how `Index.add_many` takes them, and what one
would keep in Parquet.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import palio
from palio.model import Filter

EVENTS: Final = 4096
SEED: Final = 1

RANGE: Final = 1000
"""Values of `mixed` and `dnf` are below it."""


@dataclass(frozen=True)
class Workload:
    """Filters 0, 1, ... of one skeleton with columns of constants, and a batch of events."""

    name: str
    skeleton: Filter
    columns: dict[str, Any]
    events: pa.RecordBatch
    texts: Callable[[], list[str]]

    @property
    def filters(self) -> int:
        """How many filters there are."""
        return len(next(iter(self.columns.values())))


Test: TypeAlias = tuple[str, npt.NDArray[Any], npt.NDArray[np.bool_]]
"""A condition with a place for its constant, the constants, and which filters are without it."""


def _table(name: str, conjunctions: list[list[Test]], events: pa.RecordBatch) -> Workload:
    numbered = [
        [(f"v{which}_{at}", test) for at, test in enumerate(tests)]
        for which, tests in enumerate(conjunctions)
    ]
    columns = {
        variable: pa.array(values, mask=mask)
        for tests in numbered
        for variable, (_, values, mask) in tests
    }
    skeleton = palio.parse(
        " OR ".join(
            " AND ".join(condition.format(f":{variable}") for variable, (condition, _, _) in tests)
            for tests in numbered
        )
    )
    assert isinstance(skeleton, Filter)

    def texts() -> list[str]:
        alternatives = [_texts(tests) for tests in conjunctions]
        return [" OR ".join(each) for each in zip(*alternatives, strict=True)]

    return Workload(name, skeleton, columns, events, texts)


def _texts(tests: list[Test]) -> list[str]:
    """One conjunction of every filter."""
    parts: list[list[str]] = [[] for _ in tests[0][1]]
    for condition, values, mask in tests:
        for row in np.flatnonzero(~mask).tolist():
            value = values[row]
            parts[row].append(condition.format(f"'{value}'" if isinstance(value, str) else value))
    return [" AND ".join(part) for part in parts]


def podc(filters: int, values: int) -> Workload:
    """gryphon's: 30 attributes, attribute i tested with p = 0.98 * 0.85**i, values Zipf, uniform
    events. The first filters and all events are the same however many filters there are.
    """
    tests_rng, constants_rng, events_rng = np.random.default_rng(SEED).spawn(3)
    attributes = 30
    tested = tests_rng.random((filters, attributes)) < 0.98 * 0.85 ** np.arange(attributes)
    weights = 1 / np.arange(1, values + 1)
    constants = constants_rng.choice(values, size=(filters, attributes), p=weights / weights.sum())
    drawn = events_rng.integers(0, values, size=(EVENTS, attributes))
    tested[~tested.any(axis=1), 0] = True
    names = [f"a{at:02}" for at in range(attributes)]
    tests = [
        (f"{name} = {{}}", constants[:, at], ~tested[:, at])
        for at, name in enumerate(names)
        if tested[:, at].any()
    ]
    batch = pa.record_batch({name: drawn[:, at] for at, name in enumerate(names)})
    return _table(f"podc{values}", [tests], batch)


def mixed(filters: int) -> Workload:
    """20 attributes in [0, 1000), 3-5 of them a filter drawn Zipf; 40% <=, 40% >=, 20% =."""
    rng = np.random.default_rng(SEED)
    tests = _comparisons(rng, filters, attributes=20, sizes=(3, 5))
    return _table("mixed", [tests], _thousands(rng, attributes=20))


def dnf(filters: int) -> Workload:
    """Three conjunctions of 2-3 tests on 10 attributes drawn as in `mixed`, 20% of them negated."""
    rng = np.random.default_rng(SEED)
    conjunctions = []
    for _ in range(3):
        tests = []
        for condition, values, mask in _comparisons(rng, filters, attributes=10, sizes=(2, 3)):
            negated = rng.random(filters) < 0.2
            tests.append((condition, values, mask | negated))
            tests.append((f"NOT {condition}", values, mask | ~negated))
        conjunctions.append([test for test in tests if not test[2].all()])
    return _table("dnf", conjunctions, _thousands(rng, attributes=10))


def _comparisons(
    rng: np.random.Generator, filters: int, *, attributes: int, sizes: tuple[int, int]
) -> list[Test]:
    """`sizes` (fewest and most) attributes a filter drawn Zipf; 40% <=, 40% >=, 20% =."""
    fewest, most = sizes
    count = rng.integers(fewest, most + 1, size=filters)
    weights = np.log(1 / np.arange(1, attributes + 1))
    chosen = np.argsort(-(weights + rng.gumbel(size=(filters, attributes))), axis=1)
    tested = np.zeros((filters, attributes), np.bool_)
    np.put_along_axis(tested, chosen[:, :most], np.arange(most) < count[:, None], axis=1)
    op = rng.random((filters, attributes))
    reach = (rng.random((filters, attributes)) * RANGE / 2).astype(np.int64)
    equal = rng.integers(0, RANGE, size=(filters, attributes))
    tests: list[Test] = []
    for at in range(attributes):
        for symbol, low, high in (("<=", 0.0, 0.4), (">=", 0.4, 0.8), ("=", 0.8, 1.0)):
            here = tested[:, at] & (op[:, at] >= low) & (op[:, at] < high)
            constants = {"<=": reach[:, at], ">=": RANGE - reach[:, at], "=": equal[:, at]}
            if here.any():
                tests.append((f"a{at:02} {symbol} {{}}", constants[symbol], ~here))
    return tests


def _thousands(rng: np.random.Generator, *, attributes: int) -> pa.RecordBatch:
    drawn = rng.integers(0, RANGE, size=(EVENTS, attributes))
    return pa.record_batch({f"a{at:02}": drawn[:, at] for at in range(attributes)})


def strings(filters: int) -> Workload:
    """CloudEvents-like: a type, and a source prefix, a subject suffix or (5%) a LIKE pattern."""
    rng = np.random.default_rng(SEED)
    types = np.array([f"com.example.{group}.{verb}" for group in range(100) for verb in range(10)])
    shape = rng.random(filters)
    words = rng.integers(0, 200, size=(filters, 3))
    tests: list[Test] = [
        ("type = {}", types[rng.integers(0, len(types), filters)], np.zeros(filters, np.bool_)),
        ("source STARTS WITH {}", _joined("/site{}/", words[:, 0]), shape >= 0.5),
        (
            "subject ENDS WITH {}",
            _joined("-{}.csv", words[:, 1]),
            (shape < 0.5) | (shape >= 0.95),
        ),
        ("subject LIKE {}", _joined("order%{}%v_", words[:, 2] % 20), shape < 0.95),
    ]
    draw = rng.integers(0, 200, size=(EVENTS, 3))
    batch = pa.record_batch(
        {
            "type": types[rng.integers(0, len(types), EVENTS)],
            "source": [f"/site{a}/{b}" for a, b in draw[:, :2].tolist()],
            "subject": [f"order-{b}-v{a % 10}-{c}.csv" for a, b, c in draw.tolist()],
        }
    )
    return _table("strings", [tests], batch)


def _joined(template: str, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.str_]:
    return np.array([template.format(number) for number in numbers.tolist()])


def sparse(filters: int) -> Workload:
    """1,000 attributes, 10 of them in an event; filters test 2-4 of a shape's ten."""
    rng = np.random.default_rng(SEED)
    shapes, width, values = 100, 10, 50
    shape = rng.integers(0, shapes, filters)
    tested = np.argsort(rng.random((filters, width)), axis=1) < rng.integers(2, 5, filters)[:, None]
    constants = rng.integers(0, values, size=(filters, width))
    tests: list[Test] = []
    for at in range(shapes * width):
        here = (shape == at // width) & tested[:, at % width]
        if here.any():
            symbol = "=" if at % 2 else "<="
            tests.append((f"a{at:03} {symbol} {{}}", constants[:, at % width], ~here))
    drawn = rng.integers(0, values, size=(EVENTS, width))
    batch = pa.record_batch({f"a{at:03}": drawn[:, at] for at in range(width)})
    return _table("sparse", [tests], batch)


WORKLOADS: Final[dict[str, Callable[[int], Workload]]] = {
    "podc10": lambda filters: podc(filters, 10),
    "podc1000": lambda filters: podc(filters, 1000),
    "mixed": mixed,
    "strings": strings,
    "dnf": dnf,
    "sparse": sparse,
}


def workload(name: str, filters: int) -> Workload:
    """A workload by name."""
    return WORKLOADS[name](filters)


def tell(what: str) -> None:
    """Say on stderr what a benchmark does now."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
