"""Prewrites without Commit: TiKV knows how their transactions ended.

A Prewrite that stops the order for more than a second is asked for by MvccGetByKey. A committed one gets its Commit from here; one that was
rolled back is passed over. Where TiKV has neither, its transaction may be alive: after ten minutes TiKV is told to roll it back, unless its
lock is still kept alive, and only then it is passed over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from tidemill import tso
from tidemill.binlog.messages import Binlog, BinlogType, read_binlog
from tidemill.binlog.order import Stored
from tidemill.binlog.pump.log import LogReader
from tidemill.binlog.pump.store import Store
from tidemill.capture.tikv.client.region_calls import RegionCalls
from tidemill.errors import MalformedBytes, MalformedMessage, UpstreamError
from tidemill.wire import kvrpcpb_pb2

ASK_AFTER_S = 1.0
GIVE_UP_MS = 600_000
TELL_EVERY_S = 60.0

_log = logging.getLogger(__name__)


class Ending(Enum):
    """How a transaction ended, if it has."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "TiKV has neither a commit nor a rollback of it"


@dataclass(frozen=True, slots=True)
class Fate:
    """The end of a transaction."""

    ending: Ending
    commit_ts: int = 0


class Resolver:
    """Asks TiKV about the Prewrite that stops the order. `now`: a TSO of PD."""

    def __init__(self, store: Store, calls: RegionCalls, now: Callable[[], Awaitable[int]]) -> None:
        self._store, self._calls, self._now = store, calls, now
        self._reader = LogReader(store.log.folder)
        self._told = 0.0
        self.asked = 0
        self.answer = ""
        """What TiKV said of the Prewrite that stops the order, for people."""

    async def look(self) -> bool:
        """End what can be ended; return whether something was. Raises UpstreamError, PumpCorrupt, PumpFailed, OSError."""
        held = self._store.order.held_by
        if held is None or time.monotonic() - held.since < ASK_AFTER_S:
            self.answer = ""
            return False
        prewrite = read_binlog(self._reader.payload(held.at))
        try:
            fate = await self._fate(prewrite)
        except UpstreamError as error:
            self.answer = f"does not tell: {error.message}"
            self._tell(held, f"and TiKV does not tell: {error.message}")
            raise
        except (MalformedBytes, MalformedMessage) as error:
            raise UpstreamError(f"the Prewrite of {held.start_ts} has the key {prewrite.prewrite_key.hex()}: {error.message}") from None
        self.answer = fate.ending.value
        if fate.ending is Ending.UNKNOWN:
            self._tell(held, "here and in TiKV")
            return False
        _log.info("the transaction %s has a Prewrite and nothing else here; by TiKV it was %s", held.start_ts, fate.ending.value)
        if fate.ending is Ending.ROLLED_BACK:
            self._store.forget(held.start_ts)
        else:
            await self._store.write(_commit_of(prewrite, fate.commit_ts).encode())
        return True

    def _tell(self, held: Stored, where: str) -> None:
        now = time.monotonic()
        if now - self._told >= TELL_EVERY_S:
            self._told = now
            text = "the transaction %s holds up all binlogs: it has a Prewrite and neither Commit nor Rollback, %s"
            _log.warning(text, tso.describe(held.start_ts), where)

    async def _fate(self, prewrite: Binlog) -> Fate:
        self.asked += 1
        start_ts, key = prewrite.start_ts, prewrite.prewrite_key
        _, answer = await self._calls.call("MvccGetByKey", key, lambda _: kvrpcpb_pb2.MvccGetByKeyRequest(key=key))
        if answer.error:
            raise UpstreamError(f"TiKV does not tell the versions of key {key.hex()}: {answer.error}")
        for write in answer.info.writes:
            if write.start_ts == start_ts:
                rolled_back = write.type == kvrpcpb_pb2.Rollback
                return Fate(Ending.ROLLED_BACK) if rolled_back else Fate(Ending.COMMITTED, write.commit_ts)
            if write.commit_ts == start_ts and write.has_overlapped_rollback:
                return Fate(Ending.ROLLED_BACK)
        now = await self._now()
        if tso.physical_ms(now) - tso.physical_ms(start_ts) < GIVE_UP_MS:
            return Fate(Ending.UNKNOWN)
        return await self._end(start_ts, key, now)

    async def _end(self, start_ts: int, key: bytes, now: int) -> Fate:
        """Let TiKV roll back a transaction whose lock is gone or over."""

        def request(_: object) -> kvrpcpb_pb2.CheckTxnStatusRequest:
            return kvrpcpb_pb2.CheckTxnStatusRequest(
                primary_key=key, lock_ts=start_ts, current_ts=now, rollback_if_not_exist=True, force_sync_commit=True
            )

        _, answer = await self._calls.call("KvCheckTxnStatus", key, request)
        if answer.HasField("error"):
            raise UpstreamError(f"TiKV does not end the transaction {start_ts}: {str(answer.error).strip()}")
        if answer.commit_version:
            return Fate(Ending.COMMITTED, answer.commit_version)
        return Fate(Ending.UNKNOWN) if answer.lock_ttl else Fate(Ending.ROLLED_BACK)


def _commit_of(prewrite: Binlog, commit_ts: int) -> Binlog:
    return Binlog(
        BinlogType.COMMIT, prewrite.start_ts, commit_ts, prewrite.prewrite_key, b"", prewrite.ddl_query, prewrite.ddl_job_id,
        prewrite.ddl_schema_state,
    )  # fmt: skip
