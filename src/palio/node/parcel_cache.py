"""`ParcelCache`: the newest durable events, so that the journal is read for old ones alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from palio.errors import JournalDamaged
from palio.node.effects import Store
from palio.protocol.messages import Parcel

CACHE_BYTES: Final = 64 << 20
"""Parcels kept in memory; others are read from the journal when their turn comes."""


class ParcelCache:
    """The newest parcels, by entry, and all that are not on the disk yet."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._parcels: OrderedDict[int, Parcel] = OrderedDict()
        self._unwritten: dict[int, Parcel] = {}
        self._bytes = 0

    def hold(self, entry: int, parcel: Parcel) -> None:
        """Keep a parcel until it is `written`."""
        self._unwritten[entry] = parcel

    def written(self, entry: int) -> None:
        """An entry can be read from the journal from now on."""
        parcel = self._unwritten.pop(entry, None)
        if parcel is not None:
            self.put(entry, parcel)

    def put(self, entry: int, parcel: Parcel) -> None:
        """Keep a parcel that is on the disk, in the place of the oldest."""
        self._parcels[entry] = parcel
        self._bytes += parcel.nbytes
        while self._bytes > CACHE_BYTES and len(self._parcels) > 1:
            _, old = self._parcels.popitem(last=False)
            self._bytes -= old.nbytes

    def get(self, entry: int, after: Iterable[int]) -> Parcel | None:
        """A parcel; `after` are entries likely to be asked for next. None for a damaged one."""
        for parcels in (self._parcels, self._unwritten):
            held = parcels.get(entry)
            if held is not None:
                return held
        found: Parcel | None = None
        numbers = [each for each in (entry, *after) if each not in self._parcels]
        try:
            entries = self._store.entries(numbers)
        except JournalDamaged:  # one of them; whether it is this one shows when it is read alone
            try:
                entries = self._store.entries([entry])
            except JournalDamaged:
                return None
        for read in entries:
            self.put(read.entry, read.parcel)
            if read.entry == entry:
                found = read.parcel
        return found

    def drop(self, entry: int) -> None:
        """An entry is over, or was never written."""
        self._unwritten.pop(entry, None)
        parcel = self._parcels.pop(entry, None)
        if parcel is not None:
            self._bytes -= parcel.nbytes
