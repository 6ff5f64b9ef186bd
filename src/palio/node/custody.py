"""`Custody`: durable events that this broker answers for, until every home has taken them.

An entry is a parcel with the brokers (*homes*) whose durable subscriptions must get it. For other
homes it is carried to the neighbour on the way and kept until that one `Took` it; for this broker
it is assigned to the durable subscriptions that match it, and kept until each has dealt with it.
Nothing here depends on routing tables: the way is looked up whenever something is to be sent, so
links may come and go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice, takewhile
from typing import Final, NamedTuple

import pyarrow as pa

from palio.errors import IllegalMessage, JournalDamaged
from palio.matching.protocol import RowMask
from palio.model.events import SEQ, TIME, TIMESTAMP
from palio.node.bookmarks import Bookmarks
from palio.node.effects import (
    ANYBODY,
    Assign,
    DropEntries,
    Entry,
    Forget,
    Heading,
    Operation,
    PutEntry,
    Store,
    Stored,
)
from palio.node.notices import Notice
from palio.node.parcel_cache import ParcelCache
from palio.protocol.limits import WINDOW_BYTES
from palio.protocol.messages import Carry, Deliver, Gap, Gaps, Parcel, pack_mask

__all__ = ["Custody", "Lost"]

READ_AHEAD: Final = 64
"""Entries read from the journal at once."""

_NO_EVENTS: Final = pa.RecordBatch.from_arrays(  # of lists of values Arrow asks pandas
    [pa.nulls(0, pa.int64()), pa.nulls(0, TIMESTAMP)], names=[SEQ, TIME]
)

NextHop = Callable[[str], "str | None"]


class Lost(NamedTuple):
    """An entry that the journal cannot give back, as a durable subscription is told of it."""

    entry: int
    gap: Gap

    @property
    def messages(self) -> tuple[Gaps, Deliver]:
        """A gap, and an entry without events: to acknowledge that is to have heard of the gap."""
        nothing = Parcel(self.gap.publisher, _NO_EVENTS)
        return Gaps((self.gap,)), Deliver(nothing, None, self.gap.key, self.entry)


class _Line:
    """What waits for one durable subscription, in order, and how much of it is with its owner."""

    __slots__ = ("entries", "first", "held", "in_flight", "sizes")

    def __init__(self, entries: Iterable[int] = (), first: int = 0) -> None:
        self.entries = deque(entries)
        self.first = first
        """Entries before this one are none of its own."""
        self.sizes: deque[int] = deque()
        """Bytes of those at its head that were sent and not acknowledged."""
        self.in_flight = 0
        self.held = 0
        """How many of these are held by its owner, and count no longer as in flight."""

    def hold(self, entry: int) -> None:
        """Its owner holds what was sent of it up to an entry."""
        while self.held < len(self.sizes) and self.entries[self.held] <= entry:
            self.in_flight -= self.sizes[self.held]
            self.sizes[self.held] = 0
            self.held += 1

    def leave(self) -> int:
        """Its owner has dealt with the entry at its head."""
        if self.sizes:
            self.in_flight -= self.sizes.popleft()
            self.held = max(0, self.held - 1)
        return self.entries.popleft()

    def rewind(self) -> None:
        """All of it is to be sent again."""
        self.sizes.clear()
        self.in_flight = self.held = 0


class Custody:
    """Entries, the homes that have not taken them, and the lines of durable subscriptions."""

    def __init__(self, name: str, store: Store, stored: Stored) -> None:
        self.name = name
        self._store = store
        self._cache = ParcelCache(store)
        self._next_entry = stored.last_entry + 1
        self._homes: dict[int, tuple[str, ...]] = {}
        self._subjects = dict(stored.subjects)
        self._claims: dict[int, int] = {}
        self._under_way: dict[int, tuple[str, ...]] = {}
        self._flights: dict[str, dict[int, tuple[int, tuple[str, ...]]]] = {}
        self._queues: dict[str, deque[int]] = {}
        self._next_flight = 0
        self.due: dict[str, None] = {}
        """Neighbours for whom something was queued or whose window has opened. Whoever serves them
        takes them out."""
        self._stranded: dict[int, None] = {}
        self._ways = -1
        self._rows: dict[tuple[str, int], bytes | None] = {}
        self.damaged: list[tuple[int, dict[str, object]]] = []
        """Entries that the journal could not give back when their turn came, and for whom they are.
        Whoever reports it takes it out."""
        self._unreadable: set[int] = set()
        """Those on their way to other homes."""
        self._bookmarks = Bookmarks(stored.bookmarks)
        self._lines = {
            name: _Line(stored.waiting.get(name, ()))
            for name in {**stored.waiting, **stored.bookmarks}
        }
        for line in self._lines.values():
            for entry in line.entries:
                self._claims[entry] = self._claims.get(entry, 0) + 1
        left_over = []
        for entry, homes in stored.pending:
            away = tuple(home for home in homes if home != name)
            if away:
                self._homes[entry] = away
                self._stranded[entry] = None
            elif entry not in self._claims:
                left_over.append(entry)
        self.left_over = tuple(left_over)
        """Entries on the disk that nobody needs: the broker stopped when a subscription of theirs
        had ended, and before that was written of them."""

    # --- taking ---

    def take(
        self,
        parcel: Parcel,
        homes: tuple[str, ...],
        assigned: Mapping[str, RowMask],
        wall_us: int,
        subjects: tuple[str, ...] = (),
    ) -> tuple[int, list[Operation]]:
        """Take events into custody, for all or some at their homes (see `PutEntry`): the entry, and
        what to write. Nothing is sent yet.
        """
        entry = self._next_entry
        self._next_entry += 1
        away = tuple(home for home in homes if home != self.name)
        operations: list[Operation] = [PutEntry(entry, parcel, away, wall_us, subjects)]
        for subscription, mask in assigned.items():
            rows = pack_mask(mask)
            self._rows[subscription, entry] = rows
            operations.append(Assign(subscription, entry, rows))
        if away:
            self._homes[entry] = away
            if subjects:
                self._subjects[entry] = subjects
        if assigned:
            self._claims[entry] = len(assigned)
        self._cache.hold(entry, parcel)
        return entry, operations

    def release(self, entry: int, subscriptions: Iterable[str]) -> None:
        """The entry is on the disk: it joins the lines of the subscriptions it was assigned to."""
        self._cache.written(entry)
        for subscription in subscriptions:
            if self.lines_up(subscription, entry):
                self._lines[subscription].entries.append(entry)
            else:  # it has ended meanwhile, and perhaps begun anew
                self._leave(subscription, entry)

    def lines_up(self, subscription: str, entry: int) -> bool:
        """Whether an entry that was assigned to a durable subscription is to wait for it here."""
        line = self._lines.get(subscription)
        return line is not None and entry >= line.first

    def abandon(self, entry: int, subscriptions: Iterable[str]) -> None:
        """The entry could not be written: it is nobody's."""
        for subscription in subscriptions:
            self._rows.pop((subscription, entry), None)
        self._homes.pop(entry, None)
        self._subjects.pop(entry, None)
        self._claims.pop(entry, None)
        self._cache.drop(entry)

    # --- towards other homes ---

    def dispatch(self, entry: int, next_hop: NextHop) -> None:
        """Queue an entry for the neighbours on the way to those homes it is not on its way to."""
        under_way = self._under_way.get(entry, ())
        by_hop: dict[str | None, tuple[str, ...]] = {}
        for home in self._homes.get(entry, ()):
            if home not in under_way:
                hop = next_hop(home)
                by_hop[hop] = (*by_hop.get(hop, ()), home)
        for hop, homes in by_hop.items():
            if hop is None:
                self._stranded[entry] = None
                continue
            self._next_flight += 1
            self._flights.setdefault(hop, {})[self._next_flight] = (entry, homes)
            self._queues.setdefault(hop, deque()).append(self._next_flight)
            self.due[hop] = None
            under_way += homes
        if under_way:
            self._under_way[entry] = under_way

    def next_carry(self, neighbour: str) -> Carry | None:
        """What to send to a neighbour next."""
        queue = self._queues.get(neighbour)
        while queue:
            flights = self._flights[neighbour]
            number = queue[0]
            entry, homes = flights[number]
            ahead = (flights[each][0] for each in islice(queue, 1, 1 + READ_AHEAD))
            parcel = self._cache.get(entry, ahead)
            queue.popleft()  # once it was read: else it is sent another time
            if parcel is None and entry in self._homes:  # and was not abandoned
                if entry not in self._unreadable:
                    self._unreadable.add(entry)
                    self.damaged.append((entry, {"homes": list(homes)}))
                parcel = Notice.at(self.name, entry, self.heading(entry), 0).anonymous.parcel
            if parcel is not None:
                return Carry(parcel, number, homes, self._subjects.get(entry, ()))
            self.took(neighbour, (number,))
        return None

    def took(self, neighbour: str, flights: Iterable[int]) -> list[int]:
        """A neighbour has these on its disk: the entries that are that much nearer their end.

        `IllegalMessage`, and no change, if one of them was not even sent.
        """
        known = self._flights.get(neighbour, {})
        queue = self._queues.get(neighbour)
        flights = tuple(flights)
        if queue and any(number >= queue[0] for number in flights):
            raise IllegalMessage(neighbour, "Took for what was not sent to it")
        entries = []
        for number in flights:
            if number in known:
                entry, taken = known.pop(number)
                self._shrink(self._homes, entry, taken)
                self._shrink(self._under_way, entry, taken)
                entries.append(entry)
        return entries

    def detach(self, neighbour: str) -> None:
        """A neighbour is gone: what it has not taken looks for another way."""
        self._queues.pop(neighbour, None)
        for entry, homes in self._flights.pop(neighbour, {}).values():
            self._shrink(self._under_way, entry, homes)
            self._stranded[entry] = None

    @staticmethod
    def _shrink(table: dict[int, tuple[str, ...]], entry: int, homes: tuple[str, ...]) -> None:
        left = tuple(home for home in table.get(entry, ()) if home not in homes)
        if left:
            table[entry] = left
        else:
            table.pop(entry, None)

    def reroute(self, next_hop: NextHop, ways: int) -> None:
        """What has no way may have one now, if the ways (by their version) have changed."""
        if ways == self._ways:
            return
        self._ways = ways
        stranded, self._stranded = sorted(self._stranded), {}
        for entry in stranded:
            self.dispatch(entry, next_hop)

    def awaits(self, home: str) -> bool:
        """Whether something is kept for a home."""
        return any(home in homes for homes in self._homes.values())

    def named_at(self, home: str) -> list[tuple[int, tuple[str, ...]]]:
        """What is kept for a home and for some durable subscriptions there alone, with these."""
        return [
            (entry, subjects)
            for entry, subjects in self._subjects.items()
            if home in self._homes.get(entry, ())
        ]

    def redirect(self, entry: int, home: str, homes: tuple[str, ...]) -> list[PutEntry]:
        """An entry is to go to other homes in the stead of one; what to write."""
        try:
            (read,) = self._store.entries([entry]) or (None,)
        except JournalDamaged:
            read = None
        parcel = self._cache.get(entry, ()) if read is None else read.parcel
        if parcel is None:
            parcel = Notice.at(self.name, entry, self.heading(entry), 0).anonymous.parcel
        wall_us = self.heading(entry).wall_us
        self._shrink(self._homes, entry, (home,))
        self._shrink(self._under_way, entry, (home,))
        left = self._homes.get(entry, ())
        self._homes[entry] = (*left, *(each for each in homes if each not in left))
        self._stranded[entry] = None
        self._ways = -1
        return [PutEntry(entry, parcel, self._homes[entry], wall_us, self._subjects[entry])]

    def put(self, entry: int, parcel: Parcel, wall_us: int) -> PutEntry:
        """What to write of an entry that is kept in memory alone."""
        subjects = self._subjects.get(entry, ())
        return PutEntry(entry, parcel, self._homes[entry], wall_us, subjects)

    def give_up(self, home: str) -> list[int]:
        """A home is gone for good: the entries that it has not taken, now without it."""
        entries = [entry for entry, homes in self._homes.items() if home in homes]
        for entry in entries:
            self._shrink(self._homes, entry, (home,))
            self._shrink(self._under_way, entry, (home,))
        return entries

    # --- durable subscriptions of this broker ---

    def open(self, subscription: str) -> None:
        """A durable subscription lives here."""
        self._lines.setdefault(subscription, _Line(first=self._next_entry))

    def rewind(self, subscription: str) -> None:
        """Its owner is here anew: what was not acknowledged is sent again."""
        self._lines[subscription].rewind()

    def bookmark(self, subscription: str) -> bytes:
        """How far its owner had got, in its own words; empty if it has not said so."""
        return self._bookmarks.get(subscription)

    def next_delivery(self, subscription: str, key: int) -> Deliver | Lost | None:
        """What to send to a durable subscription's owner next, unless too much is with it.

        An entry that the journal cannot give back any more is a gap.
        """
        line = self._lines[subscription]
        if len(line.sizes) < len(line.entries) and line.in_flight < WINDOW_BYTES:
            sent = len(line.sizes)
            entry = line.entries[sent]
            ahead = range(sent + 1, min(sent + READ_AHEAD, len(line.entries)))
            parcel = self._cache.get(entry, (line.entries[place] for place in ahead))
            rows = None
            try:
                rows = self.rows(subscription, entry)
            except JournalDamaged:  # which of the events are its own
                parcel = None
            if parcel is None:
                parcel = self._lost(subscription, entry).parcel
            line.sizes.append(parcel.nbytes)
            line.in_flight += parcel.nbytes
            notice = Notice.of(parcel)
            if notice is not None:
                return Lost(entry, notice.gap(key))
            return Deliver(parcel, rows, key, entry)
        return None

    def heading(self, entry: int) -> Heading:
        """Whose events an entry holds that cannot be read, if that can be."""
        return self._store.heading(entry) or Heading(ANYBODY, 0, 0, 0)

    def _lost(self, subscription: str, entry: int) -> Notice:
        """What an entry that cannot be read was to a subscription: so many events, or fewer where
        it was to get all of a part of a publication, or where its rows cannot be read either.
        """
        self.damaged.append((entry, {"subscription": subscription}))
        heading = self.heading(entry)
        try:
            rows = self.rows(subscription, entry)
        except JournalDamaged:
            rows = None
        numbers = heading.last_seq - heading.first_seq + 1
        events = numbers if rows is None else int.from_bytes(rows).bit_count()
        if heading.publisher == ANYBODY:
            events = 0
        return Notice.at(self.name, entry, heading, events)

    def acknowledge(
        self, subscription: str, entry: int, held: int = 0, bookmark: bytes = b""
    ) -> list[Forget] | None:
        """It has dealt with everything up to an entry; see `Acknowledge`. None, and nothing is
        forgotten, if there is no room for the bookmark: it is told again with the next one.
        """
        line = self._lines[subscription]
        is_news = bool(bookmark)
        if is_news and not self._bookmarks.keep(subscription, bookmark):
            line.hold(held)
            return None
        while line.entries and line.entries[0] <= entry:
            self._leave(subscription, line.leave())
            is_news = True
        line.hold(held)
        return [Forget(subscription, entry, bookmark)] if is_news else []

    def hold(self, entries: Iterable[int]) -> None:
        """Keep entries, whoever needs them, until they are `let_go`."""
        for entry in entries:
            self._claims[entry] = self._claims.get(entry, 0) + 1

    def let_go(self, entries: Iterable[int]) -> None:
        """Undo a `hold`."""
        for entry in entries:
            self._unclaim(entry)

    def lined_up(self, subscription: str, entry: int) -> list[int]:
        """What waits for a durable subscription, up to an entry."""
        return list(takewhile(lambda each: each <= entry, self._lines[subscription].entries))

    def close(self, subscription: str) -> list[int]:
        """A durable subscription has ended, with all that waits for it, which is returned."""
        line = self._lines.pop(subscription, _Line())
        self._bookmarks.drop(subscription)
        for entry in line.entries:
            self._leave(subscription, entry)
        return list(line.entries)

    def waiting(self, subscription: str) -> list[Entry]:
        """All that waits for a durable subscription, in order; notices for what is damaged."""
        found: list[Entry] = []
        for entry in self._lines[subscription].entries:
            try:
                read = self._store.entries([entry])
                self._rows[subscription, entry] = self.rows(subscription, entry)
            except JournalDamaged:
                read = []
            if not read:
                read = [Entry(entry, self._lost(subscription, entry).parcel, (), 0)]
                self._rows[subscription, entry] = None
            found += read
        return found

    def forget_before(self, subscription: str) -> Forget:
        """Take off the disk what was assigned to a durable subscription before it lived here."""
        return Forget(subscription, self._lines[subscription].first - 1)

    def line(self, subscription: str) -> int:
        """How many entries wait for a durable subscription."""
        line = self._lines.get(subscription)
        return 0 if line is None else len(line.entries)

    def sent(self, subscription: str) -> int:
        """How many of these are with its owner, or on their way there."""
        line = self._lines.get(subscription)
        return 0 if line is None else len(line.sizes)

    def last(self, subscription: str) -> int:
        """The last entry that waits for a durable subscription; 0 if none does."""
        line = self._lines.get(subscription)
        return line.entries[-1] if line is not None and line.entries else 0

    def rows(self, subscription: str, entry: int) -> bytes | None:
        """The rows of an entry that were assigned to a durable subscription."""
        place = (subscription, entry)
        if place not in self._rows:
            return self._store.assigned(subscription, [entry])[0]
        return self._rows[place]

    def _leave(self, subscription: str, entry: int) -> None:
        self._rows.pop((subscription, entry), None)
        self._unclaim(entry)

    def _unclaim(self, entry: int) -> None:
        left = self._claims.get(entry, 0) - 1
        if left > 0:
            self._claims[entry] = left
        else:
            self._claims.pop(entry, None)

    # --- what is over ---

    @property
    def last_taken(self) -> int:
        """The last entry that was taken."""
        return self._next_entry - 1

    def is_needed(self, entry: int) -> bool:
        """Whether some home or some subscription has not got an entry."""
        return entry in self._homes or entry in self._claims

    def drop(self, entries: Iterable[int]) -> list[DropEntries]:
        """Write off those entries that nobody needs any longer."""
        over = tuple(entry for entry in entries if not self.is_needed(entry))
        self._unreadable.difference_update(over)
        for entry in over:
            self._subjects.pop(entry, None)
            self._cache.drop(entry)
        return [DropEntries(over)] if over else []

    @property
    def held(self) -> int:
        """Entries in custody."""
        return len(self._homes.keys() | self._claims.keys())
