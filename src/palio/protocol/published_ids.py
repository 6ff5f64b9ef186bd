"""`PublishedIds`: the ids that applications gave to events, by which a repeated one is known.

The window is bounded in number: the newest ids count. An id is of its publisher, so that nobody can
suppress the events of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from palio.bounded import Bounded

MAX_PUBLISHED_IDS: Final = 100_000
"""Ids that are remembered, some 10 MB; then the oldest go. At 100 events a second with an id, that
is a quarter of an hour."""


class PublishedIds:
    """The newest ids.

    >>> ids = PublishedIds()
    >>> keys = ids.keys("ann", ["a", None, "b", "a"])
    >>> ids.first_time(keys), ids.first_time(keys)
    ([True, True, True, False], [False, True, False, False])
    """

    def __init__(self, most: int = MAX_PUBLISHED_IDS) -> None:
        self._known = Bounded[bytes, None](most)

    def keys(self, publisher: str, ids: Iterable[object]) -> list[bytes | None]:
        """The keys of events by which they are remembered; None for one without an id."""
        return [
            None if id is None else blake2b(f"{publisher}\n{id}".encode(), digest_size=16).digest()
            for id in ids
        ]

    def first_time(self, keys: Sequence[bytes | None]) -> list[bool]:
        """Return for each event whether its id is new, which is known from now on."""
        fresh = []
        for key in keys:
            fresh.append(key is None or key not in self._known)
            if key is not None:
                self._known[key] = None
        return fresh

    def forget(self, keys: Iterable[bytes | None]) -> None:
        """Take the events again: they were refused."""
        for key in keys:
            if key is not None:
                self._known.pop(key, None)
