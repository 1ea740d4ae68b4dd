"""What DDLs leave in TiKV, as comparable traces: of a recording of a real cluster, and of the playground."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.support.capture.eventfeeds import recording
from tidemill.playground.store.cluster import Cluster
from tidemill.tidb import keys
from tidemill.tidb.datums import Datum
from tidemill.tidb.rows.raw import decode_row
from tidemill.wire import cdcpb_pb2 as cdcpb

JOB, META, HISTORY = "job", "meta", "history"
JOB_META = {keys.DDL_JOB_TABLE_ID: 5, keys.DDL_HISTORY_TABLE_ID: 2}


class Write(NamedTuple):
    """One committed version of a key."""

    start_ts: int
    commit_ts: int
    key: bytes
    value: bytes | None


class Job(NamedTuple):
    """A version of a job row."""

    kind: str  # job or history
    id: int
    start_ts: int
    json: dict[str, Any] | None  # None: the row was deleted
    columns: dict[int, Any]


def recorded_writes() -> list[Write]:
    """All versions of the scan at the end of the recording `ddl_jobs`."""
    writes = []
    for line in recording("ddl_jobs"):
        if line["kind"] != "resp" or line["stream"] != 2:
            continue
        for event in cdcpb.ChangeDataEvent.FromString(line["bytes"]).events:
            writes += [
                Write(r.start_ts, r.commit_ts, r.key, r.value if r.op_type == cdcpb.Event.Row.PUT else None)
                for r in event.entries.entries
                if r.type == cdcpb.Event.COMMITTED
            ]
    return sorted(writes)


def recorded_statements() -> list[str]:
    """The statements of the recording, in order."""
    return [line["sql"] for line in recording("ddl_jobs") if line["kind"] == "sql"]


def playground_writes(cluster: Cluster, after: int) -> list[Write]:
    """All versions of meta keys and job tables above a ts."""
    ranges = [(b"m", b"n"), *(keys.record_range(table) for table in JOB_META)]
    return sorted(
        Write(start_ts, commit_ts, key, value)
        for start, end in ranges
        for key, history in cluster.mvcc.items(start, end)
        for commit_ts, start_ts, value in history
        if commit_ts > after
    )


def jobs(writes: Iterable[Write]) -> Iterator[Job]:
    """The job rows among writes."""
    for write in writes:
        if write.key[:1] != b"t":
            continue
        record = keys.parse_record_key(write.key)
        kind = JOB if record.table_id == keys.DDL_JOB_TABLE_ID else HISTORY
        assert isinstance(record.handle, int)
        if write.value is None:
            yield Job(kind, record.handle, write.start_ts, None, {})
            continue
        assert write.value[:1] == b"\x08", "rows of DDL tables are in format 1"
        columns = {c: d.value if isinstance(d, Datum) else d for c, d in decode_row(write.value).columns.items()}
        meta = columns.pop(JOB_META[record.table_id])
        assert isinstance(meta, bytes)
        yield Job(kind, record.handle, write.start_ts, json.loads(meta), columns)


def tables(writes: Iterable[Write]) -> dict[int, list[tuple[int, dict[str, Any] | None]]]:
    """By start_ts: the table descriptions put (None: deleted) with their ids."""
    found: dict[int, list[tuple[int, dict[str, Any] | None]]] = {}
    for write in writes:
        if write.key[:1] != b"m":
            continue
        meta = keys.parse_meta_key(write.key)
        table_id = keys.table_id_of(meta.field) if meta.kind is keys.MetaKind.HASH_FIELD else None
        if table_id is not None and meta.name.startswith(b"DB:"):
            found.setdefault(write.start_ts, []).append((table_id, None if write.value is None else json.loads(write.value)))
    return found


def trace(statement_jobs: list[Job], described: dict[int, list[tuple[int, dict[str, Any] | None]]]) -> list[Any]:
    """One job's life without ids and times: states, what its rows hold, and the descriptions written with each step."""
    names: dict[int, int] = {}

    def number(identity: int) -> int:
        return names.setdefault(identity, len(names))

    steps: list[Any] = []
    for job in statement_jobs:
        if job.json is None:
            steps.append("deleted")
            continue
        binlog = job.json["binlog"]
        step = [job.kind, job.json["type"], job.json["state"], job.json["schema_state"], *(bool(binlog[m]) for m in RESULTS)]
        if job.kind == JOB:
            put = sorted(described.get(job.start_ts, []), key=lambda item: (item[1] is None, item[0]))
            step.append([_table_trace(info, number) for _, info in put])
        if steps and steps[-1] == step:
            continue  # a step that only counted rows
        steps.append(step)
    return steps


RESULTS = ("SchemaVersion", "DBInfo", "TableInfo", "MultipleTableInfos")


def _table_trace(info: dict[str, Any] | None, number: Any) -> Any:
    if info is None:
        return None
    partition = info["partition"] or {}
    return {
        "name": info["name"]["O"],
        "state": info["state"],
        "columns": [(c["id"], c["name"]["O"], c["offset"], c["state"], c["type"]["Tp"], c["type"]["Flag"]) for c in info["cols"] or ()],
        "indices": [
            (i["id"], i["idx_name"]["O"], i["state"], i["is_unique"], [(p["offset"], p["length"]) for p in i["idx_cols"]])
            for i in info["index_info"] or ()
        ],
        "partitions": {
            member: [(number(d["id"]), d["name"]["O"], d["less_than"]) for d in partition.get(member) or ()]
            for member in ("definitions", "adding_definitions", "dropping_definitions")
        },
        "partitioning": {
            m: partition.get(m) or None for m in ("type", "expr", "enable", "ddl_state", "ddl_action", "ddl_type", "ddl_expr")
        },
    }
