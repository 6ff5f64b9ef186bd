"""When compiled code is used: never before it is ready, unless someone asks to wait.

`warm` imports numba and compiles every kernel, or takes it from the cache on disk; whoever has a
thread to spare calls it there (this room starts none). Until then engines use the twins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Kernels", "Predicates", "Scratch", "addresses_of", "ready", "warm"]

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


@dataclass(frozen=True)
class Kernels:
    """The compiled functions that engines call."""

    program_of: Any
    blocks_of: Any
    level_of: Any
    match_blocks: Any
    count_blocks: Any
    route_blocks: Any
    merge_found: Any
    note_blocks: Any
    match_joint: Any
    match_events: Any
    code_batch: Any
    release_batch: Any


_loaded: list[Kernels] = []


def ready() -> Kernels | None:
    """The kernels if they are compiled, else None."""
    return _loaded[0] if _loaded else None


def warm() -> Kernels:
    """Compile all kernels, which takes a minute the first time and a second from then on."""
    if not _loaded:
        from palio.matching import (
            kernels_arrow,
            kernels_bits,
            kernels_build,
            kernels_emit,
            kernels_joint,
            kernels_single,
        )

        found = Kernels(
            kernels_build.program_of,
            kernels_build.blocks_of,
            kernels_build.level_of,
            kernels_bits.match_blocks,
            kernels_bits.count_blocks,
            kernels_bits.route_blocks,
            kernels_emit.merge_found,
            kernels_joint.note_blocks,
            kernels_joint.match_joint,
            kernels_single.match_events,
            kernels_arrow.code_batch,
            kernels_arrow.release_batch,
        )
        _try_all(found)
        _loaded.append(found)
    return _loaded[0]


def _try_all(kernels: Kernels) -> None:
    """Run everything once on a single small row, so that no caller pays for compiling."""
    import pyarrow as pa

    from palio.matching.compiling import Draft, compile_drafts, ranges_of
    from palio.matching.destinations import routed
    from palio.matching.parts import Part
    from palio.matching.segment import Segment
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
    assert routed(Part(segment, dead, np.array([0])), codes, events)[0].tolist() == [[True, False]]
