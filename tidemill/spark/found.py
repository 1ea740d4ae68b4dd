"""What Spark finds by itself: it looks for installed modules by names that begin with `pyspark_`, each with a class `DefaultSource`.

One module is one format: `pyspark_tidemill`, `pyspark_tidemill_ddl`, `pyspark_tidemill_table`, `pyspark_tidemill_catalog`. Spark imports
all of them when a session first asks for a Python source, so the sources themselves, which take a while to load, are imported when one is
made.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource


class Changes(DataSource):
    """`format("tidemill")`."""

    def __new__(cls, options: dict[str, str]) -> Any:
        from tidemill.spark.source.source import TidemillSource

        return TidemillSource(options)

    @classmethod
    def name(cls) -> str:
        return "tidemill"


class Ddls(DataSource):
    """`format("tidemill.ddl")`."""

    def __new__(cls, options: dict[str, str]) -> Any:
        from tidemill.spark.source.ddl import DdlSource

        return DdlSource(options)

    @classmethod
    def name(cls) -> str:
        return "tidemill.ddl"


class Tables(DataSource):
    """`format("tidemill.table")`."""

    def __new__(cls, options: dict[str, str]) -> Any:
        from tidemill.spark.table.source import TableSource

        return TableSource(options)

    @classmethod
    def name(cls) -> str:
        return "tidemill.table"


class Catalog(DataSource):
    """`format("tidemill.catalog")`, which the Java class of the catalog asks."""

    def __new__(cls, options: dict[str, str]) -> Any:
        from tidemill.spark.catalog.source import CatalogSource

        return CatalogSource(options)

    @classmethod
    def name(cls) -> str:
        return "tidemill.catalog"
