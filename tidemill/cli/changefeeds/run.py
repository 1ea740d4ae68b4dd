"""`tidemill run`: capture and delivery of one changefeed, each a supervised process of its own; a Canal server is a third."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tidemill import logs, tso
from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changefeed.preflight import check_sink_reachable
from tidemill.changefeed.run_status import RunStatus, error_dict
from tidemill.changefeed.runner_options import RETRY_S
from tidemill.changefeed.runner_options import Options as FeedOptions
from tidemill.changelog.log_format import IDENTITY
from tidemill.changelog.ownership import check_free
from tidemill.changelog.place import check_place
from tidemill.changelog.storage.open import open_storage
from tidemill.cli.changefeeds.launch import Options, check_canal, check_id, children, resolve
from tidemill.cli.changefeeds.starting import orphans_gone, reached, unless
from tidemill.cli.shared import options as shared
from tidemill.cli.shared.console import of_uri
from tidemill.cli.shared.feeds import DATA_DIR
from tidemill.cli.shared.folders import made_folder
from tidemill.cli.shared.tls import CaOption, CertOption, KeyOption
from tidemill.config.file import ChangefeedConfig, load_config
from tidemill.config.registry_address import parse_address, with_registry
from tidemill.config.uri import SinkUri, with_store
from tidemill.config.values import parse_stuck_duration, with_parameter
from tidemill.delivery.zone import parse_zone, zone_name
from tidemill.errors import ConfigError, LogUnavailable, TidemillError
from tidemill.metrics.http import PageServer
from tidemill.metrics.pages import json_page
from tidemill.metrics.samples import build_info, metrics_page
from tidemill.process.places import check_master, check_master_reachable, is_here
from tidemill.process.supervisor import ChildProcess, Supervisor
from tidemill.protocols.all import spec_of
from tidemill.rules.skip import parse_skip_rows
from tidemill.server.page.log_lines import FileEnd, Ring
from tidemill.server.page.of_run import RunPage
from tidemill.spark import settings

STATUS_EVERY_S = 1.0

log = logging.getLogger(__name__)


async def run(options: Options) -> None:
    """Run both children until the target is reached or a signal comes. Raises what is refused, ChildFailed."""
    loop = asyncio.get_running_loop()
    over, resumed = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    loop.add_signal_handler(signal.SIGUSR1, resumed.set)
    folder = FeedFolder(options.data_dir, options.changefeed_id, options.feed.state)
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
        await unless(over, reached(folder, partial(asyncio.to_thread, _check_reachable, options, new=delivered is None)))
        if times is not None and not over.is_set():
            await _supervise(options, children(options, times, folder, new=delivered is None), folder, over, resumed)
    finally:
        folder.unlock()


def _check_reachable(options: Options, *, new: bool) -> None:
    """Check what the start needs, and raise what is refused. Only a new changefeed needs sink and Spark: another one waits for them."""
    storage = open_storage(options.log)
    check_free(storage)
    if new:
        check_sink_reachable(options.sink)
        check_master_reachable(options.feed.master)
    if storage.read(IDENTITY) is None:
        check_place(storage)


async def _supervise(options: Options, both: list[ChildProcess], folder: FeedFolder, over: asyncio.Event, resumed: asyncio.Event) -> None:
    supervisor = Supervisor(both, until="changefeed")
    run_status = RunStatus(folder, supervisor.children)
    supervisor.on_change = run_status.write
    page = _page(options, run_status)
    pages = PageServer({"/status": json_page(run_status.snapshot), "/metrics": metrics_page(run_status.samples), **page.pages()})
    if options.status_addr:
        await pages.start(options.status_addr)
        log.info("a web page, /status and /metrics are served at http://%s", pages.address)
        run_status.address = pages.address
    works = [_forward(over, supervisor), _resume(resumed, supervisor), _report(run_status, page)]
    if options.console is not None:
        works.append(options.console.follow())
    helpers = [asyncio.ensure_future(work) for work in works]
    try:
        run_status.state = "running"
        await supervisor.run()
        run_status.state = "stopped"
    except TidemillError as error:
        run_status.state, run_status.error = "failed", error_dict(error.code, str(error))
        raise
    finally:
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        run_status.write()
        await pages.stop()


async def _forward(over: asyncio.Event, supervisor: Supervisor) -> None:
    await over.wait()
    log.info("stopping at the end of the batch")
    supervisor.stop()


async def _resume(resumed: asyncio.Event, supervisor: Supervisor) -> None:
    """After SIGUSR1, which `tidemill changefeed resume` sends: a child that failed, or waits for its next attempt, starts at once."""
    while True:
        await resumed.wait()
        resumed.clear()
        log.info("resumed by a person" if supervisor.resume() else "asked to resume, but the changefeed is running")


def _page(options: Options, run_status: RunStatus) -> RunPage:
    """Return the web page. Lines of the log come from --log-file, or from this process, which passes its children's on."""
    ring = Ring()
    if options.feed.log_file is None and options.status_addr:
        logs.listen(ring.add)
    file = FileEnd(options.feed.log_file) if options.feed.log_file is not None else None
    return RunPage(run_status.snapshot, version=build_info().labels["version"], sink_uri=options.feed.sink_uri, ring=ring, file=file)


async def _report(run_status: RunStatus, page: RunPage) -> None:
    while True:
        run_status.write()
        page.note()
        await asyncio.sleep(STATUS_EVERY_S)


def command(
    pd: shared.PdOption,
    sink_uri: Annotated[
        str,
        typer.Option(
            "--sink-uri",
            envvar="TIDEMILL_SINK_URI",
            help="Where to deliver: kafka://, kafka+ssl://, file://, s3://, messages://, canal://, mysql://, tidb://, delta://, "
            "iceberg://, console://, blackhole://.",
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
        bool, typer.Option("--snapshot", help="First deliver the rows that the tables have at the start, as inserts.")
    ] = False,
    create_tables: Annotated[
        bool,
        typer.Option("--create-tables", help="Send CREATE TABLE before the rows of --snapshot and resync. The same as create-tables=true."),
    ] = False,
    config: Annotated[Path | None, typer.Option("--config", help="Changefeed TOML, TiCDC's keys.")] = None,
    schema_registry: shared.SchemaRegistryOption = None,
    tz: shared.TzOption = None,
    log_partitions: shared.LogPartitionsOption = None,
    split_tables: shared.SplitTablesOption = None,
    log_compression: shared.LogCompressionOption = None,
    log_retention: shared.LogRetentionOption = None,
    gc_ttl: Annotated[
        int | None, typer.Option("--gc-ttl", help="Seconds that PD keeps history for a capture that is down or makes no progress (86400).")
    ] = None,
    capture_config: shared.CaptureConfigOption = None,
    memory_quota: shared.MemoryQuotaOption = None,
    stuck_after: shared.StuckAfterOption = None,
    lock_grace: shared.LockGraceOption = None,
    tikv_scans: shared.TikvScansOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
    transport: shared.TransportOption = None,
    master: shared.SparkMasterOption = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Number of capture groups (1): processes, or tasks on the Spark cluster of --master."),
    ] = None,
    control_addr: shared.ControlAddrOption = None,
    spark_conf: shared.SparkConfOption = None,
    trigger_ms: Annotated[
        int | None, typer.Option("--trigger-ms", min=1, help="A batch begins at most this often (1000; 400 with low-latency).")
    ] = None,
    skip_row: shared.SkipRowOption = None,
    retry: Annotated[
        str | None,
        typer.Option(
            "--sink-retry", help="How long a process retries a failed batch, whatever failed, before it ends and is restarted (5m)."
        ),
    ] = None,
    stuck: Annotated[
        str | None,
        typer.Option(
            "--changefeed-error-stuck-duration",
            help="After errors without progress for this long the state is failed (30m). Overrides --config.",
        ),
    ] = None,
    binlog: shared.BinlogOption = False,
    drainer_addr: shared.DrainerAddrOption = None,
    drainer_id: shared.DrainerIdOption = None,
    status_addr: shared.StatusAddrOption = None,
    log_level: shared.LogLevelOption = "info",
    log_file: Annotated[
        Path | None, typer.Option("--log-file", help="A file that all processes append to; each line names its process. Default: stderr.")
    ] = None,
) -> None:
    """Capture a TiDB cluster and deliver its changes to a sink, until stopped.

    Two processes do the work, and each is started again when it dies. A changefeed that fails does not end the capture: see
    `tidemill changefeed resume`. SIGTERM stops the run at the end of a batch. The first start creates the changefeed and fixes its
    settings; a later start continues from its checkpoint.
    """
    from tidemill.capture.config import duration_ms
    from tidemill.capture.groups.plan import groups_of
    from tidemill.cli.shared.capture_settings import capture_settings

    logs.setup(log_level, log_file, part="run")
    check_master(master)
    changefeed = load_config(config)
    capture = capture_settings(
        pd=pd,
        log=log,
        data_dir=data_dir,
        partitions=log_partitions,
        split_tables=split_tables,
        compression=log_compression,
        retention=log_retention,
        gc_ttl=gc_ttl,
        transport=transport,
        memory_quota=memory_quota,
        stuck_after=stuck_after,
        lock_grace=lock_grace,
        tikv_scans=tikv_scans,
        ca=ca,
        cert=cert,
        key=key,
        rules_file=capture_config,
        snapshot=snapshot,
        workers=workers or 1,
        master=None if is_here(master) else master,
        control_addr=control_addr,
        filter_loop=changefeed.bdr_mode,
        filter_loop_is="bdr-mode",
        binlog=binlog,
        drainer_addr=drainer_addr,
        drainer_id=drainer_id,
        log_level=log_level,
        log_file=log_file,
    )
    with contextlib.suppress(LogUnavailable):  # an unreachable log is retried below
        groups_of(capture)
    stuck_s = changefeed.stuck_s if stuck is None else _seconds(stuck)
    retry_s = duration_ms(retry, "--sink-retry") / 1000 if retry is not None else RETRY_S
    zone = zone_name(parse_zone(tz))
    sink_uri = with_parameter(with_registry(sink_uri, schema_registry), "create-tables", "true" if create_tables else None)
    sink_uri = with_store(sink_uri, str(data_dir.absolute() / "canal"))
    sink_uri, console = of_uri(sink_uri, data_dir.absolute() / "console" / f"{check_id(changefeed_id)}.jsonl")
    sink = checked_sink(changefeed, sink_uri)
    check_canal(sink.canal, config)
    feed = FeedOptions(
        changefeed=check_id(changefeed_id),
        log=log,
        data_dir=data_dir,
        sink_uri=sink_uri,
        config=changefeed,
        tz=zone,
        master=master,
        trigger_ms=trigger_ms,
        retry_s=min(retry_s, stuck_s),
        skip_rows=parse_skip_rows(skip_row or ()),
        state=state,
        spark_conf=settings.options(spark_conf or ()),
        log_level=log_level,
        log_file=log_file,
    )
    options = Options(
        capture=capture,
        feed=feed,
        sink=sink,
        start_ts=start_ts,
        target_ts=target_ts,
        config_file=config,
        status_addr=status_addr,
        stuck_s=stuck_s,
        console=console,
    )
    logging.getLogger(__name__).info("TIMESTAMP values are written in the time zone %s", zone)
    for warning in (*changefeed.warnings, *options.sink.warnings):
        logging.getLogger(__name__).warning("%s", warning)
    made_folder("--data-dir", data_dir)
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
