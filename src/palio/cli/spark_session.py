"""`spark_session`: the session of a command that runs on Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from palio.cli.reporting import tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_session"]


@contextmanager
def spark_session(**settings: Any) -> Iterator[SparkSession]:
    """The session there is, with some settings; or one that is stopped with the command."""
    from palio.spark.sessions import running_session, session, stop

    if running_session() is not None:
        yield session(**settings)
        return
    tell("starting Spark")
    settings = {"spark.ui.showConsoleProgress": sys.stderr.isatty()} | settings
    spark = session(**settings)
    try:
        yield spark
    finally:
        stop(spark)
