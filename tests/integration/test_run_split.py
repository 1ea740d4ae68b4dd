"""`tidemill run` whose hot table is split over log partitions while it is written, over a kill: the order of its commits stays."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.capture.progress import id_of
from tests.support.delivery.runs import assert_equal, audited, await_that, tidemill
from tidemill.changelog.reader import LogReader
from tidemill.demo.delivered import from_jsonl
from tidemill.demo.session import Delivery, tables_of
from tidemill.playground.server import PlaygroundThread
from tidemill.tidb.keys import record_key

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Writing:
    """Rows of a hot and a cold table: inserts, updates, deletes, and keys that go from one range to another and back."""

    def __init__(self, upstream: PlaygroundThread) -> None:
        self.upstream, self.n, self.stopped = upstream, 0, threading.Event()
        self.thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        while not self.stopped.wait(0.05):
            at, self.n = self.n * 37 % 601, self.n + 1
            self.upstream.execute(f"replace into hot (id, v) values ({at}, {self.n}), ({600 - at}, {self.n})")
            if self.n % 5 == 0:
                self.upstream.execute(f"delete from hot where id = {1000 - at}")
                self.upstream.execute(f"update hot set id = {1000 - at} where id = {at}")
            if self.n % 7 == 0:
                self.upstream.execute(f"replace into cold (id, v) values ({at}, {self.n})")
            if self.n % 100 == 50:
                self.upstream.execute(f"alter table hot add column c{self.n} int")

    def __enter__(self) -> Writing:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()

    def more(self, rows: int = 30) -> None:
        """Wait until this many more are written."""
        goal = self.n + rows
        await_that(lambda: self.n >= goal, "rows are written")


@pytest.mark.parametrize(
    "progress",
    [
        pytest.param("resolved", marks=pytest.mark.thorough("[table] reads the same log, and has a place for each table besides")),
        "table",
    ],
)
def test_a_hot_table_is_split_under_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], progress: str) -> None:
    out, config = tmp_path / "delivered.jsonl", tmp_path / "feed.toml"
    config.write_text('progress = "table"\n' if progress == "table" else "")
    sink = f"messages://{out}?protocol=open-protocol&partition-num=3"
    with PlaygroundThread(seed=71, resolved_interval=0.2) as upstream:
        cluster = upstream.playground.cluster
        began = upstream.call(cluster.oracle.next)
        upstream.execute("create table hot (id int primary key, v int); create table cold (id int primary key, v int)")
        table_id = upstream.call(id_of, upstream.playground, "hot")
        upstream.call(cluster.split, [record_key(table_id, handle) for handle in (100, 200, 300, 400, 500)])
        options = ("--trigger-ms", "200", "--log-partitions", "4", "--config", str(config))
        there: Any = SimpleNamespace(pd=upstream.pd_address)
        with Delivery(tmp_path, there, sink, options=options, start_ts=began) as delivery, Writing(upstream) as writing:
            await_that(lambda: delivery.checkpoint() > began, "something is delivered", delivery)
            code, said, err = tidemill(capsys, "log", "split", delivery.log, "--table", "test.hot", "--over", "3", "--wait", "200")
            assert (code, "has test.hot over the partitions" in said) == (0, True), said + err
            writing.more()
            before = delivery.checkpoint()
            delivery.kill()
            writing.more()
            delivery.start()
            assert "split" in tidemill(capsys, "log", "heads", delivery.log)[1]
            await_that(lambda: delivery.checkpoint() > before, "it goes on after a kill", delivery)
            code, said, err = tidemill(capsys, "log", "split", delivery.log, "--table", "test.hot", "--over", "2", "--wait", "200")
            assert (code, "has test.hot over the partitions" in said) == (0, True), said + err
            writing.more()
            writing.stopped.set()
            writing.thread.join()
            end_ts = upstream.call(cluster.oracle.next)
            delivery.wait_until(end_ts)
            truth = tables_of(there, end_ts)
            assert delivery.stop() == 0
        reader = LogReader(delivery.log)
        assert [len(one.split_tables[0].partitions) for one in reader.identity.layouts[1:]] == [3, 2]
        again = tmp_path / "again.jsonl"
        code, _, err = tidemill(capsys, "replay", "--log", delivery.log, "--sink-uri", str(sink).replace(str(out), str(again)))
        assert code == 0, err
        for path in (out, again):
            assert_equal(audited(from_jsonl(path)), delivery.log, truth, end_ts)
