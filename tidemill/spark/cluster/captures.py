"""A query's capture: it is begun where nothing writes the log yet, and looked after while the query runs.

Whoever needs the log calls `begin`: the processes that make a DataFrame, those that plan it, a stream's, and again after a restart.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import time
from dataclasses import dataclass, replace

from tidemill.capture.config import CaptureConfig
from tidemill.changelog import initial_load
from tidemill.changelog.log_format import CaptureRules
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.errors import ClusterMismatch, ConfigError, LogUnavailable, TidemillError, made, redact
from tidemill.process.driver import begin_beside, driver_pid
from tidemill.spark.cluster.connection import Cluster, connected
from tidemill.spark.cluster.owner import Order, is_owned
from tidemill.spark.cluster.place import Place, place_of
from tidemill.tso import describe

POLL_S = 0.1
CHECK_S = 1.0
"""Seconds between two looks at the owner."""
TELL_S = 10.0
STALLED_S = 300.0
"""Seconds without any progress of the log after which a query that waits for it ends."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A capture as a query wants it. `log`: empty for one of the query's tables alone, by `rules`. `start`: the ts at which a new log
    begins; None: now. `snapshot`: a new log begins with the rows of its tables."""

    cluster: Cluster
    log: str = ""
    rules: tuple[str, ...] = ()
    start: int | None = None
    snapshot: bool = False


class QueryCapture:
    """The capture of one query, as one process of Spark's sees it."""

    def __init__(self, wanted: Wanted, place: Place, now: int) -> None:
        """`now`: the cluster's present."""
        self._wanted, self._place = wanted, place
        self.now = now
        self._checked = 0.0
        self._owner: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """Path or URL of the log."""
        return self._place.log

    def check(self) -> None:
        """Start the owner again if it was killed. Raises the error that ended it."""
        if time.monotonic() - self._checked < CHECK_S:
            return
        self._checked = time.monotonic()
        if self._lives():
            return
        if (error := self._error()) is not None:
            raise error
        self.start()

    def start(self) -> None:
        """Start the owner, which ends at once if there is one."""
        order = Order(_config(self._wanted, self._place), self._place.folder, driver_pid())
        self._owner = begin_beside("tidemill.spark.cluster.owner", order)

    def ensure(self) -> None:
        """Return when there is a log. Raises ClusterMismatch, LogUnavailable, and the error that ended the capture."""
        if not is_owned(self._place):
            self._place.error.unlink(missing_ok=True)
            self.start()
        begun = time.monotonic()
        while not log_exists(self.log):
            self.check()
            _give_up_after(begun, f"the capture has not begun the log {redact(self.log)}", self._place)
            time.sleep(POLL_S)

    def reached(self, reader: LogReader, ts: int) -> None:
        """Return when the log is complete up to a ts. Raises LogUnavailable if it does not move, and the error that ended the capture."""
        at, moved, told = reader.resolved_ts(), time.monotonic(), time.monotonic()
        while at < ts:
            self.check()
            _give_up_after(moved, f"the log {redact(self.log)} stays at {describe(at)}, and {describe(ts)} is needed", self._place)
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                _log.warning("waiting for %s: it is complete up to %s, and %s is needed", redact(self.log), describe(at), describe(ts))
            time.sleep(POLL_S)
            before, at = at, reader.resolved_ts()
            moved = time.monotonic() if at > before else moved

    def loaded(self, reader: LogReader, ts: int) -> None:
        """Return when the tables as of `ts` are there, if the log is to have such. Raises the error that ended the capture."""
        plan, told = initial_load.read_plan(reader.storage, ts), time.monotonic()
        while plan is not None and not initial_load.is_complete(reader.storage, plan.ts):
            missing = initial_load.missing(reader.storage, plan)
            if not missing:
                return
            self.check()
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                _log.warning("waiting for the tables as of %s: %d parts are still to be read", describe(plan.ts), len(missing))
            time.sleep(POLL_S)

    def _lives(self) -> bool:
        return (self._owner is not None and self._owner.poll() is None) or is_owned(self._place)

    def _error(self) -> TidemillError | None:
        try:
            found = json.loads(self._place.error.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        message, _, hint = str(found["message"]).partition("\n")
        more = f"Its log lines are in {self._place.journal}."
        return made(str(found["code"]), f"the query's capture has ended: {message}", f"{hint.strip()} {more}".strip(), retryable=False)


def begin(wanted: Wanted) -> QueryCapture:
    """Return the capture of a query; there is a log then. Raises ConfigError, ClusterMismatch, UpstreamError, LogError."""
    wanted = replace(wanted, cluster=wanted.cluster.absolute())
    cluster_id, now = asyncio.run(_asked(wanted.cluster))
    found = QueryCapture(wanted, place_of(wanted.log, cluster_id, wanted.rules, snapshot=wanted.snapshot), now)
    if wanted.start is not None and wanted.start > now:
        raise ConfigError(f"the DataFrame begins in the cluster's future: it is {describe(now)} there")
    found.ensure()
    identity = LogReader(found.log).identity
    if identity.cluster_id != str(cluster_id):
        raise ClusterMismatch(
            f"the log {redact(found.log)} is of cluster {identity.cluster_id}, "
            f"PD at {','.join(wanted.cluster.pd)} is of cluster {cluster_id}",
            hint="Name the PD of the log's cluster, or another log.",
        )
    return found


async def _asked(cluster: Cluster) -> tuple[int, int]:
    """The cluster's id and its present."""
    async with connected(cluster) as pd:
        return pd.cluster_id, await pd.tso()


def _give_up_after(begun: float, what: str, place: Place) -> None:
    if time.monotonic() - begun > STALLED_S:
        raise LogUnavailable(f"{what}, for {STALLED_S:g} s now", hint=f"{place.journal} says what the capture does.")


def _config(wanted: Wanted, place: Place) -> CaptureConfig:
    ca, cert, key = wanted.cluster.tls
    return CaptureConfig(
        pd=wanted.cluster.pd,
        log=place.log,
        start_ts=str(wanted.start) if wanted.start is not None else None,
        snapshot=wanted.snapshot,
        data_dir=place.folder / "capture" if "://" in place.log else None,
        rules=CaptureRules(0, wanted.rules) if not wanted.log and wanted.rules else None,
        ca=ca,
        cert=cert,
        key=key,
    )
