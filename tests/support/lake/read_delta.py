"""A reader of Delta tables that shares no code with the writer: the log's JSON files by their specification, data files with pyarrow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq


def log_of(table: Path, version: int | None = None) -> list[list[dict[str, Any]]]:
    """The actions of each commit, up to a version."""
    files = sorted((table / "_delta_log").glob("*.json"))
    assert [int(file.stem) for file in files] == list(range(len(files)))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files[: None if version is None else version + 1]]


def rows_of(table: Path, version: int | None = None) -> list[dict[str, Any]]:
    """The rows at a version."""
    files: dict[str, None] = {}
    names: list[str] = []
    for commit in log_of(table, version):
        for action in commit:
            match action:
                case {"add": add}:
                    files[unquote(add["path"])] = None
                case {"remove": remove}:
                    del files[unquote(remove["path"])]
                case {"metaData": found}:
                    names = [one["name"] for one in json.loads(found["schemaString"])["fields"]]
    rows = []
    for file in files:
        found = pq.read_table(table / file)
        absent = pa.nulls(len(found))
        columns = [found[name] if name in found.column_names else absent for name in names]
        rows += pa.table(columns, names).to_pylist()
    return rows
