"""`ReferenceSelector`: the selector of routers that are given no engine of the matching room.

It tries filters on events one by one, which is right for the single events of a simulation. A
filter that fixes an attribute to one value is only tried on events with that value, and one of
plain intervals is tested without three-valued logic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from palio.matching.protocol import RowMask
from palio.model.filters import Filter
from palio.model.parcels import ONE_ROW, Parcel
from palio.model.values import Bindings, Kind, coordinate, kind_of
from palio.routing.normalized import Test, form_of
from palio.routing.parameters import bound

__all__ = ["ReferenceSelector"]

_Bucket: TypeAlias = dict[int, tuple[int, Test]]
"""By key, a destination and its test."""

_NOTHING: Final[_Bucket] = {}


class ReferenceSelector:
    """A `Selector` that evaluates rows one by one.

    >>> import palio
    >>> rows = ReferenceSelector()
    >>> rows.add(1, palio.parse("x > :low"), {"low": 1}, destination=7)
    >>> from palio.model.row_parcels import RowParcel
    >>> rows.route(RowParcel("p", [{"x": 1}, {"x": 2}]))
    {7: array([False,  True])}
    """

    def __init__(self) -> None:
        self._asked: dict[int, tuple[Filter, dict[str, Any], int]] = {}
        self._stale: dict[int, None] = {}
        self._buckets: dict[int, _Bucket] = {}
        self._by_point: dict[str, dict[tuple[Kind, Any], _Bucket]] = {}
        self._others: _Bucket = {}

    def add(self, key: int, filter: Filter, values: Bindings, destination: int) -> None:
        """See `Selector`."""
        self._asked[key] = (filter, dict(values), destination)
        self._stale[key] = None

    def remove(self, key: int) -> None:
        """See `Selector`."""
        del self._asked[key]
        self._stale.pop(key, None)
        bucket = self._buckets.pop(key, None)
        if bucket is not None:
            del bucket[key]

    def bind(self, key: int, values: Bindings) -> None:
        """See `Selector`."""
        self._asked[key][1].update(values)
        self._stale[key] = None

    def route(self, parcel: Parcel) -> dict[int, RowMask]:
        """See `Selector`."""
        if self._stale:
            self._refresh()
        if len(parcel) == 1:
            return dict.fromkeys(self._destinations(parcel.rows[0]), ONE_ROW)
        found: dict[int, RowMask] = {}
        for place, row in enumerate(parcel.rows):
            for destination in self._destinations(row):
                if destination not in found:
                    found[destination] = np.zeros(len(parcel), np.bool_)
                found[destination][place] = True
        return found

    def match_event(self, event: Mapping[str, Any]) -> list[int]:
        """See `Selector`."""
        if self._stale:
            self._refresh()
        buckets = self._tried(event)
        return [key for each in buckets for key, (_, test) in each.items() if test(event)]

    def _destinations(self, row: Mapping[str, Any]) -> dict[int, None]:
        hit: dict[int, None] = {}
        for bucket in self._tried(row):
            for destination, test in bucket.values():
                if destination not in hit and test(row):
                    hit[destination] = None
        return hit

    def _tried(self, row: Mapping[str, Any]) -> list[_Bucket]:
        """The filters that an event may match."""
        buckets = [self._others]
        for name, by_value in self._by_point.items():
            value = row.get(name)
            if value is not None:
                buckets.append(by_value.get((kind_of(value), coordinate(value)), _NOTHING))
        return buckets

    def _refresh(self) -> None:
        """File what changed since events last came: updates may be many more than events."""
        for key in self._stale:
            filter, values, destination = self._asked[key]
            old = self._buckets.get(key)
            if old is not None:
                del old[key]
            bucket = self._others
            form = form_of(bound(filter, values))
            point = form.point
            if point is not None:
                name, kind, place = point
                bucket = self._by_point.setdefault(name, {}).setdefault((kind, place), {})
            bucket[key] = (destination, form.test)
            self._buckets[key] = bucket
        self._stale.clear()
