"""Backfills: what the tables that a log took last changed before that, from a ts on that the log has passed.

A changefeed may begin a moment in the past, as `cdc cli` lets it. The spans of its tables are then pulled once more, from that ts to the
one from which on the log has them, into a log of their own among the scratch files. Their rows are inserted into the log; last, log.json
says that they are there. The capture goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from tidemill import tso
from tidemill.capture import rules
from tidemill.capture.config import LEAST_QUOTA, CaptureConfig
from tidemill.capture.initial_load import Request, answer
from tidemill.capture.lifecycle import Lifecycle, in_thread, tick, together
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.gc import GcGuard
from tidemill.capture.worker import Pulling
from tidemill.changelog import imports
from tidemill.changelog.files.late_rows import LateRows
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import CaptureRules
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.changelog.writer import LogWriter
from tidemill.errors import LogError, LogFenced, TidemillError, UpstreamError

WITHIN_S = 600.0
"""How long a backfill may take: a store that is down ends it, and its hold on garbage collection."""

POLL_S = 0.1

_log = logging.getLogger(__name__)


class _Reached(Exception):
    """Not an error: it ends the tasks that pull."""


@dataclass(slots=True)
class Backfills:
    """Does backfills, one after the other, and answers the requests. `service_id`: of the log at PD."""

    config: CaptureConfig
    pd: PdClient
    writer: LogWriter
    service_id: str
    scratch: Path
    retry: StorageRetry
    _waiting: asyncio.Queue[Request] = field(default_factory=asyncio.Queue)
    _taken: set[str] = field(default_factory=set)

    def take(self, request: Request) -> None:
        """Take a request; one that waits already is not taken twice."""
        if request.name not in self._taken:
            self._taken.add(request.name)
            self._waiting.put_nowait(request)

    async def run(self) -> None:
        """Answer what is taken, forever. Raises LogFenced; all other failures are answers."""
        while True:
            request = await self._waiting.get()
            try:
                await self._fill(request.from_ts)
                found: dict[str, object] = {"ts": request.from_ts}
            except LogFenced:
                raise
            except (TidemillError, TimeoutError) as error:
                why = error.message if isinstance(error, TidemillError) else f"it takes longer than {WITHIN_S:.0f} s"
                _log.warning("the tables of the newest rules are not in the log from %s on: %s", tso.describe(request.from_ts), why)
                found = {"error": why}
            await self.retry.in_thread(partial(answer, self.writer.storage, request, **found))
            self._taken.discard(request.name)

    async def _fill(self, from_ts: int) -> None:
        *before, newest = self.writer.identity.rules_above(from_ts)
        if newest is None or not before:  # the newest rules hold from there on
            return
        if len(self.writer.partitions) < self.writer.identity.partitions:
            raise LogError("a capture in groups (--workers) does not read what tables changed before it took them")
        self.writer.check_insert(from_ts)
        guard = GcGuard(self.pd, f"{self.service_id}-backfill", int(1.5 * WITHIN_S))
        await guard.protect(from_ts)
        folder = self.scratch / "backfill"
        try:
            async with asyncio.timeout(WITHIN_S):
                await in_thread(partial(shutil.rmtree, folder, ignore_errors=True))
                await self._read(folder, from_ts, newest, before)
        finally:
            await in_thread(partial(shutil.rmtree, folder, ignore_errors=True))
            with suppress(UpstreamError):  # it ends with its TTL
                await guard.remove()

    async def _read(self, folder: Path, from_ts: int, newest: CaptureRules, before: Sequence[CaptureRules | None]) -> None:
        """Pull what the newest rules select and the ones before them did not, then insert it."""
        to_ts = newest.from_ts
        _log.info("reading what the tables that are new to the log changed from %s to %s", tso.describe(from_ts), tso.describe(to_ts))
        while self.writer.resolved_ts < to_ts:
            await tick(POLL_S)
        selected, all_before = rules.wants_of(newest), [rules.wants_of(entry) for entry in before]
        history = await in_thread(lambda: load_history(LogReader(self.writer.storage), to_ts, from_ts=from_ts))
        identity = replace(self.writer.identity, start_ts=from_ts, capture_rules=(), upstream_versions=())
        storage = LocalStorage(str(folder / "log"), sync=False)
        late = await in_thread(partial(LogWriter.create, storage, identity, snapshot={}, options=self.writer.options))
        try:
            life = Lifecycle()
            pulling = Pulling(
                replace(self.config, memory_quota=LEAST_QUOTA, workers=None),
                *(self.pd, late, history, folder / "scratch", life, late.partitions),
                wants=lambda version: selected(version) and not all(wants(version) for wants in all_before),
            )
            await self._pull(pulling, life, to_ts)
        finally:
            late.close()
        await self._insert(LogReader(storage), from_ts, to_ts)
        await in_thread(self.writer.change_identity, lambda current: current.with_earlier_rules(newest, from_ts))
        _log.info("from %s on the log has what the capture rules %s select", tso.describe(from_ts), ", ".join(newest.rules))

    async def _pull(self, pulling: Pulling, life: Lifecycle, to_ts: int) -> None:
        try:
            await pulling.begin()
            await together(_until_reached(pulling, to_ts), pulling.watchdog.run(), life.over())
        except _Reached:
            pass
        finally:
            await pulling.stop()
        if life.is_over:  # the receiver failed at its end
            await life.over()

    async def _insert(self, reader: LogReader, from_ts: int, to_ts: int) -> None:
        for ts, table_id in imports.noted(reader.storage):
            await self.retry.in_thread(partial(imports.note, self.writer.storage, ts, table_id))
        for partition in self.writer.partitions:
            rows = LateRows(reader, partition, from_ts, to_ts)
            while not await self.retry.in_thread(partial(self.writer.insert, rows)):
                await tick(POLL_S)


async def _until_reached(pulling: Pulling, ts: int) -> NoReturn:
    while min(pulling.heads()) < ts:
        await tick(POLL_S)
    raise _Reached
