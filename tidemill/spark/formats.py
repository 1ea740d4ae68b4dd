"""`tidemill.spark.register(spark)` and `register_catalog`: make formats, with the session's own settings for them, and catalogs known to a
session that runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource

from tidemill.spark.catalog.jar import CLASS, catalog_jar
from tidemill.spark.catalog.source import CatalogSource
from tidemill.spark.cluster.connection import NAMES
from tidemill.spark.source.ddl import DdlSource
from tidemill.spark.source.options import with_session
from tidemill.spark.source.source import TidemillSource
from tidemill.spark.table.source import TableSource

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
SETTINGS = {name: f"spark.tidemill.{name}" for name in ("log", *NAMES)}
"""Settings of a session, for options that a query leaves out."""


def register(spark: SparkSession) -> SparkSession:
    """Make `format("tidemill")`, `format("tidemill.ddl")` and `format("tidemill.table")` known to a session, and return it.

    Spark finds them without it, if Tidemill is installed where the driver's Python workers run. But it gives a Python source nothing of the
    session: the settings `spark.tidemill.log`, `.pd`, `.ca`, `.cert` and `.key` are taken as they are now.

    Filters of Python sources are pushed down from now on; Spark does that only where it is told to. It becomes the active session of this
    thread: Spark refuses a name that the active one has, whichever session it is registered for.
    """
    if hasattr(spark, "_jsparkSession"):  # one of Connect has none
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]
    found = {name: text for name, setting in SETTINGS.items() if (text := spark.conf.get(setting, None))}
    for source in (TidemillSource, DdlSource, TableSource):
        spark.dataSource.register(bound(source, found) if found else source)
    spark.dataSource.register(CatalogSource)
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


def bound(source: type[DataSource], session: Mapping[str, str]) -> type[DataSource]:
    """Return a source that takes these options where a query leaves them out. Its processes get it as a value, with the options in it."""
    places = ("pd",) if source is TableSource else ("log", "pd")

    class Bound(source):  # type: ignore[misc, valid-type]
        def __init__(self, options: dict[str, str]) -> None:
            given: Any = CaseInsensitiveDict(with_session(options, session, places))
            super().__init__(given)

    return Bound
