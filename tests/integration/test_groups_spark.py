"""A capture whose groups are the tasks of one Spark job: in this machine's Spark, and on a cluster whose executors and workers die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import venv
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.capture.captures import compare, until
from tests.support.capture.progress import id_of
from tests.support.delivery.runs import tidemill
from tests.support.faults.outages import hasty_groups
from tests.support.simulation.sessions import session
from tests.support.spark.standalone import Standalone
from tidemill.changelog import initial_load
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.changelog.storage.open import open_storage
from tidemill.changelog.verify import verify
from tidemill.playground.server import Playground
from tidemill.tidb.keys import record_key

pytestmark = [pytest.mark.spark, pytest.mark.slow]

__all__ = ["hasty_groups"]

PATIENCE = 300.0
CLUSTER = "CLUSTER" in os.environ
Write = Callable[[int], int]


class Run:
    """A capture process and what it tells of itself."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        self.folder, self.process = folder, process

    def status(self) -> dict[str, Any]:
        file = self.folder / "log.capture" / "status.json"
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"groups": []}
        return found

    def groups(self, state: str = "running") -> dict[int, dict[str, Any]]:
        """Groups that are in a state, by number."""
        return {g["group"]: g for g in self.status()["groups"] if g["state"] == state}

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(lambda: self.process.returncode is not None or condition(), PATIENCE)
        assert self.process.returncode is None, (self.folder / "capture.log").read_text()[-3000:]

    async def replaced(self, group: int, pid: int, groups: int) -> None:
        """All run, one of them as another process than `pid`."""

        def is_replaced() -> bool:
            now = self.groups()
            return len(now) == groups and now[group]["pid"] != pid

        await self.until(is_replaced)

    async def complete(self, ts: int) -> None:
        await self.until(lambda: log_exists(self.folder / "log") and LogReader(self.folder / "log").resolved_ts() >= ts)

    async def end(self) -> None:
        """Ctrl-C, which the Spark driver gets too: everything is sealed, the job ends, and nothing is left."""
        everybody = psutil.Process(self.process.pid).children(recursive=True)
        os.killpg(self.process.pid, signal.SIGINT)
        assert await self.process.wait() == 0
        _, alive = await asyncio.to_thread(psutil.wait_procs, everybody, 60)
        assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
        status = self.status()
        assert (status["state"], status["error"], {g["state"] for g in status["groups"]}) == ("stopped", None, {"ended"})


@asynccontextmanager
async def capture(playground: Playground, folder: Path, master: str, workers: int, *options: str) -> AsyncIterator[Run]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidemill.cli.main", "capture", "--pd", playground.pd_address, "--log", str(folder / "log")),
        *("--log-file", str(folder / "capture.log"), "--master", master, "--workers", str(workers), *options),
        start_new_session=True,
    )
    try:
        yield Run(folder, process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def writer(playground: Playground) -> Write:
    """Writes the next transactions of the session with all DDLs, as far as there are some left, and returns the ts of the last one."""
    snapshot, transactions = session()
    last = playground.cluster.transact(snapshot)
    rest = iter(transactions)

    def write(count: int) -> int:
        nonlocal last
        for mutations in islice(rest, count):
            last = playground.cluster.transact(mutations)
        return last

    return write


async def written(write: Write, counts: Sequence[int]) -> int:
    """Some at a time, so that the streams have their turns."""
    for count in counts:
        write(count)
        await asyncio.sleep(0.02)
    return write(0)


def equal(playground: Playground, folder: Path) -> None:
    assert compare(playground.cluster, folder / "log")[0] > 100
    report = verify(folder / "log")
    assert report.is_whole, report.problems


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, 850))


@pytest.mark.parametrize(
    "options",
    [[], pytest.param(["--snapshot"], marks=pytest.mark.thorough("test_bad_input.py has a run with groups beside an initial load"))],
    ids=["", "beside an initial load"],
)
@pytest.mark.usefixtures("hasty_groups")
def test_tasks_that_are_killed_or_fall_asleep_are_run_again_and_the_log_grows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """In this machine's Spark. A task's process is killed; another one is stopped: only its coordinator notices.
    As the log grows, the job ends with the old layout, and another one begins with the new."""

    async def main() -> None:
        async with Playground(41, stores=2, resolved_interval=0.2) as playground:
            write = writer(playground)
            playground.execute("create database ini; create table ini.t (id int primary key); insert into ini.t values (1), (2), (3)")
            async with capture(playground, tmp_path, "local[4]", 3, *options) as one:
                await one.until(lambda: len(one.groups()) == 3)
                await written(write, [10] * 10)
                pid = one.groups()[1]["pid"]
                os.kill(pid, signal.SIGKILL)
                await written(write, [10] * 10)
                await one.replaced(1, pid, 3)
                asleep = one.groups()[2]["pid"]
                os.kill(asleep, signal.SIGSTOP)
                await written(write, [10] * 10)
                await one.replaced(2, asleep, 3)
                await until(lambda: not psutil.pid_exists(asleep) or psutil.Process(asleep).status() == psutil.STATUS_ZOMBIE)
                ts = await written(write, [10] * 10)
                await one.complete(ts)
                storage = open_storage(tmp_path / "log")
                await one.until(lambda: not any(initial_load.missing(storage, plan) for plan in initial_load.plans(storage)))
                assert {g: s["restarts"] > 0 for g, s in one.groups().items()} == {0: False, 1: True, 2: True}
                grow = ("log", "grow", tmp_path / "log", "--partitions", "5", "--wait", "300")
                code, said, err = await asyncio.to_thread(tidemill, capsys, *grow)
                assert (code, "for rows from" in said) == (0, True), said + err
                await one.until(lambda: len(one.groups()) == 3)
                await one.complete(await written(write, [10] * 10))
                await one.end()
            equal(playground, tmp_path)
            read = [[t.name for t in plan.tables if t.name.startswith("ini")] for plan in initial_load.plans(storage)]
            assert read == [["ini.t"]] * len(options), "beside the groups"

    run(main())


@pytest.mark.skipif(not CLUSTER, reason="make cluster")
def test_executors_and_workers_of_a_cluster_die(tmp_path: Path) -> None:
    """An executor's Java, then a worker: their groups go on elsewhere; one that no core is left for is named."""

    async def main() -> None:
        async with Playground(42, stores=2, resolved_interval=0.2) as playground:
            write = writer(playground)
            cluster = await asyncio.to_thread(Standalone(tmp_path / "spark", workers=2, cores=2).__enter__)
            try:
                async with capture(playground, tmp_path, cluster.master, 3) as one:
                    await one.until(lambda: len(one.groups()) == 3)
                    await written(write, [10] * 12)
                    victim = cluster.executors()[0]
                    tasks = {p.pid for p in victim.children(recursive=True)}
                    hit = [g for g, told in one.groups().items() if told["pid"] in tasks]
                    assert hit, "an executor without a group"
                    pid = one.groups()[hit[0]]["pid"]
                    victim.kill()
                    await written(write, [10] * 12)
                    await one.replaced(hit[0], pid, 3)
                    await asyncio.to_thread(cluster.kill_worker, 0)
                    await written(write, [10] * 12)
                    await one.until(lambda: len(one.groups("waiting")) == 1 and len(one.groups()) == 2)
                    await one.until(lambda: "waits for Spark" in (tmp_path / "capture.log").read_text().rpartition("killed")[2])
                    await asyncio.to_thread(cluster.add_worker)
                    await one.until(lambda: len(one.groups()) == 3)
                    ts = await written(write, [10] * 24)
                    await one.complete(ts)
                    await one.end()
            finally:
                await asyncio.to_thread(cluster.__exit__, None, None, None)
            equal(playground, tmp_path)

    run(main())


@pytest.mark.skipif(not CLUSTER, reason="make cluster")
def test_a_cluster_without_tidemill_is_told_at_once(tmp_path: Path) -> None:
    """Executors whose Python has no tidemill: the capture ends with what is missing and where."""

    async def main() -> None:
        async with Playground(43) as playground:
            playground.execute("create database d")
            bare = tmp_path / "bare"
            await asyncio.to_thread(venv.create, bare, symlinks=True)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tidemill.cli.main", "capture", "--pd", playground.pd_address, "--log", str(tmp_path / "log")),
                *("--master", "local-cluster[1,2,1024]", "--workers", "2", "--log-file", str(tmp_path / "capture.log")),
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "PYSPARK_PYTHON": str(bare / "bin" / "python"), "PYTHONPATH": ""},
            )
            _, err = await process.communicate()
            assert process.returncode == 1
            assert b"cannot run a group" in err
            assert b"Install the same Tidemill" in err

    run(main())


@pytest.mark.thorough("the log of the first test grows too; tests/capture/tables/test_split_tables.py splits")
def test_a_log_in_groups_of_a_spark_job_grows_and_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The job ends with the old layout, another one begins with the new."""

    async def main() -> None:
        async with Playground(43, stores=2, resolved_interval=0.2) as playground:
            write = writer(playground)
            playground.execute("create database hot; create table hot.hottest (id int primary key, v int)")
            table_id = id_of(playground, "hottest")
            playground.cluster.split(record_key(table_id, handle) for handle in (100, 200, 300))
            log = str(tmp_path / "log")
            async with capture(playground, tmp_path, "local[3]", 2, "--log-partitions", "3") as one:
                for n, request in enumerate((("grow", log, "--partitions", "4"), ("split", log, "--table", "hot.hottest", "--over", "4"))):
                    await one.until(lambda: len(one.groups()) == 2)
                    playground.execute(f"replace into hot.hottest (id, v) values (5, {n}), (150, {n}), (250, {n}), (350, {n})")
                    await one.complete(await written(write, [10] * 10))
                    code, said, err = await asyncio.to_thread(tidemill, capsys, "log", *request, "--wait", "300")
                    assert (code, "for rows from" in said) == (0, True), said + err
                await one.until(lambda: len(one.groups()) == 2)
                playground.execute("update hot.hottest set v = 9; update hot.hottest set id = 155 where id = 5")
                await one.complete(await written(write, [10] * 10))
                await one.end()
            assert compare(playground.cluster, log)[0] > 50
            assert verify(log).problems == []
            identity = LogReader(log).identity
            assert [len(entry.split_tables) for entry in identity.layouts] == [0, 0, 1]
            assert sorted(identity.layout.split_tables[0].partitions) == [0, 1, 2, 3]

    run(main())
