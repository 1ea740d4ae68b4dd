"""A Spark SQL that knows the tables of one view and nothing else: `ViewSession`. This module does IO.

It lives in the Spark that this process runs, beside the sessions of others: it has settings and a catalog of its own, so that a query means
the same whatever the process has set. Where none runs, one is started, and stopped in the end. Its tables are Parquet files in a folder
that goes with it: empty for analysing a query, with the rows of the tables for computing it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidemill.spark.session import start_context, stop_spark
from tidemill.tidb.names import quote_name
from tidemill.views import types as t
from tidemill.views.plan import Table
from tidemill.views.refusal import ViewError, refuse

SETTINGS = {
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.alwaysInlineCommonExpr": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.enableVectorizedReader": "true",
}
"""Spark's defaults, written out where a query's meaning depends on them: what the process or the cluster has set is not asked."""
STARTED = {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"}
"""Of a Spark that is started to analyse one query."""


class ViewSession:
    """A context manager. Raises ViewRefused for what Spark says of a query, ViewError, NoJava, SparkUnavailable."""

    def __init__(self, *, master: str | None = None, defaults: Mapping[str, str] | None = None) -> None:
        """`master`, `defaults`: of a Spark that has to be started."""
        self._folder = tempfile.TemporaryDirectory(prefix="tidemill-view-")
        running = SparkContext._active_spark_context
        log_file = Path(self._folder.name) / "spark.log"
        self._started = (
            start_context(log_file, master=master or "local[1]", defaults=dict(defaults or STARTED)) if running is None else None
        )
        context = running if running is not None else self._started
        if context is None or context._jvm is None:
            raise ViewError("Spark is being stopped in this process", hint="Create the view again.")
        self.jvm: Any = context._jvm
        options = self.jvm.java.util.HashMap()
        for name, value in {**SETTINGS, "spark.sql.warehouse.dir": self._folder.name}.items():
            options.put(name, value)
        self.java: Any = self.jvm.org.apache.spark.sql.classic.SparkSession(context._jsc.sc(), options)
        self._context = context
        self._tables: dict[tuple[str, str], Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Forget the tables, and stop the Spark that was started for them."""
        if self._started is not None:
            stop_spark(self._started)
        self._folder.cleanup()

    def add(self, table: Table) -> Path:
        """Let queries know a table, under its two names. Returns the folder for its rows, as Parquet files."""
        known = self._tables.get((table.database.lower(), table.name.lower()))
        if known is not None:
            return known
        place = Path(self._folder.name) / f"t{len(self._tables)}"
        place.mkdir()
        columns = ", ".join(f"{quote_name(one.name)} {t.spark_type(one.type)}" for one in table.columns)
        self.java.sql(f"CREATE DATABASE IF NOT EXISTS {quote_name(table.database)}")
        name = f"{quote_name(table.database)}.{quote_name(table.name)}"
        self.java.sql(f"CREATE TABLE {name} ({columns}) USING parquet LOCATION '{place}'")
        self._tables[table.database.lower(), table.name.lower()] = place
        return place

    def use(self, database: str) -> None:
        """Let tables that are named without a database be of this one."""
        self.java.sql(f"CREATE DATABASE IF NOT EXISTS {quote_name(database)}")
        self.java.sql(f"USE {quote_name(database)}")

    def rows(self, sql: str, tables: Sequence[Table]) -> pa.Table:
        """Compute a query over the files that lie in the folders of the tables."""
        with told():
            for one in tables:
                self.java.sql(f"REFRESH TABLE {quote_name(one.database)}.{quote_name(one.name)}")
            wrapper = SparkSession(self._context, self.java)
            return DataFrame(self.java.sql(sql), wrapper).toArrow()


@contextmanager
def told() -> Iterator[None]:
    """Turn what Spark says of a query into ViewRefused."""
    try:
        yield
    except PySparkException as error:
        condition = error.getCondition() or ""
        lines = str(error).strip().splitlines() or [condition]
        raise refuse(f"Spark: {lines[0]}", _HINTS.get(condition.partition(".")[0], "")) from None
    except Py4JError as error:
        raise ViewError(f"Spark has failed: {(str(error).splitlines() or ['no reason given'])[0]}") from error


_HINTS = {
    "UNRESOLVED_ROUTINE": "A view has the functions of Spark, no others.",
    "MISSING_ALIAS": "Give the column a name, with AS.",
}
