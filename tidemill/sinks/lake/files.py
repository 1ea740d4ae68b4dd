"""The data files of a table's version, for readers: `tidemill.spark.as_of` and `tidemill lake`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from tidemill.errors import SinkError
from tidemill.sinks.lake.base import Tables
from tidemill.sinks.lake.manifest import TableAt


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table at a version. `schema`: as Spark writes a StructType in JSON. `sizes`: bytes by path below the table; of Delta alone."""

    schema: dict[str, Any]
    paths: tuple[str, ...]
    rows: int
    bytes: int
    sizes: Mapping[str, int]


def files_of(tables: Tables, at: TableAt) -> TableFiles:
    """Return the files. Raises SinkError if the version is gone."""
    from tidemill.sinks.lake.delta import DeltaTables

    if not isinstance(tables, DeltaTables):
        raise SinkError(f"{tables}: its files are read with the catalog's own readers")
    table = tables.at(at.place, at.version)
    actions = table.get_add_actions(flatten=True)
    columns = {name: actions[name].to_pylist() for name in ("path", "size_bytes", "num_records")} if actions.num_rows else {}
    sizes = {unquote(path): size for path, size in zip(columns.get("path", ()), columns.get("size_bytes", ()), strict=True)}
    paths = tuple(f"{tables.uri(at.place)}/{path}" for path in sizes)
    schema = json.loads(table.schema().to_json())
    return TableFiles(schema, paths, sum(columns.get("num_records", ())), sum(sizes.values()), sizes)
