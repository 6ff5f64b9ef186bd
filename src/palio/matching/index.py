"""`Index`, the default engine: filters compiled to flat arrays, matched by the cheapest plan.

How it stays fast while it changes:

1. Most filters stand in one large *part*. A part never changes: a removal makes a part that shares
   everything but the bits of the dead.
2. Changes are only noted, in order. Whoever matches next marks the dead and compiles the new, all
   at once (`states.py`). With a thread to spare the writer does so, too, in slices of bounded work:
   what is left to whoever matches next is one slice at the most.
3. All of this hangs on one attribute, replaced as a whole, but for the notes, which one step
   extends. A reader sees exactly the changes made before; it never waits. Changes are made by one
   thread at a time, which is the caller's promise.
4. When there are many notes, they are joined with the parts by a job that reads a state and builds
   another. It may run in any thread (`submit`); the next change puts its result in place, with the
   few notes made since behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.errors import InvalidInput
from palio.matching import storage, warming
from palio.matching.admission import Admission, Scan, Scans, admission_of, scans_of
from palio.matching.combining import Joiner, coded_by
from palio.matching.compile.ranges import Draft
from palio.matching.compile.terms import Guard, draft_table
from palio.matching.destinations import routed, routed_lately
from palio.matching.kernels.registry import Kernels, ready
from palio.matching.layers import Part, part_of
from palio.matching.plans import PartPlan, Plan
from palio.matching.protocol import Matches, RowMask
from palio.matching.segment import Found
from palio.matching.snapshots import SLICE_JOINED, Change, MergeJob, Seen, State, merged_parts
from palio.matching.subscriptions import (
    Subscription,
    Subscriptions,
    Table,
    is_number,
    recipe_of,
)
from palio.model.events import conform, to_batch
from palio.model.explaining import Explanation
from palio.model.filters import Filter
from palio.model.values import NO_VALUES, Bindings

__all__ = ["Index"]

Longs: TypeAlias = npt.NDArray[np.int64]

Submit: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Runs a job in another thread, such as the `submit` of an executor."""

MERGE_SHARE: Final = 8
"""Changes are joined into the large part when they are an eighth of its rows..."""

SPARE_SHARE: Final = 16
"""...a sixteenth with a thread to spare, so that matching is the less held up by them..."""

MERGE_ROWS: Final = 4096
"""...but not before there are so many..."""

MERGE_PARTS: Final = 64
"""...or so many small parts, each of which costs an event some 10 us."""

REST_PAIRS: Final = 100_000_000
"""Rows that changed lately are compiled once so many pairs of them and an event were matched, and
nothing changed meanwhile: a set that stands still becomes one part."""

CATCH_UP: Final = 256
"""With a thread to spare, a writer takes in what it noted whenever that is so many changes: whoever
matches next is not held up by all that was added since the last match..."""

SLICE_WORK: Final = 512
"""...or so many constraints and constants to compile, for 10 ms."""

TWIN_PAIRS: Final = 1_000_000
"""Without `submit`, so many pairs of event and filter are matched in Python before kernels are
loaded; while another process compiles them, so many again before the next try."""

WARM_PAIRS: Final = 100_000
"""With `submit`, so many are matched before it is asked to load them: a small script never does."""


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
    when they are worth it, in the call that needs them.
    """

    def __init__(self, submit: Submit | None = None) -> None:
        self._submit = submit
        self._subscriptions = Subscriptions()
        self._state = self._new_state(())
        self._joiner = Joiner()
        self._scans = Scans()
        self._job: MergeJob | None = None
        self._twin_pairs = 0
        self._asked_to_warm = False
        self._conforming: pa.Schema | None = None
        self._resting: Seen | None = None
        self._rested_pairs = 0

    def _new_state(self, parts: tuple[Part, ...], changes: Iterable[Change] = ()) -> State:
        """A state whose readers join no more than a slice if there is a thread for the rest."""
        return State(parts, changes, most_joined=inf if self._submit is None else SLICE_JOINED)

    # -- changes ----------------------------------------------------------------------------------

    def add(
        self,
        key: int,
        filter: Filter,
        values: Bindings = NO_VALUES,
        *,
        destination: int | None = None,
    ) -> None:
        """Add or replace the filter of a key."""
        goal = key if destination is None else destination
        given = dict(values)
        numeric = recipe_of(filter).numeric
        is_plain = given.keys() == numeric.keys() == filter.variables
        if not is_plain or not all(map(is_number, given.values())):
            filter.bind(values)  # refuses a missing or unusable value before anything changes
        self._put(key, Subscription(filter, given, goal))

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
        plain: list[Draft] = []
        guarded: list[Draft] = []
        for table in listed:
            rows, guarded_rows = draft_table(table, guards)
            plain += rows
            guarded += guarded_rows
        engine = self._kernels_for_bulk(len(keys))
        goals = np.concatenate([table.destinations for table in listed])[order]
        fresh = (
            part_of(plain, None if np.array_equal(goals, keys) else (keys, goals), engine),
            part_of(guarded, None, engine, guards) if guards else None,
        )
        made = tuple(part for part in fresh if part is not None)
        self._admit(frozenset(scan for part in made for scan in part.segment.texts.scans))
        self._take_in(listed, keys, made)

    def _take_in(self, tables: list[Table], keys: Longs, fresh: tuple[Part, ...]) -> None:
        """Put new parts in place of whatever had their keys."""
        self._collect()
        if len(self._subscriptions):
            for key in keys.tolist():
                self._subscriptions.discard(key)
        self._job = None
        state = self._state
        parts = tuple(part.without(keys) for part in state.parts)
        replaced = set(keys.tolist()) if state.changes else set()
        left = [change for change in state.changes if change[0] not in replaced]
        self._subscriptions.tables.extend(tables)
        self._state = self._new_state((*parts, *fresh), left)
        self._merge_if_due()

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

    def _put(self, key: int, subscription: Subscription) -> None:
        self._admit(scans_of(subscription))
        self._subscriptions[key] = subscription
        self._note(key, subscription)

    def admission(self, filter: Filter, values: Bindings = NO_VALUES) -> Admission:
        """What a filter would add to the work of matching, without adding it.

        >>> import palio
        >>> print(Index().admission(palio.parse("x IN (1, 7) AND s LIKE '%a' AND t LIKE '_%_'")))
        1 rows, 4 intervals, 1 text tests by their literals, 1 text tests on every distinct text
        """
        filter.bind(values)
        return admission_of(Subscription(filter, values, 0))

    def _admit(self, scans: frozenset[Scan]) -> None:
        """Make room for text tests that scan, or refuse them; what nobody uses makes room."""
        if not scans:
            return
        if not self._scans.fits(scans):
            self.merge()
            self._scans.known = self._scanning()
        self._scans.admit(scans)

    def _scanning(self) -> set[Scan]:
        """The text tests of all parts that are tried on every text."""
        return {scan for part in self._state.parts for scan in part.segment.texts.scans}

    def _note(self, key: int, subscription: Subscription | None) -> None:
        """Note what became of a key; None if it is gone."""
        self._collect()
        self._state.note(key, subscription)
        self._merge_if_due()
        if self._submit is not None:
            self._catch_up()

    def _catch_up(self) -> None:
        """Take in what was noted, if it is much."""
        state, engine = self._state, ready()
        if engine is None:
            return
        seen = state.seen
        if len(state.changes) - seen.count >= CATCH_UP or state.work - seen.work >= SLICE_WORK:
            state.seen_by(engine)

    # -- merging ----------------------------------------------------------------------------------

    def merge(self) -> None:
        """Join everything into one part, in this thread, and put it in place."""
        self._job = None
        engine = ready()
        parts = self._state.seen_by(engine).all_parts()
        self._state = self._new_state(merged_parts(parts, engine))

    def _merge_if_due(self) -> None:
        state = self._state
        small = state.rows - state.largest + len(state.changes)
        share = MERGE_SHARE if self._submit is None else SPARE_SHARE
        due = max(MERGE_ROWS, state.largest // share)
        if small < due and state.small_parts < MERGE_PARTS:
            return
        if self._submit is None:
            self.merge()
        elif self._job is None:
            self._job = MergeJob(state, ready())
            self._submit(self._job)

    def _collect(self) -> None:
        """Put the result of a finished merge in place, with the changes since behind it."""
        job = self._job
        if job is not None and job.result is not None:
            changes, self._state, self._job = self._state.changes, job.result, None
            for key, subscription in changes[job.count :]:
                self._state.note(key, subscription)

    # -- matching ---------------------------------------------------------------------------------

    def match(self, events: pa.RecordBatch) -> Matches:
        """All pairs (row, key) of an event and a filter it matches, sorted."""
        events = self._conform(events)
        if events.num_rows == 1:
            seen = self._seen(1)
            if seen.overlay is None and len(seen.parts) == 1 and seen.parts[0].matches_singly:
                part = seen.parts[0]
                keys = part.segment.match_one(events, part.dead)
                return Matches(np.zeros(len(keys), np.int64), keys)
        offsets, keys = self._found(events)
        engine = ready()
        if engine is not None:
            return Matches(engine.rows_of(offsets), keys)
        return Matches(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), keys)

    def match_event(self, event: Mapping[str, Any]) -> Longs:
        """The keys of the filters that one event matches, ascending: a mapping is not turned into
        a batch first, which costs more than matching it.

        >>> import palio
        >>> index = Index()
        >>> index.add(7, palio.parse("price < 10"))
        >>> index.match_event({"price": 9.5}).tolist()
        [7]
        """
        seen = self._seen(1)
        if not seen.parts or any(part.guards is not None for part in seen.parts):
            return self.match(to_batch(event)).keys
        found = [part.segment.match_event(event, part.dead) for part in seen.parts]
        if seen.overlay is not None:
            found.append(seen.overlay.match_event(event))
        return found[0] if len(found) == 1 else np.sort(np.concatenate(found))

    def route_event(self, event: Mapping[str, Any]) -> list[int]:
        """The destinations that one event goes to, ascending.

        >>> import palio
        >>> index = Index()
        >>> index.add(7, palio.parse("price < 10"), destination=1)
        >>> index.route_event({"price": 9.5})
        [1]
        """
        seen = self._seen(1)
        if any(part.guards is not None for part in seen.parts):
            return list(self.route(to_batch(event)))
        hit: set[int] = set()
        for part in seen.parts:
            keys = part.segment.match_event(event, part.dead)
            if len(keys):
                goals = part.destinations.take(np.searchsorted(part.segment.keys, keys))
                hit.update(goals.tolist())
        if seen.overlay is not None:
            rows = seen.overlay.rows
            keys = seen.overlay.match_event(event)
            hit.update(rows.destinations.take(np.searchsorted(rows.keys, keys)).tolist())
        return sorted(hit)

    def count(self, events: pa.RecordBatch) -> dict[int, int]:
        """How many events of a batch each key matches (keys without any are left out)."""
        keys, counts = self.counts(events)
        return dict(zip(keys.tolist(), counts.tolist(), strict=True))

    def counts(self, events: pa.RecordBatch) -> tuple[Longs, Longs]:
        """The keys that any event of a batch matches, ascending, and how many do.

        It costs less than `match`: pairs are counted, not written.

        >>> import palio
        >>> from palio.model import to_batch
        >>> index = Index()
        >>> index.add(7, palio.parse("price < 10"))
        >>> [each.tolist() for each in index.counts(to_batch({"price": 9.5}))]
        [[7], [1]]
        """
        events = self._conform(events)
        seen = self._seen(events.num_rows)
        if any(part.guards is not None for part in seen.parts):
            keys, counts = np.unique(self._found(events)[1], return_counts=True)
            return keys, counts
        coded, fresh = coded_by(seen, events, ready())
        found = [(part.segment.keys, part.segment.count(codes, part.dead)) for part, codes in coded]
        if seen.overlay is not None and fresh is not None:
            found.append((seen.overlay.rows.keys, seen.overlay.count(fresh)))
        listed = [(keys[counts > 0], counts[counts > 0]) for keys, counts in found]
        if len(listed) == 1:
            return listed[0]
        none = np.zeros(0, np.int64)
        keys, counts = (np.concatenate([none, *(each[at] for each in listed)]) for at in range(2))
        order = np.argsort(keys)
        return keys[order], counts[order]

    def route(self, events: pa.RecordBatch) -> dict[int, RowMask]:
        """For each destination with any match, which rows go there."""
        events = self._conform(events)
        seen = self._seen(events.num_rows)
        coded, fresh = coded_by(seen, events, ready())
        answers = [routed(part, codes, events) for part, codes in coded]
        if seen.overlay is not None and fresh is not None:
            answers.append(routed_lately(seen.overlay, fresh))
        masks: dict[int, RowMask] = {}
        for found, names in answers:
            for name, mask in zip(names.tolist(), found, strict=True):
                masks[name] = masks[name] | mask if name in masks else mask
        return dict(sorted(masks.items()))

    def _found(self, events: pa.RecordBatch) -> Found:
        return self._joiner.match(self._seen(events.num_rows), events, ready())

    def _conform(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the model's types; a schema seen just before needs no second look."""
        schema = events.schema
        known = self._conforming
        if known is not None and schema.equals(known):
            return events
        changed = conform(events)
        if changed is events:
            self._conforming = schema
        return changed

    def _seen(self, events: int) -> Seen:
        """The present state, its parts laid out if compiled code has become ready."""
        state = self._state
        engine = self._kernels(state, events)
        seen = state.seen_by(engine)
        if engine is not None:
            for part in seen.parts:
                if part.segment.kernels is None:
                    part.segment.lay_out(engine)
            if seen.overlay is not None and len(seen.overlay):
                self._rest(state, seen, events * len(seen.overlay))
        return seen

    def _rest(self, state: State, seen: Seen, pairs: int) -> None:
        """Have what was seen joined if it stays as it is for long enough."""
        if self._resting is not seen:
            self._resting, self._rested_pairs = seen, 0
        before = self._rested_pairs
        self._rested_pairs = before + pairs
        if before <= REST_PAIRS < self._rested_pairs:
            (self._submit or _at_once)(partial(state.rest, seen, ready()))

    def _kernels(self, state: State, events: int) -> Kernels | None:
        engine = ready()
        if engine is not None:
            return engine
        rows = state.rows + len(state.changes)
        self._twin_pairs += rows * events
        if self._submit is None:
            if self._twin_pairs <= TWIN_PAIRS:
                return None
            self._twin_pairs = 0
            return warming.warm_unless_busy()
        if self._twin_pairs > WARM_PAIRS and not self._asked_to_warm:
            self._asked_to_warm = True
            self._submit(warming.warm)
        return None

    def _kernels_for_bulk(self, count: int) -> Kernels | None:
        """Kernels for laying out many filters at once, if they are there or worth waiting for."""
        engine = ready()
        if engine is None and self._submit is None and count > MERGE_ROWS:
            return warming.warm_unless_busy()
        return engine

    # -- files ------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the index to a directory of flat files, everything merged."""
        self.merge()
        storage.save(path, self._state.parts, self._subscriptions)

    @classmethod
    def load(cls, path: str | Path, mmap: bool = True, submit: Submit | None = None) -> Index:
        """An index that was saved; with `mmap` its files are shared with every other process.

        Every file is checked: `FileDamaged` names one that was altered since it was saved. Filters
        were checked when they were added, and are not again.
        """
        index = cls(submit)
        index._subscriptions, parts = storage.load(path, mmap)
        index._state = index._new_state(parts)
        index._scans.known = index._scanning()
        return index

    # -- about it ---------------------------------------------------------------------------------

    def explain(self, key: int, event: Mapping[str, Any]) -> Explanation:
        """Why a filter matches an event, or why not."""
        subscription = self._subscriptions[key]
        return subscription.filter.explain(event, subscription.values)

    def subscription(self, key: int) -> Subscription:
        """The filter of a key, the values of its parameters, and its destination."""
        return self._subscriptions[key]

    def explain_plan(self, events: int) -> Plan:
        """How a batch of so many events would be matched, part by part, and what decides it."""
        seen = self._state.seen_by(ready())
        fresh = 0 if seen.overlay is None else len(seen.overlay)
        return Plan(events, tuple(PartPlan.of(part, events) for part in seen.parts), fresh)

    def memory(self) -> dict[str, int]:
        """Bytes used, by part of the structure."""
        total = {"subscriptions": self._subscriptions.memory()}
        for part in self._state.parts:
            sizes = {**part.segment.memory(), "dead": part.dead.nbytes}
            if part.destinations is not part.segment.keys:
                sizes["destinations"] = part.destinations.nbytes
            for name, size in sizes.items():
                total[name] = total.get(name, 0) + size
        overlay = self._state.seen.overlay
        total["changes"] = self._state.tape.nbytes + (0 if overlay is None else overlay.nbytes)
        total["scratch"] = total.get("scratch", 0) + self._joiner.memory()
        return total

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, key: int) -> bool:
        return key in self._subscriptions


def _at_once(job: Callable[[], Any]) -> None:
    job()
