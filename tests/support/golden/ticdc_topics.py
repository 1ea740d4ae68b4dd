"""Topics as TiCDC wrote them, from golden messages; and what the upstream held at any ts, from the raw changes."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from itertools import chain
from typing import Any

from tests.support.golden.ticdc import Version, changes, lines, raw, versions, zone_of
from tidemill.demo.compare import Value, plain
from tidemill.tidb.keys import parse_record_key
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.model import TableInfo


@dataclass(frozen=True)
class Sent:
    """One message of TiCDC. `seq` of the raw change or DDL job it came from."""

    ts: int
    is_ddl: bool
    schema: str
    table: str
    table_id: int
    key: bytes
    value: bytes


@functools.cache
def sent(file: str = "open", config: str = "default") -> tuple[Sent, ...]:
    """Rows and DDLs in the order of their ts, rows before DDLs; tables that only force-replicate delivers are among them.

    `file` and `config`: a protocol's row messages and how they were configured. DDLs are always Open Protocol's: only they are complete.
    """
    rows = {line["id"]: line for line in lines("rows")}
    normal = {line["seq"] for line in rows.values() if not line.get("force")}
    ddls = {line["seq"]: line for line in lines("ddl")}
    found: list[tuple[int, int, int, Sent]] = []
    for number, line in enumerate(chain(_messages(file, config, "row"), _messages("open", "default", "ddl"))):
        if line["kind"] == "row":
            row = rows[line["id"]]
            if row["tz"] == _zones()[row["table"]] and not (row.get("force") and row["seq"] in normal):
                found.append((row["commit_ts"], 0, number, _message(line, row, row["commit_ts"])))
        else:
            job = ddls[line["seq"]]
            events = job["result"].get("events") or job["result_force_replicate"]["events"]
            found.append((line["commit_ts"], 1, number, _message(line, events[line["idx"]], line["commit_ts"])))
    return tuple(message for *_, message in sorted(found, key=lambda f: f[:3]))


def _messages(file: str, config: str, kind: str) -> Iterator[dict[str, Any]]:
    return (line for line in lines(file) if line.get("config") == config and line["kind"] == kind)


def _message(line: dict[str, Any], of: dict[str, Any], ts: int) -> Sent:
    value = raw(line.get("value_b64")) or line["value"].encode() if "key" not in line else raw(line["value"])
    key = raw(line.get("key"))
    return Sent(ts, line["kind"] == "ddl", of["schema"], of["table"], of.get("table_id", 0), key or b"", value or b"")


@functools.cache
def _zones() -> dict[str, str]:
    """The one zone of each table whose rows are taken: some tables were read in several."""
    found: dict[str, str] = {}
    for line in lines("rows"):
        found.setdefault(line["table"], line["tz"])
    return found


@functools.cache
def _history() -> Mapping[bytes, list[tuple[int, bytes | None]]]:
    found: dict[bytes, list[tuple[int, bytes | None]]] = {}
    for change in sorted(changes().values(), key=lambda c: c["commit_ts"]):
        key = raw(change["key"]) or b""
        found.setdefault(key, []).append((change["commit_ts"], raw(change.get("value")) if change["op"] == "put" else None))
    return found


@functools.cache
def _keys_of() -> Mapping[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for key in _history():
        found.setdefault(parse_record_key(key).table_id, []).append(key)
    return found


def version_at(table_id: int, ts: int) -> Version | None:
    """The definition of a table that TiCDC reads rows above `ts` with."""
    mine = sorted((v for (t, _), v in versions().items() if t == table_id), key=lambda v: v.version)
    at = bisect_right([v.version for v in mine], ts)
    return mine[at - 1] if at else None


def upstream_rows(version: Version, ts: int) -> tuple[TableInfo, list[dict[str, Value]]]:
    """What a table holds after `ts`, as `compare` takes it."""
    zone: tzinfo = zone_of(_zones().get(version.table, "UTC"))
    reader = RowReader(version.info, zone)
    names = [c.name for c in version.info.output_columns]
    rows = []
    for physical in version.info.physical_ids:
        for key in _keys_of().get(physical, ()):
            states = _history()[key]
            at = bisect_right([when for when, _ in states], ts)
            value = states[at - 1][1] if at else None
            if value is not None:
                rows.append({n: plain(c) for n, c in zip(names, reader.read(key, value), strict=True)})
    return version.info, rows
