"""A group: a process or a Spark task that pulls some partitions of the log for its coordinator.

It owns its partitions' folders, and reads the schema stream from the log as far as the coordinator tells it. Without a coordinator no row
could be sealed any further: the group seals what is resolved and ends. Another attempt continues where its last segment ends.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.capture.config import CaptureConfig
from tidemill.capture.groups.connection import Wire, nonce
from tidemill.capture.groups.credentials import Credentials
from tidemill.capture.groups.messages import Assignment, Challenge, Ended, Head, Hello, Refused, Report, Stop, is_proof, proof
from tidemill.capture.lifecycle import Lifecycle, together
from tidemill.capture.status import Section
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.worker import Pulling, maintain
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import SCHEMA
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import open_storage
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.changelog.writer import LogWriter, Share
from tidemill.errors import LogError, MalformedMessage, TidemillError, redact
from tidemill.process.descriptors import raise_limit
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tso import describe

REPORT_EVERY = 1.0
SYNC_EVERY = 10.0
LOOKS, LOOK_EVERY = 100, 0.2
"""How long a file written by another machine may take to be seen here: shared file systems cache listings."""

_log = logging.getLogger(__name__)


class Outcome(enum.Enum):
    """How a group ended, if nothing failed."""

    ORDERED = "ordered"
    LOST = "lost"  # the coordinator is gone, or a newer attempt counts


class Group:
    """One attempt of a group. Call `run` once."""

    def __init__(self, credentials: Credentials, group: int, attempt: int, scratch: Path, task: int = -1) -> None:
        self.credentials, self.group, self.attempt, self.scratch, self.task = credentials, group, attempt, scratch, task
        self.life: Lifecycle
        self._outcome = Outcome.ORDERED
        self._pulling: Pulling | None = None
        self._head = Head(0, 0)
        self._news = asyncio.Event()
        self._retry = StorageRetry()

    def stop(self) -> None:
        """End as if the coordinator had said so."""
        self.life.stop()

    async def run(self) -> Outcome:
        """Run until the coordinator ends the group or is gone. Raises errors that cannot be handled here, after telling the coordinator."""
        self.life = Lifecycle()
        raise_limit()
        try:
            wire = await Wire.connect(self.credentials.host, self.credentials.port)
        except OSError as e:
            _log.warning("no coordinator at %s:%d: %s", self.credentials.host, self.credentials.port, e)
            return Outcome.LOST
        try:
            assignment = await self._meet(wire)
            if not isinstance(assignment, Assignment):
                return assignment
            await self._work(wire, assignment)
        finally:
            wire.close()
        return self._outcome

    async def _meet(self, wire: Wire) -> Assignment | Outcome:
        """Exchange proofs with the coordinator. The answer may take a while, because a group that failed has to wait. Or this attempt is
        refused."""
        challenge = await wire.receive()
        if not isinstance(challenge, Challenge):
            return Outcome.LOST
        token, mine, me = self.credentials.token, nonce(), (self.group, self.attempt)
        shown = proof(token, "group", challenge.nonce, mine, *me)
        wire.send(Hello(self.group, self.attempt, os.getpid(), socket.gethostname(), self.task, mine, shown))
        answer = await wire.receive()
        if isinstance(answer, Refused):
            _log.info("group %d, attempt %d is refused: %s", *me, answer.reason)
        if not isinstance(answer, Assignment):
            return Outcome.ORDERED if isinstance(answer, Stop) else Outcome.LOST
        if not is_proof(answer.proof, token, "coordinator", mine, *me):
            raise MalformedMessage(f"the server at {self.credentials.host}:{self.credentials.port} is not this capture's coordinator")
        self._head = Head(answer.head, answer.last_to)
        return answer

    async def _work(self, wire: Wire, assignment: Assignment) -> None:
        beside = [asyncio.ensure_future(self._listen(wire)), asyncio.ensure_future(self._report(wire))]
        try:
            await self.life.lead(self._capture(assignment))
            wire.send(Ended())
        except TidemillError as e:
            wire.send(Ended(e.code, str(e), e.retryable))
            raise
        except BaseException as e:  # the coordinator is told of every error
            wire.send(Ended(type(e).__name__, redact(str(e)), retryable=True))
            raise
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            if self._pulling is not None:
                wire.send(Report(asdict(self._pulling.look())))
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_EVERY):
                    await wire.drain()

    async def _listen(self, wire: Wire) -> None:
        while True:
            try:
                message = await wire.receive()
            except MalformedMessage as e:
                self.life.fail(e)
                return
            match message:
                case Head():
                    self._head = message
                    self._news.set()
                case Stop():
                    self.life.stop()
                case Refused(reason):
                    _log.warning("group %d, attempt %d does not count any more: %s", self.group, self.attempt, reason)
                    self._outcome = Outcome.LOST
                    self.life.stop()
                case None:
                    if not self.life.is_over:
                        _log.warning("the coordinator is gone; what is resolved is sealed, then this group ends")
                        self._outcome = Outcome.LOST
                    self.life.stop()
                    return

    async def _report(self, wire: Wire) -> None:
        while True:
            section = self._pulling.look() if self._pulling is not None else Section()
            wire.send(Report(asdict(section)))
            await asyncio.sleep(REPORT_EVERY)

    # ------------------------------------------------------------------ capturing

    async def _capture(self, assignment: Assignment) -> None:
        config = CaptureConfig.from_coordinator(assignment.settings, self.credentials.log, self.scratch)
        pd = await PdClient.connect(config.pd, cluster_id=int(assignment.cluster_id), security=config.security)
        try:
            writer = await self._retry.in_thread(partial(self._open, config, assignment))
            try:
                await self._pull(config, pd, writer, assignment.partitions)
            finally:
                writer.close()
        finally:
            await pd.close()

    def _open(self, config: CaptureConfig, assignment: Assignment) -> LogWriter:
        writer = LogWriter.open(
            open_storage(config.log, self.scratch),
            cluster_id=assignment.cluster_id,
            options=LogOptions(compression=config.compression, low_water_bytes=config.low_water_bytes, term=config.term),
            share=Share(schema=False, partitions=frozenset(assignment.partitions)),
        )
        writer.sync_heads()  # PD may keep history only from these heads on: sync them before newer ones replace them
        return writer

    async def _pull(self, config: CaptureConfig, pd: PdClient, writer: LogWriter, partitions: Sequence[int]) -> None:
        reader = await self._retry.in_thread(partial(LogReader, writer.storage))
        head = self._head
        await self._retry.call_async(partial(_seen, reader, head))
        history = await self._retry.in_thread(partial(load_history, reader, head.last_to))
        history.advance((), head.ts)
        pulling = Pulling(config, pd, writer, history, self.scratch, self.life, partitions, retry=self._retry)
        try:
            await pulling.begin()
            self._pulling = pulling
            _log.info("group %d captures %d tables from %s", self.group, len(pulling.spans), describe(min(pulling.heads())))
            await together(
                self._follow(reader, history, pulling),
                self._tidy(history, pulling),
                self._sync(writer),
                maintain(pd, writer, lambda: min(pulling.heads()), self._retry),
                pulling.watchdog.run(),
                pulling.watch_room(),
            )
        finally:
            await pulling.stop()
            _log.info("group %d: its partitions are complete up to %s", self.group, describe(min(pulling.heads())))

    async def _follow(self, reader: LogReader, history: SchemaHistory, pulling: Pulling) -> None:
        """Follow the schema stream, forever."""
        while True:
            await self._news.wait()
            self._news.clear()
            head = self._head
            changes: pa.Table | Sequence[Any] = ()
            if head.last_to > history.resolved_ts:
                await self._retry.call_async(partial(_seen, reader, head))
                changes = await self._retry.in_thread(partial(reader.read_schema, history.resolved_ts, head.last_to))
            history.advance(changes, head.ts)
            pulling.follow(head.ts)

    async def _sync(self, writer: LogWriter) -> None:
        """Sync the heads, forever: the coordinator lets TiKV collect only what survives a crash of this machine."""
        while True:
            await asyncio.to_thread(writer.sync_heads)
            await asyncio.sleep(SYNC_EVERY)

    async def _tidy(self, history: SchemaHistory, pulling: Pulling) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY)
            pulling.tidy()
            history.forget(min(pulling.heads()))


def _has(reader: LogReader, head: Head) -> bool:
    """Return whether the schema's last segment can be seen. If not, the next look bypasses caches."""
    if head.last_to <= max(reader.listing(SCHEMA).to_ts or 0, reader.start_ts):
        return True
    reader.refresh()
    return False


async def _seen(reader: LogReader, head: Head) -> None:
    """Wait until the schema's last segment can be seen here: rows must not pass a DDL that was not read. Raises LogError."""
    for _ in range(LOOKS):
        if await asyncio.to_thread(_has, reader, head):
            return
        await asyncio.sleep(LOOK_EVERY)
    raise LogError(
        f"{redact(reader.location)} does not show the schema stream up to {describe(head.last_to)} here, "
        f"{LOOKS * LOOK_EVERY:.0f} s after it was written",
        hint="All machines of a capture must see the same files: use a shared file system or an object store.",
    )
