"""Make snapshots for the readers of an index: layers, and the changes to them since.

A writer only notes a change. The next reader takes in what was noted since the last one did:
comparisons with numbers go into the recent layer (`recent.py`), other filters are compiled into a
small layer. Small layers are joined by size. Where another thread joins them too, `SLICE_JOINED`
bounds what is joined here. For a single event that is too much: it is matched with a snapshot that
there is, and with what changed since as it is (`held.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final, NamedTuple

import numpy as np

from palio.matching.building import layer_of, merged_layers, tiered
from palio.matching.compile.terms import Guard, single_templates
from palio.matching.compiled import CompiledLayer
from palio.matching.held import LAYER, MAX_HELD, Change, Held, work_of
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import Layer
from palio.matching.recent import ChangeLog, RecentLayer, is_recent
from palio.matching.subscriptions import Subscription

MAX_RECENT_ROWS: Final = 32_768
"""A recent layer with more rows is compiled: each row is tried, one by one, on single events."""

FEW_CHANGES: Final = 512
"""Up to this many changes at once go into the recent layer, however few filters there are."""

RECENT_SHARE: Final = 4
"""So do more, up to a quarter of the rows: larger additions are worth compiling at once."""

CHASES: Final = 32
"""A merge takes in the changes made meanwhile, and those made during that, at most this often. Each
time they are fewer, so few are left for the writer to note again."""

SLICE_JOINED: Final = 4_096
"""The size up to which a reader or writer joins small layers itself if another thread joins more:
the number of rows, their predicates and the intervals of these. It takes 20 ms."""


class Snapshot:
    """Layers made of a state and some of its changes by a reader. Only `lay_out` changes it."""

    __slots__ = ("compiled", "count", "is_guarded", "kernels", "layers", "recent", "work")

    def __init__(
        self,
        count: int,
        compiled: tuple[CompiledLayer, ...],
        recent: RecentLayer | None = None,
        work: int = 0,
    ) -> None:
        self.count = count
        """The number of changes that are in it."""
        self.compiled = compiled
        self.recent = recent
        self.work = work
        """The work of those changes (see `State.work`)."""
        self.layers: tuple[Layer, ...] = compiled
        """All layers that have rows, the recent one last."""
        if recent is not None and len(recent):
            self.layers = (*compiled, recent)
        self.is_guarded = any(layer.is_guarded for layer in compiled)
        """Whether a filter may have rows in two layers; otherwise every key is in one."""
        self.kernels: Kernels | None = None
        """What all layers are laid out for; None if they answer in Python."""

    def lay_out(self, kernels: Kernels) -> None:
        """Have all layers use kernels; those made before they were loaded do not yet."""
        if self.kernels is not kernels:
            for layer in self.compiled:
                layer.lay_out(kernels)
            self.kernels = kernels

    def all_compiled(self) -> tuple[CompiledLayer, ...]:
        """All rows as compiled layers."""
        recent = None if self.recent is None else self.recent.compiled()
        return self.compiled if recent is None else (*self.compiled, recent)


class EventView(NamedTuple):
    """The state that single events are matched with: a snapshot, and later uncompiled changes."""

    base: Snapshot
    held: Held
    seen: int
    """The number of changes that are in both."""

    @classmethod
    def on(cls, base: Snapshot) -> EventView:
        """A snapshot with nothing held beside it yet."""
        return cls(base, Held(spared=0 if base.layers else LAYER), base.count)

    def is_to_be_moved(self, base: Snapshot, count: int) -> bool:
        """Check whether so many changes are rather tried with another snapshot that there is."""
        held = self.held
        return base is not self.base and (count - self.base.count > MAX_HELD or not held.is_cheap)


class State:
    """Compiled layers, and the changes to them since, in order.

    Only the writer notes changes: in a log for kernels, and in a list for those that compile
    layers. The list is extended last; a reader sees the changes in it, and keeps what it made of
    them for the next reader.
    """

    __slots__ = (
        "_view", "changes", "largest", "latest", "layers", "log", "most_joined", "rows", "work",
    )  # fmt: skip

    def __init__(
        self,
        layers: tuple[CompiledLayer, ...],
        changes: Iterable[Change] = (),
        *,
        most_joined: float = inf,
    ) -> None:
        self.layers = layers
        self.most_joined = most_joined
        """How much readers join into one layer (`SLICE_JOINED`)."""
        self.changes: list[Change] = []
        self.log = ChangeLog()
        self.work = 0
        """What there is to compile in all changes: their constraints and constants."""
        self.latest = Snapshot(0, layers)
        """The snapshot with most changes that any reader has made."""
        self._view = EventView.on(self.latest)
        sizes = [layer.rows for layer in layers]
        self.rows, self.largest = sum(sizes), max(sizes, default=0)
        for key, subscription in changes:
            self.note(key, subscription)

    def note(self, key: int, subscription: Subscription | None) -> None:
        """A key has another subscription, or none.

        What compiling needs of it is worked out here, by the writer, and not in the next match.
        """
        if not self.log.note(key, subscription) and subscription is not None:
            self.work += work_of(subscription)
        self.changes.append((key, subscription))

    def snapshot(self, kernels: Kernels | None) -> Snapshot:
        """The layers with all changes made. Two readers may both do it; either result will do."""
        count, work, latest = len(self.changes), self.work, self.latest
        if latest.count < count:
            layers, recent = self._caught_up(latest, count, kernels)
            latest = self.latest = Snapshot(count, layers, recent, work)
        return latest

    def event_view(self) -> EventView:
        """The same for single events, without compiling anything. They keep their snapshot while
        trying what is held costs less than a layer.
        """
        base, view = self.latest, self._view
        count = len(self.changes)
        if view.is_to_be_moved(base, count):
            view = self._view = EventView.on(base)
        if view.seen < count:
            held = view.held.after(self.changes[view.seen : count])
            view = self._view = EventView(view.base, held, count)
        return view

    def _caught_up(
        self, latest: Snapshot, count: int, kernels: Kernels | None
    ) -> tuple[tuple[CompiledLayer, ...], RecentLayer | None]:
        """A snapshot's layers, with the changes since."""
        more = count - latest.count
        recent_rows = len(latest.recent) if latest.recent is not None else 0
        few = (
            more <= max(FEW_CHANGES, self.rows // RECENT_SHARE)
            and recent_rows + more <= MAX_RECENT_ROWS
        )
        if kernels is None or not few:
            changes = dict(self.changes[latest.count : count])
            layers = _changed(latest.all_compiled(), changes, kernels)
            return self._tiered(layers, kernels), None
        recent = latest.recent or RecentLayer.empty(kernels)
        recent, keys = recent.advanced(self.log, latest.count, count)
        layers = tuple(layer.without(keys) for layer in latest.compiled)
        if self.work:
            changes = dict(self.changes[latest.count : count])
            rest = {
                key: subscription
                for key, subscription in changes.items()
                if subscription and not is_recent(subscription)
            }
            layers = self._tiered((*layers, *_compiled(rest, kernels)), kernels)
        return layers, recent

    def _tiered(
        self, layers: tuple[CompiledLayer, ...], kernels: Kernels | None
    ) -> tuple[CompiledLayer, ...]:
        """Layers made since the state began joined, where several are of about one size."""
        return tiered(layers, len(self.layers), self.most_joined, kernels)

    def merge(self, snapshot: Snapshot, kernels: Kernels | None) -> None:
        """Merge the layers of a snapshot, unless there is a later one by then."""
        layers = merged_layers(snapshot.all_compiled(), kernels)
        whole = Snapshot(snapshot.count, layers, work=snapshot.work)
        if self.latest is snapshot:
            self.latest = whole

    @property
    def small_rows(self) -> int:
        """The number of rows outside the largest layer, with a row for each change."""
        return self.rows - self.largest + len(self.changes)

    @property
    def small_layers(self) -> int:
        """The number of layers beside the largest."""
        return max(0, len(self.latest.compiled) - 1)


def _changed(
    layers: tuple[CompiledLayer, ...],
    changes: Mapping[int, Subscription | None],
    kernels: Kernels | None,
) -> tuple[CompiledLayer, ...]:
    """Layers without the keys that changed, and layers with what became of them."""
    keys = np.array(sorted(changes), np.int64)
    added = {key: subscription for key, subscription in changes.items() if subscription is not None}
    return (*(layer.without(keys) for layer in layers), *_compiled(added, kernels))


def _compiled(
    added: Mapping[int, Subscription], kernels: Kernels | None
) -> tuple[CompiledLayer, ...]:
    """Subscriptions by key, compiled: those without guards, and those with them."""
    if not added:
        return ()
    guards: list[Guard] = []
    plain, guarded = single_templates(added, guards)
    keys = np.array(sorted(added), np.int64)
    destinations = np.array([added[key].destination for key in keys.tolist()], np.int64)
    matches = (
        layer_of(plain, (keys, destinations), kernels) if plain else None,
        layer_of(guarded, None, kernels, guards) if guarded else None,
    )
    return tuple(layer for layer in matches if layer is not None)


class MergeJob:
    """Merges the layers of a state and the changes so far; the result appears when it is done.

    It takes in the changes that are made while it works, too.
    """

    def __init__(self, state: State, kernels: Kernels | None) -> None:
        self.count = 0
        """The number of changes that are in the result."""
        self.result: State | None = None
        self.has_ended = False
        """Whether it is done, or has failed and there will be no result."""
        self._whole = state
        self._kernels = kernels

    def left(self) -> list[Change]:
        """The changes that are not in the result."""
        return self._whole.changes[self.count :]

    def __call__(self) -> None:
        """Do it."""
        try:
            self.result = self._merged()
        finally:
            self.has_ended = True

    def _merged(self) -> State:
        snapshot = self._whole.snapshot(self._kernels)
        self.count = snapshot.count
        state = State(merged_layers(snapshot.all_compiled(), self._kernels))
        for _ in range(CHASES):
            more = self.left()
            if not more:
                break
            for key, subscription in more:
                state.note(key, subscription)
            state.snapshot(self._kernels)
            self.count += len(more)
        state.most_joined = self._whole.most_joined
        return state
