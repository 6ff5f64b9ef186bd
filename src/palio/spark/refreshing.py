"""`Refreshing`: a subscription set that keeps up with where its subscriptions come from.

A thread of the driver reads the source now and then and puts a version in force when it has
changed; running streams take that with their next micro-batch (sets.py). While the source cannot be
read the set stays as it was: a broker that is away has changed nothing.
"""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from palio.errors import InvalidInput
from palio.spark.java import cache_directory

if TYPE_CHECKING:
    from palio.spark.reading import Source

__all__ = ["Refreshing"]

logger: Final = logging.getLogger("palio.spark")


class Refreshable(Protocol):
    """A set of subscriptions that can be read again from its source: a `SubscriptionSet`."""

    path: Path

    def refresh(self, source: Source) -> bool:
        """Read the source; whether another version is in force now."""


class Refreshing:
    """Refreshes a set until it is closed; a context manager. Made by `SubscriptionSet.follow`."""

    def __init__(self, standing: Refreshable, source: Source, every_s: float) -> None:
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
