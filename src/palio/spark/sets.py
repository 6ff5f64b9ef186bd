"""Subscription sets: compiled once, saved under a versioned path, mapped by every worker.

    path/
      current                  the name of the version in force; replaced in one step
      versions/<digest>/       one compiled table (versions.py); never changed once it is there
      pins/<query>-<batch>     the version that a micro-batch of a stream was matched with

A version's name is a digest of what it holds, so the same subscriptions are compiled once, and jobs
that come later find it there. `refresh` compiles another and moves `current`; a running stream
takes it up with its next micro-batch. The first worker that a micro-batch reaches *pins* it to a
version, by a file that can be made only once: all partitions of a batch agree, and so does a batch
that is run again after a failure.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time as clock
from pathlib import Path
from threading import Event, Thread
from typing import Final, Self

import pyarrow as pa

from palio import files
from palio.errors import FileDamaged, InvalidInput
from palio.model.values import check_name
from palio.spark.reading import Source, SubscriptionTable, read
from palio.spark.sessions import cache_directory
from palio.spark.versions import SetMeta, digest_of, read_meta, read_rejects, save

_VERSION: Final = re.compile(rb"[0-9a-f]{32}")
"""The names of versions: digests."""

KEEP_S: Final = 86_400
"""Seconds for which a version that was replaced stays, for jobs that still read it."""

KEEP_PINS: Final = 200
"""Pins that stay for each stream; Spark runs again none but the last few micro-batches."""


class SubscriptionSet:
    """A compiled set of subscriptions in a directory. Made by `palio.spark.subscriptions`.

    On a cluster the directory must be one that every worker can read.
    """

    def __init__(
        self, path: str | Path, time: str | None = None, shards: int | None = None
    ) -> None:
        self.path = Path(path).absolute()
        self.time = time
        self._shards = shards

    @property
    def version(self) -> str:
        """The name of the version in force."""
        try:
            return _name_in(self.path / "current")
        except OSError:
            raise InvalidInput(f"{self.path} holds no subscription set") from None

    @property
    def meta(self) -> SetMeta:
        """The description of the version in force."""
        return read_meta(self.path / "versions" / self.version)

    @property
    def rejects(self) -> pa.Table:
        """Subscriptions that are not in the set: `id`, `filter`, `reason`."""
        return read_rejects(self.path / "versions" / self.version)

    def __len__(self) -> int:
        return self.meta.ids

    def __repr__(self) -> str:
        try:
            meta, version = self.meta, self.version
        except InvalidInput:
            return f"<SubscriptionSet {str(self.path)!r}, of nothing yet>"
        rejected = f", {meta.rejected} rejected" if meta.rejected else ""
        return f"<SubscriptionSet {str(self.path)!r}: {meta.ids} ids{rejected}, version {version}>"

    def refresh(self, source: Source) -> bool:
        """Compile other subscriptions and put them in force; False if they are the same.

        Streams that match with this set take the new version with their next micro-batch.
        """
        return self._put_in_force(read(source))

    def follow(self, source: Source, every_s: float = 5.0) -> Refreshing:
        """Refresh this set from a source again and again, until what this returns is closed.

        The source is one that changes by itself: a broker (`palio://host:port`), or a file.
        """
        return Refreshing(self, source, every_s)

    def _put_in_force(self, table: SubscriptionTable) -> bool:
        if self.time is None and table.has_history:
            raise InvalidInput(
                "these subscriptions hold from and to some time (valid_from, valid_to); "
                "name the column of the events' time: time='...'"
            )
        digest = digest_of(table, self.time, self._shards)
        home = self.path / "versions" / digest
        if not (home / "set.msgpack").exists():
            self._compile(table, home)
        before = self.version if (self.path / "current").exists() else None
        if before == digest:
            return False
        with files.replaced(
            self.path / "current", files.file_mode_in(self.path), shared=True
        ) as file:
            file.write(digest.encode())
        if before is not None:
            os.utime(self.path / "versions" / before)  # it is out of force from now on
        self._clear(digest)
        return True

    def _compile(self, table: SubscriptionTable, home: Path) -> None:
        """Compile into a directory of its own and give it its name in one step."""
        versions = files.make_inside(files.make_directory(self.path), home.parent.name)
        fresh = files.fresh_directory(versions)
        try:
            save(table, fresh, self.time, self._shards)
            fresh.rename(home)
        except OSError:
            if not (home / "set.msgpack").exists():  # not just that another process was faster
                raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _clear(self, current: str) -> None:
        """Remove versions that were replaced long ago."""
        for version in (self.path / "versions").iterdir():
            if version.name != current and version.stat().st_mtime < clock.time() - KEEP_S:
                shutil.rmtree(version, ignore_errors=True)

    def pinned(self, query: str, batch: int) -> str:
        """The version that a micro-batch is matched with, the same in every task."""
        pins = self.path / "pins"
        pin = pins / f"{query}-{batch}"
        try:
            version = _name_in(pin)
        except OSError:
            files.make_inside(self.path, pins.name, group_writes=True)
            version = _first_word(pin, self.version)
            (pins / f"{query}-{batch - KEEP_PINS}").unlink(missing_ok=True)
        is_here = (self.path / "versions" / version / "set.msgpack").exists()
        return version if is_here else self.version


def subscriptions(
    source: Source | SubscriptionSet,
    path: str | Path | None = None,
    *,
    time: str | None = None,
    shards: int | None = None,
) -> SubscriptionSet:
    """A compiled set of subscriptions, ready to be matched any number of times.

    `source` is a DataFrame, an Arrow table, rows as dictionaries, the path of a Parquet or
    JSON-lines file, or the address of a broker (`palio://host:port`, or a `Catalogue`). Its columns
    are `id` (integers or strings), `filter`, and if need be `subscriber`, `parameters` (a JSON
    object, a map or a struct), `valid_from` and `valid_to`. Rows with one id are alternatives: the
    subscription matches when any of them does.

    With `time`, the name of the events' time column, a row counts only for events from
    `valid_from` up to, but not at, `valid_to`. What does not compile is in `rejects`.

    `path` names the set, for streams to be refreshed under and for other programs to find; without
    one it is kept in the user's cache directory, under a digest of what it holds. `shards` is how
    many indexes it is split into (by default one for each half million rows); they are compiled
    side by side where a Spark session is running.

    >>> import tempfile
    >>> rows = [{"id": 1, "filter": "price < :limit", "parameters": {"limit": 5}}]
    >>> found = subscriptions([*rows, {"id": 2, "filter": "price <"}], tempfile.mkdtemp())
    >>> len(found), found.rejects["id"].to_pylist()
    (1, [2])
    """
    if isinstance(source, SubscriptionSet):
        return source
    if time is not None:
        check_name(time, InvalidInput)
    if shards is not None and (type(shards) is not int or shards < 1):
        raise InvalidInput(f"a set has a whole number of shards, 1 at least, not {shards!r:.40}")
    table = read(source)
    if path is None:
        path = cache_directory() / "sets" / digest_of(table, time, shards)
    made = SubscriptionSet(path, time, shards)
    made._put_in_force(table)
    return made


def _name_in(path: Path) -> str:
    """The name of a version in a file; nothing else may become a part of a path."""
    with path.open("rb") as file:
        head = file.read(64)
    if not _VERSION.fullmatch(head):
        raise FileDamaged(f"{path} contains {head[:40]!r}, which names no version; remove it")
    return head.decode("ascii")


def _first_word(path: Path, text: str) -> str:
    """Write a small file unless it is there already; return its text."""
    mode = files.file_mode_in(path.parent)
    try:
        with files.replaced(path, mode, replace=False, shared=True, sync=False) as file:
            file.write(text.encode())
    except FileExistsError:
        return _name_in(path)
    return text


# --- keeping up with a source ---


logger: Final = logging.getLogger("palio.spark")


class Refreshing:
    """Refreshes a set until it is closed; a context manager. Made by `SubscriptionSet.follow`.

    A thread of the driver reads the source now and then and puts a version in force when it has
    changed; running streams take that with their next micro-batch. While the source cannot be read
    the set stays as it was: a broker that is away has changed nothing.
    """

    def __init__(self, standing: SubscriptionSet, source: Source, every_s: float) -> None:
        if not every_s > 0:
            raise InvalidInput(
                f"a source is read again after a number of seconds above 0, not {every_s}"
            )
        if standing.path.is_relative_to(cache_directory()):
            raise InvalidInput(
                "this set is named after what it holds, and other programs may use it: give it a "
                "path of its own, palio.spark.subscriptions(source, path)"
            )
        self.changes = 0
        """The number of times that another version was put in force."""
        self.error: Exception | None = None
        """Why the source could not be read the last time."""
        self._standing = standing
        self._source = source
        self._every_s = every_s
        self._closed = Event()
        self._thread = Thread(target=self._run, name="palio-refreshing", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; returns when no more will change."""
        self._closed.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            try:
                self.changes += self._standing.refresh(self._source)
            except Exception as error:  # noqa: BLE001  # of a disk, of Spark: the next time may do
                if self.error is None:
                    logger.warning("subscriptions stay as they are: %s", error)
                self.error = error
            else:
                self.error = None
