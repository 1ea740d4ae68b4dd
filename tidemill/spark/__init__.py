"""What is Spark's own: the session, the jobs of a batch, the executors; and column functions for users.

In: the work items of a batch. Out: what each of them delivered. Read `jobs.py` first, then `local.py` for what needs no job.

The column functions (`column_functions.py`, and a module for each protocol) turn messages into rows, in Arrow batches:

    from tidemill.spark import from_canal, from_canal_json, from_confluent_avro, from_open_protocol

`register(spark)` makes changes of TiDB readable as DataFrames, see `source/`, and its tables as of one ts, see `table/`.
`as_of(spark, place)` gives the tables of a lake as they were at one resolved ts, see `lake.py`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.spark.avro import from_confluent_avro
    from tidemill.spark.canal import from_canal
    from tidemill.spark.canal_json import from_canal_json
    from tidemill.spark.lake import as_of
    from tidemill.spark.open_protocol import from_open_protocol
    from tidemill.spark.table.register import register
    from tidemill.spark.table.source import table_plan

__all__ = ["as_of", "from_canal", "from_canal_json", "from_confluent_avro", "from_open_protocol", "register", "table_plan"]

_MODULES = {
    "as_of": "lake",
    "from_canal": "canal",
    "from_canal_json": "canal_json",
    "from_confluent_avro": "avro",
    "from_open_protocol": "open_protocol",
    "register": "table.register",
    "table_plan": "table.source",
}
"""Where each function is. Its module is imported when the function is asked for: PySpark and kernels take a second, and processes that only
need Spark's settings start often."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
