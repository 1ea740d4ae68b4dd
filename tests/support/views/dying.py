"""`tidemill view run` in a process that kills itself (SIGKILL) at a point: `killed_at`. And one that is not killed: `ended`.

The processes are forked off one that has the modules, because a view's modules take seconds to load.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter  # Typer loads it when it has options to read

from tidemill.cli.main import main
from tidemill.spark.source import reading  # with the kernels
from tidemill.views.definition import Views
from tidemill.views.engine import Engine
from tidemill.views.targets import delta, kafka, mysql

PATIENCE_S = 300.0

Point = tuple[Any, str, bool]
"""Where a method or function stands, its name, and whether the process dies behind it or before it."""

STATE: dict[str, Point] = {
    "in the state's transaction": (Engine, "_apply", True),
    "state committed": (Engine, "advance", True),
    "progress written": (Views, "write_progress", True),
}
AROUND: dict[str, Point] = {
    "delivered, not noted": (Engine, "delivered", False),
    "delivery noted": (Engine, "delivered", True),
}
OF: dict[str, dict[str, Point]] = {
    "memory": STATE,
    "delta": {
        **STATE,
        "before the table's commit": (delta.DeltaTarget, "_rows", True),
        "table committed, no manifest": (delta, "write_manifest", False),
        "manifest written, no head": (delta, "write_head", False),
        **AROUND,
    },
    "mysql": {**STATE, "in the database's transaction": (mysql.MysqlTarget, "_write", True), **AROUND},
    "kafka": {**STATE, "in Kafka's transaction": (kafka.KafkaTarget, "_send", True), **AROUND},
}
"""Target → its points."""

_processes = multiprocessing.get_context("forkserver")


def killed_at(place: Path, name: str, until_ts: int, target: str, point: str) -> bool:
    """Keep a view until a ts in a process that dies at a point. Returns whether it died there."""
    return _run(place, name, until_ts, target, point) == -signal.SIGKILL


def ended(place: Path, name: str, until_ts: int) -> bool:
    """Keep a view until a ts in a process of its own. Returns whether it ended well."""
    return _run(place, name, until_ts, "", "") == 0


def _run(place: Path, name: str, until_ts: int, target: str, point: str) -> int | None:
    _processes.set_forkserver_preload([__name__])
    process = _processes.Process(target=_child, args=(str(place), name, until_ts, target, point))
    process.start()
    process.join(PATIENCE_S)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"the process that should die at {point!r} lives")
    return process.exitcode


def _child(place: str, name: str, until_ts: int, target: str, point: str) -> None:
    assert reading is not None
    assert TypeAdapter is not None
    if point:
        owner, method, behind = OF[target][point]
        setattr(owner, method, _dying(getattr(owner, method), behind=behind))
    main(["view", "run", name, "--dir", place, "--target-ts", str(until_ts), "--interval", "0.05", "--log-level", "error"])


def _dying(method: Callable[..., Any], *, behind: bool) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        if behind:
            method(*arguments, **options)
            if arguments and isinstance(arguments[0], kafka.KafkaTarget):
                arguments[1].flush(30)  # so that the broker has the message, in a transaction that nobody ends
        os.kill(os.getpid(), signal.SIGKILL)

    return call
