"""`tidemill replay`: deliver what a change log holds to a sink, then end."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from tidemill import logs, tso
from tidemill.cli.shared.console import of_uri
from tidemill.cli.shared.log_times import ts_in
from tidemill.cli.shared.options import (
    LogLevelOption,
    SchemaRegistryOption,
    SkipRowOption,
    SparkConfOption,
    SparkMasterOption,
    TzOption,
)
from tidemill.cli.shared.terminal import echo
from tidemill.traces import process as traces

log_ = logging.getLogger(__name__)


def command(
    log: Annotated[
        str,
        typer.Option(
            "--log", help="Folder or URL of the change log. On a cluster a fence is kept in it while this runs; nothing else is written."
        ),
    ],
    sink_uri: Annotated[
        str,
        typer.Option(
            "--sink-uri",
            help="Where to deliver: kafka://, kafka+ssl://, file://, s3://, messages://, canal://, mysql://, tidb://, delta://, "
            "iceberg://, console://, blackhole://.",
        ),
    ],
    start_ts: Annotated[
        str | None, typer.Option("--start-ts", help="TSO, RFC 3339, or -2h from the log's end: rows above it. Default: the log's start.")
    ] = None,
    target_ts: Annotated[
        str | None,
        typer.Option(
            "--target-ts", help="TSO, RFC 3339, or -2h from the log's end: rows up to it. Default: the log's end, its resolved ts."
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="Changefeed TOML, TiCDC's keys.")] = None,
    schema_registry: SchemaRegistryOption = None,
    create_tables: Annotated[
        bool,
        typer.Option(
            "--create-tables", help="Send CREATE TABLE before the rows of an initial load, as create-tables=true in the sink URI does."
        ),
    ] = False,
    tz: TzOption = None,
    parallelism: Annotated[int | None, typer.Option("--parallelism", min=1, help="Tasks of a batch. Default: the cores.")] = None,
    master: SparkMasterOption = None,
    spark_conf: SparkConfOption = None,
    skip_row: SkipRowOption = None,
    log_level: LogLevelOption = "warn",
    log_file: Annotated[Path | None, typer.Option("--log-file", help="Default: stderr.")] = None,
) -> None:
    """Deliver the content of a change log to a sink, then end.

    Needs no TiDB cluster and keeps no state. Ctrl-C or SIGTERM ends it at the end of a batch.
    """
    from tidemill.changefeed.preflight import check_sink_reachable
    from tidemill.changefeed.replay import replay
    from tidemill.cli.shared import terminal
    from tidemill.config.file import load_config
    from tidemill.config.registry_address import with_registry
    from tidemill.config.values import with_parameter
    from tidemill.delivery.inputs.table_router import Settings
    from tidemill.delivery.zone import parse_zone
    from tidemill.process.places import check_master_reachable
    from tidemill.rules.skip import parse_skip_rows
    from tidemill.spark import settings as sparkconf

    logs.setup(log_level, log_file, part="replay")
    traces.begin("replay")
    with TemporaryDirectory(prefix="tidemill-replay-") as folder:
        sink_uri, console = of_uri(sink_uri, Path(folder) / "changes.jsonl")
        start, target = ts_in(log, start_ts), ts_in(log, target_ts)
        changefeed = load_config(config)
        sink_uri = with_parameter(with_registry(sink_uri, schema_registry), "create-tables", "true" if create_tables else None)
        sink = changefeed.sink_uri(sink_uri)
        settings = Settings("replay", sink, changefeed, parse_zone(tz), parse_skip_rows(skip_row or ()))
        for warning in (*changefeed.warnings, *settings.sink.warnings):
            log_.warning("%s", warning)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        wanted = sparkconf.options(spark_conf or ())
        check_master_reachable(master)
        check_sink_reachable(sink, stop)
        done = replay(
            log,
            settings,
            start_ts=start,
            target_ts=target,
            parallelism=parallelism,
            master=master,
            spark_conf=wanted,
            stop=stop,
        )
        if console is not None:
            console.print_new(terminal.console())
        if done.skipped_rows:
            echo(f"{done.skipped_rows} rows left out by --skip-row", err=True)
        times = f"from {tso.describe(done.from_ts)} to {tso.describe(done.to_ts)}"
        echo(f"{done.rows} rows in {done.messages} messages and {done.ddls} DDLs {times}")
