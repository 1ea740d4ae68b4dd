"""A hot table that is split over partitions of the log, from the start or while it is captured: nothing is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.capture.captures import compare, config, log_changes, running, until
from tests.support.capture.loops import run
from tests.support.capture.progress import id_of
from tests.support.faults.dying import OF_LAYOUTS
from tests.support.servers.s3 import make_bucket, s3_server
from tidemill.capture import growth
from tidemill.capture.capture import Capture
from tidemill.capture.config import split_table
from tidemill.changelog import log_format
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.changelog.verify import verify
from tidemill.cli.changefeeds.status import summary
from tidemill.errors import ConfigError, LogError
from tidemill.playground.server import Playground
from tidemill.tidb.keys import record_key

__all__ = ["s3_server"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(growth, "AHEAD_MS", 500)
    monkeypatch.setattr(growth, "REST_S", 0.5)


async def complete(capture: Capture, ts: int) -> None:
    await until(lambda: capture.status.state == "running" and capture.resolved_ts >= ts)


def cut(playground: Playground, table: str, *handles: int) -> None:
    """Regions of a table that begin at these handles."""
    playground.cluster.split(record_key(id_of(playground, table), handle) for handle in handles)


async def settled(capture: Capture, playground: Playground, reader: LogReader, **request: Any) -> None:
    """The layout that is asked for is there, and the capture has gone on with it."""
    known = len(reader.identity_now().layouts)
    growth.ask(reader.storage, growth.Request(**request, layouts=known))
    await until(lambda: len(reader.identity_now().layouts) > known)
    await complete(capture, playground.cluster.oracle.next())


def used(log: Path, table_id: int, from_ts: int) -> Counter[int]:
    """How many rows of a table each partition has."""
    return Counter(p for p, rows in log_changes(log).items() for row in rows if row.table_id == table_id and row.commit_ts > from_ts)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_table_is_split_while_it_is_written(tmp_path: Path, workers: int) -> None:
    """Over 3 partitions of 4, then over 2, then the log grows, then the table is together again; under rows, moved keys and DDLs.
    In groups, each of which starts again at a change, only over 3, and then the log grows."""

    async def main() -> None:
        async with Playground(61, stores=2, resolved_interval=0.1) as playground:
            execute = playground.execute
            execute("create table hot (id int primary key, v int)")
            execute("create table cold (id int primary key, v int)")
            cut(playground, "hot", 100, 200, 300, 400, 500)
            stop, n = asyncio.Event(), 0

            async def write() -> None:
                nonlocal n
                while not stop.is_set():
                    execute(
                        f"insert into hot (id, v) values ({n * 37 % 601}, {n}) on duplicate key update v = {n}"
                    ) if n < 601 else execute(f"update hot set v = {n} where id = {n * 37 % 601}")
                    if n % 5 == 4:  # a key that goes to another range: a delete here and an insert there, at one ts
                        execute(f"update hot set id = {1000 + n} where id = {n * 37 % 601}")
                        execute(f"update hot set id = {n * 37 % 601} where id = {1000 + n}")
                    if n % 40 == 39:
                        execute(f"alter table hot add column c{n} int")
                    execute(f"insert into cold (id, v) values ({n}, {n})")
                    n += 1
                    await asyncio.sleep(0.02)

            async with running(config(playground, tmp_path / "log", partitions=4, workers=workers)) as capture:
                writing = asyncio.ensure_future(write())
                reader = LogReader(tmp_path / "log")
                await complete(capture, playground.cluster.oracle.next())
                table_id = id_of(playground, "hot")
                for over in (3, 2) if workers == 1 else (3,):
                    await settled(capture, playground, reader, table="test.hot", over=over)
                    now = reader.identity.layout
                    (split,) = now.split_tables
                    assert (split.table_id, len(split.partitions)) == (table_id, over)
                    until_n = n + 60
                    await until(lambda: n >= until_n)  # noqa: B023
                    await complete(capture, playground.cluster.oracle.next())
                    assert set(used(tmp_path / "log", table_id, now.from_ts)) == set(split.partitions)
                    assert capture.status.as_dict()["split_tables"] == {"test.hot": list(split.partitions)}
                    assert f"split      test.hot over the partitions {split.partitions[0]}, " in "\n".join(
                        summary(capture.status.as_dict())
                    )
                growth.ask(reader.storage, growth.Request(6))
                await until(lambda: reader.identity_now().partitions == 6)
                assert reader.identity.layout.split_tables == (split,)
                await complete(capture, playground.cluster.oracle.next())
                if workers == 1:
                    await settled(capture, playground, reader, table="test.hot", over=1)
                    assert not reader.identity.layout.split_tables
                until_n = n + 20
                await until(lambda: n >= until_n)
                stop.set()
                await writing
                await complete(capture, playground.cluster.oracle.next())
                assert not reader.storage.read(log_format.GROWTH)
            changes, _ = compare(playground.cluster, tmp_path / "log")
            assert changes >= 2 * n
            parts = {p for one in reader.identity.layout.split_tables for p in one.partitions}
            assert len(used(tmp_path / "log", table_id, reader.identity.layout.from_ts)) == max(1, len(parts))
            assert verify(tmp_path / "log").problems == []

    run(main())


def test_a_table_is_split_from_the_start(tmp_path: Path) -> None:
    """A partitioned one too: its physical tables are cut at the same handles. What DDLs make of it."""

    async def main() -> None:
        async with Playground(62, resolved_interval=0.1) as playground:
            execute = playground.execute
            execute("create table hot (id int primary key, v int) partition by range (id) "
                    "(partition p0 values less than (1000), partition p1 values less than maxvalue)")  # fmt: skip
            execute("create table plain (id int primary key, v int)")
            execute("create table other (id int primary key, v int)")
            hot, plain, other = (id_of(playground, name) for name in ("hot", "plain", "other"))
            p0, p1 = (p.id for p in table_of(playground, "hot").model.partition.definitions)
            playground.cluster.split([record_key(p0, 300), record_key(p0, 600), record_key(p1, 1500)])
            playground.cluster.split(record_key(other, handle) for handle in (100, 200, 300))
            settings = config(playground, tmp_path / "log", partitions=4, split_tables=(("test.hot", 3), ("test.other", 2)))

            moved = itertools.count(1)

            def fill(n: int) -> None:
                for table in ("hot", "plain", "other"):
                    values = ", ".join(f"({1000 * n + at % 900}, {n})" for at in range(0, 3600, 97))
                    execute(f"replace into {table} (id, v) values {values}")
                execute(f"update hot set id = id + {10_000 * next(moved)} where id < 400 and v = {n}")

            async with running(settings) as capture:
                identity = capture.writer.identity
                assert (identity.format, [s.name for s in identity.layout.split_tables]) == (4, ["test.hot", "test.other"])
                assert {identity.layout.split_of(hot) is None, identity.layout.split_of(plain) is None} == {False, True}
                fill(0)
                fill(1)
                for n, ddl in enumerate((
                    "alter table hot exchange partition p0 with table plain",
                    "alter table hot truncate partition p1",
                    "rename table other to cool",
                    "alter table hot exchange partition p0 with table cool without validation",
                    "alter table hot exchange partition p0 with table cool without validation",
                    "rename table cool to other",
                    "alter table hot add column w int",
                    "truncate table other",
                    "truncate table hot",
                    "drop table plain; create table plain (id int primary key, v int)",
                )):  # fmt: skip
                    execute(ddl)
                    if "table cool w" not in ddl and "to cool" not in ddl:
                        fill(n % 2)
                    else:
                        execute(f"replace into hot (id, v) values (5, {n}), (305, {n}), (605, {n}), (1700, {n})")
                        execute(f"replace into cool (id, v) values (5, {n}), (305, {n}), (605, {n}), (700, {n})")
                        await asyncio.sleep(0.3)
                await complete(capture, playground.cluster.oracle.next())
                new = id_of(playground, "hot")
                assert new != hot
                assert capture.writer.identity.layout.split_of(new) is None, "TRUNCATE makes another table: it is in one partition"
            changes, _ = compare(playground.cluster, tmp_path / "log")
            assert changes > 500
            assert verify(tmp_path / "log").problems == []
            async with running(settings) as capture:  # the flag is for new logs
                fill(1)
                await complete(capture, playground.cluster.oracle.next())
            compare(playground.cluster, tmp_path / "log")

    run(main())


def table_of(playground: Playground, name: str) -> Any:
    (table,) = [t for t in playground.database.catalog.tables.values() if t.name == name]
    return table


def test_what_cannot_be_split_is_refused_in_words(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(63, resolved_interval=0.1) as playground:
            playground.execute("create table hot (id int primary key); create view seen as select id from hot")
            cut(playground, "hot", 100)
            for wrong, text in ((("test.cold", 2), "there is no table test.cold"), (("test.hot", 3), r"2 regions .* cannot make 3 parts"),
                                (("test.seen", 2), "cannot make 2 parts")):  # fmt: skip
                with pytest.raises(LogError, match=text):
                    async with running(config(playground, tmp_path / "new", partitions=4, split_tables=(wrong,))):
                        pass
                assert not (tmp_path / "new" / "log.json").exists()
            with pytest.raises(ConfigError, match="a number from 2 to 4"):
                config(playground, tmp_path / "new", split_tables=(("test.hot", 5),))
            async with running(config(playground, tmp_path / "log", partitions=2)) as capture:
                storage = capture.writer.storage
                for request, text in (
                    (growth.Request(table="test.hot", over=3), "2 partitions: a table cannot be split over 3"),
                    (growth.Request(table="test.cold", over=2), "there is no table test.cold"),
                    (growth.Request(table="test.hot", over=1), "test.hot is not split"),
                ):
                    growth.ask(storage, request)
                    await until(lambda: growth.refusal(storage) is not None)
                    assert text in str(growth.refusal(storage))
                assert capture.writer.identity.layouts == ()
                storage.replace(log_format.GROWTH, b'{"split": {"table": "test.hot"}}')
                await until(lambda: storage.read(log_format.GROWTH) is None)
            assert split_table("a.b=3") == ("a.b", 3)
            for flag in ("a.b", "ab=3", "a.b=x", "=3"):
                with pytest.raises(ConfigError, match=r"DATABASE\.TABLE=N"):
                    split_table(flag)

    run(main())


OF_EACH_LAYOUT = [(point, table) for point in OF_LAYOUTS for table in ("", "test.hot")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        [("settled", "test.hot"), ("layout written", ""), ("layout not written", "test.hot")],
        pytest.param(OF_EACH_LAYOUT, marks=pytest.mark.thorough("each point with each change; each point with one is in `make test`")),
    ],
    ids=["each point", "each point of each change"],
)
def test_kill_minus_nine_while_the_layout_changes(tmp_path: Path, changes: list[tuple[str, str]]) -> None:
    """Before log.json is written and behind it, of a log that grows and of a table that is split: it goes on with a whole layout."""

    async def main() -> None:
        async with Playground(64, resolved_interval=0.1) as playground:
            playground.execute("create table hot (id int primary key, v int)")
            cut(playground, "hot", 100, 200, 300)
            log, arm = tmp_path / "log", tmp_path / "arm"
            command = [
                sys.executable,
                "-m",
                "tests.support.faults.dying",
                str(arm),
                "capture",
                "--pd",
                playground.pd_address,
                "--log",
                str(log),
            ]
            command += ["--log-partitions", "2", "--log-file", str(tmp_path / "capture.log")]
            n, partitions = 0, 2

            async def goes_on(process: asyncio.subprocess.Process) -> None:
                nonlocal n
                playground.execute(f"replace into hot (id, v) values ({n * 37 % 401}, {n}), ({n * 53 % 401}, {n})")
                n, ts = n + 1, playground.cluster.oracle.next()
                await until(lambda: process.returncode is not None or (log_exists(log) and LogReader(log).resolved_ts() >= ts))

            process = await asyncio.create_subprocess_exec(*command)
            try:
                await goes_on(process)
                for point, table in changes:
                    reader = LogReader(log)
                    known, partitions = len(reader.identity.layouts), partitions + (not table)
                    arm.write_text(point)
                    over = 2 + known % 2
                    growth.ask(reader.storage, growth.Request(partitions) if not table else growth.Request(0, table, over, known))
                    while process.returncode is None:
                        await goes_on(process)
                    assert (len(reader.identity_now().layouts) > known) == (point == "layout written")
                    process = await asyncio.create_subprocess_exec(*command)
                    await until(lambda: reader.storage.read(log_format.GROWTH) is None)  # noqa: B023
                    await goes_on(process)
                    assert process.returncode is None, (tmp_path / "capture.log").read_text()[-2000:]
                    assert reader.identity_now().partitions == partitions
                    assert not table or len(reader.identity.layout.split_tables[0].partitions) == over
                    assert len(reader.identity.layouts) in (known + 1, 2), "the request is done once"
                process.terminate()
                assert await process.wait() == 0
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            assert compare(playground.cluster, log)[0] >= n
            assert verify(log).problems == []

    run(main())


@pytest.mark.slow
def test_tables_that_are_gone_are_left_out_of_the_next_layout(tmp_path: Path) -> None:
    """Also where another table has the name by now."""

    async def main() -> None:
        async with Playground(66, resolved_interval=0.1) as playground:
            for name in ("hot", "gone", "old"):
                playground.execute(f"create table {name} (id int primary key, v int)")
                cut(playground, name, 100, 200)
            async with running(config(playground, tmp_path / "log", partitions=2)) as capture:
                reader = LogReader(tmp_path / "log")
                for name in ("hot", "gone", "old"):
                    await settled(capture, playground, reader, table=f"test.{name}", over=2)
                playground.execute("truncate table hot; drop table gone; rename table old to renamed")
                cut(playground, "hot", 100)
                playground.execute("create table old (id int primary key, v int)")
                cut(playground, "old", 100)
                await complete(capture, playground.cluster.oracle.next())
                growth.ask(reader.storage, growth.Request(table="test.hot", over=1, layouts=len(reader.identity_now().layouts)))
                await until(lambda: growth.refusal(reader.storage) is not None)
                assert "test.hot is not split" in str(growth.refusal(reader.storage)), "the table that was truncated was"
                for name in ("hot", "old"):
                    await settled(capture, playground, reader, table=f"test.{name}", over=2)
                ids = {name: id_of(playground, name) for name in ("hot", "renamed", "old")}
                names = {one.table_id: one.name for one in reader.identity.layout.split_tables}
                assert names == {ids["hot"]: "test.hot", ids["renamed"]: "test.renamed", ids["old"]: "test.old"}
                await settled(capture, playground, reader, table="test.old", over=1)
                assert {one.name for one in reader.identity.layout.split_tables} == {"test.hot", "test.renamed"}
                playground.execute("insert into hot (id, v) values (1, 1), (150, 2); insert into renamed (id, v) values (1, 1), (250, 2)")
                await complete(capture, playground.cluster.oracle.next())
            compare(playground.cluster, tmp_path / "log")
            assert verify(tmp_path / "log").problems == []

    run(main())


@pytest.mark.slow
def test_a_log_on_s3_grows_and_splits(tmp_path: Path, s3_server: str) -> None:
    make_bucket(s3_server, "split-tables")
    place = f"s3://test:test@split-tables/log?endpoint_override={s3_server.partition('://')[2]}&scheme=http&region=us-east-1"

    async def main() -> None:
        async with Playground(65, resolved_interval=0.2) as playground:
            playground.execute("create table hot (id int primary key, v int)")
            cut(playground, "hot", 100, 200, 300)
            settings = config(playground, place, partitions=2, data_dir=tmp_path)
            async with running(settings) as capture:
                reader = LogReader(place)
                for n, request in enumerate((growth.Request(4), growth.Request(table="test.hot", over=3))):
                    playground.execute(f"replace into hot (id, v) values (5, {n}), (150, {n}), (250, {n}), (350, {n})")
                    await complete(capture, playground.cluster.oracle.next())
                    known = len(reader.identity_now().layouts)
                    growth.ask(reader.storage, replace(request, layouts=known))
                    await until(lambda: len(reader.identity_now().layouts) > known)  # noqa: B023
                playground.execute("update hot set v = 9; update hot set id = 155 where id = 5")
                await complete(capture, playground.cluster.oracle.next())
            assert (reader.identity_now().partitions, len(reader.identity.layout.split_tables)) == (4, 1)
            assert compare(playground.cluster, place)[0] >= 14
            assert verify(place).problems == []

    run(main())
