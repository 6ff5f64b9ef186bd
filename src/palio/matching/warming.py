"""Load the kernels: compile them, or read them from the cache on disk.

A program that has another thread calls `warm` there (this package starts none). While another
process compiles, `warm` waits for it; `warm_unless_busy` returns None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from palio.matching.combining import Combiner, coded
from palio.matching.compile.ranges import RowTemplate, compile_templates, ranges_of
from palio.matching.compiled import CompiledLayer
from palio.matching.destinations import LEAST_ROWS
from palio.matching.kernels.registry import Kernels, Progress, is_due, load, ready
from palio.matching.layers import CodedBatch
from palio.matching.recent import ChangeLog, RecentLayer
from palio.matching.snapshots import Snapshot
from palio.matching.subscriptions import Subscription
from palio.matching.texts import ColumnTests
from palio.model.constraints import Constraint
from palio.model.filters import Conjunction, Filter
from palio.model.operators import Op
from palio.model.texts import TextTest

Submit: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Runs a job in another thread, such as the `submit` of an executor."""

Load: TypeAlias = Callable[[], Any]
"""A job that loads the kernels."""

FALLBACK_PAIRS: Final = 1_000_000
"""Without `submit`, an index loads the kernels after it matched this many pairs of event and filter
in Python. If another process is compiling them, it tries again after as many more."""

BULK_FILTERS: Final = 4096
"""Without `submit`, kernels are loaded when more filters than this are added at once."""

WARM_PAIRS: Final = 100_000
"""With `submit`, kernels are loaded after this many pairs in all indexes of a process together, so
that a small script never loads them."""

ADDED_PAIRS: Final = 400
"""A broker also counts each added filter as 400 pairs, so that its kernels load after 250 filters,
before the first events. Clients do not: one may have thousands of filters and few events."""


def warm(progress: Progress | None = None) -> Kernels:
    """Load all kernels: this takes a minute the first time, and a second from then on.

    While another process compiles them, wait for it and load the result.
    """
    kernels = load(_try_all, wait=True, progress=progress)
    assert kernels is not None  # only without `wait` it may be
    return kernels


def warm_unless_busy(progress: Progress | None = None) -> Kernels | None:
    """Load all kernels; return None at once while another process compiles them."""
    return load(_try_all, wait=False, progress=progress)


class WarmUp:
    """Decides when one index loads the kernels: once it has matched enough in Python."""

    def __init__(self, submit: Submit | None, load: Load | None) -> None:
        self._submit = submit
        self._load = warm if load is None else load
        # Only a broker has a job of its own; to it, filters announce events (`ADDED_PAIRS`).
        self._counts_filters = load is not None
        self._pairs = 0

    def kernels(self, pairs: int) -> Kernels | None:
        """Return the kernels if they are loaded, or worth loading to match so many pairs."""
        kernels = ready()
        if kernels is not None:
            return kernels
        if self._submit is not None:
            if is_due(pairs, WARM_PAIRS):
                self._submit(self._load)
            return None
        self._pairs += pairs
        if self._pairs <= FALLBACK_PAIRS:
            return None
        self._pairs = 0
        return warm_unless_busy()

    def note_added(self) -> None:
        """Count an added filter towards loading the kernels, in a broker."""
        if self._counts_filters:
            self.kernels(ADDED_PAIRS)

    def kernels_for_bulk(self, filters: int) -> Kernels | None:
        """Return the kernels if they are loaded, or worth loading to add so many filters."""
        if self._submit is None and filters > BULK_FILTERS:
            return ready() or warm_unless_busy()
        return ready()


def _try_all(kernels: Kernels) -> None:
    """Call every kernel once, as numba compiles or reads a function at its first call.

    The assertions check that what was compiled or read works on this machine.
    """
    events = pa.record_batch({"x": [5, 6]})
    layer = _try_compiled(kernels, events)
    _try_programs(kernels, events)
    _try_texts(kernels)
    _try_boxes(kernels)
    log = ChangeLog()
    for key in (0, 1):
        filter = Filter.of([Conjunction.of([Constraint.of("x", Op.GT, 5)])])
        log.note(key, Subscription(filter, {}, key))
    recent, keys = RecentLayer.empty(kernels).advanced(log, 0, 2)
    rest = layer.without(keys)
    snapshot = Snapshot(2, (rest, rest), recent)
    snapshot.lay_out(kernels)
    offsets, keys = Combiner().match_together(coded(snapshot, events), kernels)
    assert (offsets.tolist(), keys.tolist()) == ([0, 0, 2], [0, 1])
    _try_recent(recent, events)


def _try_compiled(kernels: Kernels, events: pa.RecordBatch) -> CompiledLayer:
    """Match one row with both plans, count it and route it; return its layer."""
    ranges = ranges_of("x", Op.EQ, np.array([5]), None)
    assert ranges is not None
    layer = CompiledLayer.of(
        compile_templates([RowTemplate(np.array([0]), [ranges])]), None, kernels
    )
    segment, none = layer.segment, layer.tombstones
    codes = segment.codes_of(events)
    many, few = segment.match_many(codes, none), segment.match_few(codes, none)
    assert kernels.merge_found(*many, *few)[1].tolist() == [0]
    assert segment.count(codes, none).tolist() == [1]
    counting, totals = segment.counting, np.zeros(1, np.int64)
    assert counting is not None
    counting.count(kernels, codes, none, totals)
    assert totals.tolist() == [1]
    assert layer.route(CodedBatch(codes, events))[0].tolist() == [[True, False]]
    return layer


def _try_programs(kernels: Kernels, events: pa.RecordBatch) -> None:
    """Route to a destination with enough rows to have a program."""
    keys = np.arange(LEAST_ROWS)
    ranges = ranges_of("x", Op.EQ, keys, None)
    assert ranges is not None
    rows = compile_templates([RowTemplate(keys, [ranges])])
    layer = CompiledLayer.of(rows, (keys, np.zeros(LEAST_ROWS, np.int64)), kernels)
    codes = layer.codes_of(events)
    assert layer.route(CodedBatch(codes, events))[0].tolist() == [[True, True]]


def _try_texts(kernels: Kernels) -> None:
    """Try one text test on a column of texts, and on a single text."""
    tests, codes = ColumnTests({0: TextTest(Op.SUFFIX, "a")}), np.zeros((1, 1), np.int32)
    tests.code(pa.array(["ba"]), np.zeros(1, np.int32), codes, kernels)
    assert codes.tolist() == [[1]]
    tests.code_one("ab", codes, kernels)
    assert codes.tolist() == [[1]]


def _try_boxes(kernels: Kernels) -> None:
    """Compare two boxes, in both directions."""
    box, fitting, bounds = np.array([[1.0, 2.0, 0.0, 3.0, 4.0]]), np.zeros(1, np.int64), np.zeros(1)
    filed, indexed = (fitting, bounds, bounds), (fitting, box.reshape(1, 1, 5))
    for inside in (False, True):
        assert kernels.compare_boxes(filed, (0.0, 0.0), indexed, (0, box), inside, fitting) == 1


def _try_recent(recent: RecentLayer, events: pa.RecordBatch) -> None:
    """Match, count and route with a recent layer alone."""
    codes = recent.codes_of(events)
    for repeated in (codes, np.repeat(codes, 16, axis=1)):
        assert recent.match(CodedBatch(repeated, events))[1].tolist()[:2] == [0, 1]
    assert recent.count(CodedBatch(codes, events))[1].tolist() == [1, 1]
    assert recent.route(CodedBatch(codes, events))[1].tolist() == [0, 1]
    assert recent.match_event({"x": 6}).tolist() == [0, 1]
