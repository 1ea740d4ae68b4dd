"""The cluster's version in log.json: newer versions of TiDB print some text in another way, and Tidemill prints as the cluster does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from tidemill import tso
from tidemill.capture.tikv.client.pd import PdClient, Store, parse_version
from tidemill.changelog.layout import UpstreamVersion
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.changelog.writer import LogWriter
from tidemill.errors import UpstreamError

_log = logging.getLogger(__name__)

LOOK_EVERY = 600.0
AHEAD_MS = 60_000
"""A version that is found while rows are captured holds from a little later on: no row of then is in the log yet."""


def oldest_version(stores: Sequence[Store]) -> str:
    """The version of the oldest TiKV that is there; empty where none tells one."""
    told = [s.version for s in stores if not s.tombstone and not s.tiflash and parse_version(s.version) is not None]
    return min(told, key=lambda version: (parse_version(version), version), default="")


def is_news(writer: LogWriter, version: str) -> bool:
    """Does log.json not say yet that the cluster has this version?"""
    return bool(version) and version != writer.identity.version_at(tso.MAX_TS)


async def note_at_start(pd: PdClient, writer: LogWriter, log_end: int, retry: StorageRetry) -> None:
    """Before anything is captured: note the version, from the end of the log on. Raises UpstreamError, LogFenced."""
    version = oldest_version(await pd.stores())
    if is_news(writer, version):
        await retry.in_thread(partial(writer.declare, version=UpstreamVersion(log_end, version)))


async def follow(pd: PdClient, writer: LogWriter, retry: StorageRetry) -> None:
    """Look now and then whether the cluster was upgraded. Raises LogFenced."""
    while True:
        await asyncio.sleep(LOOK_EVERY)
        try:
            version = oldest_version(await pd.stores())
            if is_news(writer, version):
                _log.info("the cluster has version %s now", version)
                await retry.call_async(partial(_note_ahead, pd, writer, version))
        except UpstreamError as error:
            _log.debug("the cluster's version is looked at later: %s", error.message)


async def _note_ahead(pd: PdClient, writer: LogWriter, version: str) -> None:
    """From a ts on that lies ahead when this is tried: an outage of the log's storage may have lasted longer than that."""
    from_ts = await pd.tso() + (AHEAD_MS << tso.LOGICAL_BITS)
    await asyncio.to_thread(writer.declare, version=UpstreamVersion(from_ts, version))
