"""The data source `palio`: archives in, durable subscriptions in, publications out.

    spark.read.format("palio").option("path", "archive").load().where("price < 10")
    spark.readStream.format("palio").option("url", "palio://localhost").option("durable", "cheap")
        .option("filter", "price < :limit").option("param.limit", 10).schema("symbol STRING, ...")
    frame.writeStream.format("palio").option("url", "palio://localhost").option("publisher", "me")

docs/howto/pipeline.md lists the options. `palio.spark.session()` knows this source; other sessions
learn it from `palio.spark.register`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from palio.errors import InvalidConfiguration
from palio.protocol.names import check_name
from palio.spark.archive import ArchiveReader, archive_schema
from palio.spark.options import Options
from palio.spark.sink import BatchSink, Sink, StreamSink
from palio.spark.streaming import StreamOptions, StreamReader, events_schema
from palio.spark.webhook import WebhookDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["PalioDataSource", "register"]

DOOR: Final = ("url", "token", "tokenFile", "ca", "timeout")

ARCHIVE_OPTIONS: Final = ("path", "filter")

STREAM_OPTIONS: Final = (
    *DOOR,
    *("client", "durable", "filter", "lease", "maxEventsPerBatch", "partitions"),
    *("failOnDataLoss", "mode"),
)

SINK_OPTIONS: Final = (*DOOR, "publisher", "orderBy", "checkpointLocation", "queryName", "path")

MODES: Final = ("failfast", "permissive")


class PalioDataSource(DataSource):
    """The data source of `format("palio")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "palio"

    def schema(self) -> StructType:
        """The columns, where none are given: of an archive's files, or of events that wait."""
        options = Options(self.options)
        if options.text("path", ""):
            return archive_schema(options.text("path"))
        return events_schema(_source(options))

    def reader(self, schema: StructType) -> ArchiveReader:
        """Reads an archive."""
        options = Options(self.options)
        options.check(ARCHIVE_OPTIONS)
        return ArchiveReader(options.text("path"), schema, options.filter.bind(options.values))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  # Spark's name
        """Reads a durable subscription."""
        return StreamReader(_source(Options(self.options)), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """Publishes a static DataFrame."""
        if overwrite:
            raise InvalidConfiguration("what was published stays so; use mode('append')")
        return BatchSink(_sink(Options(self.options)), schema)

    def streamWriter(  # noqa: N802  # Spark's name
        self, schema: StructType, overwrite: bool
    ) -> StreamSink:
        """Publishes a stream."""
        if overwrite:
            raise InvalidConfiguration("what was published stays so; use outputMode('append')")
        return StreamSink(_sink(Options(self.options)), schema)


def register(spark: SparkSession) -> None:
    """Make the data sources `palio` and `webhook` known to a session.

    >>> palio.spark.register(spark)  # doctest: +SKIP
    """
    spark.dataSource.register(PalioDataSource)
    spark.dataSource.register(WebhookDataSource)


def _source(options: Options) -> StreamOptions:
    options.check(STREAM_OPTIONS)
    mode = options.text("mode", MODES[0]).lower()
    if mode not in MODES:
        raise InvalidConfiguration(f"option 'mode' is {mode!r}; it takes {' or '.join(MODES)}")
    return StreamOptions(
        options.door("client"),
        check_name(options.text("durable"), "option 'durable': a durable subscription"),
        str(options.filter),
        options.values,
        lease_s=options.seconds("lease", 0.0),
        max_events=options.number("maxEventsPerBatch", 0, least=0),
        partitions=options.number("partitions", 1),
        fail_on_loss=options.truth("failOnDataLoss", default=True),
        permissive=mode == "permissive",
        timeout_s=options.seconds("timeout", 60.0),
    )


def _sink(options: Options) -> Sink:
    options.check(SINK_OPTIONS)
    order = tuple(name.strip() for name in options.text("orderBy", "").split(",") if name.strip())
    return Sink(options.door("publisher"), order, options.seconds("timeout", 60.0))
