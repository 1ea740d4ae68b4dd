"""`tidemill.spark.register(spark)`: makes the formats known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidemill.spark.source.ddl import DdlSource
from tidemill.spark.source.source import TidemillSource
from tidemill.spark.table.source import TableSource

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> SparkSession:
    """Make `format("tidemill")`, `format("tidemill.ddl")` and `format("tidemill.table")` known to a session, and return it.

    Filters of Python sources are pushed down from now on; Spark does that only where it is told to. It becomes the active session of this
    thread: Spark refuses a name that the active one has, whichever session it is registered for.
    """
    if hasattr(spark, "_jsparkSession"):  # one of Connect has none
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]
    for source in (TidemillSource, DdlSource, TableSource):
        spark.dataSource.register(source)
    spark.conf.set(PUSH_DOWN, "true")
    return spark
