"""Serves an entry store to Canal's clients: what `tidemill canal` does, and the process that `tidemill run` starts for a canal:// sink,
`python -m tidemill.cli.canal.serving` with a `Serving`."""

from __future__ import annotations

import asyncio
import re
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill import logs
from tidemill.errors import ConfigError
from tidemill.process import lifeline, orders
from tidemill.process.ending import reported

if TYPE_CHECKING:  # whoever starts it needs no server
    from tidemill.canal.server.server import CanalServer
    from tidemill.sinks.canal.store.reader import EntryStoreReader


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served, and where. `store` may hold a password. None: see the options of `tidemill canal`."""

    store: str = field(repr=False)
    listen: str | None = None
    config: Path | None = None
    destination: str = ""
    start_ts: str | None = None
    get_wait: str | None = None
    zookeeper: str | None = None
    register: str | None = None
    zookeeper_timeout: float | None = None
    memory_limit: int | None = None
    max_connections: int | None = None
    status_addr: str | None = None
    status_file: Path | None = None
    log_level: str = "info"
    log_file: Path | None = None


def serve_store(serving: Serving) -> None:
    """Serve until a signal comes. Raises ConfigError."""
    import uvloop

    from tidemill.canal.server.config import load_settings
    from tidemill.canal.server.election import SESSION_S, Election
    from tidemill.canal.server.server import CanalServer, Pages
    from tidemill.canal.server.settings import DEFAULT_PORT
    from tidemill.changelog.storage.open import open_storage
    from tidemill.kernels.entries import load_imported
    from tidemill.sinks.canal.store.publish import read_identity
    from tidemill.sinks.canal.store.reader import EntryStoreReader

    logs.setup(serving.log_level, serving.log_file, part="canal")
    asked = {name: text for name, text in (("start-ts", serving.start_ts), ("get.wait", serving.get_wait)) if text is not None}
    if asked and not serving.destination:
        raise ConfigError(f"--{' and --'.join(asked).replace('.', '-')} need --destination")
    settings = load_settings(serving.config, asked, serving.destination)
    if serving.memory_limit is not None:
        settings = replace(settings, memory_limit=serving.memory_limit)
    if serving.max_connections is not None:
        settings = replace(settings, connections=serving.max_connections)
    where = serving.listen or f"{settings.host or '127.0.0.1'}:{settings.port if settings.port is not None else DEFAULT_PORT}"
    storage = open_storage(serving.store)

    def source() -> EntryStoreReader | None:
        return EntryStoreReader(storage) if read_identity(storage) is not None else None

    hosts = serving.zookeeper or settings.zookeeper
    turns = None
    if hosts:
        address = address_of(serving.register or settings.register, where)
        turns = Election(hosts, address, settings.destinations, serving.zookeeper_timeout or SESSION_S)
    load_imported()  # kernels are compiled the first time, which an event loop must not wait for
    uvloop.run(_serve(CanalServer(source, storage, settings, Pages(serving.status_addr, serving.status_file), turns), where))


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


def main() -> None:
    """Entry point."""
    with reported():
        serving = orders.take(Serving)
        lifeline.hold(heard=lifeline.take_level)
        serve_store(serving)


if __name__ == "__main__":
    main()
