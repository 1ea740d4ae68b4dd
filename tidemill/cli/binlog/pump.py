"""`tidemill pump`: a Pump of TiDB-Binlog. Flags, environment and TOML file are those of the real one; flags have one dash or two."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from tidemill import logs
from tidemill.binlog.nodes import NodeEvent
from tidemill.binlog.pump.server import Pump
from tidemill.binlog.pump.settings import PumpSettings, Transport, parse_gc, parse_size, read_file
from tidemill.kernels.entries import load_imported


def _flag(name: str, text: str, **more: Any) -> Any:
    return typer.Option(f"--{name}", f"-{name}", envvar=f"PUMP_{name.replace('-', '_').upper()}", help=text, show_default=False, **more)


def command(
    addr: Annotated[str | None, _flag("addr", "Serve gRPC and HTTP here, HOST:PORT. Default: this machine's address, port 8250.")] = None,
    advertise_addr: Annotated[str | None, _flag("advertise-addr", "Where TiDB and Drainers reach it, HOST:PORT. Default: --addr.")] = None,
    unix: Annotated[str | None, _flag("socket", "Serve on this Unix socket too.")] = None,
    pd_urls: Annotated[str | None, _flag("pd-urls", "PD's addresses, with commas. Default: http://127.0.0.1:2379.")] = None,
    data_dir: Annotated[str | None, _flag("data-dir", "Folder of the binlogs. Default: data.pump.")] = None,
    node_id: Annotated[str | None, _flag("node-id", "Its name in the registry. Default: HOSTNAME:PORT, kept in the data folder.")] = None,
    heartbeat_interval: Annotated[float | None, _flag("heartbeat-interval", "Seconds between two entries in the registry (2).")] = None,
    gc: Annotated[str | None, _flag("gc", "Keep binlogs for so long: days as 7, or 8h (7).")] = None,
    gc_waits: Annotated[
        bool | None,
        typer.Option("--gc-waits-for-drainers/--no-gc-waits-for-drainers", help="Keep binlogs until all Drainers have taken them (yes)."),
    ] = None,
    fake_binlog_interval: Annotated[
        float | None, _flag("fake-binlog-interval", "Seconds without a write after which Drainers are told to go on (3).")
    ] = None,
    max_message_size: Annotated[int | None, _flag("max-message-size", "Bytes of a binlog, at most (2 GiB).")] = None,
    stop_write_at: Annotated[
        str | None, typer.Option("--stop-write-at-available-space", help="Below so much free space no Prewrites are taken (10 GiB).")
    ] = None,
    ssl_ca: Annotated[str | None, typer.Option("--ssl-ca", help="PEM file with the cluster's CA.")] = None,
    ssl_cert: Annotated[str | None, typer.Option("--ssl-cert", help="PEM file with this Pump's certificate.")] = None,
    ssl_key: Annotated[str | None, typer.Option("--ssl-key", help="PEM file with the key of --ssl-cert.")] = None,
    cert_allowed_cn: Annotated[
        str | None, typer.Option("--cert-allowed-cn", help="Clients' certificates have one of these common names, with commas.")
    ] = None,
    metrics_addr: Annotated[str | None, _flag("metrics-addr", "Ignored: GET /metrics at --addr.", hidden=True)] = None,
    metrics_interval: Annotated[int | None, _flag("metrics-interval", "Ignored.", hidden=True)] = None,
    transport: Annotated[
        Transport | None, typer.Option("--transport", help="Who speaks HTTP/2: h2, Tidemill itself, or grpc, which takes more CPU (h2).")
    ] = None,
    config: Annotated[Path | None, _flag("config", "TOML file, as the real Pump's. Flags override it.")] = None,
    log_level: Annotated[str | None, typer.Option("-L", "--log-level", help="debug, info, warn or error (info).")] = None,
    log_file: Annotated[str | None, _flag("log-file", "Default: stderr.")] = None,
) -> None:
    """Take binlogs from TiDB up to 8.3, keep them on the disk, and give them to Drainers in commit order."""
    found = read_file(config) if config is not None else {}
    given = {
        "addr": addr, "advertise_addr": advertise_addr, "socket": unix, "pd_urls": pd_urls, "data_dir": data_dir, "node_id": node_id,
        "heartbeat_interval": heartbeat_interval, "gc_s": parse_gc(gc) if gc is not None else None, "gc_waits": gc_waits,
        "fake_binlog_interval": fake_binlog_interval, "max_message_size": max_message_size,
        "stop_write_at": parse_size(stop_write_at) if stop_write_at is not None else None, "ssl_ca": ssl_ca, "ssl_cert": ssl_cert,
        "ssl_key": ssl_key, "cert_allowed_cn": tuple(cert_allowed_cn.split(",")) if cert_allowed_cn else None,
        "log_level": log_level, "log_file": log_file, "metrics_addr": metrics_addr, "transport": transport,
    }  # fmt: skip
    settings = PumpSettings(**{**found, **{name: value for name, value in given.items() if value is not None}}).checked()
    logs.setup(settings.log_level, settings.log_file or None, part="pump")
    load_imported()  # kernels are compiled the first time, which an event loop must not wait for
    uvloop.run(_serve(Pump(settings)))


async def _serve(pump: Pump) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, pump.ask, NodeEvent.PAUSE)
    await pump.run()
