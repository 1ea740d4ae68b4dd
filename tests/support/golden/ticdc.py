"""What TiCDC's own code wrote for the same raw changes, joined: raw change, table version, expected message."""

from __future__ import annotations

import base64
import functools
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from tests.support.golden.rows import lines as lines
from tidemill.kernels.rows.views import RawRecord
from tidemill.tidb.schema.model import TableInfo

GOLDEN = Path(__file__).parents[2] / "golden" / "ticdc"


def raw(text: str | None) -> bytes | None:
    """The bytes of a base64 text."""
    return None if text is None else base64.b64decode(text)


@dataclass(frozen=True)
class Version:
    """A table version of the golden files."""

    schema: str
    table: str
    info: TableInfo
    version: int


@dataclass(frozen=True)
class Row:
    """A row event: the raw change of a half of a split has the other image taken away, as the pipeline does it."""

    id: int
    case: str
    zone: str
    split: str
    version: Version
    record: RawRecord
    expected: dict[str, Any]


def zone_of(name: str) -> tzinfo:
    """A zone by its name in the golden files."""
    return UTC if name == "UTC" else ZoneInfo(name)


@functools.cache
def versions() -> dict[tuple[int, int], Version]:
    """Table versions by (table id, version)."""
    found = {}
    for line in lines("tables"):
        version = Version(line["schema"], line["table"], TableInfo.from_json(line["tableinfo"]), line["version"])
        found[line["table_id"], line["version"]] = version
    return found


@functools.cache
def changes() -> dict[int, dict[str, Any]]:
    """Raw changes of rows by seq."""
    return {line["seq"]: line for line in lines("rawkv") if line["kind"] == "row"}


@functools.cache
def rows() -> dict[int, Row]:
    """All row events by id."""
    found = {}
    for line in lines("rows"):
        change = changes()[line["seq"]]
        value, old = raw(change.get("value")), raw(change.get("old_value"))
        if line["split"] == "delete":
            value = None
        elif line["split"] == "insert":
            old = None
        record = RawRecord(raw(change["key"]) or b"", value or None, old, change["start_ts"], change["commit_ts"], 0)
        version = versions()[line["table_id"], line["table_version"]]
        found[line["id"]] = Row(line["id"], line["case"], line["tz"], line["split"], version, record, line)
    return found
