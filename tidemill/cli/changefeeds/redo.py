"""`tidemill redo`: bring a downstream that died with its changefeed to the last resolved ts of the change log."""

from __future__ import annotations

import logging
import signal
import tempfile
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill import logs, tso
from tidemill.cli.shared.log_times import ts_in
from tidemill.cli.shared.options import LogLevelOption, SparkConfOption, SparkMasterOption, TzOption
from tidemill.cli.shared.terminal import echo
from tidemill.errors import ConfigError

log_ = logging.getLogger(__name__)

app = typer.Typer(help="Bring a downstream that died with its changefeed to the last resolved ts of the change log.", no_args_is_help=True)

LogOption = Annotated[
    str, typer.Option("--log", "--storage", help="Folder or URL of the change log; s3://, file:// and nfs:// as TiCDC spells them.")
]
FeedOption = Annotated[str | None, typer.Option("--changefeed-id", "-c", help="The changefeed; needed if there are several.")]
LogFileOption = Annotated[Path | None, typer.Option("--log-file", help="Default: stderr.")]


@app.command("meta")
def meta_command(log: LogOption, changefeed_id: FeedOption = None, log_level: LogLevelOption = "warn") -> None:
    """Show the changefeed's checkpoint ts and the log's resolved ts."""
    from tidemill.changefeed.redo import location_of, meta_of

    logs.setup(log_level, None, part="redo")
    found = meta_of(location_of(log), changefeed_id)
    echo(f"checkpoint-ts:{found.checkpoint_ts}, resolved-ts:{found.resolved_ts}")


@app.command("apply")
def apply_command(
    log: LogOption,
    sink_uri: Annotated[str, typer.Option("--sink-uri", help="The database: mysql://, mysql+ssl://, tidb:// or tidb+ssl://.")],
    changefeed_id: FeedOption = None,
    start_ts: Annotated[
        str | None, typer.Option("--start-ts", help="Go on here, instead of where the database says that the changefeed was.")
    ] = None,
    target_ts: Annotated[str | None, typer.Option("--target-ts", help="End here. Default: the log's resolved ts.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="The changefeed's TOML.")] = None,
    tz: TzOption = None,
    tmp_dir: Annotated[Path | None, typer.Option("--tmp-dir", help="Where temporary files go.")] = None,
    parallelism: Annotated[int | None, typer.Option("--parallelism", min=1, help="Tasks of a batch. Default: the cores.")] = None,
    master: SparkMasterOption = None,
    spark_conf: SparkConfOption = None,
    log_level: LogLevelOption = "warn",
    log_file: LogFileOption = None,
) -> None:
    """Deliver what the log has and the database lacks, up to one ts over all tables.

    Needs neither the TiDB cluster nor the changefeed's data folder. The changefeed must not run. It may be stopped and started again.
    """
    from tidemill.changefeed.redo import location_of, take_over
    from tidemill.changefeed.replay import replay
    from tidemill.config.file import load_config
    from tidemill.delivery.inputs.table_router import Settings
    from tidemill.delivery.zone import parse_zone
    from tidemill.process.places import check_master_reachable
    from tidemill.spark import settings as sparkconf

    logs.setup(log_level, log_file, part="redo")
    if tmp_dir is not None:
        tmp_dir.mkdir(parents=True, exist_ok=True)
        tempfile.tempdir = str(tmp_dir)
    changefeed = load_config(config)
    sink = changefeed.sink_uri(sink_uri)
    if sink.mysql is None:
        raise ConfigError("redo writes into a database", hint="`tidemill replay` delivers a log to any sink.")
    location = location_of(log)
    target = ts_in(location, target_ts)
    begin, fence = take_over(location, sink, changefeed_id, ts_in(location, start_ts))
    if target is not None and begin.resumed.first_end is not None and target < begin.resumed.first_end:
        raise ConfigError(f"--target-ts {target}: the changefeed had begun to write up to {tso.describe(begin.resumed.first_end)}")
    settings = Settings(begin.feed, sink, changefeed, parse_zone(tz))
    for warning in (*changefeed.warnings, *settings.sink.warnings):
        log_.warning("%s", warning)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    check_master_reachable(master)

    def told(report: Any) -> None:
        log_.info("up to %s", tso.describe(report.to_ts))

    done = replay(
        location,
        settings,
        start_ts=begin.ts,
        target_ts=target,
        parallelism=parallelism,
        master=master,
        spark_conf=sparkconf.options(spark_conf or ()),
        stop=stop,
        on_batch=told,
        resumed=begin.resumed,
        fence=fence,
    )
    echo(f"{done.rows} rows and {done.ddls} DDLs from {tso.describe(done.from_ts)} to {tso.describe(done.to_ts)}")
    echo("Apply redo log successfully" if not stop.is_set() else "Stopped: run it again to go on")
