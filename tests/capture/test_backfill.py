"""A running capture reads what tables changed before its rules took them, from a ts that its log has passed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.capture.captures import PATIENCE, caught_up, config, log_changes, running, stored_changes, until
from tidemill.capture.capture import Capture
from tidemill.capture.initial_load import answered, ask_backfill
from tidemill.changelog.files.late_rows import LateRows
from tidemill.changelog.log_format import CaptureRules
from tidemill.changelog.reader import LogReader
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.playground.server import Playground


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are looked for often."""
    monkeypatch.setattr("tidemill.capture.initial_load.POLL_S", 0.1)


async def answer_to(capture: Capture, from_ts: int) -> dict[str, Any]:
    """Ask the capture for a backfill."""
    storage = capture.writer.storage
    ask_backfill(storage, "b", from_ts)
    async with asyncio.timeout(PATIENCE):
        while (found := answered(storage, "b")) is None:
            await asyncio.sleep(0.02)
    return found


@pytest.mark.parametrize("partitions", [3, pytest.param(1, marks=pytest.mark.thorough("one partition, beside several"))])
def test_the_log_has_the_tables_from_an_earlier_ts_on(tmp_path: Path, partitions: int) -> None:
    log = tmp_path / "log"

    async def main() -> None:
        async with Playground(3, resolved_interval=0.1) as playground:
            for name in ("old", "new", "dropped", "cut"):
                playground.execute(f"create database if not exists {name}; create table {name}.t (id int primary key, v int)")
                playground.execute(f"insert into {name}.t values (0, 0)")
            before = config(playground, log, partitions=partitions, rules=CaptureRules(0, ("old.*",)))
            async with running(before) as capture:
                start = playground.cluster.oracle.next()
                for i in range(1, 30):
                    playground.execute(f"insert into old.t values ({i}, {i}); insert into new.t values ({i}, {i})")
                    if i == 10:
                        playground.execute("update new.t set v = 100 where id = 0; delete from new.t where id = 1")
                        playground.execute("insert into dropped.t values (1, 1); drop table dropped.t")
                        playground.execute("insert into cut.t values (1, 1); truncate table cut.t; insert into cut.t values (2, 2)")
                        await caught_up(capture, playground.cluster.oracle.next())
                playground.execute("create table new.later (id int primary key); insert into new.later values (1)")
                await caught_up(capture, playground.cluster.oracle.next())
            after = config(playground, log, rules=CaptureRules(0, ("*.*",)))
            async with running(after) as capture:
                taken = capture.writer.identity.capture_rules[-1].from_ts
                assert taken > start
                playground.execute("insert into new.t values (1000, 1)")
                assert await answer_to(capture, start) == {"ts": start}
                assert [(e.from_ts, e.rules) for e in capture.writer.identity.capture_rules] == [
                    (capture.writer.identity.start_ts, ("old.*",)),
                    (start, ("*.*",)),
                ]
                playground.execute("insert into new.t values (1001, 1)")
                end = playground.cluster.oracle.next()
                await caught_up(capture, end)
            logged = sorted(row for rows in log_changes(log).values() for row in rows if start < row.commit_ts <= end)
            stored = sorted(c for c in stored_changes(playground.cluster, start, end))
            ids = {c.table_id for c in logged}
            assert logged == [c for c in stored if c.table_id in ids]
            assert len(ids) == 6, "old, new, dropped, both of cut, later"

    asyncio.run(main())
    report = verify(str(log))
    assert report.is_whole, report.problems


def test_what_cannot_be_read_is_answered_and_the_capture_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def main() -> None:
        async with Playground(1, resolved_interval=0.1) as playground:
            for name in ("old", "new"):
                playground.execute(f"create database {name}; create table {name}.t (id int primary key)")
            early = playground.cluster.oracle.next()
            async with running(config(playground, log, rules=CaptureRules(0, ("old.*",)))) as capture:
                playground.execute("insert into new.t values (1)")
                await caught_up(capture, playground.cluster.oracle.next())
            async with running(config(playground, log, rules=CaptureRules(0, ("*.*",)))) as capture:
                begins = capture.writer.identity.start_ts
                assert "begins, or has its layout, from" in (await answer_to(capture, early))["error"]
                playground.cluster.safe_points.advance_gc(begins + 1)
                assert playground.cluster.safe_points.collected > begins
                assert "may have been collected" in (await answer_to(capture, begins))["error"]
                assert len(capture.writer.identity.capture_rules) == 2
                assert await answer_to(capture, playground.cluster.oracle.next()) != {}, "the newest rules hold there"
                playground.execute("insert into new.t values (2)")
                await caught_up(capture, playground.cluster.oracle.next())

    asyncio.run(main())


def test_a_capture_that_ends_meanwhile_does_it_after_its_start(tmp_path: Path) -> None:
    """The request stays, and what was inserted is not inserted twice."""
    log = tmp_path / "log"

    async def main() -> None:
        async with Playground(3, resolved_interval=0.1) as playground:
            for name in ("old", "new"):
                playground.execute(f"create database {name}; create table {name}.t (id int primary key)")
            async with running(config(playground, log, partitions=2, rules=CaptureRules(0, ("old.*",)))) as capture:
                start = playground.cluster.oracle.next()
                playground.execute("insert into new.t values (1), (2); insert into old.t values (1)")
                await caught_up(capture, playground.cluster.oracle.next())
            everything = config(playground, log, rules=CaptureRules(0, ("*.*",)))
            async with running(everything) as capture:
                inserted, insert = asyncio.Event(), LogWriter.insert

                def ends(writer: LogWriter, late: LateRows) -> bool:
                    done = insert(writer, late)
                    loop.call_soon_threadsafe(inserted.set)
                    return done and late.partition == 0  # that of partition 1 is never said to be done

                loop = asyncio.get_running_loop()
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(LogWriter, "insert", ends)
                    ask_backfill(capture.writer.storage, "b", start)
                    await asyncio.wait_for(inserted.wait(), PATIENCE)
                    capture.stop()
                    await until(lambda: capture.status.state == "stopped")
            assert len(LogReader(log).identity.capture_rules) == 2
            async with running(everything) as capture:
                async with asyncio.timeout(PATIENCE):
                    while (found := answered(capture.writer.storage, "b")) is None:
                        await asyncio.sleep(0.02)
                assert found == {"ts": start}
                end = playground.cluster.oracle.next()
                await caught_up(capture, end)
            logged = sorted(row for rows in log_changes(log).values() for row in rows if start < row.commit_ts <= end)
            ids = {c.table_id for c in logged}
            assert logged == sorted(c for c in stored_changes(playground.cluster, start, end) if c.table_id in ids)
            assert len(logged) == 3

    asyncio.run(main())
    report = verify(str(log))
    assert report.is_whole, report.problems
