"""The judge of soaks finds what is missing, twice, or otherwise than in the upstream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.soak.judge import judge
from tests.soak.processes import Capture
from tests.support.capture.captures import caught_up, config, running
from tidemill.changelog.log_format import rows_folder
from tidemill.changelog.reader import LogReader
from tidemill.errors import LogError
from tidemill.metrics.stalls import Stall
from tidemill.playground.server import PlaygroundThread
from tidemill.playground.store.dump import write_dump
from tidemill.playground.store.mvcc import Mvcc
from tidemill.tidb.keys import record_key


@dataclass
class Finished:
    """A captured playground that still serves."""

    thread: PlaygroundThread
    log: Path
    folder: Path

    @property
    def mvcc(self) -> Mvcc:
        return self.thread.playground.cluster.mvcc

    def table_id(self, name: str) -> int:
        return next(t.id for t in self.thread.playground.database.catalog.tables.values() if t.name == name)

    def judge(self) -> str:
        """Of what the store holds now."""
        dump = self.folder / "dump.arrow"
        write_dump(self.mvcc, str(dump))
        return judge(self.log, dump, self.thread.pd_address, None)


@pytest.fixture
def finished(tmp_path: Path) -> Iterator[Finished]:
    thread = PlaygroundThread(3, resolved_interval=0.1)
    thread.__enter__()
    try:

        def sql(text: str) -> None:
            thread.execute(text)

        async def capture() -> None:
            async with running(config(thread.playground, tmp_path / "log", partitions=1)) as found:
                sql("create database d; create table d.t (id int primary key, v int); insert into d.t values (1, 1), (2, 2), (3, 3)")
                sql("update d.t set v = 9 where id = 2; delete from d.t where id = 3")
                sql("create table d.p (id int primary key, v int) partition by hash (id) partitions 2")
                sql("insert into d.p values (1, 1), (2, 2)")
                sql("alter table d.p remove partitioning; insert into d.p values (3, 3)")
                sql("drop table d.t; insert into d.p values (4, 4); recover table d.t; insert into d.t values (5, 5)")
                await caught_up(found, thread.call(thread.playground.cluster.oracle.next))

        asyncio.run(capture())
        yield Finished(thread, tmp_path / "log", tmp_path)
    finally:
        thread.__exit__(None, None, None)


def test_a_log_that_has_everything(finished: Finished) -> None:
    assert finished.judge().startswith("10 changes, 6 DDLs")


def _forget_a_row(f: Finished) -> None:
    """The upstream wrote a row that the log lacks."""
    end = LogReader(f.log).resolved_ts()
    f.mvcc.write(record_key(f.table_id("t"), 77), b"\x80\x00\x01\x00\x00\x00\x02\x01\x00\x05", end - 5, end - 4)


def _other_value(f: Finished) -> None:
    history = f.mvcc.tablet(record_key(f.table_id("t"), 5)).versions[record_key(f.table_id("t"), 5)]
    commit_ts, start_ts, value = history[-1]
    assert value is not None
    history[-1] = commit_ts, start_ts, value[:-1] + b"\x63"


def _never_written(f: Finished) -> None:
    """The log has a row that the upstream never wrote."""
    key = record_key(f.table_id("p"), 4)
    del f.mvcc.tablet(key).versions[key]


def _other_copies(f: Finished) -> None:
    """What the reorganisation copied lacks a row."""
    key = record_key(f.table_id("p"), 1)
    del f.mvcc.tablet(key).versions[key]


def _not_recovered(f: Finished) -> None:
    """A row of a recovered table is not there any more, without a change."""
    key = record_key(f.table_id("t"), 1)
    f.mvcc.tablet(key).versions[key] = [(LogReader(f.log).resolved_ts() + 1, 1, b"x")]


def _no_segment(f: Finished) -> None:
    """A segment of the log is gone."""
    segment = sorted((f.log / rows_folder(0)).glob("*.arrow"))[0]
    segment.unlink()


@pytest.mark.parametrize("spoil", [_forget_a_row, _other_value, _never_written, _other_copies, _not_recovered, _no_segment])
def test_what_is_wrong_is_found(finished: Finished, spoil: Callable[[Finished], None]) -> None:
    spoil(finished)
    with pytest.raises((AssertionError, LogError)):
        finished.judge()


def test_what_held_an_event_loop_is_found_in_the_logs(tmp_path: Path) -> None:
    stall = Stall(0.3, ('  File "a.py", line 1, in f\n    g()\n',), ("a.py",), blind=False)
    noted = ["[2026/11/22 13:40:25.652 +00:00] [INFO] [capture] [tidemill.x] begun", f"[2026/11/22] [WARN] [capture] [x] {stall}"]
    (tmp_path / "capture.log").write_text("\n".join([*noted, "[2026/11/22] [INFO] [group 1] [x] goes on", noted[1]]) + "\n")
    found = Capture(tmp_path, []).stalls()
    assert len(found) == 2
    assert found[0] == str(stall)
    (tmp_path / "capture.log").write_text(noted[0])
    assert Capture(tmp_path, []).stalls() == []
