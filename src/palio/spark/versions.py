"""One compiled version of a subscription set, as files that every worker maps.

    set.msgpack                what is small: counts, attributes, types
    shard0/, shard1/, ...      an `Index` each, whose keys are rows of the table
    ids.arrow                  the ids, each once
    numbers.npy                for each row the number of its id; left out where ids are the rows
    subscribers.arrow          the subscribers, each once
    subscriber_numbers.npy     for each id the number of its subscriber
    rejects.arrow              what is not in the set, with its reason

All rows of an id are in one shard, so that shards never find the same subscription twice.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio import files
from palio.matching import checking, storage
from palio.matching.index import Index
from palio.matching.manifest import Loading, Saving, one_batch, read_arrow, write_arrow
from palio.spark.compiling import compile_rows
from palio.spark.reading import SubscriptionTable
from palio.spark.sessions import running_session

FORMAT: Final = 1
"""Raised when a set of the format before would be misread."""

MANIFEST: Final = "set.msgpack"

SHARD_ROWS: Final = 500_000
"""Rows of one shard: it compiles within a gigabyte of memory, and two keep two cores busy."""

Longs: TypeAlias = npt.NDArray[np.int64]


class SetMeta(msgspec.Struct, frozen=True):
    """The description of a version."""

    rows: int
    ids: int
    """Distinct ids, without those of which every row was rejected."""
    rejected: int
    """Rows of the source that are not in the set."""
    shards: int
    attributes: tuple[str, ...]
    """The attributes that its filters name."""
    time: str | None
    id_type: str
    subscriber_type: str | None
    """None if subscriptions have none."""
    shard_sums: tuple[int, ...] = ()
    """Checksums of the manifests of its shards."""
    without_subscriber: int = 0
    """Ids that have no subscriber, where others have one."""


class ShardReport(msgspec.Struct, frozen=True):
    """The outcome of compiling one shard."""

    attributes: tuple[str, ...]
    rejects: list[tuple[int, str]]


class Version:
    """A version that was saved: everything mapped, shards when they are asked for."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._loading = _loading(home)
        self.meta = self._loading.meta
        self.ids: Any = self._column("ids.arrow", self.meta.id_type)
        """The ids by their numbers."""
        self.numbers: Longs | None = None
        """The number of each row's id; None where that is the row."""
        if self._loading.has("numbers.npy"):
            self.numbers = self._places("numbers.npy", len(self.ids))
        self.subscribers: Any = None
        self.subscriber_numbers: Longs | None = None
        if self.meta.subscriber_type is not None:
            self.subscribers = self._column("subscribers.arrow", self.meta.subscriber_type)
            places = self._places("subscriber_numbers.npy", len(self.subscribers))
            self._loading.must("subscriber_numbers.npy", checking.length(places, len(self.ids)))
            self.subscriber_numbers = places

    def _column(self, name: str, type_: str) -> Any:
        table = self._loading.arrow(name)
        if table.num_columns != 1 or str(table.schema.field(0).type) != type_:
            raise self._loading.damaged(name, f"it is not one column of {type_}")
        return one_batch(table).column(0)

    def _places(self, name: str, end: int) -> Longs:
        places = self._loading.array(name, np.int64)
        self._loading.must(name, checking.bounds(places, 0, end))
        return places

    def shard(self, number: int) -> Index:
        """One of its indexes."""
        home = self.home / f"shard{number}"
        if _shard_sum(home) != self.meta.shard_sums[number]:
            name = f"{home.name}/{storage.MANIFEST}"
            raise self._loading.damaged(name, "it is not of this version of the set")
        index = Index.load(home)
        rows = len(self.ids) if self.numbers is None else len(self.numbers)
        if index.end > rows:
            raise self._loading.damaged(home.name, f"it has keys that none of {rows} rows has")
        return index

    def shard_bytes(self) -> int:
        """The bytes of its largest shard on disk."""
        return max(
            sum(file.stat().st_size for file in (self.home / f"shard{number}").iterdir())
            for number in range(self.meta.shards)
        )


def read_meta(home: Path) -> SetMeta:
    """The description of a saved version."""
    return _loading(home).meta


def _loading(home: Path) -> Loading[SetMeta]:
    loading = Loading(home, MANIFEST, "subscription set", FORMAT, SetMeta)
    if not len(loading.meta.shard_sums) == loading.meta.shards > 0:
        raise loading.damaged(MANIFEST, "it does not list its shards")
    return loading


def _shard_sum(home: Path) -> int:
    try:
        return zlib.crc32((home / storage.MANIFEST).read_bytes())
    except OSError:
        return -1


def read_rejects(home: Path) -> pa.Table:
    """The rejects of a saved version: `id`, `filter`, `reason`."""
    return _loading(home).arrow("rejects.arrow")


def digest_of(subscriptions: SubscriptionTable, time: str | None, shards: int | None) -> str:
    """A name for what a table of subscriptions compiles to."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((FORMAT, time, shards, subscriptions.rejects)).encode())
    target: Any = _Digesting(digest)  # the stubs ask for a class, Arrow for three methods
    sink = pa.PythonFile(target, mode="w")
    with pa.ipc.new_stream(sink, subscriptions.table.schema) as writer:
        writer.write_table(subscriptions.table)
    return digest.hexdigest()


class _Digesting:
    """A file that keeps nothing but the digest of what is written to it."""

    closed = False

    def __init__(self, digest: Any) -> None:
        self._digest = digest

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""


# --- saving ---


class _Names(NamedTuple):
    """Ids and subscribers by number, and the rows that contradict others of their id."""

    ids: Any
    numbers: Longs | None
    subscribers: Any
    subscriber_numbers: Longs | None
    contradicting: Longs

    @property
    def without_subscriber(self) -> int:
        """Ids that nobody is the subscriber of."""
        if self.subscribers is None or not self.subscribers.null_count:
            return 0
        nobody = self.subscribers.is_null().to_numpy(False)
        return int(np.count_nonzero(nobody[self.subscriber_numbers]))


def save(
    subscriptions: SubscriptionTable, home: Path, time: str | None, shards: int | None
) -> None:
    """Compile a table of subscriptions and write all files of a version."""
    names = _names(subscriptions.table)
    numbers = np.arange(len(subscriptions)) if names.numbers is None else names.numbers
    count = shards or max(1, -(-len(subscriptions) // SHARD_ROWS))
    count = max(1, min(count, len(names.ids)))
    shard_of = numbers * count // max(1, len(names.ids))
    shard_of[names.contradicting] = -1
    with files.create(home / "shard_of.npy") as file:
        np.save(file, shard_of)
    write_arrow(home / "subscriptions.arrow", subscriptions.table)
    for shard in range(count):
        files.make_inside(home, f"shard{shard}")
    reports = _compile_all(home, count, time)
    (home / "shard_of.npy").unlink()
    (home / "subscriptions.arrow").unlink()
    bad = [reject for report in reports for reject in report.rejects]
    bad += [(row, "its id belongs to another subscriber") for row in names.contradicting.tolist()]
    saving = Saving(home)
    _save_names(saving, names)
    _save_rejects(saving, subscriptions, sorted(bad))
    meta = SetMeta(
        len(subscriptions) - len(bad),
        len(np.unique(np.delete(numbers, [row for row, _ in bad]))),
        len(subscriptions.rejects) + len(bad),
        count,
        tuple(sorted({name for report in reports for name in report.attributes})),
        time,
        str(names.ids.type),
        None if names.subscribers is None else str(names.subscribers.type),
        tuple(_shard_sum(home / f"shard{shard}") for shard in range(count)),
        names.without_subscriber,
    )
    saving.finish(MANIFEST, FORMAT, meta)


def _names(table: pa.Table) -> _Names:
    coded = table["id"].combine_chunks().dictionary_encode()
    ids, numbers = coded.dictionary, coded.indices.to_numpy().astype(np.int64)
    unique = len(ids) == len(table)
    none = np.zeros(0, np.int64)
    if "subscriber" not in table.column_names:
        return _Names(ids, None if unique else numbers, None, None, none)
    coded = table["subscriber"].combine_chunks().dictionary_encode("encode")
    goals = coded.indices.to_numpy().astype(np.int64)
    if unique:
        return _Names(ids, None, coded.dictionary, goals, none)
    _, first = np.unique(numbers, return_index=True)
    contradicting = np.flatnonzero(goals != goals[first][numbers])
    return _Names(ids, numbers, coded.dictionary, goals[first], contradicting)


def _save_names(saving: Saving, names: _Names) -> None:
    saving.arrow("ids.arrow", pa.table({"values": names.ids}))
    if names.numbers is not None:
        saving.array("numbers.npy", names.numbers)
    if names.subscribers is not None and names.subscriber_numbers is not None:
        saving.arrow("subscribers.arrow", pa.table({"values": names.subscribers}))
        saving.array("subscriber_numbers.npy", names.subscriber_numbers)


def _save_rejects(
    saving: Saving, subscriptions: SubscriptionTable, bad: list[tuple[int, str]]
) -> None:
    rows = pa.array([row for row, _ in bad], pa.int64())
    table, early = subscriptions.table, subscriptions.rejects
    ids = [id for id, _, _ in early] + table["id"].take(rows).to_pylist()
    texts = [text for _, text, _ in early] + table["filter"].take(rows).to_pylist()
    reasons = [reason for _, _, reason in early] + [reason for _, reason in bad]
    columns = {
        "id": pa.array(ids, table["id"].type),
        "filter": pa.array(texts, pa.utf8()),
        "reason": pa.array(reasons, pa.utf8()),
    }
    saving.arrow("rejects.arrow", pa.table(columns))


# --- compiling ---


def _compile_all(home: Path, count: int, time: str | None) -> list[ShardReport]:
    """Compile all shards, side by side if there are several and Spark is running."""
    spark = running_session() if count > 1 else None
    task = _ShardTask(str(home), time)
    if spark is None:
        return [task.compile(shard) for shard in range(count)]
    shards = spark.range(0, count, 1, count)
    done = shards.mapInArrow(task, "shard long, report binary").collect()
    packed = [report for _, report in sorted(done)]
    return [msgspec.msgpack.decode(part, type=ShardReport) for part in packed]


class _ShardTask:
    """Compiles shards of a table that was written down; runs here or in Spark's workers."""

    def __init__(self, home: str, time: str | None) -> None:
        self.home = home
        self.time = time

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for shard in batch.column(0).to_numpy().tolist():
                report = msgspec.msgpack.encode(self.compile(shard))
                yield pa.record_batch({"shard": [shard], "report": [report]})

    def compile(self, shard: int) -> ShardReport:
        """Compile and save one."""
        home = Path(self.home)
        rows = np.flatnonzero(np.load(home / "shard_of.npy", mmap_mode="r") == shard)
        compiled = compile_rows(read_arrow(home / "subscriptions.arrow"), rows, self.time)
        compiled.engine.save(home / f"shard{shard}")
        return ShardReport(tuple(sorted(compiled.attributes)), compiled.rejects)
