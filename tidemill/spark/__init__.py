"""What is Spark's own: the session, the jobs of a batch, the executors; and column functions for users.

In: the work items of a batch. Out: what each of them delivered. Read `jobs.py` first, then `local.py` for what needs no job.

Column functions (`messages/`) turn messages into rows, in Arrow batches:

    from tidemill.spark import from_avro_cdc, from_canal, from_canal_json, from_csv, from_open_protocol, from_simple

`apply_changes` (`apply.py`) keeps a Delta or Iceberg table by changes. `register(spark)` makes changes of TiDB readable as DataFrames, see
`source/`, and its tables as of one ts, see `table/`. `register_catalog(spark)` makes a cluster a catalog of Spark's SQL, see `catalog/`.
`as_of(spark, place)` gives the tables of a lake as they were at one resolved ts, see `lake.py`.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.spark.apply import apply_changes
    from tidemill.spark.catalog.jar import catalog_jar
    from tidemill.spark.formats import register, register_catalog
    from tidemill.spark.lake import as_of
    from tidemill.spark.messages.avro import from_avro_cdc, from_confluent_avro
    from tidemill.spark.messages.canal import from_canal
    from tidemill.spark.messages.canal_json import from_canal_json
    from tidemill.spark.messages.csv import from_csv
    from tidemill.spark.messages.open_protocol import from_open_protocol
    from tidemill.spark.messages.simple import from_simple
    from tidemill.spark.table.source import table_plan

if sys.prefix != sys.base_prefix:
    # Spark's workers run `python3` of PATH, which lacks Tidemill where its virtual environment is not active. A session takes what the
    # environment says when it starts.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

__all__ = [
    "apply_changes",
    "as_of",
    "catalog_jar",
    "from_avro_cdc",
    "from_canal",
    "from_canal_json",
    "from_confluent_avro",
    "from_csv",
    "from_open_protocol",
    "from_simple",
    "register",
    "register_catalog",
    "table_plan",
]

_MODULES = {
    "apply_changes": "apply",
    "as_of": "lake",
    "from_avro_cdc": "messages.avro",
    "from_canal": "messages.canal",
    "from_canal_json": "messages.canal_json",
    "from_confluent_avro": "messages.avro",
    "from_csv": "messages.csv",
    "from_open_protocol": "messages.open_protocol",
    "from_simple": "messages.simple",
    "catalog_jar": "catalog.jar",
    "register": "formats",
    "register_catalog": "formats",
    "table_plan": "table.source",
}
"""Where each function is. Its module is imported when the function is asked for: PySpark and kernels take a second, and processes that only
need Spark's settings start often."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
