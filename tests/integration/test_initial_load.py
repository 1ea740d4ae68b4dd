"""An initial load end to end, over mutual TLS, while tables are written and whoever reads them is killed: a Spark worker, the process that
drives them, the capture. A consumer that starts with nothing has the upstream's tables in the end, and no part was read twice.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.support.consumer.upstreams import truth
from tests.support.delivery.runs import PATIENCE_S, assert_equal, audited, await_that, gone
from tests.support.servers.certificates import Authority
from tidemill.changelog import initial_load
from tidemill.changelog.storage.open import open_storage
from tidemill.demo.delivered import from_files
from tidemill.demo.session import Delivery
from tidemill.playground.server import PlaygroundThread, ServerTls

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROWS, REGIONS = 1500, 60


class Parts:
    """The files of the initial load, as they come."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.seen: dict[str, int] = {}  # inodes

    def count(self) -> int:
        """How many are there; none of them is ever written again."""
        for file in self._log.glob("snapshot/*/*/*of*.arrow"):
            name, inode = str(file.relative_to(self._log)), file.stat().st_ino
            assert self.seen.setdefault(name, inode) == inode, f"{name} was read twice"
        return len(self.seen)


LOADING = "tidemill.spark.capture.snapshot"
WHO: dict[str, Callable[[str, str, str], bool]] = {  # by name, command line, and those of the parents
    "worker": lambda name, line, parents: name != "java" and "tidemill.spark.worker_daemon" in line and LOADING in parents,
    "Java": lambda name, line, parents: name == "java" and LOADING in parents,
    "reader": lambda name, line, parents: name != "java" and LOADING in line,
    "capture": lambda name, line, parents: "tidemill.cli.changelog.capturing" in line,
}


def kill(delivery: Delivery, who: str) -> bool:
    """kill -9 of such a process; whether there was one."""
    assert delivery.process is not None
    for process in psutil.Process(delivery.process.pid).children(recursive=True):
        try:
            parents = " ".join(" ".join(p.cmdline()) for p in process.parents())
            if not WHO[who](process.name(), " ".join(process.cmdline()), parents):
                continue
            os.kill(process.pid, signal.SIGKILL)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
        gone([process])
        return True
    return False


@pytest.mark.parametrize(
    "those",
    [
        ("worker", "reader", "capture"),
        pytest.param(tuple(WHO), marks=pytest.mark.thorough("Java ends with its reader too; tests/spark has a Java that is gone")),
    ],
    ids=" ".join,
)
def test_whoever_dies_while_the_tables_are_read(tmp_path: Path, those: tuple[str, ...]) -> None:
    authority = Authority()
    server = authority.sign("server")
    cert, key = authority.sign("client").write(tmp_path, "client")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    tls = ServerTls(server.certificate, server.key, authority.pem)
    with PlaygroundThread(5, stores=2, resolved_interval=0.3, tls=tls) as playground:
        playground.execute("create database d; create table d.small (a varchar(10) primary key, b decimal(8,2) default 1.5)")
        playground.execute("insert into d.small (a) values ('x'), ('y')")
        playground.execute("create table d.big (id bigint primary key, v varchar(100), n int)")
        fill(playground.execute)
        split(playground)
        sink = f"file://{tmp_path}/delivered?protocol=open-protocol&partition-num=2"
        options = ("--snapshot", "--create-tables", "--master", "local[2]", "--trigger-ms", "100", "--log-partitions", "2")
        files = ("--ca", str(tmp_path / "ca.pem"), "--cert", str(cert), "--key", str(key))
        upstream: Any = SimpleNamespace(pd=playground.pd_address)
        with Delivery(tmp_path, upstream, sink, options=(*options, *files)) as delivery:
            parts, killed = Parts(delivery.log), []
            for number, who in enumerate(those):
                enough = 1 + number * REGIONS // 5
                await_that(lambda enough=enough: parts.count() >= enough, f"{enough} parts are there", delivery)  # type: ignore[misc]
                change(playground.execute, number)
                if kill(delivery, who):
                    killed.append(who)
            await_that(lambda: parts.count() == REGIONS + 1, "all parts are there", delivery)
            change(playground.execute, len(those))
            end = playground.call(lambda: playground.playground.cluster.oracle.next())
            delivery.wait_until(end, PATIENCE_S)
            expected = truth(playground.call(lambda: playground.playground.tables_at(end)))
            assert delivery.stop() == 0
        assert {"reader", "capture"} <= set(killed), "they had something to do still"
        assert "/tidemill/delivery/" not in (tmp_path / "run.log").read_text(), "no traceback of ours"
        storage = open_storage(str(delivery.log))
        (plan,) = initial_load.plans(storage)
        assert len(plan.parts()) == REGIONS + 1
        assert initial_load.missing(storage, plan) == []
        assert parts.count() == REGIONS + 1
        audit = audited(from_files(tmp_path / "delivered"))
        assert_equal(audit, delivery.log, expected, end)  # type: ignore[arg-type]
        first = [r for r in audit.rows if r.ts == plan.ts]
        assert len(first) == ROWS + 2
        made = sorted(d.query.partition("(")[0].strip() for d in audit.ddls if d.ts == plan.ts - 1)
        assert made == [
            "CREATE DATABASE IF NOT EXISTS `d` CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin",
            "CREATE DATABASE IF NOT EXISTS `test` CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin",
            "CREATE TABLE IF NOT EXISTS `d`.`big`",
            "CREATE TABLE IF NOT EXISTS `d`.`small`",
        ]
        assert "fork_posix" not in (tmp_path / "run.log").read_text(), "gRPC has nothing to say about forks"
        assert "] [load] [" in (tmp_path / "tidemill.log").read_text()


def fill(execute: Callable[[str], Any]) -> None:
    for at in range(0, ROWS, 250):
        execute("insert into d.big values " + ", ".join(f"({i}, 'v{i}', {i % 7})" for i in range(at, at + 250)))


def change(execute: Callable[[str], Any], step: int) -> None:
    """In all regions: rows that are read already, and rows that are not."""
    execute(f"update d.big set v = 'step{step}' where id = {step}")
    execute(f"update d.big set v = 'step{step}' where id = {ROWS - 10 - step}")
    execute(f"delete from d.big where id = {ROWS // 2 + step}")
    execute(f"insert into d.big values ({ROWS + step}, 'new', {step})")
    execute(f"insert into d.small values ('s{step}', {step})")


def split(playground: PlaygroundThread) -> None:
    from tidemill.tidb.keys import record_key

    def work() -> None:
        (table,) = [t for t in playground.playground.database.catalog.tables.values() if t.name == "big"]
        step = ROWS // REGIONS
        playground.playground.cluster.split([record_key(table.model.id, i * step) for i in range(1, REGIONS)])

    playground.call(work)
