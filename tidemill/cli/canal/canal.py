"""`tidemill canal`: serve an entry store to Canal's clients; look at the clients and move them."""

from __future__ import annotations

import asyncio
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from tidemill import logs
from tidemill.canal.server.config import load_settings
from tidemill.canal.server.election import SESSION_S, Election
from tidemill.canal.server.memory import LEAST_LIMIT
from tidemill.canal.server.server import CanalServer, Pages
from tidemill.canal.server.settings import DEFAULT_PORT
from tidemill.changelog.storage.open import open_storage
from tidemill.cli.canal.canal_ctl import ctl
from tidemill.cli.shared.options import STORE_VARIABLE, LogLevelOption, StatusAddrOption
from tidemill.errors import ConfigError
from tidemill.sinks.canal.store.publish import read_identity
from tidemill.sinks.canal.store.reader import EntryStoreReader

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
    status_file: Annotated[Path | None, typer.Option("--status-file", hidden=True, help="Keep the status in this file.")] = None,
    log_level: LogLevelOption = "info",
    log_file: Annotated[Path | None, typer.Option("--log-file", help="Default: stderr.")] = None,
) -> None:
    """Serve an entry store to Canal's clients: the Java client, canal-adapter, canal-go, canal-python and others, unchanged."""
    if context.invoked_subcommand is not None:
        return
    logs.setup(log_level, log_file, part="canal")
    if not store:
        raise ConfigError("no entry store", hint="Name it with --store: the folder or URL that a changefeed with a canal:// sink writes.")
    asked = {name: text for name, text in (("start-ts", start_ts), ("get.wait", get_wait)) if text is not None}
    if asked and not destination:
        raise ConfigError(f"--{' and --'.join(asked).replace('.', '-')} need --destination")
    settings = load_settings(config, asked, destination)
    if memory_limit is not None:
        settings = replace(settings, memory_limit=memory_limit)
    if max_connections is not None:
        settings = replace(settings, connections=max_connections)
    where = listen or f"{settings.host or '127.0.0.1'}:{settings.port if settings.port is not None else DEFAULT_PORT}"
    storage = open_storage(store)

    def source() -> EntryStoreReader | None:
        return EntryStoreReader(storage) if read_identity(storage) is not None else None

    hosts = zookeeper or settings.zookeeper
    turns = None
    if hosts:
        address = address_of(register or settings.register, where)
        turns = Election(hosts, address, settings.destinations, zookeeper_timeout)
    uvloop.run(_serve(CanalServer(source, storage, settings, Pages(status_addr, status_file), turns), where))


def address_of(register: str, listen: str) -> str:
    """HOST:PORT under which others know a server. Raises ConfigError for one that nobody can connect to."""
    host, _, port = listen.rpartition(":")
    if register:
        return register if re.search(r":\d+$", register) else f"{register}:{port}"
    if host in ("", "0.0.0.0", "[::]", "*") or port == "0":
        raise ConfigError(
            f"--listen {listen} is not an address that others can connect to",
            hint="Name the one that clients reach with --register HOST[:PORT], or canal.register.ip.",
        )
    return listen


async def _serve(server: CanalServer, listen: str) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.stop)
    await server.run(listen)
