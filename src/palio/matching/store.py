"""Hold the layers of an index and the changes to them, and decide when to merge these.

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

# A change is first noted, then compiled into a small layer, and later merged into the large one.
#
# - Small layers are merged once there are `MERGE_LAYERS` of them, or once the rows outside the
#   largest layer are both `MERGE_ROWS` and a fixed share of its rows (`MERGE_SHARE`).
# - They are also merged when matching them unmerged has cost as much as merging them would: a set
#   that no longer changes becomes one layer (`_merge_when_idle`).
# - With `submit`, another thread compiles changes while the writer makes more, so that the next
#   match need not compile them all (`_catch_up`).
#
# Costs are counted in pairs of a row and an event, each pair about a nanosecond.

MERGE_SHARE: Final = 8
"""Rows outside the largest layer are merged when they are an eighth of its rows."""

SPARE_SHARE: Final = 16
"""The same with `submit`: a sixteenth, as merging in another thread delays matching less."""

MERGE_ROWS: Final = 4096
"""Fewer rows than this are not worth a merge for their share."""

MERGE_LAYERS: Final = 64
"""This many small layers are merged: each costs every event some 10 us."""

IDLE_MERGE_PAIRS: Final = 100_000_000
"""A snapshot that stays the latest is merged after at most this many pairs, however large it is."""

ROW_MERGE_PAIRS: Final = 40_000
"""The cost of merging one row, in pairs."""

FIXED_MERGE_ROWS: Final = 100
"""The fixed cost of a merge, in rows."""

SINGLE_EVENT_PAIRS: Final = 20_000
"""The cost of a recent layer to an event that is matched alone, in pairs: 20 us."""

CATCH_UP_CHANGES: Final = 512
"""With `submit`, this many changes are compiled in the other thread."""

CATCH_UP_WORK: Final = 1_024
"""So is this much work, in constraints and constants: it takes 10 ms."""

WRITER_WORK: Final = 4_096
"""The writer itself compiles changes of this much work: the other thread does not keep up, or there
are no kernels yet, and it is given no such job. Without kernels, less is left to the next batch."""


class _Added(NamedTuple):
    """Layers added during a merge, the state with them, and the number of its changes by then."""

    keys: Longs
    layers: tuple[CompiledLayer, ...]
    state: State
    changes: int


class LayerStore:
    """The current state of an index, and the job that merges it.

    `submit` runs jobs in another thread; without it they run in the caller's.
    """

    def __init__(self, submit: Submit | None, layers: tuple[CompiledLayer, ...] = ()) -> None:
        self._submit = submit
        self._state = self._new_state(layers)
        self._job: MergeJob | None = None
        # Layers added in bulk since the job began, which its result lacks.
        self._added_meanwhile: list[_Added] = []
        # After a failed merge: the row count at which to try again, so that not every change does.
        self._retry_at_rows = 0
        self._compile_job: CompileJob | None = None
        # The latest snapshot with unmerged rows, and the cost so far of matching those, in pairs.
        self._idle_snapshot: Snapshot | None = None
        self._idle_pairs = 0

    def _new_state(
        self, layers: tuple[CompiledLayer, ...], changes: Iterable[Change] = ()
    ) -> State:
        """A state whose readers join at most `SLICE_JOINED` if another thread joins the rest."""
        return State(layers, changes, most_joined=inf if self._submit is None else SLICE_JOINED)

    @property
    def layers(self) -> tuple[CompiledLayer, ...]:
        """The layers as of the last merge."""
        return self._state.layers

    @property
    def rows(self) -> int:
        """The number of rows, counting each change as one."""
        return self._state.rows + len(self._state.changes)

    # --- changes ---

    def note(self, key: int, subscription: Subscription | None) -> None:
        """Note the new subscription of a key; None removes it."""
        self.collect()
        self._state.note(key, subscription)
        self._merge_if_due()
        if self._submit is not None:
            self._catch_up(self._submit)

    def add(self, keys: Longs, layers: tuple[CompiledLayer, ...]) -> None:
        """Add layers, which replace all filters with these keys (in ascending order)."""
        self.collect()
        state = self._state = self._with(self._state, keys, layers)
        if self._job is not None:
            self._added_meanwhile.append(_Added(keys, layers, state, len(state.changes)))
        self._merge_if_due()

    def _with(self, state: State, keys: Longs, layers: tuple[CompiledLayer, ...]) -> State:
        """A copy of a state in which layers replace all filters with these keys."""
        kept_layers = tuple(layer.without(keys) for layer in state.layers)
        replaced = set(keys.tolist()) if state.changes else set()
        kept_changes = [change for change in state.changes if change[0] not in replaced]
        return self._new_state((*kept_layers, *layers), kept_changes)

    def merge(self) -> None:
        """Merge all layers and changes in this thread."""
        kernels = ready()
        layers = self._state.snapshot(kernels).all_compiled()
        self._replace_state(self._new_state(merged_layers(layers, kernels)))

    def merge_soon(self) -> None:
        """Merge everything in the other thread, if there is one; otherwise in this one, at once."""
        if self._submit is None:
            self.merge()
        elif self._job is None:
            job = MergeJob(self._state, ready())
            self._submit(job)
            self._job = job

    def _replace_state(self, state: State) -> None:
        """Make a state the current one, and forget any merge of the one before."""
        self._state, self._job, self._added_meanwhile, self._retry_at_rows = state, None, [], 0

    def _catch_up(self, submit: Submit) -> None:
        """Compile the changes noted since the latest snapshot once they are many."""
        # A snapshot is taken for its side effect: the state keeps it for the next reader.
        state, kernels = self._state, ready()
        changes, work = len(state.changes) - state.latest.count, state.work - state.latest.work
        if kernels is None:
            if work >= WRITER_WORK:
                state.snapshot(None)
        elif changes >= MAX_HELD or work >= WRITER_WORK:
            state.snapshot(kernels)
        elif changes >= CATCH_UP_CHANGES or work >= CATCH_UP_WORK:
            self._compile_soon(state, submit)

    def _compile_soon(self, state: State, submit: Submit) -> None:
        """Compile the changes of a state in the other thread, unless it is doing so already."""
        job = self._compile_job
        if job is None or job.has_ended or job.state is not state:
            job = CompileJob(state)
            submit(job)
            self._compile_job = job

    def _merge_if_due(self) -> None:
        state, small = self._state, self._state.small_rows
        share = MERGE_SHARE if self._submit is None else SPARE_SHARE
        due = max(MERGE_ROWS, state.largest // share)
        if (small >= due or state.small_layers >= MERGE_LAYERS) and small >= self._retry_at_rows:
            self.merge_soon()

    def collect(self) -> None:
        """Take over the result of a finished merge, and note the changes made since on top of it.

        The new state replaces the old one only when it has all of them: a reader that once saw a
        change never sees a state without it.
        """
        job = self._job
        if job is None or not job.has_ended:
            return
        if job.result is None:  # it failed; its thread has the exception
            self._job, self._added_meanwhile = None, []
            self._retry_at_rows = self._state.small_rows + MERGE_ROWS
            return
        # Layers added meanwhile are not in the result. A later change of one key supersedes an
        # earlier one, so they are added in order: after the changes before them.
        state, changes = job.result, job.left()
        for added in self._added_meanwhile:
            _note_all(state, changes)
            state = self._with(state, added.keys, added.layers)
            changes = added.state.changes[added.changes :]
        _note_all(state, changes)
        self._replace_state(state)

    # --- snapshots ---

    def snapshot(self, kernels: Kernels | None, events: int = 0) -> Snapshot:
        """A snapshot with all changes so far, which the caller will match with `events` events."""
        state = self._state
        return self._laid_out(state, state.snapshot(kernels), kernels, events)

    def event_view(self, kernels: Kernels | None) -> EventView:
        """A view with all changes so far, for a single event."""
        state = self._state
        if len(state.changes) - state.latest.count > MAX_HELD:
            state.snapshot(kernels)
        view = state.event_view()
        work = state.work - view.base.work
        if view.held.is_spent(work):  # trying the changes has cost as much as compiling them
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
        """Lay out a snapshot for the kernels, if any, and count the cost of its unmerged rows."""
        if kernels is not None:
            snapshot.lay_out(kernels)
            if snapshot.recent is not None and len(snapshot.recent):
                self._merge_when_idle(state, snapshot, events, len(snapshot.recent))
        return snapshot

    def _merge_when_idle(self, state: State, snapshot: Snapshot, events: int, recent: int) -> None:
        """Merge a snapshot once matching its recent rows has cost as much as merging would."""
        if self._idle_snapshot is not snapshot:
            self._idle_snapshot, self._idle_pairs = snapshot, 0
        before = self._idle_pairs
        self._idle_pairs = before + events * recent + (SINGLE_EVENT_PAIRS if events == 1 else 0)
        rows = state.rows + recent
        merge_pairs = min(IDLE_MERGE_PAIRS, ROW_MERGE_PAIRS * (FIXED_MERGE_ROWS + rows))
        if before <= merge_pairs < self._idle_pairs:  # only when first exceeded: one job a snapshot
            job = partial(state.merge, snapshot, ready())
            if self._submit is None:
                job()
            else:
                self._submit(job)

    def memory(self) -> dict[str, int]:
        """The bytes in use, by component."""
        recent = self._state.latest.recent
        total = {"changes": self._state.log.nbytes + (0 if recent is None else recent.nbytes)}
        for layer in self._state.layers:
            for name, size in layer.memory().items():
                total[name] = total.get(name, 0) + size
        return total


class CompileJob:
    """Compiles the changes of a state, as a job for another thread."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.has_ended = False

    def __call__(self) -> None:
        """Take a snapshot; the state keeps it for its readers."""
        try:
            self.state.snapshot(ready())
        finally:
            self.has_ended = True


def _note_all(state: State, changes: Iterable[Change]) -> None:
    for key, subscription in changes:
        state.note(key, subscription)
