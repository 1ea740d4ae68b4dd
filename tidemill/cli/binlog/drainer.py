"""`tidemill drainer`: a Drainer of TiDB-Binlog. Flags, environment and the TOML file are those of the real one; flags may have one dash
or two."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from tidemill import logs
from tidemill.binlog.drainer.destination import Forms
from tidemill.binlog.drainer.drainer import Drainer
from tidemill.binlog.drainer.settings import DrainerSettings, read_file
from tidemill.binlog.nodes import NodeEvent
from tidemill.kernels.entries import load_imported
from tidemill.traces import process as traces


def _variable(name: str) -> str:
    return f"BINLOG_SERVER_{name.replace('-', '_').upper()}"


def _flag(name: str, text: str, *more: str) -> Any:
    return typer.Option(f"--{name}", f"-{name}", *more, envvar=_variable(name), help=text, show_default=False)


def _switch(name: str, text: str) -> Any:
    return typer.Option(f"--{name}/--no-{name}", f"-{name}/-no-{name}", envvar=_variable(name), help=text, show_default=False)


def command(
    addr: Annotated[str | None, _flag("addr", "Serve gRPC and HTTP here, HOST:PORT. Default: 127.0.0.1:8249.")] = None,
    advertise_addr: Annotated[str | None, _flag("advertise-addr", "Where Pumps reach it, HOST:PORT. Default: --addr.")] = None,
    pd_urls: Annotated[str | None, _flag("pd-urls", "PD's addresses, with commas. Default: http://127.0.0.1:2379.")] = None,
    data_dir: Annotated[str | None, _flag("data-dir", "Folder of the savepoint. Default: data.drainer.")] = None,
    node_id: Annotated[str | None, _flag("node-id", "Its name in the registry. Default: --advertise-addr.")] = None,
    detect_interval: Annotated[float | None, _flag("detect-interval", "Seconds between two looks for Pumps (5).")] = None,
    initial_commit_ts: Annotated[
        int | None, _flag("initial-commit-ts", "Without a savepoint: begin after this TSO. -1: now (default).")
    ] = None,
    db_type: Annotated[str | None, _flag("dest-db-type", "Where to write: mysql (default), tidb, file or kafka.")] = None,
    ignore_schemas: Annotated[str | None, _flag("ignore-schemas", "Databases to leave out, with commas.")] = None,
    worker_count: Annotated[int | None, _flag("worker-count", "Connections that write rows into a database (1).", "-c")] = None,
    txn_batch: Annotated[int | None, _flag("txn-batch", "Rows of a transaction in a database.")] = None,
    safe_mode: Annotated[bool | None, _switch("safe-mode", "Write rows so that they may be written again.")] = None,
    enable_dispatch: Annotated[bool | None, _switch("enable-dispatch", "Use all workers (default).")] = None,
    sync_ddl: Annotated[bool | None, _switch("sync-ddl", "Deliver DDLs (default).")] = None,
    loopback_control: Annotated[bool | None, _switch("loopback-control", "Leave out what a Drainer of --channel-id made.")] = None,
    channel_id: Annotated[int | None, _flag("channel-id", "The channel of --loopback-control (0).")] = None,
    relay_dir: Annotated[str | None, _flag("relay-log-dir", "Folder of the relay log of a database. Default: none.")] = None,
    relay_size: Annotated[int | None, _flag("relay-max-file-size", "Bytes of a file of the relay log.")] = None,
    ssl_ca: Annotated[str | None, typer.Option("--ssl-ca", help="PEM file with the cluster's CA.")] = None,
    ssl_cert: Annotated[str | None, typer.Option("--ssl-cert", help="PEM file with this Drainer's certificate.")] = None,
    ssl_key: Annotated[str | None, typer.Option("--ssl-key", help="PEM file with the key of --ssl-cert.")] = None,
    cert_allowed_cn: Annotated[
        str | None, typer.Option("--cert-allowed-cn", help="Clients' certificates have one of these common names, with commas.")
    ] = None,
    config: Annotated[Path | None, _flag("config", "TOML file, as the real Drainer's. Flags override it.")] = None,
    log_level: Annotated[str | None, typer.Option("-L", "--log-level", help="debug, info, warn or error (info).")] = None,
    log_file: Annotated[str | None, _flag("log-file", "Default: stderr.")] = None,
) -> None:
    """Merge the binlogs of all Pumps of a TiDB up to 8.3, and write them to a database, files or Kafka in the Drainer's forms."""
    found = read_file(config) if config is not None else {}
    given = {
        "addr": addr, "advertise_addr": advertise_addr, "pd_urls": pd_urls, "data_dir": data_dir, "node_id": node_id,
        "detect_interval": detect_interval, "initial_commit_ts": initial_commit_ts, "db_type": db_type, "ignore_schemas": ignore_schemas,
        "ssl_ca": ssl_ca, "ssl_cert": ssl_cert, "ssl_key": ssl_key, "log_level": log_level, "log_file": log_file,
        "worker_count": worker_count, "txn_batch": txn_batch, "safe_mode": safe_mode, "enable_dispatch": enable_dispatch,
        "sync_ddl": sync_ddl, "loopback_control": loopback_control, "channel_id": channel_id,
        "relay_dir": relay_dir, "relay_max_file_size": relay_size,
        "cert_allowed_cn": tuple(cert_allowed_cn.split(",")) if cert_allowed_cn else None,
    }  # fmt: skip
    settings = DrainerSettings(**{**found, **{name: value for name, value in given.items() if value is not None}}).checked()
    logs.setup(settings.log_level, Path(settings.log_file) if settings.log_file else None, part="drainer")
    traces.begin("drainer")
    load_imported()  # kernels are compiled the first time, which an event loop must not wait for
    uvloop.run(_serve(Drainer(settings, Forms(settings))))


async def _serve(drainer: Drainer[Any]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, drainer.ask, NodeEvent.PAUSE)
    await drainer.run()
