"""Golden files of TiCDC (tests/golden/ticdc) as Python objects: raw changes, table descriptions, row events."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.tidb.rows import Cell
from tidemill.tidb.schema.model import TableInfo

GOLDEN = Path(__file__).parents[2] / "golden"


@dataclass(frozen=True, slots=True)
class RawRow:
    """One committed change of a row."""

    key: bytes
    value: bytes | None
    old_value: bytes | None
    start_ts: int
    commit_ts: int


@dataclass(frozen=True, slots=True)
class RowEvent:
    """What TiCDC's mounter made of a change."""

    id: int
    case: str
    schema: str
    zone: str
    kind: str
    split: str
    table: TableInfo
    raw: RawRow
    columns: tuple[Cell, ...] | None
    pre_columns: tuple[Cell, ...] | None
    names: tuple[str, ...]

    @property
    def images(self) -> Iterator[tuple[bytes | None, tuple[Cell, ...]]]:
        """The stored rows of the event with their cells."""
        if self.columns is not None:
            yield self.raw.value, self.columns
        if self.pre_columns is not None:
            yield self.raw.old_value, self.pre_columns


def lines(name: str) -> Iterator[dict[str, Any]]:
    """The objects of tests/golden/ticdc/NAME.jsonl.gz."""
    with gzip.open(GOLDEN / "ticdc" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _cell(value: dict[str, Any] | None) -> Cell:
    match value:
        case None:
            return None
        case {"i64": number} | {"u64": number}:
            return int(number)
        case {"f32": bits}:
            return float(struct.unpack(">f", bytes.fromhex(bits))[0])
        case {"f64": bits}:
            return float(struct.unpack(">d", bytes.fromhex(bits))[0])
        case {"str": text} | {"vec": text}:
            return str(text)
        case {"bytes": text}:
            return base64.b64decode(text)
    raise ValueError(f"what is {value}?")


@functools.cache
def tables() -> dict[tuple[int, int], TableInfo]:
    """Table descriptions by table id and version."""
    return {(o["table_id"], o["version"]): TableInfo.from_json(o["tableinfo"]) for o in lines("tables")}


@functools.cache
def raw_rows() -> dict[int, RawRow]:
    """Raw changes of record keys of users' tables, by seq."""
    return {
        o["seq"]: RawRow(base64.b64decode(o["key"]), _bytes(o.get("value")), _bytes(o.get("old_value")), o["start_ts"], o["commit_ts"])
        for o in lines("rawkv")
        if o["kind"] == "row"
    }


@functools.cache
def row_events() -> tuple[RowEvent, ...]:
    """All row events of TiCDC, in its order."""
    return tuple(
        RowEvent(
            id=o["id"],
            case=o["case"],
            schema=o["schema"],
            zone=o["tz"],
            kind=o["kind"],
            split=o["split"],
            table=tables()[o["table_id"], o["table_version"]],
            raw=raw_rows()[o["seq"]],
            columns=_cells(o["columns"]),
            pre_columns=_cells(o["pre_columns"]),
            names=tuple(c["name"] for c in o["columns"] or o["pre_columns"]),
        )
        for o in lines("rows")
    )


def _cells(columns: list[dict[str, Any]] | None) -> tuple[Cell, ...] | None:
    return None if columns is None else tuple(_cell(c["value"]) for c in columns)
