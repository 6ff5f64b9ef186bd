"""`ReferenceSelector`: the selector of routers without an engine of `palio.matching`.

It tests filters on events one by one, which suits the single events of a simulation. A filter that
fixes an attribute to one value is only tested on events with that value, and one of plain intervals
without three-valued logic. `RowSelector` has the code shared with other selectors of rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from palio.matching.protocol import RowMask
from palio.model.filters import Filter
from palio.model.masks import ONE_ROW
from palio.model.parcels import Parcel
from palio.model.values import Bindings, coordinate, kind_of
from palio.routing.normalized import NormalizedFilter, Point, Test, form_of
from palio.routing.parameters import bound

_Bucket: TypeAlias = dict[int, Test]
"""Tests by key."""


class RowSelector(ABC):
    """A `Selector` that evaluates rows one by one. A subclass chooses the filters to test.

    Changed filters are filed, with their values bound, only at the next event: there may be many
    more updates than events.
    """

    def __init__(self) -> None:
        self.destinations: dict[int, int] = {}  # by key
        self._stale: dict[int, Filter] = {}

    def add(self, key: int, filter: Filter, values: Bindings, destination: int) -> None:
        """Add a filter for a destination."""
        self.destinations[key] = destination
        self._stale[key] = bound(filter, values)

    def remove(self, key: int) -> None:
        """Forget a filter."""
        del self.destinations[key]
        self._stale.pop(key, None)
        self._take_out(key)

    def bind(self, key: int, values: Bindings, filled: Filter) -> None:  # noqa: ARG002  # `filled` has them
        """Change values of a filter."""
        self._stale[key] = filled

    def __len__(self) -> int:
        return len(self.destinations)

    def route(self, parcel: Parcel) -> dict[int, RowMask]:
        """Select the destinations of events."""
        self._refresh()
        if len(parcel) == 1:
            return dict.fromkeys(self._destinations(parcel.rows[0]), ONE_ROW)
        routes: dict[int, RowMask] = {}
        for index, row in enumerate(parcel.rows):
            for destination in self._destinations(row):
                if destination not in routes:
                    routes[destination] = np.zeros(len(parcel), np.bool_)
                routes[destination][index] = True
        return routes

    def match_event(self, event: Mapping[str, Any]) -> list[int]:
        """Return the keys of the filters that an event matches."""
        if self._stale:
            self._refresh()
        return self._matching(event)

    def _refresh(self) -> None:
        """File the filters that changed since the last event."""
        for key, filled in self._stale.items():
            self._take_out(key)
            self._file(key, form_of(filled))
        self._stale.clear()

    @abstractmethod
    def _file(self, key: int, form: NormalizedFilter) -> None:
        """File a filter, whose key is not filed."""

    @abstractmethod
    def _take_out(self, key: int) -> None:
        """Remove a filter, if it is filed."""

    @abstractmethod
    def _matching(self, row: Mapping[str, Any]) -> list[int]:
        """Return the keys of the filters that match."""

    @abstractmethod
    def _destinations(self, row: Mapping[str, Any]) -> Iterable[int]:
        """Return the destinations of the filters that match, each once."""


class ReferenceSelector(RowSelector):
    """Filters by a value that they require; the others are tested on every event.

    >>> import palio
    >>> rows = ReferenceSelector()
    >>> rows.add(1, palio.parse("x > :low"), {"low": 1}, destination=7)
    >>> from palio.model.row_parcels import RowParcel
    >>> rows.route(RowParcel("p", [{"x": 1}, {"x": 2}]))
    {7: array([False,  True])}
    """

    def __init__(self) -> None:
        super().__init__()
        self._points: dict[int, Point] = {}  # by key, the value by which a filter is filed
        self._by_point: dict[Point, _Bucket] = {}
        # Number of buckets by attribute: a row is only asked for attributes that have any.
        self._names: dict[str, int] = {}
        self._others: _Bucket = {}

    def _file(self, key: int, form: NormalizedFilter) -> None:
        if not form.points:
            self._others[key] = form.test
            return
        point = self._points[key] = form.points[0]
        bucket = self._by_point.get(point)
        if bucket is None:
            bucket = self._by_point[point] = {}
            self._names[point[0]] = self._names.get(point[0], 0) + 1
        bucket[key] = form.rest

    def _take_out(self, key: int) -> None:
        point = self._points.pop(key, None)
        if point is None:
            self._others.pop(key, None)
            return
        bucket = self._by_point[point]
        del bucket[key]
        if not bucket:
            del self._by_point[point]
            name = point[0]
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]

    def _matching(self, row: Mapping[str, Any]) -> list[int]:
        buckets = self._candidates(row)
        return [key for bucket in buckets for key, test in bucket.items() if test(row)]

    def _destinations(self, row: Mapping[str, Any]) -> dict[int, None]:
        hit: dict[int, None] = {}
        destinations = self.destinations
        for bucket in self._candidates(row):
            for key, test in bucket.items():
                destination = destinations[key]
                # One match is enough for a destination, and to know that costs less than a test.
                if destination not in hit and test(row):
                    hit[destination] = None
        return hit

    def _candidates(self, row: Mapping[str, Any]) -> list[_Bucket]:
        """Collect the buckets of filters that an event may match."""
        buckets = [self._others] if self._others else []
        for name in self._names:
            value = row.get(name)
            if value is not None:
                bucket = self._by_point.get((name, kind_of(value), coordinate(value)))
                if bucket is not None:
                    buckets.append(bucket)
        return buckets
