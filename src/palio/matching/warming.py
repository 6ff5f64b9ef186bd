"""Load the kernels: compile them, or take them from the cache on disk, and call each once.

A program with a thread to spare calls `warm` there (this package starts none). While another
process compiles, `warm` waits for it, and `warm_unless_busy` does not.
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
"""Such a job: it loads the kernels."""

FALLBACK_PAIRS: Final = 1_000_000
"""Without `submit`, this many pairs of event and filter are matched in Python before kernels are
loaded; while another process compiles them, as many again before the next try."""

BULK_FILTERS: Final = 4096
"""Without `submit`, kernels are loaded when more filters than this are added at once."""

WARM_PAIRS: Final = 100_000
"""With `submit`, it is asked to load them after this many pairs, those of all indexes of a process
together: a small script never does..."""

ADDED_PAIRS: Final = 400
"""...and where filters count, too, as in a broker, the first batch after 250 of them finds the
kernels there. A client may have thousands and receive next to nothing."""


def warm(progress: Progress | None = None) -> Kernels:
    """Load all kernels: a minute of compiling the first time, a second from then on.

    While another process compiles them this one waits, and then loads them.
    """
    kernels = load(_try_all, wait=True, progress=progress)
    assert kernels is not None  # it has waited
    return kernels


def warm_unless_busy(progress: Progress | None = None) -> Kernels | None:
    """The same for callers that cannot wait for another process: None while that compiles."""
    return load(_try_all, wait=False, progress=progress)


class WarmUp:
    """Decides when one index loads the kernels: once it has matched enough in Python."""

    def __init__(self, submit: Submit | None, load: Load | None) -> None:
        self._submit = submit
        self._load = warm if load is None else load
        self._counts_filters = load is not None
        self._pairs = 0

    def kernels(self, pairs: int) -> Kernels | None:
        """The kernels, if they are there or worth waiting for when these pairs are matched."""
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
        """A filter was added, which counts as matching where that is wanted."""
        if self._counts_filters:
            self.kernels(ADDED_PAIRS)

    def kernels_for_bulk(self, filters: int) -> Kernels | None:
        """The kernels to lay out filters that are added at once, if they are there or worth
        waiting for.
        """
        if self._submit is None and filters > BULK_FILTERS:
            return ready() or warm_unless_busy()
        return ready()


def _try_all(kernels: Kernels) -> None:
    """Call every kernel on a row or two."""
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
    """Both plans, counting and routing on one row; returns its layer."""
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
    """A destination with so many rows that it has a program."""
    keys = np.arange(LEAST_ROWS)
    ranges = ranges_of("x", Op.EQ, keys, None)
    assert ranges is not None
    rows = compile_templates([RowTemplate(keys, [ranges])])
    layer = CompiledLayer.of(rows, (keys, np.zeros(LEAST_ROWS, np.int64)), kernels)
    codes = layer.codes_of(events)
    assert layer.route(CodedBatch(codes, events))[0].tolist() == [[True, True]]


def _try_texts(kernels: Kernels) -> None:
    """One text test on a column of texts, and on one text."""
    tests, codes = ColumnTests({0: TextTest(Op.SUFFIX, "a")}), np.zeros((1, 1), np.int32)
    tests.code(pa.array(["ba"]), np.zeros(1, np.int32), codes, kernels)
    assert codes.tolist() == [[1]]
    tests.code_one("ab", codes, kernels)
    assert codes.tolist() == [[1]]


def _try_boxes(kernels: Kernels) -> None:
    """A box that holds another, and is inside it."""
    box, fitting, bounds = np.array([[1.0, 2.0, 0.0, 3.0, 4.0]]), np.zeros(1, np.int64), np.zeros(1)
    filed, indexed = (fitting, bounds, bounds), (fitting, box.reshape(1, 1, 5))
    for inside in (False, True):
        assert kernels.compare_boxes(filed, (0.0, 0.0), indexed, (0, box), inside, fitting) == 1


def _try_recent(recent: RecentLayer, events: pa.RecordBatch) -> None:
    """Ask recent rows for answers without other layers."""
    codes = recent.codes_of(events)
    for repeated in (codes, np.repeat(codes, 16, axis=1)):
        assert recent.match(CodedBatch(repeated, events))[1].tolist()[:2] == [0, 1]
    assert recent.count(CodedBatch(codes, events))[1].tolist() == [1, 1]
    assert recent.route(CodedBatch(codes, events))[1].tolist() == [0, 1]
    assert recent.match_event({"x": 6}).tolist() == [0, 1]
