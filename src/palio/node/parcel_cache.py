"""`ParcelCache`: the newest durable events in memory, so that only old ones need the journal."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from palio.errors import JournalDamaged
from palio.node.effects import Store
from palio.protocol.messages import Parcel

CACHE_BYTES: Final = 64 << 20
"""The memory for written parcels; the journal serves all others."""


class ParcelCache:
    """The newest parcels, by entry, and all that are not on disk yet."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._parcels: OrderedDict[int, Parcel] = OrderedDict()
        self._unwritten: dict[int, Parcel] = {}
        self._bytes = 0

    def hold(self, entry: int, parcel: Parcel) -> None:
        """Keep a parcel until it is `written`."""
        self._unwritten[entry] = parcel

    def written(self, entry: int) -> None:
        """Make a parcel evictable, as the journal can serve it now."""
        parcel = self._unwritten.pop(entry, None)
        if parcel is not None:
            self.put(entry, parcel)

    def put(self, entry: int, parcel: Parcel) -> None:
        """Keep a parcel that is on disk, and evict the oldest beyond the limit."""
        previous = self._parcels.pop(entry, None)  # read ahead before its write was reported
        if previous is not None:
            self._bytes -= previous.nbytes
        self._parcels[entry] = parcel
        self._bytes += parcel.nbytes
        while self._bytes > CACHE_BYTES and len(self._parcels) > 1:
            _, old = self._parcels.popitem(last=False)
            self._bytes -= old.nbytes

    def get(self, entry: int, after: Iterable[int]) -> Parcel | None:
        """Return a parcel, or None if damaged; `after` are likely next entries, read ahead."""
        for parcels in (self._parcels, self._unwritten):
            held = parcels.get(entry)
            if held is not None:
                return held
        parcel: Parcel | None = None
        numbers = [number for number in (entry, *after) if number not in self._parcels]
        try:
            entries = self._store.entries(numbers)
        except JournalDamaged:  # of any of them: read this one alone
            try:
                entries = self._store.entries([entry])
            except JournalDamaged:
                return None
        for read in entries:
            self.put(read.entry, read.parcel)
            if read.entry == entry:
                parcel = read.parcel
        return parcel

    def drop(self, entry: int) -> None:
        """Drop an entry that was finished or never written."""
        self._unwritten.pop(entry, None)
        parcel = self._parcels.pop(entry, None)
        if parcel is not None:
            self._bytes -= parcel.nbytes
