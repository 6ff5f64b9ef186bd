"""Check saved arrays when they are loaded, so that no reader is led out of one.

Kernels follow offsets, places and codes without a check of bounds. Here everything that is
followed is bounded, with a few passes of numpy over each array. A set of arrays
that passes may still give other answers than it should; that is what checksums are for
(`manifest.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.matching.compile.rows import PREFIX_DEPTH, CompiledRows, runs
from palio.matching.kernels.records import BITMAP_ROWS
from palio.matching.layers import Longs

Array: TypeAlias = npt.NDArray[Any]

MAX_SHIFT: Final = 62
"""A code's distance is an int64: it cannot be shifted further."""


class Problem(NamedTuple):
    """A fault of an array."""

    array: str
    what: str


# --- one array ---


def length(array: Sized, expected: int) -> str | None:
    """Report an array of another length."""
    if len(array) == expected:
        return None
    return f"it has {len(array)} items, and {expected} are needed"


def bounds(array: Array, low: int, end: int) -> str | None:
    """Report a value below `low`, or not below `end`."""
    if len(array) and (int(array.min()) < low or int(array.max()) >= end):
        return f"it holds a value that is not from {low} to {end - 1}"
    return None


def order(array: Array) -> str | None:
    """Report values that do not ascend, each above the one before."""
    if len(array) > 1 and not bool(np.all(array[1:] > array[:-1])):
        return "its values do not ascend"
    return None


def offsets(array: Array, count: int, total: int, *, least: int = 0) -> str | None:
    """Report what are no offsets of `count` parts of `total` items."""
    wrong = length(array, count + 1)
    if wrong is not None:
        return wrong
    if int(array[0]) != 0 or int(array[-1]) != total:
        return f"its offsets do not lead from 0 to {total}"
    if count and (int(array.min()) < 0 or int(np.diff(array).min()) < least):
        return "its offsets do not ascend"
    return None


def _found(*pairs: tuple[str, str | None]) -> Iterator[Problem]:
    for name, problem in pairs:
        if problem is not None:
            yield Problem(name, problem)


# --- cuts ---


def cut_problems(stored: Mapping[str, Array], slots: int) -> Iterator[Problem]:
    """Each problem of the arrays that a universe is made of; what follows the first may be raised
    by it.
    """
    numbers, texts = len(stored["number_ints"]), len(stored["text_heads"])
    firsts = stored["number_offsets"]
    yield from _found(
        ("number_offsets", offsets(firsts, slots, numbers)),
        ("number_floats", length(stored["number_floats"], numbers)),
        ("time_offsets", offsets(stored["time_offsets"], slots, len(stored["times"]))),
        ("text_offsets", offsets(stored["text_offsets"], 2 * slots, texts)),
        ("text_starts", offsets(stored["text_starts"], texts, len(stored["text_data"]))),
        ("bool_cuts", length(stored["bool_cuts"], slots) or bounds(stored["bool_cuts"], 0, 2)),
        ("reachable", length(stored["reachable"], slots)),
    )
    reachable = stored["reachable"]
    if bool(np.any((reachable < 0) | (reachable > np.diff(firsts)))):
        yield Problem("reachable", "it holds more cuts than there are")
    inside = np.ones(max(0, numbers - 1), np.bool_)
    ends = firsts[1:-1]
    inside[ends[(ends > 0) & (ends < numbers)] - 1] = False
    for name in ("number_ints", "number_floats"):
        values = stored[name]
        if bool(np.any(values[1:][inside] < values[:-1][inside])):
            yield Problem(name, "its values do not ascend")


# --- rows ---


def compiled_problems(compiled: CompiledRows) -> Iterator[Problem]:
    """Each problem of compiled rows, whose universe is sound."""
    counts = compiled.universe.code_counts
    predicates, spans = len(compiled.predicate_slots), len(compiled.lows)
    yield from _found(
        ("predicate_slots", bounds(compiled.predicate_slots, 0, len(counts))),
        ("highs", length(compiled.highs, spans)),
        ("span_offsets", offsets(compiled.span_offsets, predicates, spans, least=1)),
        ("row_predicates", bounds(compiled.row_predicates, 0, predicates)),
        (
            "row_offsets",
            offsets(compiled.row_offsets, compiled.rows, len(compiled.row_predicates)),
        ),
    )
    ends = np.repeat(counts[compiled.predicate_slots], np.diff(compiled.span_offsets))
    if bool(np.any((compiled.lows < 0) | (compiled.lows >= compiled.highs))):
        yield Problem("lows", "an interval is empty or begins below all codes")
    if bool(np.any(compiled.highs > ends)):
        yield Problem("highs", "an interval ends above all codes")
    inside = np.ones(max(0, spans - 1), np.bool_)
    inside[compiled.span_offsets[1:-1] - 1] = False
    if bool(np.any((compiled.lows[1:] < compiled.highs[:-1]) & inside)):
        yield Problem("lows", "intervals of a predicate overlap")


# --- the layout ---


def layout_problems(
    compiled: CompiledRows, layout: Mapping[str, Array], depth: int
) -> Iterator[Problem]:
    """Each problem of what kernels walk through, for rows that are sound."""
    keys, ranks = layout["keys"], layout["row_ranks"]
    yield from _found(
        ("keys", order(keys)),
        ("row_ranks", length(ranks, compiled.rows) or bounds(ranks, 0, len(keys))),
    )
    if not bool(np.array_equal(keys[ranks], compiled.row_owners)):
        yield Problem("keys", "they are not those of the rows")
    if not 0 <= depth <= PREFIX_DEPTH:
        yield Problem("program", f"it is {depth} levels deep")
    slots = len(compiled.universe.code_counts)
    blocks = -(-compiled.rows // BITMAP_ROWS)
    yield from _level_problems("lower", layout, compiled.rows, slots)
    yield from _level_problems("upper", layout, blocks, slots)
    problem = _program_problem(
        layout["program"], compiled.rows, len(keys), len(compiled.predicate_slots), depth
    )
    yield from _found(("program", problem))


def _level_problems(
    level: str, layout: Mapping[str, Array], items: int, slots: int
) -> Iterator[Problem]:
    entries, vectors = layout[f"{level}_entries"], layout[f"{level}_vectors"]
    blocks = -(-items // BITMAP_ROWS)
    yield from _found(
        (f"{level}_offsets", offsets(layout[f"{level}_offsets"], blocks, len(entries)))
    )
    slot, _, shift, size, first = entries.T
    wrong = (
        bounds(slot, 0, slots)
        or bounds(shift, 0, MAX_SHIFT + 1)
        or bounds(size, 1, max(2, len(vectors)))
        or bounds(first, 0, max(1, len(vectors)))
        or bounds(first + size, 0, len(vectors))
    )
    yield from _found((f"{level}_entries", wrong))


class _Walk(NamedTuple):
    """A program that is followed, and the counts of what it may lead to."""

    program: Array
    ranks: int
    predicates: int

    def outside(self, places: Longs, words: Longs | int) -> bool:
        """Check whether a read of so many words at some places leaves the program."""
        return bool(np.any(places + words > len(self.program)))

    def rows_problem(self, entries: Longs) -> str | None:
        """Report a fault of the entries of rows and their records."""
        tests, records = self.program[entries], self.program[entries + 1].astype(np.int64)
        if bool(np.any(tests > self.predicates)) or self.outside(records, 2):
            return "a row leads out of it"
        counts = self.program[records + 1].astype(np.int64)
        if self.outside(records, counts + 2) or int(counts.sum()) > len(self.program):
            return "a row leads out of it"
        if bool(np.any(self.program[records] >= self.ranks)):
            return "a row is of no filter"
        rest = self.program[runs(records + 2, counts)]
        return "a row tests no predicate" if bool(np.any(rest > self.predicates)) else None


def _program_problem(
    program: Array, rows: int, ranks: int, predicates: int, depth: int
) -> str | None:
    """Report a fault of a program (`kernels.build.program_of`), level by level.

    Every row is reached once, every node leads on to later ones only.
    """
    walk = _Walk(program, ranks, predicates)
    nodes = np.zeros(1, np.int64)
    reached, visited = 0, 1
    for _ in range(depth + 1):
        if walk.outside(nodes, 2):
            return "a node leads out of it"
        own, children = (program[nodes + at].astype(np.int64) for at in range(2))
        reached += int(own.sum())
        visited += int(children.sum())
        if walk.outside(nodes, 2 + 2 * (own + children)) or reached > rows:
            return "a node leads out of it"
        if 2 * visited > len(program):
            return "nodes are shared"
        problem = walk.rows_problem(runs(nodes + 2, own, step=2))
        if problem is not None:
            return problem
        entries = runs(nodes + 2 + 2 * own, children, step=2)
        following = program[entries + 1].astype(np.int64)
        if bool(np.any(program[entries] > predicates)):
            return "a node tests no predicate"
        if bool(np.any(following <= np.repeat(nodes, children))):
            return "a node leads back"
        nodes = following
        if not len(nodes):
            break
    if len(nodes):
        return f"it is more than {depth} levels deep"
    return None if reached == rows else f"it leads to {reached} rows of {rows}"
