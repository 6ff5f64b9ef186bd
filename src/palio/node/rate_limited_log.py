"""`RateLimitedLog`: logs violations by others, and refusals of the disk, without filling
the log.
"""

from __future__ import annotations

from typing import Any, Final

LOG_INTERVAL_S: Final = 10.0
"""Of one kind and one source, the first is logged at once, and then one line in so many seconds."""


class _Kind:
    __slots__ = ("count", "details", "logged_at")

    def __init__(self, logged_at: float) -> None:
        self.logged_at = logged_at
        self.count = 0
        self.details: dict[str, Any] = {}


class RateLimitedLog:
    """Counts by kind and source: the first is logged at once, the others together.

    >>> rate_limited_log = RateLimitedLog()
    >>> rate_limited_log.note("fact_rejected", "mallory", 1, 0.0, origin="north")
    {'source': 'mallory', 'count': 1, 'origin': 'north'}
    >>> rate_limited_log.note("fact_rejected", "mallory", 2, 1.0), rate_limited_log.due(9.0)
    (None, [])
    >>> rate_limited_log.due(10.0)
    [('fact_rejected', {'source': 'mallory', 'count': 2})]
    """

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        """By kind, the count since the start."""
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def note(
        self, event: str, source: str, count: int, now: float, **details: object
    ) -> dict[str, Any] | None:
        """Count an event; return the details to log now, if any."""
        self.totals[event] = self.totals.get(event, 0) + count
        kind = self._kinds.get((event, source))
        if kind is None:
            self._kinds[event, source] = _Kind(now)
            return {**_named(source), "count": count, **details}
        kind.count += count
        kind.details = details
        return None

    def due(self, now: float) -> list[tuple[str, dict[str, Any]]]:
        """Return the lines that are due, each with the newest details."""
        lines = []
        for (event, source), kind in list(self._kinds.items()):
            if now - kind.logged_at < LOG_INTERVAL_S:
                continue
            if not kind.count:
                del self._kinds[event, source]
                continue
            lines.append((event, {**_named(source), "count": kind.count, **kind.details}))
            kind.logged_at, kind.count = now, 0
        return lines


def _named(source: str) -> dict[str, str]:
    """Return the source of an event; nothing if it is this broker itself."""
    return {"source": source} if source else {}
