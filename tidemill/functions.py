"""Functions for Spark, by the name that people look for. They are those of `tidemill.spark`. docs/spark/functions.md shows each of them.

from tidemill.functions import apply_changes, from_avro_cdc, from_canal, from_canal_json, from_csv, from_open_protocol, from_simple
"""

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
