"""`RateLimitedLog`: what others do that they may not, and what a disk refuses, logged without
filling their log.
"""

from __future__ import annotations

from typing import Any, Final

LOG_INTERVAL_S: Final = 10.0
"""Of one kind and one source, one line is logged at once and then one in so many seconds."""


class _Kind:
    __slots__ = ("count", "details", "logged_at")

    def __init__(self, logged_at: float) -> None:
        self.logged_at = logged_at
        self.count = 0
        self.details: dict[str, Any] = {}


class RateLimitedLog:
    """Counts by kind and source: the first is told at once, the others together.

    >>> rate_limited_log = RateLimitedLog()
    >>> rate_limited_log.note("fact_refused", "mallory", 1, 0.0, origin="north")
    {'neighbour': 'mallory', 'count': 1, 'origin': 'north'}
    >>> rate_limited_log.note("fact_refused", "mallory", 2, 1.0), rate_limited_log.due(9.0)
    (None, [])
    >>> rate_limited_log.due(10.0)
    [('fact_refused', {'neighbour': 'mallory', 'count': 2})]
    """

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        """How many there were of each kind."""
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def note(
        self, event: str, source: str, count: int, now: float, **details: object
    ) -> dict[str, Any] | None:
        """Count something; what to report now, if anything."""
        self.totals[event] = self.totals.get(event, 0) + count
        kind = self._kinds.get((event, source))
        if kind is None:
            self._kinds[event, source] = _Kind(now)
            return {**_named(source), "count": count, **details}
        kind.count += count
        kind.details = details
        return None

    def due(self, now: float) -> list[tuple[str, dict[str, Any]]]:
        """Return what came since the last line, with the newest details."""
        told = []
        for (event, source), kind in list(self._kinds.items()):
            if now - kind.logged_at < LOG_INTERVAL_S:
                continue
            if not kind.count:
                del self._kinds[event, source]
                continue
            told.append((event, {**_named(source), "count": kind.count, **kind.details}))
            kind.logged_at, kind.count = now, 0
        return told


def _named(source: str) -> dict[str, str]:
    """Whose fault it is; nobody's, if it is this broker's own."""
    return {"neighbour": source} if source else {}
