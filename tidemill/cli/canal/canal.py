"""`tidemill canal`: serve an entry store to Canal's clients; look at the clients and move them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidemill.canal.server.election import SESSION_S
from tidemill.canal.server.memory import LEAST_LIMIT
from tidemill.canal.server.settings import DEFAULT_PORT
from tidemill.cli.canal.canal_ctl import ctl
from tidemill.cli.canal.serving import Serving, serve_store
from tidemill.cli.shared.options import STORE_VARIABLE, LogLevelOption, StatusAddrOption
from tidemill.errors import ConfigError

app = typer.Typer(invoke_without_command=True)
app.add_typer(ctl, name="ctl")


@app.callback()
def serve(
    context: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", envvar=STORE_VARIABLE, help="Folder or URL of the entry store that a changefeed with a canal:// sink writes."
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", help=f"Serve clients here, HOST:PORT. Default: canal.ip and canal.port, else 127.0.0.1:{DEFAULT_PORT}."),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help=r"TOML with \[canal], or Canal's canal.properties.")] = None,
    destination: Annotated[str, typer.Option("--destination", help="Serve this destination too, which --config need not name.")] = "",
    start_ts: Annotated[
        str | None, typer.Option("--start-ts", help="With --destination: where its new clients begin. A TSO or a time.")
    ] = None,
    get_wait: Annotated[
        str | None, typer.Option("--get-wait", help="With --destination: a GET waits for a full batch (all), or for any entry (any).")
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", help="HOST:PORT,…: servers of the store take turns; Canal's cluster clients find who serves."),
    ] = None,
    register: Annotated[
        str | None,
        typer.Option("--register", help="With --zookeeper: HOST[:PORT] where clients reach this server. Default: --listen."),
    ] = None,
    zookeeper_timeout: Annotated[
        float, typer.Option("--zookeeper-timeout", min=1, help="Seconds after which another server takes over from one that is silent.")
    ] = SESSION_S,
    memory_limit: Annotated[
        int | None,
        typer.Option(
            "--memory-limit",
            min=LEAST_LIMIT,
            help="Bytes of batches that all connections hold together. Default: memory-limit, else 256 MiB.",
        ),
    ] = None,
    max_connections: Annotated[
        int | None,
        typer.Option("--max-connections", min=1, help="Connections at once (4096)."),
    ] = None,
    status_addr: StatusAddrOption = None,
    log_level: LogLevelOption = "info",
    log_file: Annotated[Path | None, typer.Option("--log-file", help="Default: stderr.")] = None,
) -> None:
    """Serve an entry store to Canal's clients: the Java client, canal-adapter, canal-go, canal-python and others, unchanged."""
    if context.invoked_subcommand is not None:
        return
    if not store:
        raise ConfigError("no entry store", hint="Name it with --store: the folder or URL that a changefeed with a canal:// sink writes.")
    serve_store(
        Serving(
            store=store,
            listen=listen,
            config=config,
            destination=destination,
            start_ts=start_ts,
            get_wait=get_wait,
            zookeeper=zookeeper,
            register=register,
            zookeeper_timeout=zookeeper_timeout,
            memory_limit=memory_limit,
            max_connections=max_connections,
            status_addr=status_addr,
            log_level=log_level,
            log_file=log_file,
        )
    )
