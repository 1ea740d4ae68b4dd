"""Runs the checks of all subjects beside each other, each with a time limit: one that hangs says so and holds up no other. Does IO."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.capture.tikv.client.tls import Security
from tidemill.config.uri import SinkUri
from tidemill.doctor.findings import Finding, bad
from tidemill.doctor.host import host, spark_ports
from tidemill.doctor.place import place, room
from tidemill.doctor.upstream import upstream

LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Subjects:
    """What to look at; None is left out."""

    data_dir: Path
    pd: tuple[str, ...] | None = None
    security: Security | None = None
    start_ts: str | None = None
    log: str | None = None
    sink: SinkUri | None = None
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)


def examine(subjects: Subjects, limit_s: float = LIMIT_S) -> Iterator[Finding]:
    """Yield the findings, subject by subject, as soon as each is done."""
    for name, answer in [(name, _begun(look)) for name, look in _looks(subjects)]:
        try:
            yield from answer.result(limit_s)
        except TimeoutError:
            yield bad(name, f"no answer within {limit_s:.0f} s", "Is the address right, and does a firewall drop the packets?")


def _looks(subjects: Subjects) -> Iterator[tuple[str, Callable[[], Iterable[Finding]]]]:
    yield "machine", host
    yield "spark ports", lambda: [spark_ports(subjects.master, subjects.spark_conf)]
    yield "data-dir", lambda: [room("disk of --data-dir", subjects.data_dir)]
    if (pd := subjects.pd) is not None:
        yield "pd", lambda: asyncio.run(upstream(pd, subjects.security, subjects.start_ts))
    if (log := subjects.log) is not None:
        yield "log", lambda: place(log)
    if (sink := subjects.sink) is not None:
        from tidemill.doctor.downstream import downstream

        yield "sink", lambda: downstream(sink)


def _begun(look: Callable[[], Iterable[Finding]]) -> Future[list[Finding]]:
    """Look in a thread that does not keep the process from ending."""
    answer: Future[list[Finding]] = Future()

    def work() -> None:
        try:
            answer.set_result(list(look()))
        except BaseException as error:  # a fault of the check: the caller gets it
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return answer
