"""Whole runs for tests: what was delivered against the upstream, the command line in this process, the processes of a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tidemill.changelog.verify import verify
from tidemill.cli.main import main
from tidemill.consumer.tables.sqlite import MEMORY, SqliteTables
from tidemill.demo.audit import Audit
from tidemill.demo.compare import compare
from tidemill.demo.delivered import Delivered
from tidemill.demo.session import Delivery, Upstream, tables_of

PATIENCE_S = 240.0
Truth = dict[tuple[str, str], tuple[Any, list[dict[str, Any]]]]


def await_that(condition: Callable[[], bool], what: str, delivery: Delivery | None = None, within_s: float = PATIENCE_S) -> None:
    """Look again and again. Raises DemoFailed when the run has ended meanwhile."""
    deadline = time.monotonic() + within_s
    while not condition():
        if delivery is not None:
            delivery.check()
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.1)


def settled(upstream: Upstream, delivery: Delivery) -> tuple[int, Truth]:
    """Let the workload rest and everything be delivered: the ts up to which, and what the upstream's tables hold there."""
    end_ts = upstream.rest()
    delivery.wait_until(end_ts, PATIENCE_S)
    return end_ts, tables_of(upstream, end_ts)


def audited(messages: Iterable[Delivered]) -> Audit:
    """Read everything that was delivered."""
    audit = Audit()
    audit.take(messages)
    audit.finish()
    return audit


def assert_equal(audit: Audit, log: Path | str, truth: Truth, end_ts: int) -> None:
    """No guarantee was broken, the log is whole, and what was delivered makes the upstream's tables."""
    assert audit.problems == []
    report = verify(str(log))
    assert report.is_whole, report.problems
    assert audit.ordering.frontier >= end_ts
    tables = SqliteTables(MEMORY)
    audit.rebuild(tables)
    differences = [str(d) for d in compare(tables, truth)][:10]
    assert not differences, differences
    assert sum(len(rows) for _, rows in truth.values()) > 0


def tidemill(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """`tidemill …` in this process: exit code, stdout, stderr."""
    capsys.readouterr()
    code = 0
    try:
        main([str(a) for a in arguments])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        logger = logging.getLogger("tidemill")  # its handler holds a stderr that is about to end
        logger.handlers.clear()
        logger.propagate = True
    said = capsys.readouterr()
    return code, said.out, said.err


def processes(delivery: Delivery) -> dict[str, list[psutil.Process]]:
    """The living processes of a run by role: supervisor, capture, driver, jvm, worker."""
    assert delivery.process is not None
    found: dict[str, list[psutil.Process]] = {}
    try:
        boss = psutil.Process(delivery.process.pid)
        everyone = [boss, *boss.children(recursive=True)]
    except psutil.NoSuchProcess:
        return {}
    for process in everyone:
        try:
            role = "supervisor" if process == boss else _role(process)
        except psutil.NoSuchProcess:
            continue
        found.setdefault(role, []).append(process)
    return found


def _role(process: psutil.Process) -> str:
    line = process.cmdline()
    if process.status() == psutil.STATUS_ZOMBIE or not line:
        return "gone"
    if line[0].endswith("java"):
        return "jvm"
    text = " ".join(line)
    for mark, role in (("changefeed.runner", "driver"), ("changelog.capturing", "capture"), ("tidemill.spark.worker_daemon", "worker")):
        if mark in text:
            return role
    return "other"


def gone(processes_: Iterable[psutil.Process], within_s: float = 60.0) -> list[psutil.Process]:
    """Wait for processes to end; those that have not."""
    _, alive = psutil.wait_procs(list(processes_), timeout=within_s)
    return [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
