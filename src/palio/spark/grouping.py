"""`plan_groups`: a plan of multicast groups from an archive of events, matched on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from palio.errors import InvalidInput
from palio.multicast.broker_sets import numbered, words_in, words_of
from palio.multicast.planners import BEST, PlanLimits, planned
from palio.multicast.plans import GroupPlan, PlanReport
from palio.multicast.traffic import GroupTraffic
from palio.spark.matches import EventSource, match
from palio.spark.reading import Source
from palio.spark.sets import SubscriptionSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AT_ONCE: Final = 65_536
"""Sets that are spread out to a byte for each broker at once."""


class PlannedGroups(NamedTuple):
    """A plan, what such plans cost for events that they were not made of, and the traffic that it
    was made for.
    """

    plan: GroupPlan
    report: PlanReport
    traffic: GroupTraffic


def plan_groups(
    events: EventSource,
    subscriptions: Source | SubscriptionSet,
    brokers: Sequence[str] | None = None,
    *,
    method: str = BEST,
    limits: PlanLimits | None = None,
    time: str | None = None,
) -> PlannedGroups:
    """A plan of which multicast groups carry such events to brokers.

    The `subscriber` of a subscription is the broker that it is at. `brokers` are all that there
    are; if it is left out, those with subscriptions to which an event goes. What crosses to the
    driver is each distinct set of brokers with its count, never an event.

    >>> palio.spark.plan_groups("quotes.parquet", "subscriptions.jsonl")  # doctest: +SKIP
    """
    limits = PlanLimits() if limits is None else limits
    traffic = group_traffic(events, subscriptions, brokers, time=time)
    if not len(traffic):
        raise InvalidInput("no event goes to any broker; there is nothing to plan for")
    return PlannedGroups(*planned(traffic, method, limits), traffic)


def group_traffic(
    events: EventSource,
    subscriptions: Source | SubscriptionSet,
    brokers: Sequence[str] | None = None,
    *,
    time: str | None = None,
) -> GroupTraffic:
    """Count the recipients of events: see `plan_groups`."""
    sets: DataFrame = match(events, subscriptions, "sets", time=time)
    return traffic_of(sets.toArrow(), brokers)


def traffic_of(table: pa.Table, brokers: Sequence[str] | None) -> GroupTraffic:
    """The traffic of a table of `subscribers` and `count`.

    >>> table = pa.table({"subscribers": [["b2"], ["b1", "b2"]], "count": [3, 1]})
    >>> traffic_of(table, None).shares.tolist()
    [0.75, 0.25]
    """
    lists = _one(table.column("subscribers"))
    flat = lists.flatten().cast(pa.utf8())
    names = sorted(pc.unique(flat).to_pylist()) if brokers is None else list(brokers)
    if not names:
        raise InvalidInput("no event goes to any broker; there is nothing to plan for")
    numbered(names)
    places = pc.index_in(flat, value_set=pa.array(names, pa.utf8()))
    if places.null_count:
        strange = flat.filter(places.is_null())[0].as_py()
        raise InvalidInput(f"{strange!r:.80} is a subscriber, and no broker of this plan")
    starts = np.concatenate([[0], np.cumsum(lists.value_lengths().to_numpy(False))])
    columns = places.to_numpy(False)
    sets = np.zeros((len(lists), words_in(len(names))), np.uint64)
    for first in range(0, len(lists), AT_ONCE):
        last = min(len(lists), first + AT_ONCE)
        masks = np.zeros((last - first, len(names)), np.bool_)
        lengths = np.diff(starts[first : last + 1])
        rows = np.repeat(np.arange(last - first), lengths)
        masks[rows, columns[starts[first] : starts[last]]] = True
        sets[first:last] = words_of(masks)
    counts = _one(table.column("count")).to_numpy(False).astype(np.float64)
    return GroupTraffic.counted(names, sets, counts)


def _one(column: Any) -> Any:
    """A column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
