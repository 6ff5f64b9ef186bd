"""The layers of an index with the changes since, and when they are merged.

One thread at a time changes a store; any number may take snapshots of it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from math import inf
from typing import Final, NamedTuple

from palio.matching.building import merged_layers
from palio.matching.compiled import CompiledLayer
from palio.matching.held import MAX_HELD, Change
from palio.matching.kernels.registry import Kernels, ready
from palio.matching.layers import Longs
from palio.matching.snapshots import SLICE_JOINED, EventView, MergeJob, Snapshot, State
from palio.matching.subscriptions import Subscription
from palio.matching.warming import Submit

MERGE_SHARE: Final = 8
"""Changes are merged into the large layer when they are an eighth of its rows..."""

SPARE_SHARE: Final = 16
"""...a sixteenth with a thread to spare, so that matching is the less held up by them..."""

MERGE_ROWS: Final = 4096
"""...but not before there are this many..."""

MERGE_LAYERS: Final = 64
"""...or this many small layers, each of which costs an event some 10 us."""

REST_PAIRS: Final = 100_000_000
"""Rows that changed lately are compiled once this many pairs of them and an event were matched, and
nothing changed meanwhile: a set that stands still becomes one layer."""

SINGLE_PAIRS: Final = 20_000
"""A small set is merged sooner: what a single event costs with a recent layer beyond the compiled
ones, 20 us, as pairs..."""

MERGED_PAIRS: Final = 40_000
"""...and what merging costs for each row, as pairs..."""

SMALL_MERGE: Final = 100
"""...and as rows, however few there are."""

CATCH_UP: Final = 512
"""With a thread to spare, that thread is asked to compile what was noted whenever it is this many
changes: the next match is not held up by all that was added since the last one..."""

CATCH_UP_WORK: Final = 1_024
"""...or this many constraints and constants, which take 10 ms..."""

MOST_WORK: Final = 4_096
"""...and if it does not keep up with the writer, the writer compiles so many itself. So it does
without kernels, where fewer are left to the next batch."""


class _Added(NamedTuple):
    """Layers that were added, the state with them, and how many changes it began with."""

    keys: Longs
    layers: tuple[CompiledLayer, ...]
    state: State
    changes: int


class LayerStore:
    """The present state of an index, and the job that merges it. `submit` runs that elsewhere."""

    def __init__(self, submit: Submit | None, layers: tuple[CompiledLayer, ...] = ()) -> None:
        self._submit = submit
        self._state = self._new_state(layers)
        self._job: MergeJob | None = None
        # Layers that were added in bulk since the job began.
        self._added_meanwhile: list[_Added] = []
        # The number of changes that the next job is asked for with, after one that failed.
        self._patience = 0
        self._compiling: CompileJob | None = None
        self._resting: Snapshot | None = None
        self._rested_pairs = 0

    def _new_state(
        self, layers: tuple[CompiledLayer, ...], changes: Iterable[Change] = ()
    ) -> State:
        """A state whose readers join no more than a slice if there is a thread for the rest."""
        return State(layers, changes, most_joined=inf if self._submit is None else SLICE_JOINED)

    @property
    def layers(self) -> tuple[CompiledLayer, ...]:
        """The layers as of the last merge."""
        return self._state.layers

    @property
    def rows(self) -> int:
        """The number of rows, with a row for each change."""
        return self._state.rows + len(self._state.changes)

    # --- changes ---

    def note(self, key: int, subscription: Subscription | None) -> None:
        """Note that a key has another subscription, or none."""
        self.collect()
        self._state.note(key, subscription)
        self._merge_if_due()
        if self._submit is not None:
            self._catch_up(self._submit)

    def add(self, keys: Longs, layers: tuple[CompiledLayer, ...]) -> None:
        """Put new layers in the place of all filters with their keys, which ascend."""
        self.collect()
        state = self._state = self._with(self._state, keys, layers)
        if self._job is not None:
            self._added_meanwhile.append(_Added(keys, layers, state, len(state.changes)))
        self._merge_if_due()

    def _with(self, state: State, keys: Longs, layers: tuple[CompiledLayer, ...]) -> State:
        """A state with new layers in the place of all filters with their keys."""
        kept = tuple(layer.without(keys) for layer in state.layers)
        replaced = set(keys.tolist()) if state.changes else set()
        left = [change for change in state.changes if change[0] not in replaced]
        return self._new_state((*kept, *layers), left)

    def merge(self) -> None:
        """Merge everything in this thread, and put it in place."""
        kernels = ready()
        layers = self._state.snapshot(kernels).all_compiled()
        self._put(self._new_state(merged_layers(layers, kernels)))

    def merge_soon(self) -> None:
        """Merge everything: in this thread, or by a job if there is another."""
        if self._submit is None:
            self.merge()
        elif self._job is None:
            job = MergeJob(self._state, ready())
            self._submit(job)
            self._job = job

    def _put(self, state: State) -> None:
        """Put a state in place that makes any job for the one before useless."""
        self._state, self._job, self._added_meanwhile, self._patience = state, None, [], 0

    def _catch_up(self, submit: Submit) -> None:
        """Have what was noted compiled, if it is much."""
        state, kernels = self._state, ready()
        changes, work = len(state.changes) - state.latest.count, state.work - state.latest.work
        if kernels is None:
            if work >= MOST_WORK:
                state.snapshot(None)
        elif changes >= MAX_HELD or work >= MOST_WORK:
            state.snapshot(kernels)
        elif changes >= CATCH_UP or work >= CATCH_UP_WORK:
            self._compile_soon(state, submit)

    def _compile_soon(self, state: State, submit: Submit) -> None:
        """Have the other thread make a snapshot, unless it is at it."""
        compiling = self._compiling
        if compiling is None or compiling.has_ended or compiling.state is not state:
            compiling = CompileJob(state)
            submit(compiling)
            self._compiling = compiling

    def _merge_if_due(self) -> None:
        state, small = self._state, self._state.small_rows
        share = MERGE_SHARE if self._submit is None else SPARE_SHARE
        due = max(MERGE_ROWS, state.largest // share)
        if (small >= due or state.small_layers >= MERGE_LAYERS) and small >= self._patience:
            self.merge_soon()

    def collect(self) -> None:
        """Put the result of a job that has ended in place, with all that changed since behind it.

        Readers see the result when it is whole: a change that they saw once they see ever after.
        """
        job = self._job
        if job is None or not job.has_ended:
            return
        if job.result is None:  # it failed, and raised in its thread
            self._job, self._added_meanwhile = None, []
            self._patience = self._state.small_rows + MERGE_ROWS
            return
        # The job knows of no layers that were added meanwhile: they are put in place between the
        # changes made before them and those made after.
        state, since = job.result, job.left()
        for added in self._added_meanwhile:
            _note_all(state, since)
            state = self._with(state, added.keys, added.layers)
            since = added.state.changes[added.changes :]
        _note_all(state, since)
        self._put(state)

    # --- snapshots ---

    def snapshot(self, kernels: Kernels | None, events: int = 0) -> Snapshot:
        """All changes made before; `events` will be matched with it."""
        state = self._state
        return self._laid_out(state, state.snapshot(kernels), kernels, events)

    def event_view(self, kernels: Kernels | None) -> EventView:
        """All changes made before, for a single event."""
        state = self._state
        if len(state.changes) - state.latest.count > MAX_HELD:
            state.snapshot(kernels)
        view = state.event_view()
        work = state.work - view.base.work
        if view.held.is_spent(work):
            if work and kernels is not None and self._submit is not None:
                self._compile_soon(state, self._submit)
            else:
                state.snapshot(kernels)
                view = state.event_view()
        self._laid_out(state, view.base, kernels, 1)
        return view

    def _laid_out(
        self, state: State, snapshot: Snapshot, kernels: Kernels | None, events: int
    ) -> Snapshot:
        """A snapshot for some events, laid out for the kernels if there are any."""
        if kernels is not None:
            snapshot.lay_out(kernels)
            if snapshot.recent is not None and len(snapshot.recent):
                self._rest(state, snapshot, events, len(snapshot.recent))
        return snapshot

    def _rest(self, state: State, snapshot: Snapshot, events: int, recent: int) -> None:
        """Have a snapshot merged if it stays the latest for long enough."""
        if self._resting is not snapshot:
            self._resting, self._rested_pairs = snapshot, 0
        before = self._rested_pairs
        self._rested_pairs = before + events * recent + (SINGLE_PAIRS if events == 1 else 0)
        rows = state.rows + recent
        patience = min(REST_PAIRS, MERGED_PAIRS * (SMALL_MERGE + rows))
        if before <= patience < self._rested_pairs:
            job = partial(state.merge, snapshot, ready())
            if self._submit is None:
                job()
            else:
                self._submit(job)

    def memory(self) -> dict[str, int]:
        """Bytes by part."""
        recent = self._state.latest.recent
        total = {"changes": self._state.log.nbytes + (0 if recent is None else recent.nbytes)}
        for layer in self._state.layers:
            for name, size in layer.memory().items():
                total[name] = total.get(name, 0) + size
        return total


class CompileJob:
    """Makes a snapshot of a state."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.has_ended = False

    def __call__(self) -> None:
        """Do it."""
        try:
            self.state.snapshot(ready())
        finally:
            self.has_ended = True


def _note_all(state: State, changes: Iterable[Change]) -> None:
    for key, subscription in changes:
        state.note(key, subscription)
