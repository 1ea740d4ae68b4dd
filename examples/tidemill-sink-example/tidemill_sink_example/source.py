"""`tidemill capture --source made-up`: a change log of a cluster that has no tables. It shows how a source keeps a log: it makes it, takes
it again after any end, and says every second up to when it is complete."""

from __future__ import annotations

import asyncio
import time

from tidemill import tso
from tidemill.capture.config import CaptureConfig
from tidemill.changelog.log_format import IDENTITY, LogIdentity
from tidemill.changelog.storage.open import open_storage
from tidemill.changelog.writer import LogWriter

NAME = "made-up"


def now() -> int:
    """Return the ts of this moment."""
    return tso.compose(time.time_ns() // 1_000_000)


class MadeUp:
    """What `open_source` returns: its `run` lasts until the capture ends."""

    def __init__(self, config: CaptureConfig) -> None:
        self._config = config

    def open(self) -> LogWriter:
        """Make the log, or go on with it."""
        storage = open_storage(self._config.log)
        if storage.read(IDENTITY) is not None:
            return LogWriter.open(storage, cluster_id="0", source=NAME)
        identity = LogIdentity(cluster_id="0", start_ts=now(), partitions=self._config.partitions or 1, source=NAME)
        return LogWriter.create(storage, identity, snapshot={})

    async def run(self) -> None:
        """Publish empty intervals."""
        with self.open() as writer:
            while True:
                self.publish(writer, now())
                await asyncio.sleep(1)

    def publish(self, writer: LogWriter, to_ts: int) -> None:
        """Publish all up to a ts: schemas before the rows that need them."""
        writer.schema.publish(to_ts, ())
        for number in range(writer.identity.partitions):
            writer.partition(number).publish(to_ts, ())


def open_source(config: CaptureConfig) -> MadeUp:
    """Return the source."""
    return MadeUp(config)
