"""What the matching engine is compared with: numpy by hand, a DuckDB join, CLIPS, and `Reference`.

Each is built from a workload and answers a batch of events with the number of pairs it found, so
that a run can check that all of them did the same work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

import palio
from benchmarks.workloads import Workload
from palio.matching import Reference
from palio.matching.protocol import Matches
from palio.model.constraints import Constraint

CHUNK: Final = 4096
"""Filters whose vectors are ANDed in one numpy call."""


class Baseline(Protocol):
    """An engine that counts the pairs of a batch."""

    def pairs(self, events: pa.RecordBatch) -> int: ...


class ByHand:
    """What one writes in numpy: a vector of events for each test, ANDed for each filter.

    For workloads of one conjunction of comparisons of integers.
    """

    def __init__(self, load: Workload) -> None:
        names: list[str] = []
        lows: list[Any] = []
        highs: list[Any] = []
        tests: list[Any] = []
        rows: list[Any] = []
        for constraint in load.skeleton.conjunctions[0].constraints:
            (variable,) = constraint.variables
            column = load.columns[variable]
            here = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            values = column.drop_null().to_numpy().astype(np.int64)
            low = values if constraint.op.value in ("=", ">=") else np.full_like(values, -(2**62))
            high = values + 1 if constraint.op.value in ("=", "<=") else np.full_like(values, 2**62)
            distinct, test = np.unique(np.stack([low, high], axis=1), axis=0, return_inverse=True)
            tests.append(test.reshape(-1) + sum(len(each) for each in lows))
            rows.append(here)
            lows.append(distinct[:, 0])
            highs.append(distinct[:, 1])
            names += [constraint.name] * len(distinct)
        self.names = names
        self.lows, self.highs = np.concatenate(lows), np.concatenate(highs)
        row, test = np.concatenate(rows), np.concatenate(tests)
        order = np.argsort(row, kind="stable")
        row, test = row[order], test[order]
        counts = np.bincount(row, minlength=load.filters)
        starts = np.cumsum(counts) - counts
        self.groups = []
        for size in np.unique(counts).tolist():
            filters = np.flatnonzero(counts == size)
            self.groups.append((filters, test[starts[filters][:, None] + np.arange(size)]))

    def match(self, events: pa.RecordBatch) -> Matches:
        """Sorted pairs, as the engine gives them."""
        columns = {name: events.column(name).to_numpy() for name in set(self.names)}
        width = (events.num_rows + 7) // 8
        vectors = np.empty((len(self.names), width), np.uint8)
        for at, name in enumerate(self.names):
            column = columns[name]
            vectors[at] = np.packbits((column >= self.lows[at]) & (column < self.highs[at]))
        words = vectors.view(np.uint64)
        pairs = []
        for filters, tests in self.groups:
            for start in range(0, len(filters), CHUNK):
                chosen = tests[start : start + CHUNK]
                result = words[chosen[:, 0]]
                for place in range(1, chosen.shape[1]):
                    result &= words[chosen[:, place]]
                some = np.flatnonzero(result.any(axis=1))
                bits = np.unpackbits(result[some].view(np.uint8), axis=1)
                filter, row = np.nonzero(bits)
                pairs.append((row << 32) | filters[start : start + CHUNK][some][filter])
        whole = np.sort(np.concatenate(pairs))
        return Matches(whole >> 32, whole & 0xFFFFFFFF)


class DuckJoin:
    """The filters' table joined with the events on "no constant, or satisfied", one thread."""

    def __init__(self, load: Workload) -> None:
        import duckdb

        self.connection = duckdb.connect(config={"threads": "1"})
        filters = pa.table(load.columns)
        self.connection.execute("CREATE TABLE filters AS SELECT * FROM filters")
        del filters
        present = set(load.events.schema.names)
        self.condition = " OR ".join(
            "(" + " AND ".join(_sql(each, present) for each in conjunction.constraints) + ")"
            for conjunction in load.skeleton.conjunctions
        )

    def pairs(self, events: pa.RecordBatch) -> int:
        self.connection.register("events", pa.table(events))
        found = self.connection.execute(
            f"SELECT count(*) FROM events e JOIN filters f ON {self.condition}"
        ).fetchall()
        return int(found[0][0])


_SQL: Final = {
    "STARTS WITH": "starts_with({}, {})",
    "ENDS WITH": "ends_with({}, {})",
    "LIKE": "{} LIKE {}",
}


def _sql(constraint: Constraint, present: set[str]) -> str:
    (variable,) = constraint.variables
    if constraint.name not in present:
        return f'f."{variable}" IS NULL'
    op = constraint.op.value
    test = _SQL.get(op, f"{{}} {op} {{}}").format(f'e."{constraint.name}"', f'f."{variable}"')
    return f'(f."{variable}" IS NULL OR {test})'


class Clips:
    """A rule for each filter, a fact for each event (clipspy); comparisons of integers only."""

    def __init__(self, load: Workload) -> None:
        import clips

        names = {each.name for each in load.skeleton.conjunctions[0].constraints}
        present = {each.name for each in load.events.schema if pa.types.is_integer(each.type)}
        if len(load.skeleton.conjunctions) > 1 or not names <= present:
            raise NotImplementedError("written for conjunctions on integers that events have")
        self.environment = clips.Environment()
        slots = " ".join(f"(slot {name})" for name in load.events.schema.names)
        self.environment.build(f"(deftemplate event {slots})")
        self.environment.build("(defglobal ?*pairs* = 0)")
        self.environment.eval("(set-reset-globals FALSE)")
        for number, text in enumerate(load.texts()):
            tests = [condition.split() for condition in text.split(" AND ")]
            pattern = " ".join(f"({name} {_clips(name, op, value)})" for name, op, value in tests)
            self.environment.build(
                f"(defrule r{number} (event {pattern}) => (bind ?*pairs* (+ ?*pairs* 1)))"
            )
        self.template = self.environment.find_template("event")

    def pairs(self, events: pa.RecordBatch) -> int:
        counter = self.environment.find_global("pairs")
        before = counter.value
        for event in events.to_pylist():
            self.environment.reset()
            self.template.assert_fact(**event)
            self.environment.run()
        return int(counter.value - before)


def _clips(name: str, op: str, value: str) -> str:
    return value if op == "=" else f"?{name}&:({op} ?{name} {value})"


class ByReference:
    """Palio's own oracle: every filter on every event, in plain Python."""

    def __init__(self, load: Workload) -> None:
        self.engine = Reference()
        for key, text in enumerate(load.texts()):
            filter = palio.parse(text)
            assert isinstance(filter, palio.Filter)
            self.engine.add(key, filter)

    def pairs(self, events: pa.RecordBatch) -> int:
        return len(self.engine.match(events).keys)


OTHERS: Final[dict[str, tuple[Callable[[Workload], Baseline], int]]] = {
    "DuckDB join": (DuckJoin, 256),
    "clipspy": (Clips, 512),
    "Reference": (ByReference, 16),
}
"""Baselines for a thousand filters, with as many events as they answer in seconds."""
