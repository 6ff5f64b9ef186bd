"""The counts that a shell keeps while it works; `metrics` shows them."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from palio.protocol.messages import Deliver

LATENCY_BOUNDS_S: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0),
)
"""From a hop on one machine to an event that waited for a slow subscriber."""

SAMPLE_S: Final = 0.01
"""Each observation takes microseconds, on a path that takes a single event in a hundred of them."""


class Histogram:
    """Counts of seconds by upper bounds, the last without one; and their sum.

    >>> histogram = Histogram((0.1, 1.0))
    >>> for seconds in (0.1, 0.5, 7.0):
    ...     histogram.observe(seconds)
    >>> histogram.counts, histogram.sum_s
    ([1, 1, 1], 7.6)
    """

    __slots__ = ("bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
        self.sum_s += seconds


class DeliveryLatency:
    """Seconds from an event's `$time` to its hand-over to a subscriber's connection, in samples: of
    the first message of a write, at most one each `SAMPLE_S`.
    """

    __slots__ = ("_clock", "_due_at", "durable", "live")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.live = Histogram(LATENCY_BOUNDS_S)
        self.durable = Histogram(LATENCY_BOUNDS_S)
        """Of durable queues, whose events may have waited for a subscriber that was away."""
        self._clock = clock
        self._due_at = {self.live: 0.0, self.durable: 0.0}

    def sample(self, message: Deliver) -> None:
        """Observe a message that is handed over, if a sample is due."""
        histogram = self.durable if message.entry else self.live
        now, parcel = self._clock(), message.parcel
        column = parcel.shape.system_columns[1]
        if now < self._due_at[histogram] or column < 0 or not parcel.count:
            return
        self._due_at[histogram] = now + SAMPLE_S
        if parcel.values is not None:
            since = parcel.values[column].timestamp()
        else:
            since = parcel.batch.column(column)[0].value / 1e6
        histogram.observe(max(0.0, time.time() - since))  # the origin's clock may be ahead


@dataclass(slots=True)
class Traffic:
    """Counters of a server's connections since it started."""

    accepted: int = 0
    """Connections that were let in."""
    refused: int = 0
    """Connections beyond a limit, those that were cut to make room for others among them."""
    illegal: int = 0
    """Connections that were closed because of bytes that are no message."""
    late: int = 0
    """Connections that did not show in time who they are, or what they want."""
    dialled: int = 0
    """Connections to other brokers that came about."""
    dial_failures: int = 0
    """Attempts to connect to another broker that failed."""
    bytes_in: int = 0
    bytes_out: int = 0
    messages_in: int = 0
    messages_out: int = 0
    events_in: int = 0
    """Events that were published here or came from another broker."""
    events_out: int = 0
    """Events that were written to subscribers and to other brokers, once for each."""
    node_s: float = 0.0
    """Seconds that the node took for its work: matching, routing, durable events."""
    latency: DeliveryLatency = field(default_factory=DeliveryLatency)


@dataclass(slots=True)
class JournalCounters:
    """Counters of a journal since it was opened."""

    commits: int = 0
    """Transactions that reached the disk."""
    appends: int = 0
    """Appends in them; more than one a transaction is group commit."""
    failures: int = 0
    """Appends that could not be written."""
    commit_s: float = 0.0
    """Seconds spent writing."""
    waiting: int = 0
    """Appends that are not on the disk yet."""
    damaged: int = 0
    """Entries that failed their checksum when they were read."""
    missing: int = 0
    """Offsets that its mark knew of and it did not when it was opened."""


@dataclass(slots=True)
class Datagrams:
    """Counters of datagrams to and from multicast groups; one that is too large for a packet
    counts as several.
    """

    sent: int = 0
    sent_bytes: int = 0
    unsent: int = 0
    """Those that the system did not take."""
    received: int = 0
    """From others; not all can be opened."""
    received_bytes: int = 0
