"""`tidemill capture`: a TiDB cluster into a change log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from tidemill import logs, plugins
from tidemill.capture.capture import Capture
from tidemill.capture.config import (
    DEFAULT_GRACE,
    DEFAULT_QUOTA,
    DEFAULT_SCANS,
    DEFAULT_STUCK,
    CaptureConfig,
    duration_ms,
    size_bytes,
    split_table,
)
from tidemill.capture.groups.plan import groups_of
from tidemill.capture.tikv.feed.base import Transport
from tidemill.changelog.files.segment import COMPRESSIONS
from tidemill.changelog.log_format import CaptureRules, Source
from tidemill.cli.shared.folders import made_folder
from tidemill.cli.shared.options import (
    BinlogOption,
    DrainerAddrOption,
    DrainerIdOption,
    LockGraceOption,
    LogLevelOption,
    MemoryQuotaOption,
    PdOption,
    SplitTablesOption,
    StatusAddrOption,
    StuckAfterOption,
    TikvScansOption,
    binlog_options,
)
from tidemill.cli.shared.tls import CaOption, CertOption, KeyOption
from tidemill.errors import ConfigError, LogUnavailable
from tidemill.process.places import check_master_reachable
from tidemill.traces import process as traces

CONTEXT = {"help_option_names": ["-h", "--help"]}


def command(
    pd: PdOption,
    log: Annotated[
        str,
        typer.Option("--log", envvar="TIDEMILL_LOG", help="Folder or URL of the change log; a new one is made."),
    ],
    start_ts: Annotated[
        str | None,
        typer.Option(
            "--start-ts", help="Where a new log begins: a TSO, an RFC 3339 time, now, -2h. An existing log goes on where it ends."
        ),
    ] = None,
    partitions: Annotated[int | None, typer.Option("--log-partitions", help="Partitions of a new log (4).")] = None,
    split_tables: SplitTablesOption = None,
    compression: Annotated[str, typer.Option("--log-compression", help="Of segments: none, lz4 or zstd.")] = "none",
    retention: Annotated[
        str, typer.Option("--log-retention", help="Keep the log for at least this long, and longer while a changefeed needs it.")
    ] = "24h",
    config: Annotated[
        Path | None,
        typer.Option("--capture-config", "--config", help="TOML with filter.rules: a table that no rule wants is left out."),
    ] = None,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Begin a new log with the rows that the tables have at its start, read by Spark.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            help="Number of groups that share the partitions: processes, or with --master tasks of a Spark job. Default: 1; on a cluster "
            "as many as the log has partitions, 4 at most.",
        ),
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", help="Spark master (spark://, yarn, k8s://, local[N]) of the workers, and of --snapshot.")
    ] = None,
    control_addr: Annotated[
        str | None,
        typer.Option("--control-addr", help="HOST[:PORT] of this machine where executors reach it. Default: as it reaches the master."),
    ] = None,
    gc_ttl: Annotated[
        int,
        typer.Option(
            "--gc-ttl", help="Seconds that PD keeps history for a capture that is down. A capture without progress for this long ends."
        ),
    ] = 86400,
    transport: Annotated[str, typer.Option("--transport", help="How to read TiKV's change feed: h2, or grpc (slower).")] = "h2",
    memory_quota: MemoryQuotaOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
    stuck_after: StuckAfterOption = None,
    lock_grace: LockGraceOption = None,
    tikv_scans: TikvScansOption = None,
    filter_loop: Annotated[
        bool,
        typer.Option("--filter-loop", help="Without rows that TiCDC or Tidemill wrote: for changefeeds with bdr-mode only."),
    ] = False,
    binlog: BinlogOption = False,
    drainer_addr: DrainerAddrOption = None,
    drainer_id: DrainerIdOption = None,
    source: Annotated[
        str | None, typer.Option("--source", help="A source that another package brings, in place of TiKV's change feed.")
    ] = None,
    status_addr: StatusAddrOption = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", help="Folder for status.json and scratch files. Default: LOG.capture. Required if the log is on an object store."
        ),
    ] = None,
    term: Annotated[int, typer.Option("--term", hidden=True, help="Of the server that started it.")] = 0,
    log_level: LogLevelOption = "info",
    log_file: Annotated[Path | None, typer.Option("--log-file", help="Default: stderr.")] = None,
) -> None:
    """Capture a TiDB cluster (7.5 or newer, or with --binlog one up to 8.3) into a change log, without delivering. An existing log is
    continued where it ends."""
    if compression not in COMPRESSIONS:
        raise ConfigError(f"--log-compression {compression!r} is unknown", hint=f"Use one of {', '.join(COMPRESSIONS)}.")
    if transport not in tuple(Transport):
        raise ConfigError(f"--transport {transport!r} is unknown", hint="Use h2 or grpc.")
    logs.setup(log_level, log_file, part="capture")
    traces.begin("capture")
    check_master_reachable(master)
    settings = CaptureConfig(
        pd=tuple(pd.split(",")),
        log=log,
        start_ts=start_ts,
        partitions=partitions,
        split_tables=tuple(split_table(text) for text in split_tables or ()),
        compression=compression,
        retention_ms=duration_ms(retention, "--log-retention"),
        gc_ttl=gc_ttl,
        transport=Transport(transport),
        memory_quota=size_bytes(memory_quota or DEFAULT_QUOTA, "--memory-quota"),
        ca=ca,
        cert=cert,
        key=key,
        stuck_after=duration_ms(stuck_after or DEFAULT_STUCK, "--region-stuck-after") / 1000,
        lock_grace=duration_ms(lock_grace or DEFAULT_GRACE, "--lock-grace") / 1000,
        tikv_scans=tikv_scans or DEFAULT_SCANS,
        filter_loop=filter_loop,
        term=term,
        status_addr=status_addr,
        data_dir=data_dir,
        snapshot=snapshot,
        master=master,
        workers=workers,
        control_addr=control_addr,
        log_level=log_level,
        log_file=log_file,
        rules=capture_rules(config) if config is not None else None,
    )
    if data_dir is not None:
        made_folder("--data-dir", data_dir)
    if settings.master is not None:
        with suppress(LogUnavailable):  # the capture waits for the log, or tells
            if groups_of(settings):
                from tidemill.spark.session import find_java

                find_java()
    without = {"--snapshot": snapshot, "--workers": (workers or 1) > 1, "--split-table": split_tables, "--filter-loop": filter_loop}
    from_binlog = binlog_options(binlog, drainer_addr, drainer_id, without)
    if source is not None:
        uvloop.run(_brought(source)(settings).run())
        return
    if not from_binlog:
        uvloop.run(Capture(settings).run())
        return
    from tidemill.binlog.source.capture import BinlogCapture

    uvloop.run(BinlogCapture(settings, drainer_addr or "", drainer_id or "").run())


def _brought(source: str) -> Callable[[CaptureConfig], Any]:
    """The source of another package. Raises ConfigError."""
    offered = plugins.offered(plugins.SOURCES, frozenset(Source))
    if source not in offered:
        names = ", ".join(offered) or "none"
        raise ConfigError(f"--source {source}: no package brings it", hint=f"Install the package. Those that are installed bring: {names}.")
    found: Callable[[CaptureConfig], Any] = plugins.load(offered[source])
    return found


def capture_rules(path: Path) -> CaptureRules:
    """The table rules of a changefeed's TOML file. Raises ConfigError."""
    from tidemill.config.file import load_config

    config = load_config(path)
    config.table_filter()
    return CaptureRules(0, tuple(config.filter.rules), config.case_sensitive)
