"""Real TiKV: the meta range, the table of DDL jobs and its history while some 45 DDLs ran, and a bootstrap by plain reads."""

from __future__ import annotations

import base64

import pytest

from tests.support.schema import schemas as s
from tests.support.schema.recorded_schemas import feed
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.tracking.history import SchemaChange, SchemaHistory, job_table_id, meta_filter
from tidemill.wire import kvrpcpb_pb2


def history_columns() -> list[tuple[bytes, bytes]]:
    columns = [s.column(1, "job_id", 0, flag=4099), s.column(2, "job_meta", 1, tp=251)]
    info = s.table(keys.DDL_HISTORY_TABLE_ID, "tidb_ddl_history", columns)
    return [(keys.table_key(1, keys.DDL_HISTORY_TABLE_ID), s.text(info))]


STATEMENTS = [
    "CREATE DATABASE IF NOT EXISTS `cdc_ddl`",
    "CREATE TABLE `a` (`id` BIGINT PRIMARY KEY /*T![clustered_index] CLUSTERED */,`name` VARCHAR(64) NOT NULL DEFAULT _UTF8MB4'n',`v` INT)",
    "ALTER TABLE `a` ADD COLUMN `d` DECIMAL(10,2) NOT NULL DEFAULT 1.50",
    "ALTER TABLE `a` ADD INDEX `iv`(`v`)",
    "ALTER TABLE `a` DROP INDEX `iv`",
    "ALTER TABLE `a` MODIFY COLUMN `v` BIGINT",
    "ALTER TABLE `a` CHANGE COLUMN `v` `w` VARCHAR(20)",
    "ALTER TABLE `a` RENAME COLUMN `w` TO `w2`",
    "ALTER TABLE `a` DROP COLUMN `d`",
    "RENAME TABLE `a` TO `b`",
    "ALTER TABLE `b` COMMENT = 'hello'",
    "TRUNCATE TABLE `b`",
    "CREATE TABLE `c` LIKE `b`",
    "CREATE TABLE `x` (`id` INT PRIMARY KEY,`k` INT,UNIQUE(`k`))",
    "CREATE TABLE `y` (`id` INT PRIMARY KEY,`k` INT,UNIQUE(`k`))",
    "RENAME TABLE `cdc_ddl`.`x` TO `cdc_ddl`.`y2`",
    "RENAME TABLE `cdc_ddl`.`y` TO `cdc_ddl`.`x2`",
]


@pytest.mark.parametrize("with_history", [False, True])
def test_a_feed_of_tikv(with_history: bool) -> None:
    changes = feed()
    assert len(changes) == 621
    pairs = s.job_table_pairs() + (history_columns() if with_history else [])
    first, last = min(c.commit_ts for c in changes), max(c.commit_ts for c in changes)
    history = SchemaHistory.bootstrap(first - 1, pairs)
    history.advance([c for c in changes if c.table_id != 0 or meta_filter(c.key)], last)
    events = history.ddl_events(first - 1, last)
    assert [event.query for event in events][: len(STATEMENTS)] == STATEMENTS
    assert all(event.reprinted and event.ts <= event.done_ts for event in events)
    assert {event.ts for event in events} <= {c.commit_ts for c in changes}
    early = [Action(e.type) for e in events if e.ts < e.done_ts]
    assert early == [
        Action.DROP_INDEX,
        Action.DROP_COLUMN,
        Action.RENAME_TABLE,
        Action.RENAME_TABLE,
        Action.RENAME_TABLE,
        Action.TRUNCATE_TABLE_PARTITION,
        Action.DROP_TABLE_PARTITION,
        Action.REORGANIZE_PARTITION,
        Action.REMOVE_PARTITIONING,
        Action.ALTER_PARTITIONING,
    ]
    assert {v.table for v in history.snapshot(last).tables.values()} == {"b", "c_back", "x2", "y2", "p", "e", "au", "ar"}
    snapshot = history.snapshot(last)
    assert len(snapshot.by_name["cdc_ddl", "e"].physical_ids) == 3
    assert snapshot.by_name["cdc_ddl", "p"].info.partition is None


def test_the_feed_tells_what_tidb_lists() -> None:
    """ADMIN SHOW DDL JOBS has a line for each of our events, and others only for what is not delivered."""
    changes = feed()
    last = max(c.commit_ts for c in changes)
    history = SchemaHistory.bootstrap(min(c.commit_ts for c in changes) - 1, s.job_table_pairs())
    history.advance(changes, last)
    listed = next(line["rows"] for line in s.read_lines("tikv/recordings/ddl_jobs.jsonl.gz") if line["kind"] == "admin_show_ddl_jobs")
    events = {event.job_id: event for event in history.ddl_events(history.start_ts, last)}
    kinds = {int(row[0]): row[3] for row in listed if int(row[0]) >= min(events)}
    assert {kinds[job] for job in kinds.keys() - events.keys()} <= {
        "create sequence",
        "drop sequence",
        "create placement policy",
        "drop placement policy",
    }
    for row in listed:
        if event := events.get(int(row[0])):
            assert event.schema == row[1]


def test_bootstrap_by_plain_reads() -> None:
    """KvScan of DBs and of every database, as a client of TiKV does it."""
    pairs: list[tuple[bytes, bytes]] = []
    later = False
    for line in s.read_lines("tikv/recordings/meta_read.jsonl.gz"):
        later |= line["kind"] == "note" and line["text"].startswith("at the later ts")
        if later and line["kind"] == "resp" and line["type"] == "kvrpcpb.ScanResponse":
            answer = kvrpcpb_pb2.ScanResponse.FromString(base64.b64decode(line["b64"]))
            pairs += [(pair.key, pair.value) for pair in answer.pairs]
    pairs = [pair for pair in pairs if meta_filter(pair[0])]
    assert job_table_id(pairs) == keys.DDL_JOB_TABLE_ID
    history = SchemaHistory.bootstrap(1, pairs)
    assert keys.DDL_HISTORY_TABLE_ID in history.job_table_ids
    snapshot = history.snapshot(1)
    assert {"t1", "t2"} <= {version.table for version in snapshot.tables.values() if version.schema == "cdc_meta"}
    assert [c.name for c in snapshot.by_name["cdc_meta", "t1"].info.output_columns] == ["id", "v", "w"]


def job_changes() -> list[SchemaChange]:
    """The jobs of the 73 DDLs of ddl_jobs, each in row format 1 or 2, and their history rows; no meta keys."""
    changes = []
    for line in s.read_lines("tikv/ddl_jobs.jsonl.gz"):
        for version in line["versions"]:
            table = keys.DDL_JOB_TABLE_ID if version["src"] == "tidb_ddl_job" else keys.DDL_HISTORY_TABLE_ID
            key = keys.record_key(table, line["job_id"])
            times = version["start_ts"], version["commit_ts"]
            if version["op"] == "Del":
                changes.append(SchemaChange(table, s.DELETE, *times, key, None))
            elif table == keys.DDL_JOB_TABLE_ID:
                row = s.job_row(version["job"], row_format=1 + line["job_id"] % 2)
                changes.append(SchemaChange(table, s.PUT, *times, key, row))
            else:
                body = s.text(version["job"])
                row = b"\x80\x00\x01\x00\x00\x00\x02" + len(body).to_bytes(2, "little") + body if len(body) < 1 << 16 else b""
                changes += [SchemaChange(table, s.PUT, *times, key, row)] if row else []
    return changes


def test_jobs_alone() -> None:
    """Every table is what its last job says; each DDL stands where it is done, and history rows repeat none of them."""
    changes = job_changes()
    first, last = min(c.commit_ts for c in changes), max(c.commit_ts for c in changes)
    test = [(keys.db_key(2), s.text(s.database(2, "test")))]
    history = SchemaHistory.bootstrap(first - 1, [*s.job_table_pairs(), *history_columns(), *test])
    history.advance(changes, last)
    events = history.ddl_events(first - 1, last)
    by_job: dict[int, list[int]] = {}
    for event in events:
        assert event.ts == event.done_ts
        by_job.setdefault(event.job_id, []).append(event.ts)
    for line, summary in zip(s.read_lines("tikv/ddl_jobs.jsonl.gz"), s.read_json("tikv/ddl_summary.json.gz"), strict=True):
        if "done_commit_ts" not in summary or line["job_id"] not in by_job:
            continue
        assert set(by_job.pop(line["job_id"])) == {summary["done_commit_ts"]}
        if summary["tableinfo_id"] and summary["type"] not in (Action.DROP_TABLE, Action.DROP_VIEW):
            tables = history.snapshot(summary["done_commit_ts"]).tables
            info = tables[summary["tableinfo_id"]].info
            assert list(info.physical_ids) == (summary["partition_ids"] or ([info.id] if info.has_rows else []))
    assert by_job == {}
    assert not [event for event in events if "add unique key u(b)" in event.raw_query]  # it was rolled back
