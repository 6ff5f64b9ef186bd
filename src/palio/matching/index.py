"""`Index`, the default engine: compile filters to flat arrays, and match by the cheapest plan.

How it stays fast while it changes:

1. Most filters are in one large compiled *layer*. A layer never changes: a removal makes a layer
   that shares everything but the tombstones.
2. A writer only notes changes, in order. The next match makes a *snapshot* of layers with all of
   them (`snapshots.py`). With a thread to spare the writer makes one, too, in slices of bounded
   work: at most one slice is left to the next match.
3. All of this hangs on one attribute, replaced as a whole, but for the notes, which one step
   extends. A reader sees exactly the changes made before; it never waits. Changes are made by one
   thread at a time, which is the caller's promise.
4. Many notes are merged with the layers by a job that reads a state and builds another
   (`store.py`). It may run in any thread (`submit`); the next change puts its result in place, with
   the few notes made since behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.errors import InvalidInput
from palio.matching import combining, storage
from palio.matching.admission import (
    MAX_SCANS_TRIED,
    Admission,
    Scan,
    Scans,
    admission_of,
    scans_of,
)
from palio.matching.building import layer_of
from palio.matching.combining import Combiner
from palio.matching.compile.ranges import RowTemplate
from palio.matching.compile.terms import Guard, table_templates
from palio.matching.compiled import CompiledLayer
from palio.matching.kernels.registry import Kernels, ready
from palio.matching.layers import Longs
from palio.matching.protocol import Matches, RowMask
from palio.matching.residuals import cost_of_rows
from palio.matching.snapshots import EventView, Snapshot
from palio.matching.store import LayerStore
from palio.matching.subscriptions import (
    Subscription,
    Subscriptions,
    Table,
    is_number,
    recipe_of,
)
from palio.matching.warming import Load, Submit, WarmUp
from palio.model.events import conform
from palio.model.filters import Filter
from palio.model.values import INT64_MAX, INT64_MIN, NO_VALUES, Bindings


class Index:
    """Filters by key, compiled.

    >>> import palio
    >>> from palio.model import to_batch
    >>> index = Index()
    >>> index.add(7, palio.parse("price < :limit"), {"limit": 10})
    >>> index.match(to_batch({"price": 9.5})).keys.tolist()
    [7]
    >>> index.bind(7, {"limit": 9})
    >>> index.match(to_batch({"price": 9.5})).keys.tolist()
    []

    `submit` runs compilation of kernels and merging in another thread; without it they happen,
    when they are worth it, in the call that needs them. `load` is a job that loads the kernels
    there, and perhaps others: an index with one asks for it also because of many filters, before
    any event.
    """

    def __init__(self, submit: Submit | None = None, load: Load | None = None) -> None:
        self._subscriptions = Subscriptions()
        self._store = LayerStore(submit)
        self._warm_up = WarmUp(submit, load)
        self._combiner = Combiner()
        self._scans = Scans()
        self._conforming: pa.Schema | None = None
        # The cost of the residuals of each filter that was added by itself and has any.
        self._costs: dict[int, int] = {}

    # --- changes ---

    def add(
        self,
        key: int,
        filter: Filter,
        values: Bindings = NO_VALUES,
        *,
        destination: int | None = None,
    ) -> None:
        """Add or replace the filter of a key."""
        destination = key if destination is None else destination
        if not (INT64_MIN <= key <= INT64_MAX and INT64_MIN <= destination <= INT64_MAX):
            raise InvalidInput(f"key {key} and its destination must be 64-bit integers")
        given = dict(values) if values else NO_VALUES
        if values or filter.variables:
            numeric = recipe_of(filter).numeric
            is_plain = given.keys() == numeric.keys() == filter.variables
            if not is_plain or not all(map(is_number, given.values())):
                filter.bind(values)  # refuses a missing or unusable value before anything changes
        subscription = Subscription(filter, given, destination)
        self._admit(scans_of(subscription))
        self._subscriptions[key] = subscription
        self._note(key, subscription)
        self._warm_up.note_added()

    def add_many(
        self,
        keys: Iterable[int] | npt.NDArray[np.int64],
        skeleton: Filter,
        columns: Mapping[str, Any],
        *,
        destinations: Any = None,
    ) -> None:
        """Add filters of one shape: a column of values for each variable of the skeleton.

        A null drops the constraints that use it. Keys that are there already are replaced.

        >>> import palio
        >>> index = Index()
        >>> index.add_many(
        ...     [1, 2], palio.parse("x > :low AND y = :y"), {"low": [5, 6], "y": [1, None]}
        ... )
        >>> len(index)
        2
        """
        self.add_tables([Table.of(keys, skeleton, columns, destinations)])

    def add_tables(self, tables: Iterable[Table]) -> None:
        """Add the filters of several tables at once, such as the shapes of many texts.

        No key may be in two of them; keys that are there already are replaced.
        """
        listed = [table for table in tables if len(table.keys)]
        if not listed:
            return
        keys = np.concatenate([table.keys for table in listed])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        if bool(np.any(keys[1:] == keys[:-1])):
            raise InvalidInput("a key occurs in two tables; each filter needs its own")
        guards: list[Guard] = []
        plain: list[RowTemplate] = []
        guarded: list[RowTemplate] = []
        for table in listed:
            rows, guarded_rows = table_templates(table, guards)
            plain += rows
            guarded += guarded_rows
        kernels = self._warm_up.kernels_for_bulk(len(keys))
        destinations = np.concatenate([table.destinations for table in listed])[order]
        own = np.array_equal(destinations, keys)
        compiled = (
            layer_of(plain, None if own else (keys, destinations), kernels),
            layer_of(guarded, None, kernels, guards) if guards else None,
        )
        layers = tuple(layer for layer in compiled if layer is not None)
        self._admit(_scans_of(layers))
        for key in keys.tolist() if len(self._subscriptions) else ():
            self._subscriptions.discard(key)
        self._subscriptions.tables.extend(listed)
        self._store.add(keys, layers)

    def remove(self, key: int) -> None:
        """Forget a key; `KeyError` if it is not there."""
        if not self._subscriptions.discard(key):
            raise KeyError(key)
        self._note(key, None)

    def bind(self, key: int, values: Bindings) -> None:
        """Change some of a filter's parameters; the next `match` sees them."""
        subscription, table = self._subscriptions.located(key)
        changed = subscription.rebound(key, values)
        self._admit(scans_of(changed))
        if table is not None:
            table.gone.add(key)
        self._subscriptions.single[key] = changed
        self._note(key, changed)

    def _note(self, key: int, subscription: Subscription | None) -> None:
        """Note the subscription that a key has from now on."""
        self._store.note(key, subscription)
        cost = 0 if subscription is None else _residual_cost(subscription)
        if cost:
            self._costs[key] = cost
        elif self._costs:
            self._costs.pop(key, None)

    def admission(self, filter: Filter, values: Bindings = NO_VALUES) -> Admission:
        """Count what a filter would add to the work of matching, without adding it.

        >>> import palio
        >>> print(Index().admission(palio.parse("x IN (1, 7) AND s LIKE '%a' AND t LIKE '_%_'")))
        1 rows, 4 intervals, 1 text tests by their literals, 1 text tests on every distinct text
        """
        filter.bind(values)
        return admission_of(Subscription(filter, values, 0))

    def _admit(self, scans: frozenset[Scan]) -> None:
        """Admit text tests that scan, perhaps in the place of unused ones, or refuse them."""
        if not scans:
            return
        if not self._scans.fits(scans):
            self._count_scans()
        self._scans.admit(scans)

    def _count_scans(self) -> None:
        """Count the text tests that filters still ask for. The others are tried until the next
        merge, which is called for here, and runs in this thread only if there is no other.
        """
        self._store.collect()
        layers = self._store.snapshot(ready()).compiled
        tried, asked = _scans_of(layers), _scans_asked_for(layers)
        if len(asked) < len(tried):
            self._store.merge_soon()
        self._scans.known = set(asked if len(tried) < MAX_SCANS_TRIED else tried)

    def merge(self) -> None:
        """Merge all layers and changes in this thread, and put the result in place."""
        self._store.merge()

    # --- matching ---

    def match(self, events: pa.RecordBatch) -> Matches:
        """All pairs (row, key) of an event and a filter it matches, sorted."""
        events = self._conform(events)
        return self._combiner.match(self._snapshot(events.num_rows), events)

    def match_event(self, event: Mapping[str, Any]) -> Longs:
        """The keys of the filters that one event matches, ascending: a mapping is not turned into
        a batch first, which costs more than matching it.

        >>> import palio
        >>> index = Index()
        >>> index.add(7, palio.parse("price < 10"))
        >>> index.match_event({"price": 9.5}).tolist()
        [7]
        """
        return combining.match_event(self._event_view(), event)

    def route(self, events: pa.RecordBatch) -> dict[int, RowMask]:
        """For each destination with any match, which rows go there."""
        events = self._conform(events)
        return combining.route(self._snapshot(events.num_rows), events)

    def route_event(self, event: Mapping[str, Any]) -> list[int]:
        """The destinations that one event goes to, ascending.

        >>> import palio
        >>> index = Index()
        >>> index.add(7, palio.parse("price < 10"), destination=1)
        >>> index.route_event({"price": 9.5})
        [1]
        """
        return combining.route_event(self._event_view(), event)

    def counts(self, events: pa.RecordBatch) -> tuple[Longs, Longs]:
        """The keys that any event of a batch matches, ascending, and how many do.

        It costs less than `match`: pairs are counted, not written.

        >>> import palio
        >>> from palio.model import to_batch
        >>> index = Index()
        >>> index.add(7, palio.parse("price < 10"))
        >>> keys, counts = index.counts(to_batch({"price": 9.5}))
        >>> keys.tolist() + counts.tolist()
        [7, 1]
        """
        events = self._conform(events)
        return self._combiner.count(self._snapshot(events.num_rows), events)

    def count(self, events: pa.RecordBatch) -> dict[int, int]:
        """Count the events of a batch that each key matches (keys without any are left out)."""
        keys, counts = self.counts(events)
        return dict(zip(keys.tolist(), counts.tolist(), strict=True))

    def _conform(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the model's types; the schema of the last batch is not checked again."""
        schema = events.schema
        conforming = self._conforming
        if conforming is not None and schema.equals(conforming):
            return events
        changed = conform(events)
        if changed is events:
            self._conforming = schema
        return changed

    def _snapshot(self, events: int) -> Snapshot:
        """All changes made before, for this many events."""
        return self._store.snapshot(self._kernels(events), events)

    def _event_view(self) -> EventView:
        """All changes made before, for a single event."""
        return self._store.event_view(self._kernels(1))

    def _kernels(self, events: int) -> Kernels | None:
        """The kernels, if this many events are worth them."""
        return ready() or self._warm_up.kernels(self._store.rows * events)

    # --- files ---

    def save(self, path: str | Path) -> None:
        """Write the index to a directory of flat files, everything merged."""
        self.merge()
        storage.save(path, self._store.layers, self._subscriptions)

    @classmethod
    def load(cls, path: str | Path, mmap: bool = True, submit: Submit | None = None) -> Index:
        """An index that was saved; with `mmap` its files are shared with every other process.

        Every file is checked: `FileDamaged` names one that was altered since it was saved. Filters
        were checked when they were added, and are not again.
        """
        index = cls(submit)
        index._subscriptions, layers = storage.load(path, mmap)
        index._store = LayerStore(submit, layers)
        index._scans.known = set(_scans_of(layers))
        return index

    # --- about it ---

    def subscription(self, key: int) -> Subscription:
        """The filter of a key, the values of its parameters, and its destination."""
        return self._subscriptions[key]

    def explain_plan(self, events: int) -> Plan:
        """Explain how a batch of so many events would be matched, layer by layer, and why."""
        snapshot = self._store.snapshot(ready())
        recent = 0 if snapshot.recent is None else len(snapshot.recent)
        return Plan(
            events, tuple(LayerPlan.of(layer, events) for layer in snapshot.compiled), recent
        )

    def memory(self) -> dict[str, int]:
        """Bytes used, by part of the structure."""
        total = {"subscriptions": self._subscriptions.memory()}
        for sizes in (self._store.memory(), {"scratch": self._combiner.memory()}):
            for name, size in sizes.items():
                total[name] = total.get(name, 0) + size
        return total

    @property
    def residual_cost(self) -> int:
        """The cost of residuals for each event of a batch at most, in the units of
        `MAX_RESIDUAL_COST`, those of filters that were added in tables apart.
        """
        return sum(self._costs.values())

    @property
    def end(self) -> int:
        """One more than the greatest key that a compiled layer answers with."""
        compiled = self._store.snapshot(ready()).compiled
        return 1 + max((int(layer.keys.max(initial=-1)) for layer in compiled), default=-1)

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, key: int) -> bool:
        return key in self._subscriptions


def _residual_cost(subscription: Subscription) -> int:
    return sum(
        cost_of_rows(residual)
        for conjunction in subscription.filter.conjunctions
        for residual in conjunction.residuals
    )


def _scans_of(layers: Iterable[CompiledLayer]) -> frozenset[Scan]:
    """The text tests of some layers that are tried on every text."""
    return frozenset(scan for layer in layers for scan in layer.segment.texts.scans.values())


def _scans_asked_for(layers: Iterable[CompiledLayer]) -> frozenset[Scan]:
    """Those of them that a filter asks for which is still there."""
    return frozenset(
        scan for layer in layers for scan in layer.segment.scans_without(layer.tombstones)
    )


# --- plans, as `explain_plan` has them ---

_PLANS: Final = {
    "few": "event by event: bucketed bitmaps, then exact tests",
    "many": "blocks of 512 events: a vector for each predicate, ANDed along shared prefixes",
    "fallback": "plain Python until the kernels are compiled",
}


@dataclass(frozen=True)
class LayerPlan:
    """The plan for one layer: counts, the cost estimate of each plan in microseconds, and the
    choice.
    """

    filters: int
    rows: int
    predicates: int
    guarded: bool
    lookups: int
    """Text tests that are found by their literals."""
    scans: int
    """Text tests that are tried on every distinct text."""
    plan: str
    cost_us: dict[str, float]

    @classmethod
    def of(cls, layer: CompiledLayer, events: int) -> LayerPlan:
        """The plan that a layer would choose."""
        segment = layer.segment
        costs = segment.costs.of(events)
        choice = "fallback" if segment.kernels is None else min(costs, key=lambda name: costs[name])
        return cls(
            layer.filters,
            layer.rows,
            segment.predicate_count,
            layer.is_guarded,
            len(segment.compiled.universe.tests) - len(segment.texts.scans),
            len(segment.texts.scans),
            choice,
            {name: cost / 1000 for name, cost in costs.items()},
        )

    def __str__(self) -> str:
        costs = ", ".join(f"{name} {cost:.0f} us" for name, cost in self.cost_us.items())
        texts = "".join(
            f", {count} text tests {how}"
            for count, how in (
                (self.lookups, "found by their literals"),
                (self.scans, "tried on every distinct text"),
            )
            if count
        )
        guarded = ", then residual conditions on what is left" if self.guarded else ""
        return (
            f"{self.filters} filters, {self.rows} rows, {self.predicates} predicates{texts}: "
            f"{_PLANS[self.plan]}{guarded} (estimated: {costs})"
        )


@dataclass(frozen=True)
class Plan:
    """The plan by which a batch would be matched. `str` of it is for people."""

    events: int
    layers: tuple[LayerPlan, ...]
    recent: int = 0
    """Filters that changed lately, which are compared one by one and not compiled."""

    def __str__(self) -> str:
        lines = [f"{self.events} events", *(f"  {layer}" for layer in self.layers)]
        if self.recent:
            lines.append(f"  {self.recent} filters that changed lately, compared one by one")
        return "\n".join(lines)
