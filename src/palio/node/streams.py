"""`Streams`: what an origin sends to each home, in the order of its log, until that has stored it.

```
D2  what a home has stored is let go, and nothing else
D3  a window of bytes is on its way to each home; what is not answered for is sent again
D4  what may have been sent is that home's to hand on
```

What goes out is read from what is stored, and is not about to leave (L2). The model is
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
from palio.node.effects import ANYBODY, Heading, Store
from palio.node.log import Log
from palio.node.loss_markers import LossMarker
from palio.node.operations import Action, Damaged, Impossible, Release, Transmit
from palio.node.parcel_cache import ParcelCache
from palio.node.queues import HomeStream, Line, Outgoing, Queues, T
from palio.protocol.limits import WINDOW_BYTES
from palio.protocol.messages import (
    Carry,
    EntriesStored,
    Parcel,
    Share,
    pack_mask,
    unpack_mask,
)

AGAIN_S: Final = 1.0
"""Seconds after which an origin sends again what a home has not answered for: several times what it
takes to cross a network and to sync a disk; doubled each time..."""

MAX_AGAIN_S: Final = 30.0
"""...up to this: a home that is away is looked for by the map, which says when a way is back."""

UNREAD: Final = b""
"""The rows of a durable subscription whose filter the origin cannot read (`Share.rows`)."""

READ_AHEAD: Final = 64
"""Entries that are read from the journal at once."""


Way: TypeAlias = Callable[[str], object]
"""A mark that tells the way to a home from others; None if there is none."""


class EntryReader:
    """The events of entries, and what stands for those that the journal cannot give back."""

    def __init__(self, name: str, store: Store) -> None:
        self._name = name
        self._store = store
        self.cache = ParcelCache(store)

    def read(self, line: Line[T], offset: int, entry: int) -> Parcel | None:
        """The events of an entry of a line, and with it what comes behind; None if they are
        damaged.
        """
        behind = islice(line.following(offset), READ_AHEAD)
        return self.cache.get(entry, (item.entry for _, item in behind))

    def heading(self, entry: int) -> Heading:
        """Whose events an entry holds that cannot be read, if that can be."""
        return self._store.heading(entry) or Heading(ANYBODY, 0, 0, 0)

    def lost(self, entry: int, rows: bytes | None) -> LossMarker:
        """Return what replaces an entry that cannot be read: so many events, or fewer where it was
        to get all of a part of a publication.
        """
        heading = self.heading(entry)
        numbers = heading.last_seq - heading.first_seq + 1
        events = numbers if rows is None else int.from_bytes(rows).bit_count()
        events = 0 if heading.publisher == ANYBODY else min(events, numbers)
        return LossMarker.at(self._name, entry, heading, events)


def without(carry: Carry, mask: RowMask) -> Carry:
    """Return a carried entry with some of its events alone; a queue that gets none of them is left
    out.
    """
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
    """How far a stream has been sent. Nothing of it is on the disk."""

    __slots__ = (
        "again_at",
        "at",
        "damaged",
        "in_flight",
        "patience_s",
        "released",
        "sent",
        "sizes",
        "way",
    )

    def __init__(self, base: int, sent: int) -> None:
        self.sent = max(base, sent)
        """Up to here it may have been sent at any time (D4)."""
        self.released = base
        """Up to here the home has it."""
        self.at = base
        """Up to here it has been sent since it last began."""
        self.sizes: deque[tuple[int, int]] = deque()
        self.in_flight = 0
        self.again_at = inf
        self.patience_s = AGAIN_S
        self.damaged = 0
        """The last that the journal could not give back, and was logged."""
        self.way: object = None
        """By which way it was sent."""

    def send(self, now: float, offset: int, size: int) -> None:
        """The next one goes."""
        self.at = offset
        self.sent = max(self.sent, offset)
        self.sizes.append((offset, size))
        self.in_flight += size
        self.again_at = min(self.again_at, now + self.patience_s)

    def release(self, now: float, upto: int) -> None:
        """The home has it up to an offset."""
        assert self.released < upto <= self.sent, f"D2: {upto} is stored, and {self.sent} was sent"
        self.released = upto
        self.at = max(self.at, upto)
        while self.sizes and self.sizes[0][0] <= upto:
            self.in_flight -= self.sizes.popleft()[1]
        self.patience_s = AGAIN_S
        self.again_at = now + AGAIN_S if self.sizes else inf

    def rewind(self) -> None:
        """Have all that is not acknowledged sent again."""
        self.at = self.released
        self.sizes.clear()
        self.in_flight = 0
        self.again_at = inf

    def renew(self) -> None:
        """The home has nothing of it any more."""
        self.released = 0
        self.rewind()


class Streams:
    """The streams of one broker to all homes."""

    def __init__(
        self, name: str, log_number: int, queues: Queues, log: Log, reader: EntryReader
    ) -> None:
        self.name = name
        self.log_number = log_number
        """Which log this is; see `Carry`."""
        self._queues = queues
        self._log = log
        self._reader = reader
        self._way: Way = lambda _home: None
        self._flows = {  # after a restart all may have been sent
            home: Flow(stream.base, stream.line.last) for home, stream in queues.streams.items()
        }

    @property
    def sent(self) -> tuple[tuple[str, int], ...]:
        """Up to where each stream may have been sent."""
        return tuple((home, flow.sent) for home, flow in self._flows.items())

    @property
    def homes(self) -> list[str]:
        """Those to which there are streams."""
        return list(self._flows)

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        return min((flow.again_at for flow in self._flows.values()), default=inf)

    def owes(self, home: str, upto: int) -> bool:
        """Return whether a home is yet to say that it has stored what waits for it up to an
        offset.
        """
        stream, flow = self._queues.streams.get(home), self._flows.get(home)
        released = 0 if flow is None else flow.released
        found = None if stream is None else stream.line.next(released)
        return found is not None and found[0] <= upto

    @property
    def ends(self) -> dict[str, int]:
        """By home, the last offset of what waits for it."""
        return {home: each.line.last for home, each in self._queues.streams.items() if each.line}

    def log_of(self, home: str) -> int:
        """Which log a home has, by what is under way; 0 if that is not known."""
        stream = self._queues.streams.get(home)
        return self._log.overlay.log_of(home) or (0 if stream is None else stream.log)

    def touch(self, home: str) -> None:
        """Something was put into a stream; of one that is new nothing was sent."""
        if home not in self._flows:
            base = self._queues.stream(home).base
            self._flows[home] = Flow(base, base)

    def begin(self, log: int) -> None:
        """This broker has another log: no home has anything of it."""
        self.log_number = log
        for flow in self._flows.values():
            flow.renew()

    def renew(self, home: str) -> None:
        """A home has another log, and so nothing of the stream."""
        self.touch(home)
        self._flows[home].renew()

    def tick(self, now: float) -> list[Action]:
        """Time has passed: what was not answered for goes again."""
        actions: list[Action] = []
        for home, flow in self._flows.items():
            if now >= flow.again_at:
                flow.rewind()
                flow.patience_s = min(2 * flow.patience_s, MAX_AGAIN_S)
                actions += self.pump(now, home)
        return actions

    def has_stored(self, now: float, message: EntriesStored) -> list[Action]:
        """A home has stored its stream up to an offset: let go of that (D2)."""
        home, home_log, offset = message.home, message.home_log, message.offset
        flow = self._flows.get(home)
        if flow is None or message.log != self.log_number or home_log != self.log_of(home):
            return []
        if offset > flow.sent:
            return [Impossible(home, f"{offset} is stored, and nothing after {flow.sent} was sent")]
        if offset > flow.released:
            flow.release(now, offset)
            self._log.release(now, Release(home, home_log, offset))
        if message.is_asking and offset == flow.released:
            flow.rewind()
        return self.pump(now, home)

    def pump(self, now: float, home: str) -> list[Action]:
        """Send what waits for a home, as far as the window allows (D3)."""
        stream, flow = self._queues.streams.get(home), self._flows.get(home)
        if stream is None or flow is None or not stream.log or self._way(home) is None:
            return []
        actions: list[Action] = []
        while flow.in_flight < WINDOW_BYTES:
            found = stream.line.next(flow.at)
            if found is None or (found[0] > flow.sent and self._is_moving(found[1])):
                break
            actions += self._carry(now, home, stream, *found)
        return actions

    def _carry(
        self, now: float, home: str, stream: HomeStream, offset: int, item: Outgoing
    ) -> Iterator[Action]:
        flow = self._flows[home]
        parcel = self._reader.read(stream.line, offset, item.entry)
        if parcel is None:
            if offset > flow.damaged:
                flow.damaged = offset
                yield Damaged(item.entry, home)
            parcel = self._lost(item).parcel
        previous = max(stream.previous(offset), flow.released)
        assert previous < offset, f"D1: {offset} is to follow {previous}"
        flow.send(now, offset, parcel.held_bytes)
        origin = self.name, self.log_number
        goal = home, stream.log
        yield Transmit(home, Carry(parcel, *origin, *goal, offset, previous, item.shares))

    def _lost(self, item: Outgoing) -> LossMarker:
        """Return what replaces an entry that cannot be read. Of several who get some of it none is
        told whose all of it was.
        """
        if len(item.shares) > 1:
            return self._reader.lost(item.entry, None).anonymous
        return self._reader.lost(item.entry, item.shares[0].rows)

    def _is_moving(self, item: Outgoing) -> bool:
        """Return whether it is about to leave the stream: it goes out only if it stays."""
        moving = self._log.overlay.moving
        return bool(moving) and any(share.subject in moving for share in item.shares)

    def paths_changed(self, now: float, way: Way) -> list[Action]:
        """The map has other ways: what was on those that are gone may be lost."""
        self._way = way
        actions: list[Action] = []
        for home, flow in self._flows.items():
            before, flow.way = flow.way, way(home)
            if flow.way is not None and flow.way != before:
                flow.rewind()
                flow.patience_s = AGAIN_S
                actions += self.pump(now, home)
        return actions
