"""`tidemill.spark.register(spark)`: makes the formats known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidemill.spark.source.ddl import DdlSource
from tidemill.spark.source.source import TidemillSource

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> SparkSession:
    """Make `format("tidemill")` and `format("tidemill.ddl")` known to a session, and return it.

    Filters of Python sources are pushed down from now on; Spark does that only where it is told to.
    """
    spark.dataSource.register(TidemillSource)
    spark.dataSource.register(DdlSource)
    spark.conf.set(PUSH_DOWN, "true")
    return spark
