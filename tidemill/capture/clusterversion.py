"""Records the cluster's version in log.json. Newer versions of TiDB format some values in another way, and Tidemill formats as the cluster
does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from tidemill import tso
from tidemill.capture.tikv.client.pd import PdClient, Store, parse_version
from tidemill.changelog.log_format import UpstreamVersion
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.changelog.writer import LogWriter
from tidemill.errors import UpstreamError

_log = logging.getLogger(__name__)

LOOK_EVERY = 600.0
AHEAD_MS = 60_000
"""A version found while rows are captured takes effect this much later: no row with such a ts is in the log yet."""


def oldest_version(stores: Sequence[Store]) -> str:
    """Return the version of the oldest live TiKV; empty if no store reports one."""
    told = [s.version for s in stores if not s.tombstone and not s.tiflash and parse_version(s.version) is not None]
    return min(told, key=lambda version: (parse_version(version), version), default="")


def is_news(writer: LogWriter, version: str) -> bool:
    """Return whether log.json lacks this version of the cluster."""
    return bool(version) and version != writer.identity.version_at(tso.MAX_TS)


async def note_at_start(pd: PdClient, writer: LogWriter, log_end: int, retry: StorageRetry) -> None:
    """Record the version before anything is captured; it holds from the end of the log on. Raises UpstreamError, LogFenced."""
    version = oldest_version(await pd.stores())
    if is_news(writer, version):
        await retry.in_thread(partial(writer.declare, version=UpstreamVersion(log_end, version)))


async def follow(pd: PdClient, writer: LogWriter, retry: StorageRetry) -> None:
    """Check regularly whether the cluster was upgraded. Raises LogFenced."""
    while True:
        await asyncio.sleep(LOOK_EVERY)
        try:
            version = oldest_version(await pd.stores())
            if is_news(writer, version):
                _log.info("the cluster has version %s now", version)
                await retry.call_async(partial(_note_ahead, pd, writer, version))
        except UpstreamError as error:
            _log.debug("the cluster's version is checked again later: %s", error.message)


async def _note_ahead(pd: PdClient, writer: LogWriter, version: str) -> None:
    """Record a version that holds from a moment in the future. The ts is taken for each attempt, because a storage outage may last longer
    than that."""
    from_ts = await pd.tso() + (AHEAD_MS << tso.LOGICAL_BITS)
    await asyncio.to_thread(writer.declare, version=UpstreamVersion(from_ts, version))
