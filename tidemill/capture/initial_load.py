"""The capture's side of initial loads: it plans them, keeps their ts from garbage collection, and runs the process that reads the tables.

A new log with `--snapshot` begins with an initial load, at its start. `tidemill resync` asks a running capture for another, of one table.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tidemill import statefile
from tidemill.capture.config import DEFAULT_SCANS, CaptureConfig
from tidemill.capture.lifecycle import tick
from tidemill.capture.tikv.client.channels import Backoff
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.read.tables import plan_tables
from tidemill.changelog import initial_load
from tidemill.changelog.initial_load import Plan
from tidemill.changelog.log_format import rows_folder
from tidemill.changelog.reader import read_head
from tidemill.changelog.storage.open import Storage
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.errors import EXIT_FATAL, DiskLow, LogCorrupt, LogError, LogUnavailable, UpstreamUnavailable, redact
from tidemill.process import children, orders
from tidemill.process.lifeline import SUPERVISED
from tidemill.tidb.schema.tracking.versions import SchemaSnapshot, TableVersion
from tidemill.tso import describe

POLL_S = 2.0
REST = 20  # pause after a look, as a multiple of the time it took
STOP_S = 20.0

_log = logging.getLogger(__name__)


READER = children.program("tidemill.spark.capture.snapshot")


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """What is read into which log: the order of `spark.capture.snapshot`. `log` may hold a password."""

    pd: tuple[str, ...]
    log: str = field(repr=False)
    scratch: Path
    ts: int = 0
    master: str | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    compression: str = "none"
    scans: int = DEFAULT_SCANS
    log_level: str = "info"
    log_file: Path | None = None


@dataclass(slots=True)
class Loading:
    """The initial loads of one log, and the process that reads their tables."""

    storage: Storage
    order: LoadOrder  # without its ts
    command: Sequence[str] = field(default_factory=lambda: READER)
    waiting: list[Plan] = field(default_factory=list)  # not complete yet, oldest first
    parts_missing: int = 0
    begin: asyncio.Event = field(default_factory=asyncio.Event)
    retry: StorageRetry = field(default_factory=StorageRetry)
    planning: list[int] = field(default_factory=list)  # ts of loads that are being planned
    _complete: set[int] = field(default_factory=set)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _some: asyncio.Event = field(default_factory=asyncio.Event)  # set when there is a plan to read

    async def look(self) -> None:
        """Read which plans there are, and which of their parts are missing."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        lacking = await self.retry.in_thread(self._lacking)  # takes long on an object store
        self.waiting = [plan for plan, _ in lacking]
        self.parts_missing = sum(n for _, n in lacking)
        if lacking:
            self._some.set()

    def _lacking(self) -> list[tuple[Plan, int]]:
        """Return the plans that are not complete, and how many parts each lacks. A complete plan is recorded as such, and not read
        again."""
        found = []
        for ts in initial_load.timestamps(self.storage):
            if ts in self._complete:
                continue
            if not initial_load.is_complete(self.storage, ts):
                plan = initial_load.read_plan(self.storage, ts)
                if plan is None:  # it is being written or removed
                    continue
                if n := len(initial_load.missing(self.storage, plan)):
                    found.append((plan, n))
                    continue
                with suppress(DiskLow, LogUnavailable):  # the note only saves time
                    initial_load.note_complete(self.storage, ts)
            self._complete.add(ts)
        return found

    @property
    def oldest_ts(self) -> int | None:
        """The ts at which tables must still be readable; None without a load."""
        return min([*self.planning, *(plan.ts for plan in self.waiting)], default=None)

    async def run(self, requests: Callable[[], Awaitable[None]]) -> None:
        """Read what is planned, forever. Meanwhile call `requests` and look for plans every two seconds, even before `begin` allows
        reading. Raises LogError if reading fails for good."""
        asking = asyncio.create_task(self._ask(requests))
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.gather(asking, reading)
        finally:
            asking.cancel()
            reading.cancel()
            await asyncio.gather(asking, reading, return_exceptions=True)

    async def _ask(self, requests: Callable[[], Awaitable[None]]) -> None:
        while True:
            async with self._looking:  # else a list from before a new plan could count as complete
                await self.retry.call_async(requests)
                began = time.monotonic()
                await self._look()
                self.planning.clear()
            await tick(max(POLL_S, REST * (time.monotonic() - began)))

    async def _read(self) -> None:
        await self.begin.wait()
        backoff = Backoff(1.0, 30.0)
        while True:
            if not self.waiting:
                self._some.clear()
                await self._some.wait()
                continue
            plan = self.waiting[0]
            status = await self._process(plan.ts)
            await self.look()
            if status == EXIT_FATAL:
                raise LogError(f"the tables at {describe(plan.ts)} cannot be read; see the messages of the loading process above")
            if status == 0:
                backoff = Backoff(1.0, 30.0)
                continue
            pause = backoff.next()
            _log.warning("reading tables at %s ended with %d; it is tried again in %.0f s", describe(plan.ts), status, pause)
            await asyncio.sleep(pause)

    async def _process(self, ts: int) -> int:
        process = await children.start(self.command, children.environment({SUPERVISED: "1"}))
        process.tell(orders.begin(replace(self.order, ts=ts)))  # its stdin is held open: it ends when the capture does
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()  # what it was writing has no final name yet, and its Spark ends with its stdin
                await asyncio.wait_for(process.wait(), STOP_S)


def loading_of(storage: Storage, config: CaptureConfig, retry: StorageRetry | None = None) -> Loading:
    """Return the initial loads of a capture's log."""
    order = LoadOrder(
        pd=config.pd,
        log=config.log,
        scratch=config.folder,
        master=config.master,
        ca=config.ca,
        cert=config.cert,
        key=config.key,
        compression=config.compression,
        scans=config.tikv_scans,
        log_level=config.log_level,
        log_file=config.log_file,
    )
    return Loading(storage, order, retry=retry or StorageRetry())


async def plan_beginning(storage: Storage, pd: PdClient, tables: SchemaSnapshot, ts: int, wants: Callable[[TableVersion], bool]) -> None:
    """Plan the tables of a new log. Plans found there belong to a log that was never created: remove them."""
    plan = await plan_tables(pd, ts, [v for v in tables.tables.values() if v.info.has_rows and wants(v)])

    def write() -> None:
        for left in initial_load.timestamps(storage):
            initial_load.remove(storage, left)
        initial_load.write_plan(storage, plan)

    await asyncio.to_thread(write)


def find_table(snapshot: SchemaSnapshot, name: str) -> TableVersion | None:
    """Return the table `db.table`, ignoring case."""
    wanted = name.lower()
    tables = snapshot.tables.values()
    return next((v for v in tables if f"{v.schema}.{v.table}".lower() == wanted and v.info.has_rows), None)


# ---- requests to a running capture


@dataclass(frozen=True, slots=True)
class Request:
    """A request to read a table again; or, with `from_ts`, to have all tables of the newest rules in the log from an earlier ts on."""

    name: str  # of the file
    table: str = ""  # db.table
    from_ts: int = 0


def ask(storage: Storage, name: str, table: str) -> None:
    """Leave a request of `tidemill resync` for the log's capture."""
    storage.replace(f"{initial_load.REQUESTS}/{name}.json", json.dumps({"table": table}).encode())


def ask_backfill(storage: Storage, name: str, from_ts: int) -> None:
    """Leave a request for what the log's newest tables changed from a ts on."""
    storage.replace(f"{initial_load.REQUESTS}/{name}.json", json.dumps({"from_ts": from_ts}).encode())


def requests(storage: Storage) -> list[Request]:
    """Return the requests that are not answered yet."""
    found = []
    for name in sorted(storage.names(initial_load.REQUESTS)):
        data = storage.read(f"{initial_load.REQUESTS}/{name}") if name.endswith(".json") else None
        if data is None:
            continue
        try:
            fields = statefile.read(data, name)
            found.append(
                Request(name, from_ts=fields.integer("from_ts", 1)) if "from_ts" in fields else Request(name, fields.text("table"))
            )
        except LogCorrupt:
            _log.warning("%s/%s is not a request to a capture; it is removed", initial_load.REQUESTS, name)
            storage.delete(f"{initial_load.REQUESTS}/{name}")
    return found


def answer(storage: Storage, request: Request, **fields: object) -> None:
    """Answer a request and remove it."""
    storage.replace(f"{initial_load.REQUESTS}/{request.name}.done", json.dumps(fields).encode())
    storage.delete(f"{initial_load.REQUESTS}/{request.name}")


def answered(storage: Storage, name: str) -> dict[str, Any] | None:
    """Return the answer to a request, `ts` or `error`, and remove it; None: not answered yet."""
    path = f"{initial_load.REQUESTS}/{name}.json.done"
    data = storage.read(path)
    if data is None:
        return None
    found = statefile.read(data, storage.path(path))
    answer = {"error": found.text("error")} if "error" in found else {"ts": found.integer("ts", 1)}
    storage.delete(path)
    return answer


class MovedOn(LogError):
    """The log's heads were always ahead of the ts for the plan."""


async def plan_at_the_head(
    storage: Storage,
    pd: PdClient,
    version: TableVersion,
    heads: Callable[[], list[int]],
    tries: int = 20,
    keep: Callable[[int], None] = lambda ts: None,
) -> Plan:
    """Plan one table at a ts that no head has passed when the plan is written, so no changefeed can have passed it either. `keep` is called
    first with the ts: it must hold garbage collection below it. Raises MovedOn."""
    regions = await plan_tables(pd, 0, [version])  # may take long, so the ts is taken afterwards
    for _ in range(tries):
        plan = replace(regions, ts=await pd.tso())
        keep(plan.ts)
        await asyncio.to_thread(initial_load.write_plan, storage, plan)
        if max(await asyncio.to_thread(heads)) < plan.ts - 1:  # a batch may end just below the ts: its CREATE TABLE is there
            return plan
        await asyncio.to_thread(initial_load.remove, storage, plan.ts)
    raise MovedOn(f"{redact(storage.location)} moves on too fast to plan {version.schema}.{version.table}", hint="Try again.")


async def plan_what_is_asked(
    storage: Storage,
    pd: PdClient,
    partitions: int,
    tables: Callable[[], SchemaSnapshot],
    wants: Callable[[TableVersion], bool],
    keep: Callable[[int], None],
    backfill: Callable[[Request], None],
) -> None:
    """Plan the tables that `tidemill resync` asks for. `partitions`: of the log. `keep`: see `plan_at_the_head`. `backfill` takes requests
    with a ts, again and again until they are answered."""

    def heads() -> list[int]:
        return [read_head(storage, rows_folder(p)) or 0 for p in range(partitions)]

    for request in await asyncio.to_thread(requests, storage):
        if request.from_ts:
            backfill(request)
            continue
        version = find_table(tables(), request.table)
        if version is None:
            await asyncio.to_thread(partial(answer, storage, request, error=f"there is no table {request.table}"))
            continue
        if not wants(version):
            await asyncio.to_thread(
                partial(
                    answer, storage, request, error=f"the rules of the capture leave out {request.table}: its changes are not in the log"
                )
            )
            continue
        try:
            plan = await plan_at_the_head(storage, pd, version, heads, keep=keep)
        except UpstreamUnavailable as e:  # the request stays for the next time
            _log.warning("%s cannot be planned now: %s", request.table, e.message)
            return
        except MovedOn as e:  # the user tries again; the capture goes on
            await asyncio.to_thread(partial(answer, storage, request, error=e.message))
            continue
        await asyncio.to_thread(partial(answer, storage, request, ts=plan.ts))
        _log.info("%s is read again at %s, in %d parts", request.table, describe(plan.ts), len(plan.parts()))
