"""Functions for Spark, by the name that people look for. They are those of `tidemill.spark`. docs/spark/functions.md shows each of them.

from tidemill.functions import apply_changes, from_avro_cdc, from_canal, from_canal_json, from_csv, from_open_protocol, from_simple

Each is imported when it is asked for: some need an extra that others do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemill import spark

if TYPE_CHECKING:
    from tidemill.spark import (
        apply_changes,
        from_avro_cdc,
        from_canal,
        from_canal_json,
        from_confluent_avro,
        from_csv,
        from_open_protocol,
        from_simple,
    )

__all__ = [
    "apply_changes",
    "from_avro_cdc",
    "from_canal",
    "from_canal_json",
    "from_confluent_avro",
    "from_csv",
    "from_open_protocol",
    "from_simple",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(spark, name)
