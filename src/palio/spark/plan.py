"""A pipeline as it is written down: `pipeline.toml`, read and checked before anything runs.

Errors name the key and its line. Nothing here starts Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from palio.config import Document, duration, explain
from palio.errors import InvalidConfiguration, InvalidInput
from palio.language.parsing import parse
from palio.model.patterns import Pattern
from palio.protocol.addresses import parse_address
from palio.spark.reading import ADDRESSES


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file, in which no other keys may stand."""


class SourcePlan(_Table, frozen=True, kw_only=True):
    """The source of events: any format of Spark's, by its name and options."""

    format: str
    path: str = ""
    stream: bool = False
    schema: str = ""
    """As in Spark's DDL: `id BIGINT, price DOUBLE`."""
    options: dict[str, str | int | float | bool] = {}


class Normalize(_Table, frozen=True, kw_only=True):
    """The settings by which rows become events."""

    json: dict[str, str] = {}
    """Columns that hold JSON, each with the schema of it in Spark's DDL."""
    cloudevents: bool = False
    """Rows are CloudEvents, with `id`, `source` and `type`; `time` becomes a timestamp, and members
    of `data` columns of their own names, as by HTTP.
    """
    flatten: bool = True
    """Fields of structs become columns with dotted names; arrays and maps are left out."""


class Match(_Table, frozen=True, kw_only=True):
    """The table that matches events with subscriptions; see `palio.spark.match`."""

    subscriptions: str
    """A file, or the address of a broker whose clients' subscriptions they are."""
    how: Literal["pairs", "any", "count", "route"] = "pairs"
    columns: list[str] | None = None
    time: str | None = None
    refresh: str = ""
    """Of a stream: how often they are read again, as in `5s`; never without."""


class SequencePattern(_Table, frozen=True, kw_only=True):
    """One pattern."""

    id: int | str
    pattern: str
    parameters: dict[str, Any] = {}


class SequencePlan(_Table, frozen=True, kw_only=True):
    """The table of occurrences of patterns; see `palio.spark.sequences`."""

    patterns: list[SequencePattern]
    by: list[str]
    time: str
    within: str = ""
    columns: list[str] = []
    order: list[str] = []
    watermark: str = ""
    """Of a stream: how long after a later event one may come and still take part, as in `10s`."""

    @property
    def longest(self) -> timedelta | None:
        """`within` as a time."""
        return duration(self.within) if self.within else None


class SinkPlan(_Table, frozen=True, kw_only=True):
    """The sink of results: any format of Spark's."""

    of: Literal["events", "matches", "sequences"]
    format: str = "parquet"
    path: str = ""
    partition_by: list[str] = []
    mode: Literal["append", "overwrite", "errorifexists"] = "errorifexists"
    options: dict[str, str | int | float | bool] = {}


class ReportPlan(_Table, frozen=True, kw_only=True):
    """The files of a run's report, and how much it shows."""

    path: str
    top: int = 10


class Plan(_Table, frozen=True, kw_only=True):
    """A pipeline."""

    name: str
    source: SourcePlan
    sinks: list[SinkPlan]
    normalize: Normalize = Normalize()
    match: Match | None = None
    sequences: SequencePlan | None = None
    report: ReportPlan | None = None
    checkpoint: str = ""
    trigger: str = ""
    """Of a stream: `available now`, or how often, as in `10s`; else as fast as it goes."""
    spark: dict[str, str | int | float | bool] = {}
    """Settings of the session."""


def read_plan(path: str | Path) -> Plan:
    """The pipeline that a file describes, checked; paths in it are relative to the file.

    `InvalidConfiguration` names all that is wrong, each with its key and line.
    """
    document = Document(Path(path))
    try:
        plan = msgspec.convert(document.values, Plan)
    except msgspec.ValidationError as error:
        raise InvalidConfiguration(_placed(document, *explain(error, Plan))) from None
    plan = _resolved(plan, Path(path).parent)
    problems = [_placed(document, key, problem) for key, problem in _problems(plan)]
    if problems:
        raise InvalidConfiguration("\n".join(problems))
    return plan


def _placed(document: Document, key: str, problem: str) -> str:
    place = document.place(key)
    return f"{place}: {key}: {problem}" if key else f"{place}: {problem}"


def _resolved(plan: Plan, root: Path) -> Plan:
    """Relative paths as seen from the file."""

    def at(path: str) -> str:
        return path if not path or "://" in path else str(root / path)

    def aside(sink: SinkPlan) -> dict[str, Any]:
        if sink.format != "webhook" or "deadLetter" not in sink.options:
            return sink.options
        return sink.options | {"deadLetter": at(str(sink.options["deadLetter"]))}

    replace = msgspec.structs.replace
    changes: dict[str, Any] = {
        "source": replace(plan.source, path=at(plan.source.path)),
        "sinks": [replace(sink, path=at(sink.path), options=aside(sink)) for sink in plan.sinks],
        "checkpoint": at(plan.checkpoint),
    }
    if plan.match is not None:
        changes["match"] = replace(plan.match, subscriptions=at(plan.match.subscriptions))
    if plan.report is not None:
        changes["report"] = replace(plan.report, path=at(plan.report.path))
    return replace(plan, **changes)


# --- checks beyond the types ---


def _problems(plan: Plan) -> Iterator[tuple[str, str]]:
    yield from _source_problems(plan)
    yield from _match_problems(plan)
    yield from _sequence_problems(plan)
    if not plan.sinks:
        yield "sinks", "there is none, and results would go nowhere"
    for number, sink in enumerate(plan.sinks):
        yield from _sink_problems(plan, sink, f"sinks[{number}]")
    if plan.source.stream:
        yield from _stream_problems(plan)
    elif plan.trigger or plan.checkpoint:
        key = "trigger" if plan.trigger else "checkpoint"
        yield key, "this is for streams; set source.stream, or leave it out"


def _source_problems(plan: Plan) -> Iterator[tuple[str, str]]:
    source = plan.source
    is_plain = source.path and "://" not in source.path and not set(source.path) & set("*?[{")
    if is_plain and not Path(source.path).exists():
        yield "source.path", f"{source.path!r} is not there"
    if source.stream and not source.schema and source.format in ("json", "csv", "parquet", "orc"):
        yield "source.schema", f"a stream of {source.format} needs its schema"


def _match_problems(plan: Plan) -> Iterator[tuple[str, str]]:
    match = plan.match
    if match is None:
        return
    if match.subscriptions.startswith(ADDRESSES):
        try:
            parse_address(match.subscriptions)
        except InvalidInput as error:
            yield "match.subscriptions", str(error)
    elif not Path(match.subscriptions).exists():
        yield "match.subscriptions", f"{match.subscriptions!r} is not there"
    if match.refresh:
        try:
            duration(match.refresh)
        except InvalidInput as error:
            yield "match.refresh", str(error)
        if not plan.source.stream:
            yield "match.refresh", "this is for streams; set source.stream, or leave it out"
        if "://" in plan.checkpoint:
            yield (
                "match.refresh",
                (
                    "workers read what is in force from the directory of the checkpoint, and "
                    f"{plan.checkpoint!r} is an address; give a path that all of them share"
                ),
            )


def _sequence_problems(plan: Plan) -> Iterator[tuple[str, str]]:
    sequences = plan.sequences
    if sequences is None:
        return
    for name in ("within", "watermark"):
        try:
            if getattr(sequences, name):
                duration(getattr(sequences, name))
        except InvalidInput as error:
            yield f"sequences.{name}", str(error)
    is_stream = plan.source.stream
    if is_stream and not sequences.watermark:
        yield "sequences.watermark", "a stream needs one: how late its events may be, as in 10s"
    if sequences.watermark and not is_stream:
        yield "sequences.watermark", "this is for streams; set source.stream, or leave it out"
    for number, sequence in enumerate(sequences.patterns):
        key = f"sequences.patterns[{number}].pattern"
        try:
            pattern = parse(sequence.pattern)
            if not isinstance(pattern, Pattern):
                raise InvalidInput("it is a filter; a pattern has a THEN")
            pattern = pattern.bind(sequence.parameters)
            if is_stream and pattern.within is None and not sequences.within:
                raise InvalidInput(
                    "a stream's pattern needs a WITHIN; add it, or set sequences.within"
                )
        except InvalidInput as error:
            yield key, str(error)


def _sink_problems(plan: Plan, sink: SinkPlan, key: str) -> Iterator[tuple[str, str]]:
    tables: Mapping[str, Any] = {"matches": plan.match, "sequences": plan.sequences}
    if sink.of != "events" and tables[sink.of] is None:
        table = "match" if sink.of == "matches" else "sequences"
        yield f"{key}.of", f"there are no {sink.of}; the pipeline has no table [{table}]"
    is_file = sink.format in ("parquet", "json", "csv", "orc")
    if is_file and not sink.path:
        yield f"{key}.path", f"{sink.format} is written to a path"
    if (
        is_file
        and not plan.source.stream
        and sink.mode == "errorifexists"
        and sink.path
        and "://" not in sink.path
        and Path(sink.path).exists()
    ):
        yield f"{key}.path", f"{sink.path!r} exists already; choose with mode what to do with it"
    if sink.format == "webhook":
        yield from _hook_problems(sink, key)


def _hook_problems(sink: SinkPlan, key: str) -> Iterator[tuple[str, str]]:
    from palio.spark.webhook import hook_of

    try:
        hook_of({name: str(value) for name, value in sink.options.items()})
    except InvalidConfiguration as error:
        yield f"{key}.options", str(error)
    if sink.mode == "overwrite":
        yield f"{key}.mode", "what was posted stays so; leave it out"


def _stream_problems(plan: Plan) -> Iterator[tuple[str, str]]:
    if not plan.checkpoint:
        yield "checkpoint", "a stream needs one, to continue after a restart"
    if plan.trigger and plan.trigger != "available now":
        try:
            duration(plan.trigger)
        except InvalidInput as error:
            yield "trigger", f"{error}, or 'available now'"
    if plan.match is not None and plan.match.how == "count":
        yield "match.how", "a stream has no end to count to; use pairs, any or route"
    if plan.source.format == "palio" and len(plan.sinks) > 1:
        yield "sinks", "one query takes a durable subscription's events; write a pipeline for each"
