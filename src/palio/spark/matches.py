"""`match`: matches the events of a DataFrame, a stream or an archive with subscriptions.

The driver compares two schemas and plans one `mapInArrow`; all the work is in workers.py. The data
that crosses between the JVM and Python decides the speed: it is only the attributes that some
filter names, and the columns of the result.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from palio.errors import InvalidInput
from palio.spark.attributes import arrow_schema, attributes_of, type_at
from palio.spark.events import FILE, ROW, FrameEvents, ParquetEvents, check_columns
from palio.spark.reading import Source
from palio.spark.sessions import session
from palio.spark.sets import SubscriptionSet
from palio.spark.sets import subscriptions as compiled_set
from palio.spark.tasks import tally
from palio.spark.workers import MatchTask, RejectsTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

HOWS: Final = ("pairs", "any", "count", "route", "sets")

_COUNTED: Final = {"count": "subscription", "sets": "subscribers"}
"""The column that a count is grouped by."""

EventSource: TypeAlias = "DataFrame | str | Path"
"""A DataFrame, or the path of a Parquet file or of a directory of them."""


def match(
    events: EventSource,
    subscriptions: Source | SubscriptionSet,
    how: str = "pairs",
    columns: Sequence[str] | None = None,
    *,
    time: str | None = None,
    attributes: Sequence[str] | None = None,
) -> DataFrame:
    """Match events with subscriptions.

    `how` chooses the result:

    - `"pairs"`: one row for each event and subscription it matches: the event's `columns`, then
      `subscription`, the id, and `subscriber` if subscriptions have them;
    - `"any"`: the `columns` of events that match at least one subscription;
    - `"count"`: `subscription` and `count`, for subscriptions that match any event;
    - `"route"`: one row for each event and subscriber with a subscription that it matches: the
      event's `columns`, then `subscriber` (the subscription's id where there are no subscribers);
    - `"sets"`: `subscribers`, a list, and `count`, the number of events that go to exactly these.
      There may be 4,096 subscribers.

    `columns` are the event's columns in the result, by default all; a job is fast if it names only
    those that it needs, such as a key. Events in Parquet files given by path also have `$file` and
    `$row`. `time` names the column that subscriptions' `valid_from` and `valid_to` are about (see
    `palio.spark.subscriptions`).

    An event with a value that fits no attribute matches nothing. Such events are counted, and
    logged by `palio.spark` while the job runs. `rejects` lists them.

    A stream sends all its attributes to the workers, so that subscriptions put in force later may
    name any; `attributes` limits them, which is faster.

    >>> palio.spark.match(quotes, "subscriptions.parquet", columns=["id"])  # doctest: +SKIP
    """
    if how not in HOWS:
        raise InvalidInput(f"how={how!r} is none of {', '.join(HOWS)}")
    source = _source(events)
    standing = compiled_set(subscriptions, time=time)
    _check_time(standing, time, source)
    meta = standing.meta
    if meta.rejected and not isinstance(subscriptions, SubscriptionSet):
        warnings.warn(
            f"{meta.rejected} subscriptions were rejected and match nothing; "
            "palio.spark.subscriptions(...).rejects lists them with reasons",
            stacklevel=2,
        )
    if how in ("route", "sets") and meta.without_subscriber:
        warnings.warn(
            f'{meta.without_subscriber} subscriptions have no subscriber: how="{how}" sends '
            "nobody what they match",
            stacklevel=2,
        )
    usable = attributes_of(source.schema)
    named = set(usable if source.is_streaming else meta.attributes)
    if attributes is not None:
        named &= set(_listed("attributes", attributes))
    _warn_of_unusable(source, meta.attributes)
    wanted = _columns(source, columns, how)
    layout = source.layout(sorted(named), wanted)
    result = _result(source, wanted, how, meta)
    task = MatchTask(
        str(standing.path),
        None if source.is_streaming else standing.version,
        how,
        layout.slots,
        arrow_schema(result),
        frozenset(usable) - named,
        tally(source.session),
    )
    if attributes is not None and not source.is_streaming:
        _check_attributes(task.withheld, meta.attributes)
    rows = source.run(task, layout, result)
    if how not in _COUNTED:
        return rows
    from pyspark.sql import functions

    return rows.groupBy(_COUNTED[how]).agg(functions.sum("count").alias("count"))


def rejects(events: EventSource, columns: Sequence[str] | None = None) -> DataFrame:
    """Values of events that no attribute can hold, which make their events match nothing.

    One row for each: the event's `columns` (by default all), then `attribute`, `value` as text and
    `reason`. docs/reference/spark.md lists what is exact, and so never rejected.
    """
    from pyspark.sql.types import StringType, StructField

    source = _source(events)
    wanted = _columns(source, columns, "any")
    layout = source.layout(sorted(attributes_of(source.schema)), wanted)
    result = source.types(wanted)
    for name in ("attribute", "value", "reason"):
        result.add(StructField(name, StringType()))
    return source.run(RejectsTask(layout.slots, arrow_schema(result)), layout, result)


def _source(events: Any) -> FrameEvents | ParquetEvents:
    if isinstance(events, str | Path):
        return ParquetEvents(_local(events), session())
    if not hasattr(events, "mapInArrow"):
        raise InvalidInput(
            f"events are a Spark DataFrame or the path of Parquet files, not "
            f"{type(events).__module__}.{type(events).__name__}; "
            "spark.read.parquet(*paths) and spark.createDataFrame(...) make a DataFrame"
        )
    return FrameEvents(events)


def _local(path: str | Path) -> Path:
    """A path as workers can open it: of a file or directory on each machine, and no pattern."""
    text = str(path)
    if text.startswith("file:"):
        return Path(unquote(urlsplit(text).path))
    if ("://" in text or set(text) & set("*?[{")) and not Path(text).exists():
        raise InvalidInput(
            f"workers open {text!r} themselves, so it is to be the path of one file or "
            "directory that each of them has; hand in spark.read.parquet(...) instead"
        )
    return Path(path)


def _check_time(
    standing: SubscriptionSet, time: str | None, source: FrameEvents | ParquetEvents
) -> None:
    """The set was compiled for the time column that is asked for, and the events have it."""
    compiled = standing.meta.time
    if time is not None and compiled != time:
        raise InvalidInput(
            f"this set was compiled with time={compiled!r}, not {time!r}; "
            f"compile it with palio.spark.subscriptions(..., time={time!r})"
        )
    if compiled is not None and compiled not in attributes_of(source.schema):
        raise InvalidInput(
            f"subscriptions hold at some time of {compiled!r}, and the events have no such column; "
            f"they have {', '.join(source.columns)}"
        )
    if compiled is not None:
        _check_instants(source.schema, compiled)


def _check_instants(schema: pa.Schema, time: str) -> None:
    """A text or a number is at no time: only what holds always would match it."""
    given = type_at(schema, attributes_of(schema)[time])
    if not (pa.types.is_timestamp(given) or pa.types.is_date(given)):
        raise InvalidInput(
            f"the time of events, {time!r}, is {given} and no timestamp; "
            f"cast it: events.withColumn({time!r}, col({time!r}).cast('timestamp'))"
        )


def _check_attributes(withheld: frozenset[str], named: Sequence[str]) -> None:
    missing = withheld.intersection(named)
    if missing:
        raise InvalidInput(
            f"attributes leaves out {', '.join(sorted(missing))}, which filters name"
        )


def _warn_of_unusable(source: FrameEvents | ParquetEvents, named: Sequence[str]) -> None:
    """Warn of columns that filters name and whose type is no attribute's."""
    attributes = attributes_of(source.schema)
    unusable = [name for name in named if name in source.columns and name not in attributes]
    if unusable:
        shown = ", ".join(f"{name} ({source.schema.field(name).type})" for name in unusable)
        warnings.warn(
            f"filters name {shown}, which holds no single values: there it is absent",
            stacklevel=3,
        )


def _columns(
    source: FrameEvents | ParquetEvents, columns: Sequence[str] | None, how: str
) -> list[str]:
    """The columns to give back, checked."""
    if how in _COUNTED:
        if columns:
            raise InvalidInput("counts have no columns of events; leave columns out")
        return []
    wanted = list(source.columns if columns is None else _listed("columns", columns))
    if columns is not None and len({*wanted}) < len(wanted):
        twice = next(name for name in wanted if wanted.count(name) > 1)
        raise InvalidInput(f"columns names {twice!r} twice; a result has each column once")
    system = (FILE, ROW) if isinstance(source, ParquetEvents) else ()
    check_columns(source.columns, [name for name in wanted if name not in system])
    return wanted


def _listed(option: str, names: Sequence[str]) -> Sequence[str]:
    """Refuse the name of one column where a list of them is taken."""
    if isinstance(names, str):
        raise InvalidInput(f"{option} takes a list of names: {option}=[{names!r}]")
    return names


def _result(
    source: FrameEvents | ParquetEvents, columns: list[str], how: str, meta: Any
) -> StructType:
    """Return the Spark schema of the result."""
    from pyspark.sql.types import ArrayType, LongType, StringType, StructType

    spark_types = {"int64": LongType(), "string": StringType()}
    result = source.types(columns)
    added = StructType()
    if how in ("pairs", "count"):
        added.add("subscription", spark_types[meta.id_type])
    if how == "route" or (how == "pairs" and meta.subscriber_type is not None):
        added.add("subscriber", spark_types[meta.subscriber_type or meta.id_type])
    if how == "sets":
        kind = spark_types[meta.subscriber_type or meta.id_type]
        added.add("subscribers", ArrayType(kind, containsNull=False))
    if how in _COUNTED:
        added.add("count", LongType())
    for field in added.fields:
        if field.name in columns:
            raise InvalidInput(
                f"the events have a column {field.name!r}, and so has the result; "
                "rename it, or leave it out of columns"
            )
        result.add(field)
    return result
