"""`tidemill run` with progress = "table": a locked table holds back no other, over a kill; then the log grows under the run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.capture.progress import id_of, tables_apart
from tests.support.delivery.runs import assert_equal, audited, await_that, tidemill
from tidemill.demo.audit import Audit
from tidemill.demo.delivered import from_jsonl
from tidemill.demo.session import Delivery, tables_of
from tidemill.playground.server import PlaygroundThread
from tidemill.tidb.keys import record_key

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def rows_of(path: Path, table: str) -> int:
    """How many rows of a table are delivered."""
    audit = Audit()
    audit.take(from_jsonl(path))
    return sum(row.table == table for row in audit.rows)


@pytest.mark.thorough("tests/delivery/test_by_table.py and tests/capture/tables/test_held_tables.py; test_run_split.py runs by table")
def test_a_locked_table_holds_back_no_other_and_the_log_grows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, config = tmp_path / "delivered.jsonl", tmp_path / "feed.toml"
    config.write_text('progress = "table"\n')
    sink = f"messages://{out}?protocol=open-protocol&partition-num=3"
    with PlaygroundThread(seed=61, resolved_interval=0.2) as upstream:
        cluster = upstream.playground.cluster
        upstream.call(tables_apart, upstream.playground, ("a", 0), ("b", 1))
        began = upstream.call(cluster.oracle.next)
        upstream.execute("insert into a values (1); insert into b values (1)")
        options = ("--trigger-ms", "200", "--log-partitions", "2", "--config", str(config))
        there: Any = SimpleNamespace(pd=upstream.pd_address)
        with Delivery(tmp_path, there, sink, options=options, start_ts=began) as delivery:
            await_that(lambda: out.exists() and rows_of(out, "b") == 1 and rows_of(out, "a") == 1, "both tables are delivered", delivery)
            key = record_key(upstream.call(id_of, upstream.playground, "a"), 1)
            value = upstream.call(cluster.mvcc.get, key, 1 << 62)
            pending = upstream.call(cluster.prewrite, [(key, value)], ttl_ms=3_600_000)
            upstream.execute("insert into a values (2); insert into b values (2); insert into b values (3)")
            await_that(lambda: rows_of(out, "b") == 3, "the other table goes on", delivery)
            assert rows_of(out, "a") == 1
            assert delivery.checkpoint() <= pending.start_ts
            await_that(lambda: bool(delivery.capture_status().get("held_tables")), "the table is named", delivery)
            assert [held["table"].split()[0] for held in delivery.capture_status()["held_tables"]] == ["test.a"]
            code, said, _ = tidemill(capsys, "status", "--data-dir", delivery.data)
            assert code == 0
            assert "of partition 1" in said
            assert f"locked by the transaction {pending.start_ts}" in " ".join(said.split())
            assert "held up partition 0: test.a (" in " ".join(said.split())
            assert "rows/0" in tidemill(capsys, "log", "heads", delivery.log)[1]
            delivery.kill()
            delivery.start()
            upstream.execute("insert into b values (4)")
            await_that(lambda: rows_of(out, "b") == 4, "it goes on after a kill", delivery)
            assert rows_of(out, "a") == 1
            upstream.call(cluster.commit, pending)
            await_that(lambda: rows_of(out, "a") == 3, "the lock is gone", delivery)
            code, said, err = tidemill(capsys, "log", "grow", delivery.log, "--partitions", "3", "--wait", "200")
            assert (code, "has 3 partitions" in said) == (0, True), said + err
            upstream.execute("alter table a add column v int; create table c (id int primary key)")
            upstream.execute("insert into a values (5, 5); insert into b values (5); insert into c values (1)")
            end_ts = upstream.call(cluster.oracle.next)
            delivery.wait_until(end_ts)
            truth = tables_of(there, end_ts)
            assert delivery.stop() == 0
        audit = audited(from_jsonl(out))
        assert_equal(audit, delivery.log, truth, end_ts)
        assert audit.repeats == 0
