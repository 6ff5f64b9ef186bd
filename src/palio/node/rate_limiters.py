"""`RateLimiters`: accounts of the sessions, subscriptions and rates of each principal."""

from __future__ import annotations

from typing import Final

from palio.node.authority import ANYONE, Limits, Principal
from palio.node.limits import MAX_RATE_LIMITERS


class RateLimiter:
    """The use that one principal makes of this broker, over all its sessions. Callers pass the
    limits, as those of the newest grant count.

    A bucket of a rate holds one second's worth. It may be overdrawn once, so that no batch is too
    large to pass at all; the next publication waits until that is paid back.

    >>> limiter, limits = RateLimiter("alice"), Limits(events_per_s=100)
    >>> limiter.wait_s(limits, 0.0), limiter.spend(limits, 150, 0, 0.0)
    (0.0, None)
    >>> limiter.wait_s(limits, 0.0), limiter.wait_s(limits, 0.6)
    (0.5, 0.0)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.sessions: dict[str, None] = {}
        """The numbers of its sessions, changed by `RateLimiters` alone."""
        self.subscriptions = 0
        """The number of subscriptions of these sessions, changed by `Session` alone."""
        self.cost = 0
        """The cost of all their residuals, changed by `Session` alone."""
        self._events = _Bucket()
        self._bytes = _Bucket()

    def wait_s(self, limits: Limits, now: float) -> float:
        """Return the seconds until something may be published again; 0 for at once."""
        events, nbytes = limits.events_per_s, limits.bytes_per_s
        return max(self._events.wait_s(events, now), self._bytes.wait_s(nbytes, now))

    def spend(self, limits: Limits, events: int, nbytes: int, now: float) -> None:
        """Count published events and bytes."""
        self._events.spend(limits.events_per_s, events, now)
        self._bytes.spend(limits.bytes_per_s, nbytes, now)


class RateLimiters:
    """The accounts of all principals.

    >>> rate_limiters, alice = RateLimiters(), Principal("alice", limits=Limits(events_per_s=5))
    >>> limiter = rate_limiters.of(alice)
    >>> rate_limiters.begin(limiter, "s1")
    >>> limiter.spend(alice.limits, 10, 0, 0.0)
    >>> rate_limiters.end(limiter, "s1")
    >>> rate_limiters.of(alice).wait_s(alice.limits, 0.0)  # a new session is no new second
    1.0
    """

    def __init__(self) -> None:
        self._in_use: dict[str, RateLimiter] = {}
        self._idle: dict[str, RateLimiter] = {}
        """Accounts without sessions, the longest idle first: a reconnect must not reset a rate."""

    def of(self, principal: Principal) -> RateLimiter:
        """Return the account of a principal. Each session without credentials has its own, as
        strangers must not use up each other's rates.
        """
        name = principal.name
        if name == ANYONE:
            return RateLimiter(name)
        return self._in_use.get(name) or self._idle.get(name) or RateLimiter(name)

    def begin(self, limiter: RateLimiter, session: str) -> None:
        """Add a session that begins."""
        limiter.sessions[session] = None
        if limiter.name != ANYONE:
            self._in_use[limiter.name] = self._idle.pop(limiter.name, limiter)

    def end(self, limiter: RateLimiter, session: str) -> None:
        """Remove a session that has ended, whose subscriptions are already removed."""
        del limiter.sessions[session]
        if limiter.sessions or limiter.name == ANYONE:
            return
        assert not limiter.subscriptions, "a principal without sessions has no subscriptions"
        self._idle[limiter.name] = self._in_use.pop(limiter.name)
        if len(self._idle) > MAX_RATE_LIMITERS:
            del self._idle[next(iter(self._idle))]


_MOMENT_S: Final = 1e-6
"""A wait shorter than this is a rounding error of floating point."""


class _Bucket:
    """A leaky bucket: the amount spent at a rate, which passing time pays back."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._at = 0.0

    def wait_s(self, rate: float | None, now: float) -> float:
        if rate is None:
            return 0.0
        self._pay_back(rate, now)
        wait = self._spent / rate - 1.0
        return wait if wait > _MOMENT_S else 0.0

    def spend(self, rate: float | None, amount: float, now: float) -> None:
        if rate is not None:
            self._pay_back(rate, now)
            self._spent += amount

    def _pay_back(self, rate: float, now: float) -> None:
        self._spent = max(0.0, self._spent - (now - self._at) * rate)
        self._at = now
