"""Whole captures in several processes: tables that move between groups, processes that are killed, stopped and woken up again."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.capture.captures import caught_up, compare, config, log_changes, running, until
from tests.support.capture.loops import run
from tests.support.changelog.steps import freeze
from tests.support.servers.s3 import make_bucket, s3_server  # noqa: F401
from tests.support.simulation.sessions import churn, session
from tidemill.capture.capture import Capture
from tidemill.capture.groups.credentials import Credentials
from tidemill.capture.groups.launch import Processes
from tidemill.capture.groups.manager import GroupManager, group_order
from tidemill.capture.groups.scheduler import Phase, Who
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import CaptureRules
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.changelog.spread import partition_of
from tidemill.changelog.verify import verify
from tidemill.errors import EXIT_FATAL, EXIT_RETRY, ConfigError, LogCorrupt
from tidemill.playground.server import Playground

PATIENCE = 300.0
TOKEN = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


async def all_run(capture: Capture) -> None:
    """Every group has its partitions."""

    def there() -> bool:
        return capture.manager is not None and all(
            m.phase is Phase.RUNNING and m.section is not None for m in capture.manager.scheduler.members
        )

    await until(lambda: there() or capture.status.state in ("failed", "stopped"), PATIENCE)


async def complete(capture: Capture, ts: int) -> None:
    """The log is complete up to `ts`."""
    await until(lambda: capture.resolved_ts >= ts or capture.status.state in ("failed", "stopped"), PATIENCE)


def pid_of(capture: Capture, group: int) -> int:
    assert capture.manager is not None
    who = capture.manager.scheduler.members[group].who
    assert who is not None
    return who.pid


@pytest.mark.slow
def test_a_table_goes_from_one_group_to_another_and_back(tmp_path: Path) -> None:
    """EXCHANGE PARTITION between tables of different groups, with rows before, during and after; also RENAME, TRUNCATE, partitions."""

    async def main() -> None:
        async with Playground(31, stores=2, resolved_interval=0.1) as playground:
            execute = playground.execute
            execute("create database d")
            for i in range(6):  # ids all over the partitions
                execute(f"create table d.p{i} (id int primary key, v int) partition by range (id) (partition a values less than (100), "
                        "partition b values less than (1000))")  # fmt: skip
                execute(f"create table d.t{i} (id int primary key, v int)")
            async with running(config(playground, tmp_path / "log", workers=3, partitions=4)) as capture:
                await all_run(capture)
                for step in range(12):
                    i = step % 6
                    execute(f"insert into d.t{i} values ({step}, {step})")
                    execute(f"insert into d.p{i} values ({50 + step}, {step}), ({500 + step}, {step})")
                    execute(f"alter table d.p{i} exchange partition a with table d.t{i}")
                    execute(f"insert into d.t{i} values ({20 + step}, {step})")
                    execute(f"update d.p{i} set v = v + 1")
                    if step % 4 == 1:
                        execute(f"rename table d.t{i} to d.x; rename table d.x to d.t{i}")
                    if step % 4 == 2:
                        execute(f"alter table d.p{i} truncate partition b; truncate table d.t{i}")
                    if step % 4 == 3:
                        execute(f"alter table d.p{i} add partition (partition c{step} values less than ({2000 + step}))")
                    execute(f"insert into d.p{i} values ({80 + step}, 1)")
                    await asyncio.sleep(0.05)
                await complete(capture, playground.cluster.oracle.next())
                assert capture.manager is not None
                assert [m.restarts for m in capture.manager.scheduler.members] == [0, 0, 0]
            n, history = compare(playground.cluster, tmp_path / "log")
            assert n > 60
            groups = [set(group) for group in capture.divided]
            crossed = 0
            for event in history.ddl_events(history.start_ts, history.resolved_ts):
                before, after = history.snapshot(event.ts - 1).by_physical, history.snapshot(event.ts).by_physical
                for physical in before.keys() & after.keys():
                    ends = [partition_of(v[physical].table_id, 4) for v in (before, after)]
                    crossed += not any(set(ends) <= group for group in groups)
            assert crossed > 4, "tables went from group to group"
        assert verify(tmp_path / "log").is_whole
        assert sum(map(len, log_changes(tmp_path / "log").values())) >= n

    run(main())


@pytest.mark.slow
def test_a_group_is_killed_and_goes_on_at_its_last_segment(tmp_path: Path) -> None:
    async def main() -> None:
        random_ = random.Random(int(os.environ.get("TIDEMILL_SEED", "4")))
        snapshot, transactions = session()
        async with Playground(32, stores=2, resolved_interval=0.1) as playground:
            playground.cluster.transact(snapshot)
            async with running(config(playground, tmp_path / "log", workers=2)) as capture:
                await all_run(capture)
                kills = sorted(random_.sample(range(len(transactions)), 2))
                for i, mutations in enumerate(transactions):
                    ts = playground.cluster.transact(mutations)
                    if i in kills:
                        await all_run(capture)
                        os.kill(pid_of(capture, random_.randrange(2)), signal.SIGKILL)
                    if i % 10 == 0:
                        churn(playground, random_)
                    await asyncio.sleep(0.002)
                await complete(capture, ts)
                assert capture.manager is not None
                assert sum(m.restarts for m in capture.manager.scheduler.members) == 2
                groups = capture.status.groups
                assert sum(g["restarts"] for g in groups) == 2
                assert all(g["host"] and g["pid"] for g in groups)
            assert compare(playground.cluster, tmp_path / "log")[0] > 180
        assert verify(tmp_path / "log").is_whole

    run(main())


class Sleepers(Processes):
    """Processes that the coordinator cannot kill, as if their machine were unreachable."""

    def kill(self, group: int, who: Who) -> None:
        return


async def taken_over(playground: Playground, folder: Path, log: Path | str) -> None:
    """A group is suspended in the middle of its work, replaced, and resumed: it may not publish, and ends."""
    _, transactions = session()
    ends: list[tuple[int, int, str]] = []

    def start(credentials: Credentials, manager: GroupManager) -> Processes:
        assert capture.manager is None, "a manager that is not open yet cannot be asked"

        def ended(group: int, attempt: int, how: str) -> None:
            ends.append((group, attempt, how))
            manager.exited(group, attempt, how)

        noted = replace(manager.config, log_file=folder / "groups.log")
        return Sleepers(partial(group_order, credentials, noted, manager.folder), ended)

    capture = Capture(config(playground, log, workers=2, silent_after=2.0, data_dir=folder / "data"), start)
    task = asyncio.ensure_future(capture.run())
    try:
        await all_run(capture)
        assert capture.manager is not None
        member = capture.manager.scheduler.members[0]
        for i, mutations in enumerate(transactions[:200]):
            ts = playground.cluster.transact(mutations)
            if i == 100:
                asleep = pid_of(capture, 0)
                while not freeze([psutil.Process(asleep)], log):
                    pass
            await asyncio.sleep(0.005)
        await until(lambda: member.restarts > 0 and member.phase is Phase.RUNNING, PATIENCE)
        assert pid_of(capture, 0) != asleep
        for mutations in transactions[200:300]:
            ts = playground.cluster.transact(mutations)
        await complete(capture, ts)
        os.kill(asleep, signal.SIGCONT)
        await until(lambda: any(end[:2] == (0, 0) for end in ends), PATIENCE)
        how = next(end[2] for end in ends if end[:2] == (0, 0))
        assert how in [f"its process ended with exit code {code}" for code in (EXIT_FATAL, EXIT_RETRY)]
        later = playground.cluster.transact(transactions[300])
        await complete(capture, later)
        assert member.phase is Phase.RUNNING, "its successor goes on"
    finally:
        capture.stop()
        await task
    assert compare(playground.cluster, log)[0] > 20
    assert "does not count any more" in (folder / "groups.log").read_text()


@pytest.mark.slow
def test_a_process_that_wakes_up_after_its_group_was_taken_over_is_fenced(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(33, resolved_interval=0.1) as playground:
            playground.cluster.transact(session()[0])
            await taken_over(playground, tmp_path, tmp_path / "log")
        assert verify(tmp_path / "log").is_whole

    run(main())


@pytest.mark.thorough("the same on a disk is above; what fences a writer on S3 is in changelog/storage/test_s3.py")
def test_groups_of_a_log_on_s3_are_fenced_there_too(tmp_path: Path, s3_server: str) -> None:  # noqa: F811
    make_bucket(s3_server, "groups")
    log = f"s3://test:test@groups/log?endpoint_override={s3_server.partition('://')[2]}&scheme=http&region=us-east-1"

    async def main() -> None:
        async with Playground(38, resolved_interval=0.5) as playground:
            playground.cluster.transact(session()[0])
            await taken_over(playground, tmp_path, log)
        report = await asyncio.to_thread(verify, log)
        assert report.is_whole, report.problems

    run(main())


COMMAND = [sys.executable, "-m", "tidemill.cli.main", "capture"]


@asynccontextmanager
async def coordinator(playground: Playground, folder: Path, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--pd", playground.pd_address, "--log", str(folder / "log"), "--log-file", str(folder / "capture.log"), *options
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def status_of(folder: Path) -> dict[str, Any]:
    file = folder / "log.capture" / "status.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"state": "", "pid": 0, "groups": []}
    return found


async def up(folder: Path, process: asyncio.subprocess.Process, groups: int) -> None:
    def there() -> bool:
        status = status_of(folder)
        running_ = [g for g in status["groups"] if g["state"] == "running"]
        return status["pid"] == process.pid and status["state"] == "running" and len(running_) == groups

    await until(lambda: there() or process.returncode is not None, PATIENCE)
    assert process.returncode is None


def children_of(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


@pytest.mark.slow
def test_the_coordinator_is_killed_and_the_next_one_has_other_groups(tmp_path: Path) -> None:
    """kill -9 of the coordinator ends its groups. Then one process and three groups continue the same log; a clean stop ends without
    errors. The groups' token is in no log, in no environment and on no command line."""

    async def main() -> None:
        snapshot, transactions = session()
        async with Playground(34, stores=2, resolved_interval=0.1) as playground:
            playground.cluster.transact(snapshot)
            everybody: list[psutil.Process] = []
            parts = [transactions[at : at + 200] for at in range(0, 600, 200)]
            for part, workers in zip(parts[:2], (2, 1), strict=True):
                async with coordinator(playground, tmp_path, "--workers", str(workers)) as process:
                    await up(tmp_path, process, workers if workers > 1 else 0)
                    groups = children_of(process.pid)
                    assert len(groups) == (workers if workers > 1 else 0)
                    everybody += groups
                    for mutations in part:
                        ts = playground.cluster.transact(mutations)
                        await asyncio.sleep(0.002)
                    if workers > 1:
                        process.kill()
                        await process.wait()
            _, alive = await asyncio.to_thread(psutil.wait_procs, everybody, PATIENCE)
            assert alive == [], "groups outlived their coordinator"
            async with coordinator(playground, tmp_path, "--workers", "3", "--log-level", "debug") as process:
                await up(tmp_path, process, 3)
                groups = children_of(process.pid)
                told = [part for group in groups for part in (*group.cmdline(), *group.environ().values())]
                assert not any(TOKEN.search(part) for part in told), "the token is on no command line and in no environment"
                for mutations in parts[2]:
                    ts = playground.cluster.transact(mutations)
                    await asyncio.sleep(0.002)
                await until(lambda: LogReader(tmp_path / "log").resolved_ts() >= ts, PATIENCE)
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
                _, alive = await asyncio.to_thread(psutil.wait_procs, groups, PATIENCE)
                assert alive == []
            status = status_of(tmp_path)
            assert (status["state"], status["error"]) == ("stopped", None)
            assert [g["state"] for g in status["groups"]] == ["ended", "ended", "ended"]
            files = [tmp_path / "capture.log", tmp_path / "log.capture" / "status.json", *(tmp_path / "log").rglob("*.json")]
            assert not any(TOKEN.search(file.read_text()) for file in files), "and in no file"
            assert "group 2 captures" in (tmp_path / "capture.log").read_text()
            assert compare(playground.cluster, tmp_path / "log")[0] > 100
        assert verify(tmp_path / "log").is_whole

    run(main())


def test_what_groups_cannot_do_is_refused_before_anything_starts(tmp_path: Path) -> None:
    async def refused(playground: Playground, wanted: type[Exception], match: str, **more: Any) -> None:
        with pytest.raises(wanted, match=match):
            await Capture(config(playground, tmp_path / "log", **more)).run()
        assert not log_exists(tmp_path / "log")

    async def main() -> None:
        async with Playground(36) as playground:
            playground.execute("create database d")
            await refused(playground, ConfigError, "--workers 5: the log has 4 partitions", workers=5)
            await refused(playground, ConfigError, "--workers 3: the log has 2 partitions", workers=3, partitions=2)
            await refused(playground, ConfigError, "--control-addr", workers=2, control_addr="h:x")
            await refused(playground, ConfigError, "this machine has no such address", workers=2, control_addr="203.0.113.1:1")

    run(main())


@pytest.mark.slow
def test_an_error_of_a_group_that_cannot_be_mended_ends_the_capture_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(37, resolved_interval=0.1) as playground:
            playground.execute("create database d")
            for i in range(8):
                playground.execute(f"create table d.t{i} (id int primary key)")
            capture = Capture(config(playground, tmp_path / "log", workers=2))
            task = asyncio.ensure_future(capture.run())
            await all_run(capture)
            for folder in (tmp_path / "log" / "rows").iterdir():
                if folder.is_dir():
                    (folder / "owner.json").write_text("not what a writer wrote")
            for i in range(8):
                playground.execute(f"insert into d.t{i} values (1)")
            with pytest.raises(LogCorrupt, match=r"group \d: .*owner\.json is not JSON"):
                await task
            assert status_of(tmp_path)["error"]["code"] == "TM:ErrLogCorrupt"

    run(main())


@pytest.mark.slow
def test_groups_pause_below_the_low_water_mark(tmp_path: Path) -> None:
    """Each group reports the error to the coordinator."""

    async def main() -> None:
        async with Playground(37, resolved_interval=0.1) as playground:
            playground.execute("create database d; create table d.t (id int primary key)")
            async with running(config(playground, tmp_path / "log")) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
            async with running(config(playground, tmp_path / "log", workers=2, low_water_bytes=1 << 60)) as capture:
                await all_run(capture)
                playground.execute("insert into d.t values (1)")
                at = playground.cluster.oracle.next()
                await until(lambda: all("disk low" in group["part"]["paused"] for group in capture.status.groups))
                assert capture.resolved_ts < at
                assert capture.status.state == "running"
            async with running(config(playground, tmp_path / "log")) as capture:
                await until(lambda: capture.resolved_ts >= at)
            assert compare(playground.cluster, tmp_path / "log")[0] == 1

    run(main())


@pytest.mark.slow
def test_rules_that_change_hold_in_all_groups_from_one_ts_on(tmp_path: Path) -> None:
    """First in one process without rules, then in groups with rules: tables that no rule selects end in every partition, the others
    continue."""

    async def main() -> None:
        async with Playground(39, resolved_interval=0.1) as playground:
            execute = playground.execute
            execute("create database d; create database other")
            for i in range(6):
                execute(f"create table d.t{i} (id int primary key); create table other.t{i} (id int primary key)")
            log = tmp_path / "log"
            counts: list[dict[str, int]] = []
            for step, (workers, wanted) in enumerate([(1, None), (2, CaptureRules(0, ("d.*",))), (2, CaptureRules(0, ("d.*",)))]):
                async with running(config(playground, log, workers=workers, rules=wanted)) as capture:
                    if workers > 1:
                        await all_run(capture)
                    for i in range(6):
                        execute(f"insert into d.t{i} values ({step}); insert into other.t{i} values ({step})")
                    await complete(capture, playground.cluster.oracle.next())
                    assert capture.status.state == "running"
                history = load_history(LogReader(log))
                rows = [row for partition in log_changes(log).values() for row in partition]
                counts.append(Counter(history.snapshot(row.commit_ts - 1).by_physical[row.table_id].schema for row in rows))
            assert [count["d"] for count in counts] == [6, 12, 18]
            assert counts[0]["other"] == 6
            assert counts[1]["other"] == counts[2]["other"], "what came while the rules began to hold may be there, nothing later"
            [rule] = LogReader(log).identity.capture_rules
            assert rule.rules == ("d.*",)
        assert verify(log).is_whole

    run(main())
