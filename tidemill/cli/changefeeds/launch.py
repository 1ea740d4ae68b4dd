"""What `tidemill run` starts: the ts at which capture and changefeed begin, and their orders."""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidemill import tso
from tidemill.capture.config import CAPTURE, CaptureConfig
from tidemill.changefeed.feed_folder import FeedFolder, FeedIdentity
from tidemill.changefeed.restart_backoff import STUCK_S, Patience
from tidemill.changefeed.restart_rule import RestartRule
from tidemill.changefeed.run_status import resolved_of
from tidemill.changefeed.runner_options import Options as FeedOptions
from tidemill.changelog.files.bounds import before_tables, holds_tables
from tidemill.changelog.storage.open import open_storage
from tidemill.cli.canal.serving import Serving
from tidemill.cli.shared.console import Console
from tidemill.config.canal import CanalOptions
from tidemill.config.uri import SinkUri
from tidemill.errors import ClusterMismatch, ConfigError, StartTsOutOfLog, redact
from tidemill.process import orders
from tidemill.process.children import program
from tidemill.process.places import is_here
from tidemill.process.supervisor import ChildProcess

CHANGEFEED_ID = re.compile(r"[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*")
LONGEST_ID = 128
RUNNER, CANAL = "tidemill.changefeed.runner", "tidemill.cli.canal.serving"
PD_PATIENCE_S = 10.0  # at the start; a running capture waits forever

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, checked as far as it can be without IO. `capture`, `feed`: what the children are started with, but for times."""

    capture: CaptureConfig
    feed: FeedOptions
    sink: SinkUri
    start_ts: str | None = None
    target_ts: str | None = None
    config_file: Path | None = None
    status_addr: str | None = None
    stuck_s: float = STUCK_S
    console: Console | None = None

    @property
    def pd(self) -> str:
        return ",".join(self.capture.pd)

    @property
    def log(self) -> str:
        return self.capture.log

    @property
    def changefeed_id(self) -> str:
        return self.feed.changefeed

    @property
    def data_dir(self) -> Path:
        return self.feed.data_dir

    @property
    def ahead(self) -> int:
        """How far before the log's start the feed begins, for --snapshot: see `changelog.files.bounds`."""
        return -before_tables(0, created=self.sink.create_tables) if self.capture.snapshot else 0


@dataclass(frozen=True, slots=True)
class Times:
    """The ts at which the children start; None: their durable state decides."""

    capture_start: int | None
    feed_start: int | None
    target: int | None
    snapshot: bool = False  # the capture makes a log that begins with the tables as of its start
    now: int | None = field(default=None, compare=False)  # PD's time


def check_id(changefeed_id: str) -> str:
    """Raises ConfigError for a name that TiCDC would refuse too."""
    if not CHANGEFEED_ID.fullmatch(changefeed_id) or len(changefeed_id) > LONGEST_ID:
        raise ConfigError(
            f"changefeed id {changefeed_id!r} is not valid", hint=f"Use letters, digits and single dashes, at most {LONGEST_ID} characters."
        )
    return changefeed_id


async def resolve(options: Options, folder: FeedFolder) -> Times:
    """Decide when the children start, by the cluster, the log and the changefeed's own state. Nothing is written.

    A new log starts at --start-ts or now. A new feed on an old log starts at --start-ts or the log's resolved ts. A feed that exists goes
    on, with the settings that it was created with; if its log is gone, a new one starts at the feed's checkpoint. With --snapshot a feed
    begins just before the log's start, because the log has the tables' rows as of that ts.

    Raises ConfigError, StartTsOutOfLog, ClusterMismatch, FeedMismatch and what PD answers.
    """
    from tidemill.capture.tikv.client.pd import PdClient
    from tidemill.changelog.reader import LogReader, log_exists

    client = await PdClient.connect(options.capture.pd, retry_s=PD_PATIENCE_S, security=options.capture.security)
    try:
        now, cluster_id = await client.tso(), str(client.cluster_id)
    finally:
        await client.close()
    start = tso.parse(options.start_ts, now) if options.start_ts is not None else None
    target = tso.parse(options.target_ts, now) if options.target_ts is not None else None
    if start is not None and start > now:
        raise ConfigError(f"--start-ts {tso.describe(start)} lies in the future; the cluster's clock says {tso.describe(now)}")
    if start is not None and target is not None and target < start:
        raise ConfigError(f"--target-ts {tso.describe(target)} lies before --start-ts {tso.describe(start)}")
    known = folder.identity()
    delivered = folder.checkpoint()
    if known is not None and delivered is not None:
        given = known.start_ts if start is None else start - options.ahead
        folder.check(known, _identity(options, cluster_id, given), start_given=start is not None)
    if not await asyncio.to_thread(log_exists, options.log):
        if known is not None and delivered is not None:
            _tell_of_snapshot(options, delivered)
            return Times(delivered, None, target, now=now)
        begin = now if start is None else start
        if known is not None:
            begin = known.start_ts + options.ahead
        return Times(begin, begin - options.ahead, target, options.capture.snapshot, now)
    reader = LogReader(options.log)
    if reader.identity.cluster_id != cluster_id:
        raise ClusterMismatch(
            f"the log {redact(options.log)} is of cluster {reader.identity.cluster_id}, PD at {options.pd} is of cluster {cluster_id}",
            hint="Name the PD of the log's cluster, or another --log.",
        )
    if known is not None:
        if options.capture.snapshot and not holds_tables(reader, known.start_ts + options.ahead):
            _tell_of_snapshot(options, known.start_ts if delivered is None else delivered)
        return Times(None, None, target, now=now)
    if options.capture.snapshot:
        return Times(None, _start_of_tables(reader, start) - options.ahead, target, now=now)
    begin = reader.resolved_ts() if start is None else start
    _check_inside(reader, "--start-ts", begin)
    if target is not None and target < begin:
        raise ConfigError(f"--target-ts {tso.describe(target)} lies before the start, {tso.describe(begin)}")
    return Times(None, begin, target, now=now)


def _tell_of_snapshot(options: Options, at: int) -> None:
    """Warn that --snapshot has no effect on a changefeed that is there already."""
    if options.capture.snapshot:
        log.warning(
            "changefeed %s is there already and goes on from %s; --snapshot is for new ones: `tidemill resync` reads one table again",
            *(options.changefeed_id, tso.describe(at)),
        )


def _start_of_tables(reader: Any, start: int | None) -> int:
    """Return the log's start, for a feed with --snapshot. Raises ConfigError if the log does not have the tables' rows as of then."""
    begin: int = reader.start_ts
    if not holds_tables(reader, begin):
        raise ConfigError(
            f"--snapshot: the log {redact(reader.location)} does not hold the tables as of its start, {tso.describe(begin)}",
            hint="Name another --log: a new one can begin with them.",
        )
    if start not in (None, begin):
        raise ConfigError(f"--snapshot: the log holds the tables as of its start, {tso.describe(begin)}, which --start-ts has to be then")
    return begin


def _check_inside(reader: Any, flag: str, ts: int) -> None:
    begin, resolved = reader.start_ts, reader.resolved_ts()
    if not begin <= ts <= resolved:
        raise StartTsOutOfLog(
            f"{flag} {tso.describe(ts)} lies outside the log {redact(reader.location)}, which holds {tso.describe(begin)} to "
            f"{tso.describe(resolved)}",
            hint="Choose a ts inside, or start on a new log.",
        )


def _identity(options: Options, cluster_id: str, start_ts: int) -> FeedIdentity:
    return FeedIdentity(
        changefeed=options.changefeed_id,
        cluster_id=cluster_id,
        log=redact(open_storage(options.log).location),
        sink=options.sink.identity,
        config=options.feed.config.given(),
        tz=options.feed.tz or "UTC",
        start_ts=start_ts,
    )


def children(options: Options, times: Times, folder: FeedFolder, *, new: bool = False) -> list[ChildProcess]:
    """Return the child processes."""
    master = _master_of_capture(options, times)
    capture = replace(options.capture, data_dir=folder.capture, snapshot=times.snapshot, master=master)
    if times.capture_start is not None:
        capture = replace(capture, start_ts=str(times.capture_start))
    feed = replace(options.feed, start_ts=times.feed_start, target_ts=times.target, upstream_ts=times.now, supervised=True)
    rule = RestartRule(folder, Patience(options.stuck_s), resume=resume_command(options.data_dir, options.changefeed_id), new=new)
    found = [
        ChildProcess("capture", program(CAPTURE), lambda: resolved_of(folder), lambda: orders.begin(capture)),
        ChildProcess(
            "changefeed", program(RUNNER), order=lambda: orders.begin(replace(feed, retries=rule.retries)), rule=rule, writes=True
        ),
    ]
    if (canal := options.sink.canal) is not None and canal.listen:
        wait = "any" if canal.any_wait else None
        serving = Serving(
            store=canal.store,
            listen=canal.listen,
            config=options.config_file,
            destination=canal.destination,
            start_ts=str(canal.start_ts) if canal.start_ts is not None else None,
            get_wait=wait,
            status_file=folder.server,
            log_level=feed.log_level,
            log_file=feed.log_file,
        )
        found.append(ChildProcess("canal", program(CANAL), lambda: resolved_of(folder), lambda: orders.begin(serving)))
    return found


def check_canal(canal: CanalOptions | None, config: Path | None) -> None:
    """Raises ConfigError naming all that the server of a canal:// sink would not take."""
    if canal is not None and canal.listen:
        from tidemill.canal.server.config import load_settings

        load_settings(config, {}, canal.destination)


def resume_command(data_dir: Path, changefeed_id: str) -> str:
    """Return the command that resumes a failed changefeed."""
    return f"tidemill changefeed resume --data-dir {shlex.quote(str(data_dir))} --changefeed-id {changefeed_id}"


def _master_of_capture(options: Options, times: Times) -> str | None:
    """Return the Spark master of the capture, if it needs one: for an initial load, or for groups on a cluster."""
    master = options.feed.master
    if (options.capture.workers or 1) > 1:
        return None if is_here(master) else master
    return master if times.snapshot else None
