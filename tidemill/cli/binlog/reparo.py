"""`tidemill reparo`: brings a Drainer's files back into a database. Flags and the TOML file are those of TiDB-Binlog's Reparo; flags may
have one dash or two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill import logs
from tidemill.binlog.reparo.reparo import reparo
from tidemill.binlog.reparo.settings import ReparoSettings, read_file
from tidemill.cli.shared.terminal import echo
from tidemill.delivery.zone import parse_zone


def _flag(name: str, text: str, *more: str) -> Any:
    return typer.Option(f"--{name}", f"-{name}", *more, help=text, show_default=False)


_SAFE_MODE = typer.Option(
    "--safe-mode/--no-safe-mode", "-safe-mode/-no-safe-mode", help="Apply so that it may be applied again.", show_default=False
)


def command(
    data_dir: Annotated[str | None, _flag("data-dir", "Folder of the Drainer's files. Default: data.drainer.")] = None,
    start_datetime: Annotated[str | None, _flag("start-datetime", "Begin here, 'YYYY-MM-DD hh:mm:ss' of this process's zone.")] = None,
    stop_datetime: Annotated[str | None, _flag("stop-datetime", "End here, as above.")] = None,
    start_tso: Annotated[int | None, _flag("start-tso", "Begin with this commit ts.")] = None,
    stop_tso: Annotated[int | None, _flag("stop-tso", "End with this commit ts.")] = None,
    dest_type: Annotated[str | None, _flag("dest-type", "print (default) or mysql, which \\[dest-db] of --config names.")] = None,
    txn_batch: Annotated[int | None, _flag("txn-batch", "Rows of a transaction (20).")] = None,
    worker_count: Annotated[int | None, _flag("worker-count", "Connections that write side by side (16).", "-c")] = None,
    safe_mode: Annotated[bool | None, _SAFE_MODE] = None,
    config: Annotated[Path | None, _flag("config", "TOML file, as the real Reparo's. Flags override it.")] = None,
    log_level: Annotated[str | None, typer.Option("-L", "--log-level", help="debug, info, warn or error (info).")] = None,
    log_file: Annotated[str | None, _flag("log-file", "Default: stderr.")] = None,
) -> None:
    """Apply the files that a Drainer wrote (dest-db-type file) to MySQL, MariaDB or TiDB, or print them."""
    zone = parse_zone(None)
    found = read_file(config) if config is not None else {}
    given = {
        "data_dir": data_dir, "start_datetime": start_datetime, "stop_datetime": stop_datetime, "start_tso": start_tso,
        "stop_tso": stop_tso, "dest_type": dest_type, "txn_batch": txn_batch, "worker_count": worker_count, "safe_mode": safe_mode,
        "log_level": log_level, "log_file": log_file,
    }  # fmt: skip
    settings = ReparoSettings(**{**found, **{name: value for name, value in given.items() if value is not None}}).checked(zone)
    logs.setup(settings.log_level, Path(settings.log_file) if settings.log_file else None, part="reparo")
    reparo(settings, zone, echo)
