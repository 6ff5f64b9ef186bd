"""The counts that a shell keeps while it works; `metrics` shows them."""

from __future__ import annotations

from dataclasses import dataclass


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
