"""The code that runs in Spark's Python workers: events in, matches out, Arrow on both sides.

A task is small and only names its inputs: the set, the columns that are attributes, what to
give back. Nothing compiled travels with it. A worker maps a version of a set once and keeps it for
every later task and micro-batch; what it maps is shared with the other workers of its machine.

A set whose shards are larger than `MAX_MAPPED_BYTES` together is gone through shard by shard, each
for a chunk of events, so that a worker never has more than one of them in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.errors import InvalidInput
from palio.matching.index import Index
from palio.model.limits import check_limit
from palio.multicast.broker_sets import MAX_BROKERS, masks_of, words_of
from palio.multicast.traffic import SetTally
from palio.spark.attributes import Fitted, fit
from palio.spark.sets import SubscriptionSet
from palio.spark.tasks import Tally, TaskPlace, counts_of
from palio.spark.versions import Version

MAX_MAPPED_BYTES: Final = 2**30
"""Files of shards that a worker keeps mapped."""

CHUNK_BYTES: Final = 2**28
"""Events that are held while the shards of a large set pass over them."""

MAX_BATCH_ROWS: Final = 65_536
"""Rows of one batch that goes back to Spark."""

MAX_MASK_BYTES: Final = 2**24
"""Events by subscribers, a byte for each pair, that are turned into sets at once."""

Batches: TypeAlias = Iterator[pa.RecordBatch]
Longs: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ColumnSlots:
    """The columns of an incoming batch, by position: attributes, and those of the result."""

    attributes: tuple[tuple[str, int], ...]
    columns: tuple[int, ...]

    def fitted(self, batch: pa.RecordBatch) -> Fitted:
        """The attributes of a batch in the model's types."""
        if not self.attributes:
            return fit(batch.select([]))
        arrays = [batch.column(place) for _, place in self.attributes]
        return fit(pa.RecordBatch.from_arrays(arrays, [name for name, _ in self.attributes]))

    def given_back(self, batch: pa.RecordBatch, rows: Longs, schema: pa.Schema) -> list[Any]:
        """The columns that go back, for some rows; they come first in the result's schema.

        Types differ from it in what means the same, such as the name of a time zone.
        """
        places = pa.array(rows, pa.int64())
        columns = (batch.column(place).take(places) for place in self.columns)
        return [
            column if column.type == field.type else _cast(column, field)
            for column, field in zip(columns, schema, strict=False)
        ]


def _cast(column: Any, field: pa.Field[Any]) -> Any:
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise InvalidInput(
            f"column {field.name!r} is {column.type}, and some of it cannot come back as "
            f"{field.type}: {error}; name the columns that are to come back, with columns=[...]"
        ) from None


class FittedEvents(NamedTuple):
    """A batch as it came, and its events that fit, with their rows in it."""

    batch: pa.RecordBatch
    events: pa.RecordBatch
    rows: Longs | None
    """None if all of them fit."""

    def origin(self, rows: Longs) -> Longs:
        """Rows of events as rows of the batch."""
        return rows if self.rows is None else self.rows[rows]


@dataclass(frozen=True)
class MatchTask:
    """Matches batches of events with a subscription set; see `palio.spark.match`."""

    path: str
    version: str | None
    """None in a stream: looked up for each micro-batch."""
    how: str
    slots: ColumnSlots
    schema: pa.Schema
    """Of what it gives."""
    withheld: frozenset[str] = frozenset()
    """Attributes that the events have and that were not sent here."""
    tally: Tally | None = None
    """The tally of events with a value that fits no attribute."""

    def __call__(self, batches: Batches) -> Batches:
        """Matches of all batches of a partition."""
        home = Path(self.path) / "versions" / (self.version or _version_now(self.path))
        version = mapped(home)
        missing = self.withheld.intersection(version.meta.attributes)
        if missing:
            raise InvalidInput(
                f"the subscriptions now name {', '.join(sorted(missing))}, which this stream was "
                "started without; start it with attributes=None, or name them there"
            )
        yield from _HOWS[self.how](self, version, map(self._events, batches))

    def _events(self, batch: pa.RecordBatch) -> FittedEvents:
        fitted = self.slots.fitted(batch)
        if not fitted.misfits:
            return FittedEvents(batch, fitted.events, None)
        fits = fitted.fits
        if self.tally is not None:
            self.tally.add(counts_of(fitted.misfits, int(len(fits) - fits.sum())))
        return FittedEvents(batch, fitted.events.filter(pa.array(fits)), np.flatnonzero(fits))

    def given_back(self, events: FittedEvents, rows: Longs) -> list[Any]:
        """The columns that the user wants, for some events."""
        return self.slots.given_back(events.batch, events.origin(rows), self.schema)

    def result(self, columns: list[Any]) -> pa.RecordBatch:
        """Rows of the result."""
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _slices(count: int) -> Iterator[slice]:
    """Rows of a result in parts of bounded size."""
    for first in range(0, count, MAX_BATCH_ROWS):
        yield slice(first, min(count, first + MAX_BATCH_ROWS))


@dataclass(frozen=True)
class RejectsTask:
    """Finds events with values that the model cannot hold; see `palio.spark.rejects`."""

    slots: ColumnSlots
    schema: pa.Schema

    def __call__(self, batches: Batches) -> Batches:
        """One row for each such value: columns of the event, attribute, value, reason."""
        places = dict(self.slots.attributes)
        for batch in batches:
            for misfit in self.slots.fitted(batch).misfits:
                values = batch.column(places[misfit.attribute]).take(
                    pa.array(misfit.rows, pa.int64())
                )
                count = len(misfit.rows)
                yield pa.RecordBatch.from_arrays(
                    [
                        *self.slots.given_back(batch, misfit.rows, self.schema),
                        pa.array([misfit.attribute] * count),
                        pa.array([str(value) for value in values], pa.utf8()),
                        pa.array([misfit.reason] * count),
                    ],
                    schema=self.schema,
                )


# --- versions and shards that this process has mapped ---

_versions: OrderedDict[tuple[str, int], Version] = OrderedDict()
_shards: OrderedDict[tuple[Version, int], Index] = OrderedDict()


def mapped(home: Path) -> Version:
    """A version, opened at most once by this process."""
    key = (str(home), (home / "set.msgpack").stat().st_mtime_ns if home.exists() else 0)
    if key not in _versions:
        while len(_versions) > 1:  # the one before may still be in use by another task
            _, old = _versions.popitem(last=False)
            for shard in [shard for shard in _shards if shard[0] is old]:
                del _shards[shard]
        _versions[key] = Version(home)
    _versions.move_to_end(key)
    return _versions[key]


def _shard(version: Version, number: int, keep: int) -> Index:
    """A shard, mapped; at most `keep` of them stay mapped."""
    key = (version, number)
    if key not in _shards:
        while len(_shards) >= keep:
            _shards.popitem(last=False)
        _shards[key] = version.shard(number)
    _shards.move_to_end(key)
    return _shards[key]


def _version_now(path: str) -> str:
    """The version for this micro-batch, or the one in force where there is none."""
    subscriptions, task = SubscriptionSet(path), TaskPlace.here()
    return subscriptions.pinned(task.query, task.batch) if task.query else subscriptions.version


def _passes(
    version: Version, events: Iterable[FittedEvents]
) -> Iterator[tuple[list[FittedEvents], Iterator[tuple[Index, int, FittedEvents]]]]:
    """Chunks of events, and for each the shards that pass over it: (shard, place, events).

    Where all shards stay mapped a chunk is one batch.
    """
    size = version.shard_bytes()
    keep = max(1, MAX_MAPPED_BYTES // max(1, size))
    budget = 0 if version.meta.shards <= keep else CHUNK_BYTES

    def over(chunk: list[FittedEvents]) -> Iterator[tuple[Index, int, FittedEvents]]:
        for number in range(version.meta.shards):
            index = _shard(version, number, keep)
            for place, fitted in enumerate(chunk):
                yield index, place, fitted

    chunk: list[FittedEvents] = []
    held = 0
    for event in events:
        chunk.append(event)
        held += event.batch.nbytes if budget else 0
        if held >= budget:
            yield chunk, over(chunk)
            chunk, held = [], 0
    if chunk:
        yield chunk, over(chunk)


# --- results ---


def _pairs(task: MatchTask, version: Version, events: Iterator[FittedEvents]) -> Batches:
    """Each event with each subscription it matches."""
    for _, passes in _passes(version, events):
        for index, _, fitted in passes:
            rows, numbers = _found(index, version, fitted)
            for part in _slices(len(rows)):
                bearers = numbers[part]
                given = task.given_back(fitted, rows[part])
                given.append(version.ids.take(pa.array(bearers, pa.int64())))
                if version.subscriber_numbers is not None:
                    places = pa.array(version.subscriber_numbers[bearers])
                    given.append(version.subscribers.take(places))
                yield task.result(given)


def _any(task: MatchTask, version: Version, events: Iterator[FittedEvents]) -> Batches:
    """Events that match anything, in their order."""
    for chunk, passes in _passes(version, events):
        masks = [np.zeros(portion.events.num_rows, np.bool_) for portion in chunk]
        for index, place, fitted in passes:
            masks[place][index.match(fitted.events).rows] = True
        for fitted, mask in zip(chunk, masks, strict=True):
            rows = np.flatnonzero(mask)
            for part in _slices(len(rows)):
                yield task.result(task.given_back(fitted, rows[part]))


def _routes(
    version: Version, events: Iterable[FittedEvents]
) -> Iterator[tuple[FittedEvents, Longs, Longs]]:
    """Batches of events, with the rows and the subscribers of all pairs of the two, ascending.

    Subscriptions without a subscriber, among others that have one, send events to nobody.
    """
    goals, names = version.subscriber_numbers, _goals(version)
    nobody = names.is_null().to_numpy(False).argmax() if names.null_count else None
    for chunk, passes in _passes(version, events):
        lists: list[list[Longs]] = [[] for _ in chunk]
        for index, place, fitted in passes:
            rows, numbers = _found(index, version, fitted)
            bearers = numbers if goals is None else goals[numbers]
            goes = np.unique(rows * len(names) + bearers)
            lists[place].append(goes if nobody is None else goes[goes % len(names) != nobody])
        for fitted, parts in zip(chunk, lists, strict=True):
            whole = parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
            yield (fitted, *np.divmod(whole, max(1, len(names))))


def _goals(version: Version) -> Any:
    """The names of all subscribers, or the ids where there are none."""
    return version.ids if version.subscriber_numbers is None else version.subscribers


def _route(task: MatchTask, version: Version, events: Iterator[FittedEvents]) -> Batches:
    """Each event with each subscriber that any of its subscriptions sends it to."""
    names = _goals(version)
    for fitted, rows, bearers in _routes(version, events):
        for part in _slices(len(rows)):
            subscribers = names.take(pa.array(bearers[part], pa.int64()))
            yield task.result([*task.given_back(fitted, rows[part]), subscribers])


def _sets(task: MatchTask, version: Version, events: Iterator[FittedEvents]) -> Batches:
    """Each set of subscribers that any event goes to, and how many events of this partition do."""
    names = _goals(version)
    check_limit('the number of subscribers for how="sets"', "MAX_BROKERS", MAX_BROKERS, len(names))
    tally = SetTally(len(names))
    step = max(1, MAX_MASK_BYTES // max(1, len(names)))
    for fitted, rows, bearers in _routes(version, events):
        for first in range(0, fitted.events.num_rows, step):
            begin, end = np.searchsorted(rows, (first, first + step)).tolist()
            masks = np.zeros((min(step, fitted.events.num_rows - first), len(names)), np.bool_)
            masks[rows[begin:end] - first, bearers[begin:end]] = True
            tally.add(words_of(masks))
    sets, counts = tally.counted()
    kind = task.schema.field("subscribers").type
    for part in _slices(len(sets)):
        rows, bearers = np.nonzero(masks_of(sets[part], len(names)))
        starts = np.searchsorted(rows, np.arange(len(sets[part]) + 1))
        named = names.take(pa.array(bearers, pa.int64()))
        lists = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), named)
        yield task.result([lists.cast(kind), pa.array(counts[part].astype(np.int64))])


def _count(task: MatchTask, version: Version, events: Iterator[FittedEvents]) -> Batches:
    """The number of events of this partition that each subscription matches."""
    totals = np.zeros(len(version.ids), np.int64)
    for _, passes in _passes(version, events):
        for index, _, fitted in passes:
            if version.numbers is None:
                keys, counts = index.counts(fitted.events)
                totals[keys] += counts
            else:
                numbers = _found(index, version, fitted)[1]
                totals += np.bincount(numbers, minlength=len(totals))
    matched = np.flatnonzero(totals)
    for part in _slices(len(matched)):
        some = matched[part]
        yield task.result([version.ids.take(pa.array(some)), pa.array(totals[some])])


def _found(index: Index, version: Version, events: FittedEvents) -> tuple[Longs, Longs]:
    """Rows of events and numbers of ids, each pair once."""
    rows, keys = index.match(events.events)
    if version.numbers is None:
        return rows, keys
    pairs = np.unique(rows * len(version.ids) + version.numbers[keys])
    rows, numbers = np.divmod(pairs, len(version.ids))
    return rows, numbers


_HOWS: Final[dict[str, Callable[[MatchTask, Version, Iterator[FittedEvents]], Batches]]] = {
    "pairs": _pairs,
    "any": _any,
    "route": _route,
    "sets": _sets,
    "count": _count,
}
