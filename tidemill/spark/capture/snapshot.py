"""The initial load: reads tables as of one ts into the log, one Spark task per part. It runs in its own process, which the capture starts,
`python -m tidemill.spark.capture.snapshot` with a `LoadOrder`.

It reads the parts that are missing, then ends: a part that is there was written whole. Executors write into the log themselves, so all of
them must reach LOG.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidemill import logs, tso
from tidemill.capture.initial_load import LoadOrder
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.tls import security_of
from tidemill.capture.tikv.read.tables import batches, drained, tasks_at_once
from tidemill.changelog.initial_load import Part, missing, note_complete, read_plan, write_part
from tidemill.changelog.storage.open import open_storage
from tidemill.delivery.machine.failures import JobLost
from tidemill.errors import LogError, TidemillError, made, redact
from tidemill.process import lifeline, orders
from tidemill.process.ending import fail
from tidemill.spark.jobs import cause_of

PD_RETRY_S = 30.0

log = logging.getLogger("tidemill.spark.capture.snapshot")  # __name__ is __main__ here


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a part; `code` is empty if the part is in the log."""

    part: Part
    rows: int = 0
    code: str = ""
    message: str = ""
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Upstream:
    """The cluster to read: PD's addresses, and the files of --ca, --cert and --key, which executors need too."""

    pd: tuple[str, ...]
    tls: tuple[Path | None, Path | None, Path | None] = (None, None, None)

    async def connect(self) -> PdClient:
        """Connect to PD. Raises UpstreamUnavailable, ConfigError."""
        return await PdClient.connect(self.pd, retry_s=PD_RETRY_S, security=security_of(self.pd, *self.tls))


def load_parts(upstream: Upstream, location: str, compression: str, parts: Iterable[Part]) -> Iterator[Outcome]:
    """Read parts and write them into the log. For RDD.mapPartitions. It consumes all its input, else Spark would not use the worker
    again."""
    loop = asyncio.new_event_loop()
    try:
        for part in parts:
            yield _load(loop, upstream, location, compression, part)
    finally:
        loop.close()


def _load(loop: asyncio.AbstractEventLoop, upstream: Upstream, location: str, compression: str, part: Part) -> Outcome:
    rows = 0
    try:
        client = loop.run_until_complete(upstream.connect())
        try:

            def counted() -> Iterator[Any]:
                nonlocal rows
                for batch in drained(loop, batches(client, part)):
                    rows += batch.num_rows
                    yield batch

            write_part(open_storage(location), part, counted(), compression)
        finally:
            loop.run_until_complete(client.close())
    except TidemillError as error:
        return Outcome(part, rows, error.code, str(error), error.retryable)
    return Outcome(part, rows)


def load(upstream: Upstream, location: str, ts: int, *, master: str | None, scratch: Path, compression: str = "none", scans: int) -> int:
    """Read the parts missing at `ts`, `scans` at once at most; return the number of rows. Raises the error of a part, JobLost."""
    from tidemill.spark.session import start_context, stop_spark

    storage = open_storage(location)
    plan = read_plan(storage, ts)
    if plan is None:
        raise LogError(f"{redact(location)} has no plan to read tables at {tso.describe(ts)}")
    todo = missing(storage, plan)
    if not todo:
        note_complete(storage, ts)
        return 0
    log.info("reading %d parts of %d tables at %s", len(todo), len(plan.tables), tso.describe(ts))
    with ExitStack() as stack:
        context: Any = start_context(scratch / "load-spark.log", master=master, name=f"tidemill load {ts}")
        stack.callback(stop_spark, context)
        slices = tasks_at_once(len(todo), context.defaultParallelism, scans)
        work = partial(load_parts, upstream, location, compression)
        try:
            outcomes: list[Outcome] = context.parallelize(todo, slices).mapPartitions(work).collect()
        except OSError as error:
            raise JobLost(f"Spark's Java process is gone: {error}") from error
        except (Py4JError, PySparkException) as error:
            raise JobLost(f"Spark gave the job up: {cause_of(str(error))}") from error
    failed = [o for o in outcomes if o.code]
    if failed:
        worst = min(failed, key=lambda o: (o.retryable, o.part.table_id, o.part.k))
        name = next(t.name for t in plan.tables if t.table_id == worst.part.table_id)
        raise made(worst.code, f"part {worst.part.k} of {worst.part.n} of {name}: {worst.message}", retryable=worst.retryable)
    note_complete(storage, ts)
    return sum(o.rows for o in outcomes)


def main() -> None:
    """Entry point."""
    try:
        order = orders.take(LoadOrder)
        lifeline.hold()
        logs.setup(order.log_level, order.log_file, part="load")
        upstream = Upstream(order.pd, (order.ca, order.cert, order.key))
        rows = load(
            *(upstream, order.log, order.ts),
            master=order.master,
            scratch=order.scratch,
            compression=order.compression,
            scans=order.scans,
        )
    except TidemillError as error:
        fail(error)
    log.info("%d rows at %s are in the log", rows, tso.describe(order.ts))


if __name__ == "__main__":
    main()
