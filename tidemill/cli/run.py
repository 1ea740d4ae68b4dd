"""`tidemill run`: capture and delivery of one changefeed, each a supervised process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shlex
import signal
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill import logs, tso
from tidemill.changefeed.checkpoint import FeedFolder, FeedIdentity
from tidemill.changefeed.health import Health, error_dict, resolved_of
from tidemill.changefeed.keeper import FeedKeeper
from tidemill.changefeed.patience import STUCK_S, Patience
from tidemill.changefeed.preflight import meet_sink
from tidemill.changelog.files.bounds import before_tables, holds_tables
from tidemill.changelog.layout import IDENTITY
from tidemill.changelog.ownership import check_free
from tidemill.changelog.place import check_place
from tidemill.changelog.storage.open import open_storage
from tidemill.cli import options as shared
from tidemill.cli.feeds import DATA_DIR
from tidemill.cli.starting import orphans_gone, reached, unless
from tidemill.cli.tls import CaOption, CertOption, KeyOption
from tidemill.config.file import ChangefeedConfig, load_config
from tidemill.config.registry_address import parse_address, with_registry
from tidemill.config.uri import SinkUri
from tidemill.config.values import parse_stuck_duration, with_parameter
from tidemill.delivery.zone import parse_zone, zone_name
from tidemill.errors import ClusterMismatch, ConfigError, LogUnavailable, StartTsOutOfLog, TidemillError, redact
from tidemill.metrics.http import PageServer
from tidemill.metrics.pages import json_page
from tidemill.metrics.samples import metrics_page
from tidemill.process.places import check_master, is_here, meet_master
from tidemill.process.supervisor import ChildProcess, Supervisor
from tidemill.protocols.all import spec_of
from tidemill.rules.skip import parse_skip_rows
from tidemill.spark import settings

CHANGEFEED_ID = re.compile(r"[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*")
LONGEST_ID = 128
STATUS_EVERY_S = 1.0
PD_PATIENCE_S = 10.0  # at the start; a capture that runs waits for ever
RETRY_S = 300.0  # default of --sink-retry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, checked as far as it can be without looking around."""

    pd: str
    sink_uri: str
    sink: SinkUri
    log: str
    changefeed_id: str
    data_dir: Path
    start_ts: str | None
    target_ts: str | None
    config_file: Path | None
    config: ChangefeedConfig
    zone: str
    status_addr: str | None
    common_options: tuple[str, ...]
    capture_options: tuple[str, ...]
    feed_options: tuple[str, ...]
    snapshot: bool = False
    master: str | None = None
    workers: int = 1
    state: str | None = None
    stuck_s: float = STUCK_S
    tls: tuple[Path | None, Path | None, Path | None] = (None, None, None)  # --ca, --cert and --key of the upstream

    @property
    def ahead(self) -> int:
        """How far before the log's start the feed begins: see `changelog.files.bounds`."""
        return -before_tables(0, created=self.sink.create_tables) if self.snapshot else 0


@dataclass(frozen=True, slots=True)
class Times:
    """When the children start: numbers, or None where their durable state decides."""

    capture_start: int | None
    feed_start: int | None
    target: int | None
    snapshot: bool = False  # the capture makes a log that begins with the tables as of its start


def check_id(changefeed_id: str) -> str:
    """Raises ConfigError for a name that TiCDC would refuse too."""
    if not CHANGEFEED_ID.fullmatch(changefeed_id) or len(changefeed_id) > LONGEST_ID:
        raise ConfigError(
            f"changefeed id {changefeed_id!r} is not valid", hint=f"Use letters, digits and single dashes, at most {LONGEST_ID} characters."
        )
    return changefeed_id


async def resolve(options: Options, folder: FeedFolder) -> Times:
    """What the cluster, the log and the changefeed's own state say to what is asked for. Nothing is written.

    A new log starts at --start-ts or now; a new feed on an old log starts at --start-ts or the log's resolved ts; a feed that exists
    goes on, with the settings that it was created with. Its log, if that is gone, starts again at the feed's checkpoint. With --snapshot a
    feed begins just before the log's start, where the tables as of then stand.

    Raises ConfigError, StartTsOutOfLog, ClusterMismatch, FeedMismatch and what PD answers.
    """
    from tidemill.capture.tikv.client.pd import PdClient
    from tidemill.capture.tikv.client.tls import security_of
    from tidemill.changelog.reader import LogReader, log_exists

    addresses = options.pd.split(",")
    client = await PdClient.connect(addresses, retry_s=PD_PATIENCE_S, security=security_of(addresses, *options.tls))
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
            return Times(delivered, None, target)
        begin = now if start is None else start
        if known is not None:
            begin = known.start_ts + options.ahead
        return Times(begin, begin - options.ahead, target, options.snapshot)
    reader = LogReader(options.log)
    if reader.identity.cluster_id != cluster_id:
        raise ClusterMismatch(
            f"the log {redact(options.log)} is of cluster {reader.identity.cluster_id}, PD at {options.pd} is of cluster {cluster_id}",
            hint="Name the PD of the log's cluster, or another --log.",
        )
    if known is not None:
        if options.snapshot and not holds_tables(reader, known.start_ts + options.ahead):
            _tell_of_snapshot(options, known.start_ts if delivered is None else delivered)
        return Times(None, None, target)
    if options.snapshot:
        return Times(None, _start_of_tables(reader, start) - options.ahead, target)
    begin = reader.resolved_ts() if start is None else start
    _check_inside(reader, "--start-ts", begin)
    if target is not None and target < begin:
        raise ConfigError(f"--target-ts {tso.describe(target)} lies before the start, {tso.describe(begin)}")
    return Times(None, begin, target)


def _tell_of_snapshot(options: Options, at: int) -> None:
    """A changefeed that began without the tables does not get them by being started again."""
    if options.snapshot:
        log.warning(
            "changefeed %s is there already and goes on from %s; --snapshot is for new ones: `tidemill resync` reads one table again",
            *(options.changefeed_id, tso.describe(at)),
        )


def _start_of_tables(reader: Any, start: int | None) -> int:
    """The log's start, for a feed that wants the tables as of then. Raises ConfigError if the log has none."""
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
        sink=str(options.sink),
        config=options.config.given(),
        tz=options.zone,
        start_ts=start_ts,
    )


def children(options: Options, times: Times, folder: FeedFolder, *, new: bool = False) -> list[ChildProcess]:
    """The capture, and the delivery that ends the run. Addresses of log and sink go by the environment: they may hold passwords."""
    capture = ["capture", "--pd", options.pd, "--data-dir", str(folder.capture), *options.capture_options]
    feed = ["--changefeed-id", options.changefeed_id, "--data-dir", str(options.data_dir), f"--tz={options.zone}", *options.feed_options]
    capture += given(("--start-ts", times.capture_start))
    capture += ["--snapshot"] if times.snapshot else []
    capture += given(("--master", _master_of_capture(options, times)))
    feed += given(("--start-ts", times.feed_start), ("--target-ts", times.target), ("--config", options.config_file))
    python, common = [sys.executable, "-m"], options.common_options
    secrets = {"TIDEMILL_SINK_URI": options.sink_uri, "TIDEMILL_LOG": options.log}
    keeper = FeedKeeper(folder, Patience(options.stuck_s), resume=resume_command(options.data_dir, options.changefeed_id), new=new)
    return [
        ChildProcess("capture", [*python, "tidemill.cli.main", *capture, *common], lambda: resolved_of(folder), secrets),
        ChildProcess("changefeed", [*python, "tidemill.changefeed.runner", *feed, *common], secrets=secrets, rule=keeper),
    ]


def resume_command(data_dir: Path, changefeed_id: str) -> str:
    """What a person types to let a failed changefeed go on."""
    return f"tidemill changefeed resume --data-dir {shlex.quote(str(data_dir))} --changefeed-id {changefeed_id}"


def _master_of_capture(options: Options, times: Times) -> str | None:
    """It reads the tables as of the start, and runs the capture's groups if it is a cluster's: on one machine these are processes."""
    if options.workers > 1:
        return None if is_here(options.master) else options.master
    return options.master if times.snapshot else None


async def run(options: Options) -> None:
    """Run both children until the target is reached or a signal comes. Raises what is refused, ChildFailed."""
    loop = asyncio.get_running_loop()
    over, resumed = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    loop.add_signal_handler(signal.SIGUSR1, resumed.set)
    folder = FeedFolder(options.data_dir, options.changefeed_id, options.state)
    times = await unless(over, reached(folder, lambda: resolve(options, folder)))
    if times is None:
        return
    delivered = folder.checkpoint()
    if times.target is not None and delivered is not None and delivered >= times.target:
        log.info("everything up to %s is delivered already", tso.describe(times.target))
        return
    folder.lock("run.lock")
    try:
        if await unless(over, orphans_gone(folder)):
            times = await unless(over, reached(folder, lambda: resolve(options, folder)))
        await unless(over, reached(folder, partial(asyncio.to_thread, _meet, options, new=delivered is None)))
        if times is not None and not over.is_set():
            await _supervise(options, children(options, times, folder, new=delivered is None), folder, over, resumed)
    finally:
        folder.unlock()


def _meet(options: Options, *, new: bool) -> None:
    """Ask what the start needs. Of a changefeed that is there already sink and Spark may be away: it waits for them, and the capture lives.

    Raises what is refused.
    """
    storage = open_storage(options.log)
    check_free(storage)
    if new:
        meet_sink(options.sink)
        meet_master(options.master)
    if storage.read(IDENTITY) is None:
        check_place(storage)


async def _supervise(options: Options, both: list[ChildProcess], folder: FeedFolder, over: asyncio.Event, resumed: asyncio.Event) -> None:
    supervisor = Supervisor(both, until="changefeed")
    health = Health(folder, supervisor.children)
    supervisor.on_change = health.write
    pages = PageServer({"/status": json_page(health.look), "/metrics": metrics_page(health.samples)})
    if options.status_addr:
        await pages.start(options.status_addr)
        log.info("/status and /metrics are served at http://%s", pages.address)
        health.address = pages.address
    helpers = [asyncio.ensure_future(work) for work in (_forward(over, supervisor), _resume(resumed, supervisor), _report(health))]
    try:
        health.state = "running"
        await supervisor.run()
        health.state = "stopped"
    except TidemillError as error:
        health.state, health.error = "failed", error_dict(error.code, str(error))
        raise
    finally:
        for helper in helpers:
            helper.cancel()
        health.write()
        await pages.stop()


async def _forward(over: asyncio.Event, supervisor: Supervisor) -> None:
    await over.wait()
    log.info("stopping at the end of the batch")
    supervisor.stop()


async def _resume(resumed: asyncio.Event, supervisor: Supervisor) -> None:
    """SIGUSR1, which `tidemill changefeed resume` sends: what failed, or waits for its next try, goes on at once."""
    while True:
        await resumed.wait()
        resumed.clear()
        log.info("resumed by a person" if supervisor.resume() else "asked to resume, but the changefeed is running")


async def _report(health: Health) -> None:
    while True:
        health.write()
        await asyncio.sleep(STATUS_EVERY_S)


def command(
    pd: shared.PdOption,
    sink_uri: Annotated[
        str,
        typer.Option(
            "--sink-uri",
            envvar="TIDEMILL_SINK_URI",
            help="Where to deliver: kafka://, kafka+ssl://, file://, s3://, messages://, blackhole://.",
        ),
    ],
    log: Annotated[str, typer.Option("--log", envvar="TIDEMILL_LOG", help="Folder or URL of the change log; a new one is made.")],
    changefeed_id: Annotated[str, typer.Option("--changefeed-id", "-c", help="Name of the changefeed.")] = "default",
    data_dir: Annotated[Path, typer.Option("--data-dir", help="State, status and scratch files: DIR/changefeeds/ID.")] = DATA_DIR,
    state: Annotated[
        str | None,
        typer.Option("--state", help="Path or URL of the changefeed's state, so that another host can go on. Default: --data-dir."),
    ] = None,
    start_ts: Annotated[
        str | None, typer.Option("--start-ts", help="TSO, RFC 3339, now or -2h. Default: now; on an existing log, its end.")
    ] = None,
    target_ts: Annotated[str | None, typer.Option("--target-ts", help="Deliver up to this ts, then end.")] = None,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Deliver the rows that the tables have at the start first, as inserts; then the changes.")
    ] = False,
    create_tables: Annotated[
        bool, typer.Option("--create-tables", help="Send CREATE TABLE before the rows of --snapshot and resync, as create-tables=true.")
    ] = False,
    config: Annotated[Path | None, typer.Option("--config", help="Changefeed TOML, TiCDC's keys.")] = None,
    schema_registry: shared.SchemaRegistryOption = None,
    tz: shared.TzOption = None,
    log_partitions: Annotated[int | None, typer.Option("--log-partitions", help="Partitions of a new log (4).")] = None,
    split_tables: shared.SplitTablesOption = None,
    log_compression: Annotated[str | None, typer.Option("--log-compression", help="none, lz4 or zstd.")] = None,
    log_retention: Annotated[
        str | None,
        typer.Option("--log-retention", help="Keep the log for at least this long (24h), and longer while a changefeed needs it."),
    ] = None,
    gc_ttl: Annotated[
        int | None, typer.Option("--gc-ttl", help="Seconds that PD keeps history for a capture that is down or makes no progress (86400).")
    ] = None,
    capture_config: Annotated[
        Path | None, typer.Option("--capture-config", help="TOML with filter.rules: tables that no rule wants are not captured.")
    ] = None,
    memory_quota: shared.MemoryQuotaOption = None,
    stuck_after: shared.StuckAfterOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
    transport: Annotated[str | None, typer.Option("--transport", help="How to read TiKV's change feed: h2, or grpc (slower).")] = None,
    master: shared.SparkMasterOption = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Number of capture groups (1): processes, or tasks on the Spark cluster of --master."),
    ] = None,
    control_addr: Annotated[
        str | None, typer.Option("--control-addr", help="HOST[:PORT] of this machine where the workers' executors reach it.")
    ] = None,
    spark_conf: shared.SparkConfOption = None,
    trigger_ms: Annotated[int | None, typer.Option("--trigger-ms", min=1, help="A batch begins at most this often (1000).")] = None,
    skip_row: shared.SkipRowOption = None,
    retry: Annotated[
        str | None, typer.Option("--sink-retry", help="How long a process retries a failed batch before it ends and is restarted (5m).")
    ] = None,
    stuck: Annotated[
        str | None,
        typer.Option(
            "--changefeed-error-stuck-duration",
            help="The state is failed after errors without progress for this long (30m). Wins over --config.",
        ),
    ] = None,
    status_addr: shared.StatusAddrOption = None,
    log_level: shared.LogLevelOption = "info",
    log_file: Annotated[
        Path | None, typer.Option("--log-file", help="All processes append to it, each line names its own. Default: stderr.")
    ] = None,
) -> None:
    """Capture a TiDB cluster and deliver its changes to a sink, until stopped.

    Two processes do the work, and each is started again when it dies. A changefeed that fails does not end the capture: see
    `tidemill changefeed resume`. SIGTERM stops the run at the end of a batch. The first start creates the changefeed and fixes its
    settings; a later start continues from its checkpoint.
    """
    from tidemill.capture.config import DEFAULT_QUOTA, DEFAULT_STUCK, CaptureConfig, duration_ms, size_bytes, split_table
    from tidemill.capture.groups.plan import groups_of

    logs.setup(log_level, log_file, part="run")
    check_master(master)
    with contextlib.suppress(LogUnavailable):  # what is away is waited for below
        groups_of(
            CaptureConfig(
                pd=tuple(pd.split(",")),
                log=log,
                partitions=log_partitions,
                split_tables=tuple(split_table(text) for text in split_tables or ()),
                data_dir=data_dir,
                master=None if is_here(master) else master,
                workers=workers or 1,
                control_addr=control_addr,
                memory_quota=size_bytes(memory_quota or DEFAULT_QUOTA, "--memory-quota"),
                stuck_after=duration_ms(stuck_after or DEFAULT_STUCK, "--stuck-after") / 1000,
            )
        )
    changefeed = load_config(config)
    stuck_s = changefeed.stuck_s if stuck is None else _seconds(stuck)
    retry_s = duration_ms(retry, "--sink-retry") / 1000 if retry is not None else RETRY_S
    zone = zone_name(parse_zone(tz))
    sink_uri = with_parameter(with_registry(sink_uri, schema_registry), "create-tables", "true" if create_tables else None)
    options = Options(
        pd=pd,
        sink_uri=sink_uri,
        sink=checked_sink(changefeed, sink_uri),
        log=log,
        changefeed_id=check_id(changefeed_id),
        data_dir=data_dir,
        start_ts=start_ts,
        target_ts=target_ts,
        config_file=config,
        config=changefeed,
        zone=zone,
        master=master,
        snapshot=snapshot,
        tls=(ca, cert, key),
        status_addr=status_addr,
        common_options=given(("--log-level", log_level), ("--log-file", log_file)),
        capture_options=given(
            ("--log-partitions", log_partitions),
            *(("--split-table", text) for text in split_tables or ()),
            ("--log-compression", log_compression),
            ("--log-retention", log_retention),
            ("--gc-ttl", gc_ttl),
            ("--transport", transport),
            ("--memory-quota", memory_quota),
            ("--stuck-after", stuck_after),
            ("--ca", ca),
            ("--cert", cert),
            ("--key", key),
            ("--config", capture_config),
            ("--workers", workers or 1),
            ("--control-addr", control_addr),
        ),
        workers=workers or 1,
        state=state,
        stuck_s=stuck_s,
        feed_options=given(
            ("--master", master),
            ("--state", state),
            *(("--spark-conf", f"{name}={value}") for name, value in settings.options(spark_conf or ()).items()),
            ("--trigger-ms", trigger_ms),
            ("--retry-s", min(retry_s, stuck_s)),
            *(("--skip-row", rule) for rule in parse_skip_rows(skip_row or ())),
        ),
    )
    logging.getLogger(__name__).info("TIMESTAMP values are written in the time zone %s", zone)
    for warning in (*changefeed.warnings, *options.sink.warnings):
        logging.getLogger(__name__).warning("%s", warning)
    asyncio.run(run(options))


def _seconds(text: str) -> float:
    try:
        return parse_stuck_duration(text) / 1000
    except ValueError as error:
        raise ConfigError(f"--changefeed-error-stuck-duration {text!r}: {error}") from None


def checked_sink(changefeed: ChangefeedConfig, sink_uri: str) -> SinkUri:
    """Raises ConfigError, also for the address of a schema registry."""
    sink = changefeed.sink_uri(sink_uri)
    if sink.protocol is not None and spec_of(sink.protocol).uses_registry:
        parse_address(sink.encoding.avro.registry)
    return sink


def given(*options: tuple[str, object]) -> tuple[str, ...]:
    """Flags and values of those that have one."""
    return tuple(text for flag, value in options if value is not None for text in (flag, str(value)))
