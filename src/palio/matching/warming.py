"""Kernels are loaded here: compiled, or taken from the cache on disk, and each called once.

Whoever has a thread to spare calls `warm` there (this room starts none). While another process
compiles, `warm` waits for it, and `warm_unless_busy` does not.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from palio.matching.change_log import Tape
from palio.matching.combining import Joiner
from palio.matching.compile.ranges import Draft, compile_drafts, ranges_of
from palio.matching.destinations import LEAST_ROWS, routed, routed_lately
from palio.matching.kernels.registry import Kernels, Tell, load
from palio.matching.layers import Part
from palio.matching.recent import Overlay
from palio.matching.segment import Segment
from palio.matching.snapshots import Seen
from palio.matching.subscriptions import Subscription
from palio.model.constraints import Constraint
from palio.model.filters import Conjunction, Filter
from palio.model.operators import Op

__all__ = ["warm", "warm_unless_busy"]


def warm(tell: Tell | None = None) -> Kernels:
    """Load all kernels: a minute of compiling the first time, a second from then on.

    While another process compiles them this one waits, and then loads them.
    """
    kernels = load(_try_all, wait=True, tell=tell)
    assert kernels is not None  # it has waited
    return kernels


def warm_unless_busy(tell: Tell | None = None) -> Kernels | None:
    """The same for callers that cannot wait for another process: None while that compiles."""
    return load(_try_all, wait=False, tell=tell)


def _try_all(kernels: Kernels) -> None:
    """Call every kernel on a row or two."""
    events = pa.record_batch({"x": [5, 6]})
    part = _try_segment(kernels, events)
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


def _try_segment(kernels: Kernels, events: pa.RecordBatch) -> Part:
    """A segment's plans on one row; returns a part of it."""
    ranges = ranges_of("x", Op.EQ, np.array([5]), None)
    assert ranges is not None
    segment = Segment(compile_drafts([Draft(np.array([0]), [ranges])]), kernels)
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
    return part


def _try_programs(kernels: Kernels, events: pa.RecordBatch) -> None:
    """A destination with so many rows that it has a program of its own."""
    ranges = ranges_of("x", Op.EQ, np.arange(LEAST_ROWS), None)
    assert ranges is not None
    segment = Segment(compile_drafts([Draft(np.arange(LEAST_ROWS), [ranges])]), kernels)
    part = Part(segment, segment.no_dead(), np.zeros(LEAST_ROWS, np.int64))
    assert routed(part, segment.codes_of(events), events)[0].tolist() == [[True, True]]


def _try_overlay(overlay: Overlay, events: pa.RecordBatch) -> None:
    """What recent rows answer on their own."""
    codes = overlay.codes_of(events)
    for repeated in (codes, np.repeat(codes, 16, axis=1)):
        assert overlay.match(repeated)[1].tolist()[:2] == [0, 1]
    assert overlay.count(codes).tolist() == [1, 1]
    assert routed_lately(overlay, codes)[1].tolist() == [0, 1]
    assert overlay.match_event({"x": 6}).tolist() == [0, 1]
