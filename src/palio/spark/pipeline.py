"""`run_pipeline`: runs a plan on Spark; `explain`: what it would do, without Spark.

    source -> normalize -> match -----> sinks, and a report
                       \\-> sequences ->

Of a static source each result is computed once and each sink written once. Of a stream each sink
is a query with its own checkpoint: stopped or killed, it resumes where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from palio.config import duration
from palio.errors import InvalidInput, PalioError
from palio.spark.attributes import leaves
from palio.spark.matches import match
from palio.spark.plan import Normalize, Plan, SinkPlan
from palio.spark.report import RankedCount, RunReport, StageTime
from palio.spark.sequencing import sequences
from palio.spark.sessions import first_cause, option_text
from palio.spark.sets import SubscriptionSet, subscriptions
from palio.spark.versions import Version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 1
"""Seconds between two looks at a stream's progress."""

SENT: Final = ("palio", "webhook")
"""Formats that send rows somewhere, where there is nothing that could exist already."""

Log = Callable[[str], None]


def run_pipeline(
    plan: Plan, spark: SparkSession, log: Log = lambda _: None, stop: Event | None = None
) -> RunReport:
    """Run a pipeline to its end: that of its source, or of a stream once `stop` is set.

    `log` gets a line for each stage and its outcome.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
    from pyspark.errors import PySparkException

    from palio.spark.source import register

    register(spark)
    run = _Run(plan, spark, log)
    try:
        return run.stream(stop or Event()) if plan.source.stream else run.once()
    except (Py4JJavaError, PySparkException) as error:
        cause = first_cause(str(error)).removeprefix("palio.errors.")
        raise PalioError(f"{plan.name} failed on Spark: {cause}") from error


def explain(plan: Plan) -> list[str]:
    """Describe what a pipeline would do, line by line, and try all that needs no Spark."""
    source, lines = plan.source, []
    kind = "a stream" if source.stream else "all"
    lines.append(f"read {kind} of {source.format} {source.path}".rstrip())
    if plan.normalize.json:
        lines.append(f"read JSON in {', '.join(plan.normalize.json)}")
    if plan.normalize.cloudevents:
        lines.append("check CloudEvents")
    if plan.normalize.flatten:
        lines.append("flatten structs")
    if plan.match is not None:
        standing = subscriptions(plan.match.subscriptions, time=plan.match.time)
        meta = standing.meta
        lines.append(
            f"match {len(standing):,} subscriptions ({meta.rejected:,} rejected), "
            f"which name {', '.join(meta.attributes)}"
        )
        lines += [
            f"  rejected: {row['id']!r}: {str(row['reason']).partition(chr(10))[0]}"
            for row in standing.rejects.slice(0, 3).to_pylist()
        ]
    if plan.sequences is not None:
        by = ", ".join(plan.sequences.by)
        late = plan.sequences.watermark
        waits = f", each event once {late} have passed since" if late else ""
        lines.append(f"find {len(plan.sequences.patterns)} patterns by {by}{waits}")
    for sink in plan.sinks:
        parts = f" by {', '.join(sink.partition_by)}" if sink.partition_by else ""
        lines.append(f"write {sink.of} as {sink.format} {sink.path}".rstrip() + parts)
    if plan.report is not None:
        lines.append(f"report to {plan.report.path}")
    return lines


class _Matches(NamedTuple):
    """The figures of a run's matches."""

    rows: int
    skew: float | None
    counts: list[RankedCount]
    hot: list[RankedCount]


class _Run:
    def __init__(self, plan: Plan, spark: SparkSession, log: Log) -> None:
        self.plan = plan
        self.spark = spark
        self.log = log
        self.stages: list[StageTime] = []
        self.began = datetime.now(UTC)
        self.clock = perf_counter()

    # --- what is computed ---

    def _events(self) -> DataFrame:
        source = self.plan.source
        reader: Any = self.spark.readStream if source.stream else self.spark.read
        reader = reader.format(source.format).options(**_options(source.options))
        if source.schema:
            reader = reader.schema(source.schema)
        rows = reader.load(source.path) if source.path else reader.load()
        return normalized(rows, self.plan.normalize)

    def _standing(self) -> SubscriptionSet | None:
        asked = self.plan.match
        if asked is None:
            return None
        with self._stage("compile") as done:
            # Those that may change while a stream runs are its own.
            home = Path(self.plan.checkpoint) / "subscriptions" if asked.refresh else None
            standing = subscriptions(asked.subscriptions, home, time=asked.time)
            done(len(standing))
        rejected = standing.meta.rejected
        if rejected:
            self.log(f"{rejected:,} subscriptions are rejected and match nothing")
        return standing

    def _tables(self, standing: SubscriptionSet | None) -> dict[str, DataFrame]:
        tables = {"events": self._events()}
        asked, patterns = self.plan.match, self.plan.sequences
        if asked is not None and standing is not None:
            tables["matches"] = match(
                tables["events"], standing, asked.how, asked.columns, time=asked.time
            )
        if patterns is not None:
            rows = [
                {"id": pattern.id, "pattern": pattern.pattern, "parameters": pattern.parameters}
                for pattern in patterns.patterns
            ]
            events = tables["events"]
            if patterns.watermark:
                events = events.withWatermark(patterns.time, _interval(patterns.watermark))
            tables["sequences"] = sequences(
                events,
                rows,
                patterns.by,
                patterns.time,
                patterns.longest,
                columns=patterns.columns,
                order=patterns.order,
            )
        return tables

    @contextmanager
    def _stage(self, name: str) -> Iterator[Callable[[int], None]]:
        """Time a part of the work; what is yielded takes the number of its rows."""
        began = perf_counter()
        rows: list[int] = []
        yield rows.append
        seconds = perf_counter() - began
        self.stages.append(StageTime(name, round(seconds, 3), rows[0] if rows else None))
        shown = f", {rows[0]:,} rows" if rows else ""
        self.log(f"{name}: {seconds:.1f} s{shown}")

    # --- a static source ---

    def once(self) -> RunReport:
        """Compute each result, write each sink, and look at what there is."""
        standing = self._standing()
        tables = self._tables(standing)
        events, matches = 0, None
        with self._stage("read") as done:
            events = tables["events"].count()
            done(events)
        try:
            for name in ("matches", "sequences"):
                if name in tables:
                    with self._stage(name) as done:
                        done(tables[name].persist().count())
            for sink in self.plan.sinks:
                with self._stage(f"write {sink.of} as {sink.format}"):
                    self._write(tables[sink.of], sink)
            if self.plan.report is not None and "matches" in tables:
                with self._stage("report"):
                    matches = self._tallied(tables["matches"])
        finally:
            for name in ("matches", "sequences"):
                if name in tables:
                    tables[name].unpersist()
        return self._report(events, standing, matches)

    def _write(self, table: DataFrame, sink: SinkPlan) -> None:
        if sink.format == "webhook":
            table = _with_texts(table)
        mode = "append" if sink.format in SENT else sink.mode
        writer = table.write.format(sink.format).mode(mode).options(**_options(sink.options))
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        if sink.path:
            writer.save(sink.path)
        else:
            writer.save()

    def _tallied(self, matches: DataFrame) -> _Matches:
        from pyspark.sql import functions

        asked, report = self.plan.match, self.plan.report
        assert asked is not None
        assert report is not None
        sizes = [
            row["count"]
            for row in matches.groupBy(functions.spark_partition_id().alias("part"))
            .count()
            .collect()
        ]
        counted = {
            "pairs": lambda: matches.groupBy("subscription").count(),
            "route": lambda: matches.groupBy("subscriber").count(),
            "count": lambda: matches,
        }.get(asked.how)
        counts = [] if counted is None else [RankedCount(*row) for row in counted().collect()]
        counts.sort(key=lambda count: (-count.count, str(count.name)))
        hot: list[RankedCount] = []
        if asked.how in ("pairs", "route") and asked.columns:
            keys = [functions.col(f"`{name}`") for name in asked.columns]
            top = matches.groupBy(*keys).count().where("count > 1")
            top = top.orderBy(functions.desc("count"), *keys)
            for row in top.limit(report.top).collect():
                fields = row.asDict()
                hot.append(
                    RankedCount({name: fields[name] for name in asked.columns}, row["count"])
                )
        rows = sum(count.count for count in counts) if asked.how == "count" else sum(sizes)
        skew = max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else None
        return _Matches(rows, skew, counts, hot)

    # --- a stream ---

    def stream(self, stop: Event) -> RunReport:
        """Run a query for each sink until they end, or `stop` is set."""
        standing = self._standing()
        tables = self._tables(standing)
        queries = [
            self._started(tables[sink.of], sink, number)
            for number, sink in enumerate(self.plan.sinks)
        ]
        progress: dict[tuple[int, int], Any] = {}
        with self._refreshed(standing):
            self._await(queries, progress, stop)
        return self._report_stream(progress, standing)

    @contextmanager
    def _refreshed(self, standing: SubscriptionSet | None) -> Iterator[None]:
        """Read subscriptions again, at the plan's interval."""
        asked = self.plan.match
        if standing is None or asked is None or not asked.refresh:
            yield
            return
        every_s = duration(asked.refresh).total_seconds()
        with standing.follow(asked.subscriptions, every_s) as refreshing:
            yield
        if refreshing.changes:
            self.log(f"subscriptions changed {refreshing.changes:,} times")

    def _await(
        self, queries: Sequence[StreamingQuery], progress: dict[Any, Any], stop: Event
    ) -> None:
        """Follow queries until they end or are to."""
        try:
            while any(query.isActive for query in queries) and not stop.is_set():
                for query in queries:
                    query.awaitTermination(POLL_S)
                self._follow(queries, progress)
        finally:
            for query in queries:
                query.stop()
        self._follow(queries, progress)

    def _started(self, table: DataFrame, sink: SinkPlan, number: int) -> StreamingQuery:
        plan = self.plan
        if sink.format == "webhook":
            table = _with_texts(table)
        writer: Any = table.writeStream.format(sink.format).options(**_options(sink.options))
        writer = writer.queryName(f"{plan.name}: {sink.of} as {sink.format} ({number})")
        writer = writer.option("checkpointLocation", str(Path(plan.checkpoint) / str(number)))
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        if plan.trigger == "available now":
            writer = writer.trigger(availableNow=True)
        elif plan.trigger:
            writer = writer.trigger(processingTime=_interval(plan.trigger))
        query: StreamingQuery = writer.start(sink.path) if sink.path else writer.start()
        return query

    def _follow(self, queries: Sequence[StreamingQuery], progress: dict[Any, Any]) -> None:
        """Note the micro-batches that have ended, and log new ones."""
        for number, query in enumerate(queries):
            for micro_batch in query.recentProgress:
                key = (number, micro_batch["batchId"])
                if micro_batch["numInputRows"] and key not in progress:
                    progress[key] = micro_batch
                    took = micro_batch["durationMs"].get("triggerExecution", 0)
                    self.log(
                        f"{query.name}: batch {micro_batch['batchId']}, "
                        f"{micro_batch['numInputRows']:,} rows, {took:,} ms"
                    )

    def _report_stream(
        self, progress: dict[tuple[int, int], Any], standing: SubscriptionSet | None
    ) -> RunReport:
        spent: dict[str, float] = {}
        for batch in progress.values():
            for name, milliseconds in batch["durationMs"].items():
                if name != "triggerExecution":
                    spent[name] = spent.get(name, 0.0) + milliseconds / 1_000
        self.stages += [
            StageTime(name, round(seconds, 3)) for name, seconds in sorted(spent.items())
        ]
        first = [batch for (number, _), batch in progress.items() if number == 0]
        events = sum(batch["numInputRows"] for batch in first)
        late = Counter[int]()  # by queries, which all see the same events
        for (number, _), each in progress.items():
            late[number] += sum(
                state["numRowsDroppedByWatermark"] for state in each["stateOperators"]
            )
        most = max(late.values(), default=0)
        return self._report(events, standing, None, batches=len(first), late=most)

    # --- the report ---

    def _report(
        self,
        events: int,
        standing: SubscriptionSet | None,
        matches: _Matches | None,
        **facts: Any,
    ) -> RunReport:
        top = 0 if self.plan.report is None else self.plan.report.top
        if standing is not None:
            facts |= {"subscriptions": len(standing), "rejected": standing.meta.rejected}
        if matches is not None:
            facts |= {"matches": matches.rows, "skew": matches.skew, "hot": tuple(matches.hot)}
        if standing is not None and matches is not None and matches.counts:
            matched = {count.name for count in matches.counts}
            names = _names(standing, by_subscriber=self._is_by_subscriber(standing))
            dead = [name for name in names if name not in matched]
            facts |= {
                "matched_subscriptions": len(matched),
                "busiest": tuple(matches.counts[:top]),
                "dead": tuple(islice(dead, top)),
                "dead_count": len(dead),
            }
        return RunReport(
            pipeline=self.plan.name,
            started=self.began.isoformat(timespec="seconds"),
            seconds=round(perf_counter() - self.clock, 3),
            stages=tuple(self.stages),
            events=events,
            **facts,
        )

    def _is_by_subscriber(self, standing: SubscriptionSet) -> bool:
        is_route = self.plan.match is not None and self.plan.match.how == "route"
        return is_route and standing.meta.subscriber_type is not None


def _names(standing: SubscriptionSet, *, by_subscriber: bool) -> list[Any]:
    """The ids, or subscribers, that may match at all."""
    version = Version(standing.path / "versions" / standing.version)
    if by_subscriber:
        subscribers: list[Any] = version.subscribers.to_pylist()
        return subscribers
    rejected = set(standing.rejects["id"].to_pylist())
    return [id for id in version.ids.to_pylist() if id not in rejected]


def _with_texts(table: DataFrame) -> DataFrame:
    """A table for a sink that takes events: what is no attribute, such as an array, as JSON."""
    from pyspark.sql import functions

    texts = {
        field.name: functions.to_json(functions.col(f"`{field.name}`"))
        for field in table.schema.fields
        if field.dataType.typeName() in ("array", "map")
    }
    return table.withColumns(texts)


def _interval(text: str) -> str:
    """A time as Spark takes it."""
    return f"{duration(text) // timedelta(milliseconds=1)} milliseconds"


def _options(given: dict[str, Any]) -> dict[str, str]:
    return {name: option_text(value) for name, value in given.items()}


# --- rows as events: JSON read, CloudEvents checked, structs flattened to attributes ---


REQUIRED: Final = ("id", "source", "type")
"""The attributes of every CloudEvent."""


def normalized(rows: DataFrame, how: Normalize) -> DataFrame:
    """Rows of a source as events, one column for each attribute."""
    for name, schema in how.json.items():
        rows = _with_json(rows, name, schema)
    if how.cloudevents:
        rows = _unpacked(rows)
    return _flattened(rows) if how.flatten else rows


def _with_json(rows: DataFrame, name: str, schema: str) -> DataFrame:
    """A column of JSON read; a text that is none, or is otherwise, is null."""
    from pyspark.sql import functions

    _check(rows, [name], "normalize.json")
    if dict(rows.dtypes)[name] != "string":
        raise InvalidInput(
            f"normalize.json: column {name!r} is {dict(rows.dtypes)[name]}, no text; leave it out"
        )
    return rows.withColumn(name, functions.from_json(_column((name,)), schema))


def _unpacked(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    _check(rows, REQUIRED, "normalize.cloudevents")
    types = dict(rows.dtypes)
    if types.get("data") == "string":
        raise InvalidInput(
            "normalize.cloudevents: column 'data' is text; give its schema under normalize.json"
        )
    if types.get("time") == "string":
        rows = rows.withColumn("time", functions.to_timestamp(functions.col("time")))
    if not types.get("data", "").startswith("struct"):
        return rows
    # As by HTTP: members of the data have their own names, but for those of context attributes.
    members = rows.select("data.*").columns
    named = {each: f"data.{each}" if each in rows.columns else each for each in members}
    others = [_column((each,)) for each in rows.columns if each != "data"]
    return rows.select(
        *others, *(_column(("data", each)).alias(name) for each, name in named.items())
    )


def _flattened(rows: DataFrame) -> DataFrame:
    """A column with a dotted name for each field; of equal names the shortest path has it."""
    kept = leaves(rows.schema.fields, lambda kind: kind.typeName() not in ("array", "map"))
    return rows.select(*(_column(path).alias(name) for name, (path, _) in kept.items()))


def _column(path: tuple[str, ...]) -> Any:
    from pyspark.sql import functions

    return functions.col(".".join(f"`{part.replace('`', '``')}`" for part in path))


def _check(rows: DataFrame, names: Any, key: str) -> None:
    for name in names:
        if name not in rows.columns:
            raise InvalidInput(
                f"{key}: the source has no column {name!r}; it has {', '.join(rows.columns)}"
            )
