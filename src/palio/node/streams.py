"""`Streams`: sends each home its entries in the order of the log, until the home has stored them.

```
D2  an entry is released once its home has stored it, and not before
D3  a window of bytes is in flight to each home; entries without an ack are retransmitted
D4  an entry that may have been sent is handed on by that home
```

Only stored entries are sent, and none that is about to move to another home (L2). The model is
`tests.models.durable`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from math import inf
from typing import Final, TypeAlias

import msgspec

from palio.matching.protocol import RowMask
from palio.model.masks import pack_mask, unpack_mask
from palio.node.effects import ANYBODY, Heading, Store
from palio.node.log import Log
from palio.node.loss_markers import LossMarker
from palio.node.operations import Action, Damaged, Impossible, Release, Transmit
from palio.node.parcel_cache import ParcelCache
from palio.node.queues import HomeStream, OffsetQueue, Outgoing, Queues, T
from palio.protocol.limits import WINDOW_BYTES
from palio.protocol.messages import Carry, EntriesStored, Parcel, Share

RETRANSMIT_S: Final = 1.0
"""Seconds after which an origin retransmits entries without an ack: several times the time to cross
a network and to sync a disk; doubled each time..."""

MAX_RETRANSMIT_S: Final = 30.0
"""...up to this. A home without a path costs no more: a new path on the map restarts its stream."""

UNREAD: Final = b""
"""The rows of a durable subscription whose filter the origin cannot parse (`Share.rows`)."""

READ_AHEAD: Final = 64
"""Entries that are read from the journal at once."""


PathOf: TypeAlias = Callable[[str], object]
"""The identity of the present path to a home; None if no path leads there."""


class EntryReader:
    """Reads the events of entries, and makes loss markers for those that cannot be read."""

    def __init__(self, name: str, store: Store) -> None:
        self._name = name
        self._store = store
        self.cache = ParcelCache(store)

    def read(self, line: OffsetQueue[T], offset: int, entry: int) -> Parcel | None:
        """Return the events of an entry, None if damaged; entries behind it are read ahead."""
        behind = islice(line.following(offset), READ_AHEAD)
        return self.cache.get(entry, (item.entry for _, item in behind))

    def heading(self, entry: int) -> Heading:
        """Return the heading of an entry that cannot be read."""
        return self._store.heading(entry) or Heading(ANYBODY, 0, 0, 0)

    def lost(self, entry: int, rows: bytes | None) -> LossMarker:
        """Return the loss marker for an entry that cannot be read. Its count may be too high, where
        `rows` is None but the entry had only some events of a publication.
        """
        heading = self.heading(entry)
        numbers = heading.last_seq - heading.first_seq + 1
        events = numbers if rows is None else int.from_bytes(rows).bit_count()
        events = 0 if heading.publisher == ANYBODY else min(events, numbers)
        return LossMarker.at(self._name, entry, heading, events)


def without(carry: Carry, mask: RowMask) -> Carry:
    """Return an entry with the masked events alone, and without shares that get none of them."""
    if mask.all():
        return carry
    shares = []
    for subject, number, rows in carry.shares:
        if rows == UNREAD:
            shares.append(Share(subject, number, rows))
            continue
        mine = unpack_mask(rows, len(mask))[mask]
        if mine.any():
            shares.append(Share(subject, number, pack_mask(mine)))
    return msgspec.structs.replace(carry, parcel=carry.parcel.select(mask), shares=tuple(shares))


class Flow:
    """The progress of sending one stream. None of it is on the disk."""

    __slots__ = (
        "damaged",
        "in_flight",
        "path",
        "position",
        "released",
        "retransmit_at",
        "sent",
        "sizes",
        "timeout_s",
    )

    def __init__(self, base: int, sent: int) -> None:
        self.sent = max(base, sent)
        """The offset up to which the stream may ever have been sent (D4)."""
        self.released = base
        """The offset up to which the home has acked."""
        self.position = base
        """The offset up to which the stream was sent since the last rewind."""
        self.sizes: deque[tuple[int, int]] = deque()
        self.in_flight = 0
        self.retransmit_at = inf
        self.timeout_s = RETRANSMIT_S
        self.damaged = 0
        """The last unreadable offset that was logged."""
        self.path: object = None

    def send(self, now: float, offset: int, size: int) -> None:
        """Count an entry that is sent."""
        self.position = offset
        self.sent = max(self.sent, offset)
        self.sizes.append((offset, size))
        self.in_flight += size
        self.retransmit_at = min(self.retransmit_at, now + self.timeout_s)

    def release(self, now: float, upto: int) -> None:
        """Apply the ack of a home up to an offset."""
        assert self.released < upto <= self.sent, f"D2: {upto} acked, {self.sent} sent"
        self.released = upto
        self.position = max(self.position, upto)
        while self.sizes and self.sizes[0][0] <= upto:
            self.in_flight -= self.sizes.popleft()[1]
        self.timeout_s = RETRANSMIT_S
        self.retransmit_at = now + RETRANSMIT_S if self.sizes else inf

    def rewind(self) -> None:
        """Retransmit from the first entry that is not acked."""
        self.position = self.released
        self.sizes.clear()
        self.in_flight = 0
        self.retransmit_at = inf

    def renew(self) -> None:
        """Restart from the beginning: the home has another log."""
        self.released = 0
        self.rewind()


class Streams:
    """The streams of one broker to all homes."""

    def __init__(
        self, name: str, log_number: int, queues: Queues, log: Log, reader: EntryReader
    ) -> None:
        self.name = name
        self.log_number = log_number
        """The number of this broker's log (`Carry.log`)."""
        self._queues = queues
        self._log = log
        self._reader = reader
        self._path_to: PathOf = lambda _home: None
        self._flows = {  # after a restart, any stored entry may have been sent
            home: Flow(stream.base, stream.entries.last) for home, stream in queues.streams.items()
        }

    @property
    def sent(self) -> tuple[tuple[str, int], ...]:
        """By home, the offset up to which its stream may have been sent."""
        return tuple((home, flow.sent) for home, flow in self._flows.items())

    @property
    def homes(self) -> list[str]:
        """The homes with a stream."""
        return list(self._flows)

    @property
    def wake_at(self) -> float:
        """The time at which `tick` is due."""
        return min((flow.retransmit_at for flow in self._flows.values()), default=inf)

    def has_unacked(self, home: str, upto: int) -> bool:
        """Return whether a home has yet to ack an entry up to an offset."""
        stream, flow = self._queues.streams.get(home), self._flows.get(home)
        released = 0 if flow is None else flow.released
        item = None if stream is None else stream.entries.next(released)
        return item is not None and item[0] <= upto

    @property
    def ends(self) -> dict[str, int]:
        """By home with a backlog, the last offset of its stream."""
        return {
            home: stream.entries.last
            for home, stream in self._queues.streams.items()
            if stream.entries
        }

    def log_of(self, home: str) -> int:
        """Return the log number of a home, appends in flight included; 0 if it is unknown."""
        stream = self._queues.streams.get(home)
        return self._log.overlay.log_of(home) or (0 if stream is None else stream.log)

    def touch(self, home: str) -> None:
        """Begin to track a stream that has its first entry, none of which was sent."""
        if home not in self._flows:
            base = self._queues.stream(home).base
            self._flows[home] = Flow(base, base)

    def begin(self, log: int) -> None:
        """Restart all streams under another log of this broker."""
        self.log_number = log
        for flow in self._flows.values():
            flow.renew()

    def renew(self, home: str) -> None:
        """Restart the stream to a home that has another log."""
        self.touch(home)
        self._flows[home].renew()

    def tick(self, now: float) -> list[Action]:
        """Retransmit streams whose timeout is over."""
        actions: list[Action] = []
        for home, flow in self._flows.items():
            if now >= flow.retransmit_at:
                flow.rewind()
                flow.timeout_s = min(2 * flow.timeout_s, MAX_RETRANSMIT_S)
                actions += self.pump(now, home)
        return actions

    def has_stored(self, now: float, message: EntriesStored) -> list[Action]:
        """Release the entries that a home has acked, and send more (D2)."""
        home, home_log, offset = message.home, message.home_log, message.offset
        flow = self._flows.get(home)
        if flow is None or message.log != self.log_number or home_log != self.log_of(home):
            return []
        if offset > flow.sent:
            return [Impossible(home, f"ack of offset {offset}; only {flow.sent} were sent")]
        if offset > flow.released:
            flow.release(now, offset)
            self._log.release(now, Release(home, home_log, offset))
        if message.is_asking and offset == flow.released:
            flow.rewind()
        return self.pump(now, home)

    def pump(self, now: float, home: str) -> list[Action]:
        """Send the backlog of a home, as far as the window allows (D3)."""
        stream, flow = self._queues.streams.get(home), self._flows.get(home)
        if stream is None or flow is None or not stream.log or self._path_to(home) is None:
            return []
        actions: list[Action] = []
        while flow.in_flight < WINDOW_BYTES:
            item = stream.entries.next(flow.position)
            # An entry that was sent before is retransmitted even if it is about to move: it stays.
            if item is None or (item[0] > flow.sent and self._is_leaving(item[1])):
                break
            actions += self._carry(now, home, stream, *item)
        return actions

    def _carry(
        self, now: float, home: str, stream: HomeStream, offset: int, item: Outgoing
    ) -> Iterator[Action]:
        flow = self._flows[home]
        parcel = self._reader.read(stream.entries, offset, item.entry)
        if parcel is None:
            if offset > flow.damaged:
                flow.damaged = offset
                yield Damaged(item.entry, home)
            parcel = self._lost(item).parcel
        previous = max(stream.previous(offset), flow.released)
        assert previous < offset, f"D1: {offset} must follow {previous}"
        flow.send(now, offset, parcel.held_bytes)
        origin = self.name, self.log_number
        goal = home, stream.log
        yield Transmit(home, Carry(parcel, *origin, *goal, offset, previous, item.shares))

    def _lost(self, item: Outgoing) -> LossMarker:
        """Return the loss marker for an entry that cannot be read. With several shares it names no
        publisher: each may have had only a part of the events, and must not learn of the rest.
        """
        if len(item.shares) > 1:
            return self._reader.lost(item.entry, None).anonymous
        return self._reader.lost(item.entry, item.shares[0].rows)

    def _is_leaving(self, item: Outgoing) -> bool:
        """Return whether an entry is about to move to another home."""
        moving = self._log.overlay.moving
        return bool(moving) and any(share.subject in moving for share in item.shares)

    def paths_changed(self, now: float, path_to: PathOf) -> list[Action]:
        """Retransmit to homes with another path: messages in flight on the old one may be lost."""
        self._path_to = path_to
        actions: list[Action] = []
        for home, flow in self._flows.items():
            before, flow.path = flow.path, path_to(home)
            if flow.path is not None and flow.path != before:
                flow.rewind()
                flow.timeout_s = RETRANSMIT_S
                actions += self.pump(now, home)
        return actions
