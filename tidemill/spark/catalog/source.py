"""`format("tidemill.catalog")`: how the catalog's Java class asks. A source's schema can be had without a job, so it is the answer.

The schema has one field. Its metadata say what was asked for; its type has the columns of the table, if the question is about one.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructField, StructType

from tidemill.errors import ConfigError
from tidemill.spark.catalog.answers import answer
from tidemill.spark.catalog.questions import parse_question
from tidemill.spark.source.source import spark_schema


class CatalogSource(DataSource):
    """Answers one question. It has no rows."""

    @classmethod
    def name(cls) -> str:
        return "tidemill.catalog"

    def schema(self) -> StructType:
        found = answer(parse_question(self.options))
        columns = spark_schema(found.columns)
        for column, described in zip(columns.fields, found.columns, strict=True):
            comment = (described.metadata or {}).get(b"comment")
            column.metadata = {"comment": comment.decode()} if comment else {}
        return StructType([StructField("answer", columns, True, found.metadata())])

    def reader(self, schema: StructType) -> DataSourceReader:
        raise ConfigError("format('tidemill.catalog') answers the catalog of Spark, and has no rows", hint="docs/spark/catalog.md")
