"""`tidemill capture`: a TiDB cluster into a change log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.changelog.capturing import capture
from tidemill.cli.shared.capture_settings import capture_settings
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
)
from tidemill.cli.shared.tls import CaOption, CertOption, KeyOption

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
    log_level: LogLevelOption = "info",
    log_file: Annotated[Path | None, typer.Option("--log-file", help="Default: stderr.")] = None,
) -> None:
    """Capture a TiDB cluster (7.5 or newer, or with --binlog one up to 8.3) into a change log, without delivering. An existing log is
    continued where it ends."""
    settings = capture_settings(
        pd=pd,
        log=log,
        start_ts=start_ts,
        partitions=partitions,
        split_tables=split_tables,
        compression=compression,
        retention=retention,
        rules_file=config,
        snapshot=snapshot,
        workers=workers,
        master=master,
        control_addr=control_addr,
        gc_ttl=gc_ttl,
        transport=transport,
        memory_quota=memory_quota,
        ca=ca,
        cert=cert,
        key=key,
        stuck_after=stuck_after,
        lock_grace=lock_grace,
        tikv_scans=tikv_scans,
        filter_loop=filter_loop,
        binlog=binlog,
        drainer_addr=drainer_addr,
        drainer_id=drainer_id,
        status_addr=status_addr,
        data_dir=data_dir,
        log_level=log_level,
        log_file=log_file,
    )
    capture(replace(settings, source=source) if source is not None else settings)
