"""When compiled code is used: never before it is ready, unless someone asks to wait.

`warm` imports numba and compiles every kernel, or takes it from the cache on disk; whoever has a
thread to spare calls it there (this room starts none). Until then engines use the twins. One
process at a time compiles (`kernel_cache.py`): `warm` waits for it, `warm_unless_busy` does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from palio.matching.kernels.cache import KernelCache

if TYPE_CHECKING:
    import pyarrow as pa

    from palio.matching.recent import Overlay

__all__ = [
    "Kernels",
    "Leads",
    "Predicates",
    "Scratch",
    "Tell",
    "addresses_of",
    "are_on_disk",
    "ready",
    "warm",
    "warm_unless_busy",
]

Integers: TypeAlias = npt.NDArray[np.int32]
Words: TypeAlias = npt.NDArray[np.uint64]


def addresses_of(arrays: Iterable[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Address and size of each array, as one array: what kernels for single events are given.

    To hand over an array costs a third of a microsecond, and these take two dozen. The caller keeps
    the arrays alive.
    """
    listed = list(arrays)
    assert all(array.flags.c_contiguous for array in listed)
    return np.array([[array.ctypes.data, array.size] for array in listed], np.int64)


class Predicates(NamedTuple):
    """The predicates of each slot and their intervals of codes: what a batch is evaluated by."""

    code_counts: Integers
    slot_offsets: Integers
    slot_predicates: Integers
    span_offsets: Integers
    lows: Integers
    highs: Integers


class Leads(NamedTuple):
    """Rows by the slots of their leads (`kernels.count`): a group for each such slot."""

    slots: Integers
    code_counts: Integers
    """Of each group its slot, and how many codes that has."""
    row_offsets: Integers
    column_offsets: Integers
    columns: Integers
    """The slots that its rows test besides."""
    ranks: Integers
    lows: Integers
    highs: Integers
    """Of each row its filter, and the codes of its lead."""
    test_offsets: Integers
    test_columns: Integers
    """Of each other predicate of a row: which of its group's columns it tests..."""
    test_lows: Integers
    test_widths: Integers
    """...for which codes: one more than the width."""


class Scratch(NamedTuple):
    """What the plan of vectors works with in one thread, for one block of events at a time."""

    vectors: Words
    places: npt.NDArray[np.uint32]
    inherited: Words
    results: Words
    notes: Words
    spare: Words

    @classmethod
    def of(cls, predicates: int, rows: int, depth: int) -> Scratch:
        """Room for what so many predicates and rows may come to."""
        return cls(
            np.empty((predicates + 3, 8), np.uint64),
            np.empty(predicates + 1, np.uint32),
            np.zeros((depth + 2, 8), np.uint64),
            np.empty((rows + 16, 8), np.uint64),
            np.empty(rows + 1, np.uint64),
            np.empty(rows + 1, np.uint64),
        )


ARROW_WORDS: Final = 10
"""The size of `struct ArrowArray` in words."""

OPEN: Final = (1 << 31) - 1
"""The end of an interval that has none."""

FIRST_NUMBER: Final = 3
"""The code of a number below all cuts, where booleans have none (`cuts.py`)."""


class FreshRows(NamedTuple):
    """Rows of comparisons with numbers, one a key, ascending by key.

    An interval holds the numbers that are not below `low` cuts of its slot (0: any number) and not
    above `high` of them (`OPEN`: any number).
    """

    keys: npt.NDArray[np.int64]
    destinations: npt.NDArray[np.int64]
    offsets: Integers
    slots: Integers
    lows: Integers
    highs: Integers


class NumberCuts(NamedTuple):
    """The cuts of such rows: those of slot s are `offsets[s] : offsets[s + 1]` (`cuts.Numbers`)."""

    offsets: Integers
    ints: npt.NDArray[np.int64]
    floats: npt.NDArray[np.int64]
    beyond: npt.NDArray[np.bool_]


class NumberTables(NamedTuple):
    """What codes numbers beside their cuts, as in `cuts.Universe`."""

    bases: Integers
    reachable: Integers
    offsets: Integers
    lows: npt.NDArray[np.int64]
    table: Integers


class Fresh(NamedTuple):
    """Such rows for one batch: its codes in their slots, and the rank of each row's key."""

    codes: Integers
    rows: FreshRows
    ranks: Integers
    cut_offsets: Integers


@dataclass(frozen=True)
class Kernels:
    """The compiled functions that engines call."""

    program_of: Any
    blocks_of: Any
    level_of: Any
    match_blocks: Any
    count_blocks: Any
    count_ranges: Any
    route_blocks: Any
    merge_found: Any
    note_blocks: Any
    match_joint: Any
    match_events: Any
    code_batch: Any
    release_batch: Any
    rows_of: Any
    advance: Any
    code_numbers: Any
    common_ranks: Any
    kill: Any
    match_fresh: Any
    count_fresh: Any
    route_fresh: Any
    scan_fresh: Any


_loaded: list[Kernels] = []


def ready() -> Kernels | None:
    """The kernels if they are compiled, else None."""
    return _loaded[0] if _loaded else None


Tell: TypeAlias = Callable[[int, int], None]
"""Hears how many kernels are there, compiled or loaded, and of how many."""


def warm(tell: Tell | None = None) -> Kernels:
    """Compile all kernels, which takes a minute the first time and a second from then on.

    While another process compiles them this one waits, and then loads them.
    """
    return _loaded[0] if _loaded else _found(wait=True, tell=tell)


def warm_unless_busy(tell: Tell | None = None) -> Kernels | None:
    """The same for who cannot wait for another process: None while that compiles."""
    return _loaded[0] if _loaded else _found(wait=False, tell=tell)


def are_on_disk() -> bool:
    """Whether all kernels are compiled, so that `warm` takes a second."""
    return bool(_loaded) or _cache().is_whole()


def _cache() -> KernelCache:
    from palio.matching.kernels import arrow, simd

    modules = [*_modules(), simd]
    return KernelCache.of("matching", modules, arrow.code_batch)


def _modules() -> list[ModuleType]:
    from palio.matching.kernels import (
        arrow,
        bits,
        build,
        change_log,
        combine,
        count,
        emit,
        recent,
        single,
    )

    return [
        arrow, bits, build, count, emit,
        combine, recent, single, change_log,
    ]  # fmt: skip


def _all_kernels() -> Kernels:
    """The functions that the modules export under the names that engines call them by."""
    exported = {name: getattr(each, name) for each in _modules() for name in each.__all__}
    return Kernels(**{each.name: exported[each.name] for each in fields(Kernels)})


@overload
def _found(*, wait: Literal[True], tell: Tell | None) -> Kernels: ...
@overload
def _found(*, wait: bool, tell: Tell | None) -> Kernels | None: ...
def _found(*, wait: bool, tell: Tell | None) -> Kernels | None:
    """All kernels, each of them tried; None if another process compiles and nobody shall wait."""
    kernels = _all_kernels()

    def everything() -> Kernels:
        if not _loaded:  # another thread may have been here
            _try_all(_counting(kernels, tell) if tell is not None else kernels)
            _loaded.append(kernels)
        return _loaded[0]

    return _cache().load(everything, wait=wait)


def _counting(kernels: Kernels, tell: Tell) -> Kernels:
    """The same functions, which tell how many of them have returned, and so are compiled."""
    names = [each.name for each in fields(Kernels)]
    returned: set[str] = set()

    def counted(name: str, kernel: Any) -> Any:
        def call(*arguments: Any) -> Any:
            result = kernel(*arguments)
            if name not in returned:
                returned.add(name)
                tell(len(returned), len(names))
            return result

        return call

    return Kernels(**{name: counted(name, getattr(kernels, name)) for name in names})


def _try_all(kernels: Kernels) -> None:
    """Run everything once on a single small row, so that no caller pays for compiling."""
    import pyarrow as pa

    from palio.matching.change_log import Tape
    from palio.matching.combining import Joiner
    from palio.matching.compile.ranges import Draft, compile_drafts, ranges_of
    from palio.matching.destinations import routed
    from palio.matching.layers import Part
    from palio.matching.recent import Overlay
    from palio.matching.segment import Segment
    from palio.matching.snapshots import Seen
    from palio.matching.subscriptions import Subscription
    from palio.model.constraints import Constraint
    from palio.model.filters import Conjunction, Filter
    from palio.model.operators import Op

    ranges = ranges_of("x", Op.EQ, np.array([5]), None)
    assert ranges is not None
    row = Draft(np.array([0]), [ranges])
    segment = Segment(compile_drafts([row]), kernels)
    events = pa.record_batch({"x": [5, 6]})
    dead = segment.no_dead()
    codes = segment.codes_of(events)
    many, few = segment.match_many(codes, dead), segment.match_few(codes, dead)
    assert kernels.merge_found(*many, *few)[1].tolist() == [0]
    assert segment.count(codes, dead).tolist() == [1]
    counting, totals = segment.counting, np.zeros(1, np.int64)
    assert counting is not None
    counting.count(kernels, codes, dead, totals)
    assert totals.tolist() == [1]
    part = Part(segment, dead, np.array([0]))
    assert routed(part, codes, events)[0].tolist() == [[True, False]]
    _try_programs(kernels, events)
    tape = Tape()
    for key in (0, 1):
        filter_ = Filter.of([Conjunction.of([Constraint.of("x", Op.GT, 5)])])
        tape.note(key, Subscription(filter_, {}, key))
    overlay, keys = Overlay.empty(kernels).advanced(tape, 0, 2)
    rest = part.without(keys)
    seen = Seen(2, (rest, rest), overlay)
    assert kernels.rows_of(Joiner().together(seen, events, kernels)[0]).tolist() == [1, 1]
    _try_overlay(overlay, events)


def _try_programs(kernels: Kernels, events: pa.RecordBatch) -> None:
    """The same for a destination with so many rows that it has a program of its own."""
    from palio.matching.compile.ranges import Draft, compile_drafts, ranges_of
    from palio.matching.destinations import LEAST_ROWS, routed
    from palio.matching.layers import Part
    from palio.matching.segment import Segment
    from palio.model.operators import Op

    ranges = ranges_of("x", Op.EQ, np.arange(LEAST_ROWS), None)
    assert ranges is not None
    segment = Segment(compile_drafts([Draft(np.arange(LEAST_ROWS), [ranges])]), kernels)
    part = Part(segment, segment.no_dead(), np.zeros(LEAST_ROWS, np.int64))
    assert routed(part, segment.codes_of(events), events)[0].tolist() == [[True, True]]


def _try_overlay(overlay: Overlay, events: pa.RecordBatch) -> None:
    """The same for what an overlay does on its own."""
    from palio.matching.destinations import routed_lately

    codes = overlay.codes_of(events)
    for repeated in (codes, np.repeat(codes, 16, axis=1)):
        assert overlay.match(repeated)[1].tolist()[:2] == [0, 1]
    assert overlay.count(codes).tolist() == [1, 1]
    assert routed_lately(overlay, codes)[1].tolist() == [0, 1]
    assert overlay.match_event({"x": 6}).tolist() == [0, 1]
