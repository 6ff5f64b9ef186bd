"""Tasks of Spark: where one stands in its query, and what it counts on the way to the driver.

Events that match nothing because a value of theirs fits no attribute are counted by workers as they
match, and Spark brings the counts to the driver with the end of each task (an accumulator). The
driver logs them under `palio.spark`: the first time, and whenever ten times as many have come. A
task that Spark runs twice may count twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from palio.spark.attributes import Misfit

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger: Final = logging.getLogger("palio.spark")

QUERY: Final = "sql.streaming.queryId"
"""The local property of a task that names its query..."""

BATCH: Final = "streaming.sql.batchId"
"""...and the one that has the number of its micro-batch."""

EVENTS: Final = ("", "")
"""The key of how many events there are: one may have several such values."""

SHOWN: Final = 5
"""Reasons that are logged at once, those with most values first."""

Counts: TypeAlias = dict[tuple[str, str], int]
"""Of each attribute and reason how many values there are, and of `EVENTS` how many events."""


class TaskPlace(NamedTuple):
    """The place of a task in its query: the same when it is tried again."""

    query: str
    """Empty where it is of no stream."""
    batch: int
    partition: int

    @classmethod
    def here(cls) -> TaskPlace:
        """That of the task that is running."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            return cls("", 0, 0)
        return cls(
            context.getLocalProperty(QUERY) or "",
            int(context.getLocalProperty(BATCH) or 0),
            context.partitionId(),
        )


def context_of(spark: SparkSession) -> SparkContext | None:
    """The context of a session; None by Spark Connect, which has none."""
    from pyspark.errors import PySparkAttributeError

    try:
        return spark.sparkContext
    except PySparkAttributeError:
        return None


class Tally(Protocol):
    """An accumulator that tasks add their counts to."""

    def add(self, term: Counts) -> None:
        """Count some more."""


class Sum:
    """Adds counts for Spark; the one at the driver logs them, and copies elsewhere do not."""

    def __init__(self, *, logs: bool = False) -> None:
        self.logs = logs

    def __reduce__(self) -> tuple[Callable[[], Sum], tuple[()]]:
        return Sum, ()

    def zero(self, value: Counts) -> Counts:
        """The counts that a task begins with: none."""
        return dict.fromkeys(value.keys() & {EVENTS}, 0)

    def addInPlace(self, value: Counts, more: Counts) -> Counts:  # noqa: N802  # Spark's name
        """The sum of two."""
        counts = dict(value)
        for key, count in more.items():
            counts[key] = counts.get(key, 0) + count
        if self.logs and _digits(counts) > _digits(value):
            logger.warning("%s", _summary(counts))
        return counts


def _digits(counts: Counts) -> int:
    """Digits of the number of events; 0 if there are none."""
    events = counts.get(EVENTS, 0)
    return len(str(events)) if events else 0


def _summary(counts: Counts) -> str:
    values = sorted(((count, key) for key, count in counts.items() if key != EVENTS), reverse=True)
    reasons = [f"{name}: {reason} ({count} values)" for count, (name, reason) in values[:SHOWN]]
    if len(values) > SHOWN:
        reasons.append(f"and {len(values) - SHOWN} more")
    return (
        f"{counts[EVENTS]} events so far match nothing, because a value of theirs fits no "
        f"attribute: {'; '.join(reasons)}. palio.spark.rejects(events) lists them"
    )


def counts_of(misfits: Iterable[Misfit], events: int) -> Counts:
    """The counts of a batch in which `events` events have such values."""
    counts: Counts = {EVENTS: events}
    for misfit in misfits:
        key = (misfit.attribute, misfit.reason)
        counts[key] = counts.get(key, 0) + len(misfit.rows)
    return counts


def tally(session: SparkSession) -> Tally | None:
    """A tally of a job; None by Spark Connect, which has no way for it."""
    context = context_of(session)
    if context is None:
        return None
    counter: Any = Sum(logs=True)
    tally: Tally = context.accumulator({}, counter)
    return tally
