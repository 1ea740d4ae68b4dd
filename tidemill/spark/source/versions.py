"""What differs between the versions of Spark: 4.1 does not tell a Python source's stream where a batch starts, nor its limit."""

from __future__ import annotations

import inspect
from abc import ABC
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.pandas import types
from pyspark.sql.types import DataType, StructType

from tidemill.errors import ConfigError

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
except ModuleNotFoundError as missing:
    if missing.name != "pyspark.sql.streaming.datasource":
        raise
    HAS_STREAMS = False

    class ReadLimit: ...  # type: ignore[no-redef]

    class ReadAllAvailable(ReadLimit): ...  # type: ignore[no-redef]

    class ReadMaxRows(ReadLimit): ...  # type: ignore[no-redef]

    class ReadMaxBytes(ReadLimit): ...  # type: ignore[no-redef]

    class SupportsTriggerAvailableNow(ABC): ...  # type: ignore[no-redef]  # noqa: B024
else:
    HAS_STREAMS = True

__all__ = [
    "HAS_STREAMS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema_in_utc",
    "arrow_type_in_utc",
    "require_streams",
]

# 4.1 has UTC as its default, and no parameter of that name.
_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(types.to_arrow_schema).parameters else {}


def arrow_schema_in_utc(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of Spark's; timestamps are in UTC."""
    return types.to_arrow_schema(schema, **_UTC)


def arrow_type_in_utc(kind: DataType) -> pa.DataType:
    """Return the Arrow type of Spark's; timestamps are in UTC."""
    return types.to_arrow_type(kind, **_UTC)


def require_streams(name: str) -> None:
    """Raises ConfigError where this Spark does not tell a Python source where a batch starts."""
    if not HAS_STREAMS:
        raise ConfigError(
            f'spark.readStream.format("{name}") needs Spark 4.2; this is Spark {pyspark.__version__}',
            hint=f'Read intervals by spark.read.format("{name}") with startingTs and endingTs, or take PySpark 4.2.',
        )
