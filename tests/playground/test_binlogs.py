"""A playground that writes binlogs: into real Pumps, and what they say is what TiKV has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC
from pathlib import Path
from typing import TypeVar, cast

import pytest

from tests.support.binlog.binlogs import until
from tests.support.binlog.pumps import RunningPump, running_pump
from tidemill.binlog.client.options import ClientOptions
from tidemill.binlog.messages import Binlog, MutationType, read_binlog, read_prewritten
from tidemill.binlog.records import read_records
from tidemill.binlog.rows import read_changes
from tidemill.errors import SqlError
from tidemill.playground.server import Playground
from tidemill.playground.workload.mixed import Options, Progress, Workload
from tidemill.tidb.rows.reader import RowReader
from tidemill.tidb.schema.model import TableInfo
from tidemill.wire import pump_pb2

T = TypeVar("T")
QUICK = ClientOptions(write_timeout=5.0, retry_for=0.1, retry_every=0.02, commit_for=5.0, commit_every=0.05)
INSERT, UPDATE, DELETE = MutationType.INSERT, MutationType.UPDATE, MutationType.DELETE_ROW


class World:
    """A playground and its Pumps."""

    def __init__(self, playground: Playground, pumps: list[RunningPump]) -> None:
        self.playground, self.pumps = playground, pumps

    async def run(self, *statements: str) -> None:
        """Run SQL."""
        for sql in statements:
            await self.playground.turn(lambda sql=sql: self.playground.execute(sql))  # type: ignore[misc]

    async def binlogs(self) -> list[Binlog]:
        """All that is written so far, of all Pumps, in commit order."""
        await self.playground.binlogs_written()
        end = self.playground.cluster.oracle.next()
        found = [binlog for pump in self.pumps for binlog in await _pulled(pump, end)]
        return sorted(found, key=lambda binlog: binlog.commit_ts)


async def _pulled(pump: RunningPump, end: int) -> list[Binlog]:
    found: list[Binlog] = []
    request = pump_pb2.PullBinlogReq(clusterID=pump.pump.cluster_id, startFrom=pump_pb2.Pos(offset=0))
    call = pump.stub.PullBinlogs(request, timeout=60)
    async for answer in call:
        binlog = read_binlog(answer.entity.payload)
        assert not found or binlog.commit_ts > found[-1].commit_ts
        if binlog.commit_ts > end:  # a fake one, at the latest
            break
        found.append(binlog)
    call.cancel()
    return [binlog for binlog in found if not binlog.is_fake]


@asynccontextmanager
async def world(folder: Path, pumps: int = 1, seed: int = 3, options: ClientOptions = QUICK) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        playground = await stack.enter_async_context(Playground(seed, resolved_interval=0.05, binlog=options))
        running = [
            await stack.enter_async_context(
                running_pump(folder / f"p{n}", playground, node_id="pump1" if n == 0 else f"p{n}", online=n == 0)
            )
            for n in range(pumps)
        ]
        await playground.follow_pumps()
        yield World(playground, running)


def _table(playground: Playground, name: str) -> TableInfo:
    return next(table.model for table in playground.database.catalog.tables.values() if table.name == name)


def test_statements_of_a_transaction_keep_their_order_and_kinds(tmp_path: Path) -> None:
    async def whole() -> None:
        async with world(tmp_path) as w:
            await w.run(
                "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(24) UNIQUE)",
                "BEGIN; INSERT INTO t VALUES (1, 'a'), (2, 'b'); UPDATE t SET name = 'c' WHERE id = 1;"
                " UPDATE t SET name = 'd' WHERE id = 2; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (2, 'c2'); COMMIT",
                "REPLACE INTO t VALUES (3, 'c')",
                "UPDATE t SET id = 4 WHERE id = 3",
                "UPDATE t SET name = 'c' WHERE id = 4",
                "BEGIN; DELETE FROM t; ROLLBACK",
            )
            ddl, first, second, third = await w.binlogs()
            assert (ddl.ddl_query, ddl.ddl_schema_state) == (b"CREATE TABLE `t` (`id` INT PRIMARY KEY,`name` VARCHAR(24) UNIQUE KEY);", 5)
            info = _table(w.playground, "t")
            for binlog, kinds in (
                (first, [INSERT, INSERT, UPDATE, UPDATE, DELETE, INSERT]),
                (second, [DELETE, INSERT]),
                (third, [DELETE, INSERT]),
            ):
                (mutation,) = read_prewritten(binlog.prewrite_value).mutations
                assert [change.kind for change in read_changes(info, mutation)] == kinds

    asyncio.run(whole())


def test_binlogs_of_a_workload_tell_what_tikv_has(tmp_path: Path) -> None:
    """Every type and every kind of key, on three Pumps. The rows are put together from binlogs alone."""

    async def whole() -> None:
        async with world(tmp_path, pumps=3) as w:
            playground = w.playground
            await playground.turn(lambda: playground.prepare("mixed", Options(ddl_every=0)))
            await playground.work(transactions=150)
            tables = {t.id: t.model for t in playground.database.catalog.tables.values()}
            rows: dict[int, dict[bytes, bytes]] = {}
            for binlog in await w.binlogs():
                for mutation in read_prewritten(binlog.prewrite_value).mutations if not binlog.ddl_job_id else ():
                    there = rows.setdefault(mutation.table_id, {})
                    for record in read_records(tables[mutation.table_id], mutation):
                        if record.new is None:
                            del there[record.key]
                        else:
                            there[record.key] = record.new
            told = {tables[id_].name: _shown(tables[id_], there) for id_, there in rows.items()}
            truth = {name: sorted(map(repr, table.rows)) for (_, name), table in playground.tables_at().items()}
            assert {name: told.get(name, []) for name in truth} == truth
            assert sum(map(len, truth.values())) > 100

    asyncio.run(whole())


def _shown(info: TableInfo, rows: dict[bytes, bytes]) -> list[str]:
    reader, names = RowReader(info, UTC), [column.name for column in info.output_columns]
    return sorted(repr(dict(zip(names, reader.read(key, value), strict=True))) for key, value in rows.items())


def test_ddls_and_their_states(tmp_path: Path) -> None:
    async def whole() -> None:
        async with world(tmp_path) as w:
            await w.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO t VALUES (1, 1, 1), (2, 1, 2)")
            await w.run("ALTER TABLE t DROP COLUMN b", "TRUNCATE TABLE t", "INSERT INTO t VALUES (1, 1), (2, 1)")
            with pytest.raises(SqlError, match="duplicate"):
                await w.run("ALTER TABLE t ADD UNIQUE INDEX u (a)")
            await w.run("ALTER TABLE t ADD COLUMN c INT DEFAULT 7, ADD INDEX i (a)", "DROP TABLE t")
            found = [(binlog.ddl_query, binlog.ddl_schema_state) for binlog in await w.binlogs() if binlog.ddl_job_id]
            assert found == [
                (b"CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` INT,`b` INT);", 5),
                (b"ALTER TABLE `t` DROP COLUMN `b`;", 1),
                (b"ALTER TABLE `t` DROP COLUMN `b`;", 0),
                (b"TRUNCATE TABLE `t`;", 5),
                (b"ALTER TABLE `t` ADD UNIQUE `u`(`a`);", 0),
                (b"ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7, ADD INDEX `i`(`a`);", 0),
                (b"DROP TABLE `t`;", 0),
            ]

    asyncio.run(whole())


def test_without_a_pump_rows_are_refused_a_ddl_waits_and_nothing_is_half_written(tmp_path: Path) -> None:
    async def whole() -> None:
        async with Playground(3, resolved_interval=0.05, binlog=QUICK) as playground:
            run: Callable[[str], object] = playground.execute
            with pytest.raises(SqlError, match="no Pump is online yet"):
                await playground.turn(lambda: run("CREATE TABLE t (id INT PRIMARY KEY)"))
            async with running_pump(tmp_path / "p", playground) as first:
                await playground.follow_pumps()
                await playground.turn(lambda: run("CREATE TABLE t (id INT PRIMARY KEY)"))
                await first.end()
            with pytest.raises(SqlError, match="no Pump took the Prewrite"):
                await playground.turn(lambda: run("INSERT INTO t VALUES (1)"))
            assert playground.execute("SELECT * FROM t").rows == ()
            waits = asyncio.ensure_future(playground.turn(lambda: run("ALTER TABLE t ADD COLUMN c INT")))
            async with running_pump(tmp_path / "p", playground) as second:
                await waits
                found = await _pulled(second, playground.cluster.oracle.next())
                assert [binlog.ddl_query[:12] for binlog in found] == [b"CREATE TABLE", b"ALTER TABLE "]

    asyncio.run(whole())


class _Acts:
    """A workload that counts what it did."""

    def __init__(self) -> None:
        self.progress, self.acts = Progress(), 0

    def act(self) -> None:
        self.acts += 1

    def settle(self) -> None:
        """Nothing is open."""


def test_a_transaction_whose_turn_comes_after_a_pause_is_not_made() -> None:
    async def run() -> None:
        async with Playground(binlog=ClientOptions()) as playground:
            workload = _Acts()
            playground.workload = cast(Workload, workload)
            async with playground._turn:  # as `pause` has it
                work = asyncio.ensure_future(playground.work())
                await until(lambda: playground._turn._waiters)
                playground.paused = True
            await playground.turn(lambda: None)
            assert workload.acts == 0
            playground.stopping.set()
            await work

    asyncio.run(run())
