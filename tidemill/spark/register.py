"""`tidemill.spark.register(spark)` and `register_catalog`: make formats and catalogs known to a session that runs."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidemill.spark.catalog.jar import CLASS, catalog_jar
from tidemill.spark.catalog.source import CatalogSource
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
    for source in (TidemillSource, DdlSource, TableSource, CatalogSource):
        spark.dataSource.register(source)
    spark.conf.set(PUSH_DOWN, "true")
    return spark


def register_catalog(spark: SparkSession, name: str = "tidb", **settings: str) -> SparkSession:
    """Make a cluster, or a change log, the catalog `name` of a session, and return it: `SELECT … FROM tidb.shop.orders`.

    `settings`: `pd`, `log`, `ca` and the others of docs/spark/catalog.md. Raises ConfigError where the jar of the catalog is missing.
    """
    spark.sql(f"ADD JAR '{catalog_jar()}'")
    for setting, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{setting}", value)
    spark.conf.set(f"spark.sql.catalog.{name}", CLASS)
    return register(spark)
