"""Schemas for tests: meta keys, descriptions and DDL jobs as TiDB would write them, and a script of transactions.

script = Script(start=1000)
script.database(1, "d")
...
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tidemill.tidb import keys
from tidemill.tidb.codec import encode_compact_bytes, encode_varint
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import SchemaState
from tidemill.tidb.schema.tracking.history import SchemaChange, SchemaHistory

GOLDEN = Path(__file__).parents[2] / "golden"
PUT, DELETE = 1, 2
JOB_TABLE_ID = keys.DDL_JOB_TABLE_ID
JOB_META = 5
"""The column of mysql.tidb_ddl_job with the job."""

STATES = {
    "none": SchemaState.NONE,
    "delete-only": SchemaState.DELETE_ONLY,
    "write-only": SchemaState.WRITE_ONLY,
    "write-reorg": SchemaState.WRITE_REORG,
    "delete-reorg": SchemaState.DELETE_REORG,
    "public": SchemaState.PUBLIC,
    "replica-only": SchemaState.REPLICA_ONLY,
}

Json = dict[str, Any]


def read_lines(path: str) -> Iterator[Json]:
    """The objects of a golden file of JSON lines."""
    with gzip.open(GOLDEN / path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def read_json(path: str) -> Any:
    """The content of a golden JSON file."""
    with gzip.open(GOLDEN / path, "rt", encoding="utf-8") as file:
        return json.load(file)


def _name(text: str) -> Json:
    return {"O": text, "L": text.lower()}


def database(schema_id: int, name: str, **members: Any) -> Json:
    """A DBInfo."""
    return {"id": schema_id, "db_name": _name(name), "charset": "utf8mb4", "collate": "utf8mb4_bin", "state": 5, **members}


def column(column_id: int, name: str, offset: int, *, state: int = 5, tp: int = 3, flag: int = 0, **members: Any) -> Json:
    """A ColumnInfo; an INT unless said otherwise."""
    kind = {"Tp": tp, "Flag": flag, "Flen": 11, "Decimal": 0, "Charset": "binary", "Collate": "binary", "Elems": None, "Array": False}
    return {"id": column_id, "name": _name(name), "offset": offset, "state": state, "type": kind, "version": 2, **members}


def index(index_id: int, name: str, offsets: Sequence[int], *, unique: bool = False, primary: bool = False, state: int = 5) -> Json:
    """An IndexInfo over whole columns."""
    parts = [{"name": _name(f"c{offset}"), "offset": offset, "length": -1} for offset in offsets]
    return {"id": index_id, "idx_name": _name(name), "idx_cols": parts, "state": state, "is_unique": unique, "is_primary": primary}


def partition(ids: Iterable[int], *, kind: int = 1, adding: Iterable[int] = (), dropping: Iterable[int] = (), **members: Any) -> Json:
    """A PartitionInfo whose partitions are named by their ids."""

    def definitions(numbers: Iterable[int]) -> list[Json]:
        return [{"id": number, "name": _name(f"p{number}"), "less_than": [str(number)]} for number in numbers]

    return {
        "type": kind,
        "expr": "`a`",
        "enable": True,
        "definitions": definitions(ids),
        "adding_definitions": definitions(adding),
        "dropping_definitions": definitions(dropping),
        **members,
    }


def table(table_id: int, name: str, columns: Sequence[Json] = (), **members: Any) -> Json:
    """A TableInfo with an integer primary key `a` unless columns are given."""
    cols = list(columns) or [column(1, "a", 0, flag=4099), column(2, "b", 1)]
    return {
        "id": table_id,
        "name": _name(name),
        "charset": "utf8mb4",
        "collate": "utf8mb4_bin",
        "cols": cols,
        "index_info": None,
        "state": 5,
        "pk_is_handle": not columns,
        **members,
    }


def job(job_id: int, action: int, state: int, *, query: str = "", table_id: int = 0, schema_id: int = 0, **members: Any) -> Json:
    """A DDL job."""
    binlog = {"SchemaVersion": members.pop("schema_version", 0), "TableInfo": members.pop("table_info", None)}
    binlog |= {"DBInfo": members.pop("db_info", None), "MultipleTableInfos": members.pop("table_infos", None), "FinishedTS": 0}
    return {
        "id": job_id,
        "type": action,
        "state": state,
        "schema_id": schema_id,
        "table_id": table_id,
        "query": query,
        "binlog": binlog,
        "version": 2,
        **members,
    }


def text(value: Any) -> bytes:
    """JSON as Go writes it, near enough."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def job_row(data: Json, *, row_format: int = 2) -> bytes:
    """A row of mysql.tidb_ddl_job with the job in its column."""
    body = text(data)
    if row_format == 2:
        return pack_row({JOB_META: body, 6: data["type"].to_bytes(1, "little")})
    return b"\x08" + encode_varint(JOB_META) + b"\x02" + encode_compact_bytes(body)


def job_table_pairs() -> list[tuple[bytes, bytes]]:
    """The meta pairs of the database mysql with the table of DDL jobs."""
    columns = [column(1, "job_id", 0, flag=4099), column(JOB_META, "job_meta", 1, tp=251)]
    return [
        (keys.db_key(1), text(database(1, "mysql"))),
        (keys.table_key(1, JOB_TABLE_ID), text(table(JOB_TABLE_ID, "tidb_ddl_job", columns))),
    ]


def put_database(start: int, commit: int, info: Json) -> SchemaChange:
    """A change of a database's description."""
    return SchemaChange(0, PUT, start, commit, keys.db_key(info["id"]), text(info))


def drop_database(start: int, commit: int, schema_id: int) -> SchemaChange:
    """The end of a database."""
    return SchemaChange(0, DELETE, start, commit, keys.db_key(schema_id), None)


def put_table(start: int, commit: int, schema_id: int, info: Json) -> SchemaChange:
    """A change of a table's description."""
    return SchemaChange(0, PUT, start, commit, keys.table_key(schema_id, info["id"]), text(info))


def drop_table(start: int, commit: int, schema_id: int, table_id: int) -> SchemaChange:
    """The end of a table's description."""
    return SchemaChange(0, DELETE, start, commit, keys.table_key(schema_id, table_id), None)


def put_version(start: int, commit: int, version: int) -> SchemaChange:
    """A new schema version."""
    return SchemaChange(0, PUT, start, commit, keys.SCHEMA_VERSION_KEY, str(version).encode())


def put_job(start: int, commit: int, data: Json, *, row_format: int = 2) -> SchemaChange:
    """A step of a job in mysql.tidb_ddl_job."""
    key = keys.record_key(JOB_TABLE_ID, data["id"])
    return SchemaChange(JOB_TABLE_ID, PUT, start, commit, key, job_row(data, row_format=row_format))


def drop_job(start: int, commit: int, job_id: int) -> SchemaChange:
    """The job's row is removed: it is in the history now."""
    return SchemaChange(JOB_TABLE_ID, DELETE, start, commit, keys.record_key(JOB_TABLE_ID, job_id), None)


def golden_changes() -> list[SchemaChange]:
    """The schema stream of golden/ticdc."""
    changes = []
    for line in read_lines("ticdc/rawkv.jsonl.gz"):
        if line["kind"] in ("ddl_job", "meta"):
            key = base64.b64decode(line["key"])
            table_id = 0 if line["kind"] == "meta" else keys.physical_table_id(key)
            op = PUT if line["op"] == "put" else DELETE
            value = base64.b64decode(line["value"]) if op == PUT else None
            changes.append(SchemaChange(table_id, op, line["start_ts"], line["commit_ts"], key, value))
    return changes


def golden_snapshot(number: int) -> tuple[int, list[tuple[bytes, bytes]]]:
    """A meta snapshot of golden/ticdc: 0 before all cases, 1 in their middle."""
    head, *lines = read_lines(f"ticdc/meta_snapshot_{number}.jsonl.gz")
    return head["ts"], [(base64.b64decode(line["k"]), base64.b64decode(line["v"])) for line in lines]


def begun_with_a_table(mode: int = 0) -> SchemaHistory:
    """A history that begins at 100 with the table d.t (id 10, in the database 2) in this mode."""
    pairs = [*job_table_pairs(), (keys.db_key(2), text(database(2, "d"))), (keys.SCHEMA_VERSION_KEY, b"5")]
    return SchemaHistory.bootstrap(100, [*pairs, (keys.table_key(2, 10), text(table(10, "t", mode=mode)))])
