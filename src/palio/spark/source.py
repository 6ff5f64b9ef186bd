"""The data source `palio`: archives in, durable subscriptions in, publications out.

    spark.read.format("palio").option("path", "archive").load().where("price < 10")
    spark.readStream.format("palio").option("url", "palio://localhost").option("durable", "cheap")
        .option("filter", "price < :limit").option("param.limit", 10).schema("symbol STRING, ...")
    frame.writeStream.format("palio").option("url", "palio://localhost").option("publisher", "me")

docs/howto/pipeline.md lists the options. `palio.spark.session()` knows this source; other sessions
learn it from `palio.spark.register`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from palio.errors import InvalidConfiguration
from palio.spark.archive import ArchiveOptions, ArchiveReader, archive_schema
from palio.spark.options import read_options
from palio.spark.sink import BatchWriter, Publisher, PublishOptions, StreamWriter
from palio.spark.streaming import StreamOptions, StreamReader, events_schema
from palio.spark.webhook import WebhookDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class PalioDataSource(DataSource):
    """The data source of `format("palio")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "palio"

    def schema(self) -> StructType:
        """The columns, where none are given: of an archive's files, or of events that wait."""
        if self.options.get("path"):
            return archive_schema(self.options["path"])
        return events_schema(read_options(StreamOptions, self.options))

    def reader(self, schema: StructType) -> ArchiveReader:
        """Reads an archive."""
        options = read_options(ArchiveOptions, self.options)
        return ArchiveReader(options.path, schema, options.bound_filter)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  # Spark's name
        """Reads a durable subscription."""
        return StreamReader(read_options(StreamOptions, self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Publishes a static DataFrame."""
        return BatchWriter(self._publisher(schema, overwrite, "mode('append')"))

    def streamWriter(  # noqa: N802  # Spark's name
        self, schema: StructType, overwrite: bool
    ) -> StreamWriter:
        """Publishes a stream."""
        return StreamWriter(self._publisher(schema, overwrite, "outputMode('append')"))

    def _publisher(self, schema: StructType, overwrite: bool, instead: str) -> Publisher:
        if overwrite:
            raise InvalidConfiguration(f"what was published stays so; use {instead}")
        return Publisher(read_options(PublishOptions, self.options), schema)


def register(spark: SparkSession) -> None:
    """Make the data sources `palio` and `webhook` known to a session.

    >>> palio.spark.register(spark)  # doctest: +SKIP
    """
    spark.dataSource.register(PalioDataSource)
    spark.dataSource.register(WebhookDataSource)
