"""Runs a server until a signal comes: the lock of its data directory, the manager, the HTTP API."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.delivery.zone import parse_zone
from tidemill.errors import TidemillError
from tidemill.server.api import create_app
from tidemill.server.api.listener import Certificates, Listener
from tidemill.server.api.tokens import Tokens
from tidemill.server.manager import Manager
from tidemill.server.options import ServerOptions
from tidemill.server.processes import Commands, OwnProcesses
from tidemill.server.upstream import Upstream

log = logging.getLogger(__name__)


class DataDirLocked(TidemillError):
    """Another server has the data directory."""

    code = "TM:ErrDataDirLocked"


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Hold the data directory. Raises DataDirLocked with the other server's process id."""
    with storage_errors(str(data_dir), writing=True):
        data_dir.mkdir(parents=True, exist_ok=True)
        file = open(data_dir / "server.lock", "a+", encoding="ascii", errors="replace")  # noqa: SIM115 — held while the server runs
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise DataDirLocked(
                f"--data-dir {data_dir} is used by the server of process {file.read().strip() or 'unknown'}",
                hint="End that process, or choose another --data-dir.",
            ) from None
        with storage_errors(str(data_dir), writing=True):
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        yield


async def serve(
    options: ServerOptions, commands: Commands, addr: str, upstream: Upstream, certificates: Certificates, tokens: Tokens | None
) -> None:
    """Serve until SIGTERM or SIGINT. Raises what makes a start useless: PD that does not answer, another cluster, a port that is taken."""
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    manager = Manager(options, upstream, lambda delivered: OwnProcesses(commands, delivered))
    listener = Listener(create_app(manager, tokens=tokens, zone=parse_zone(options.zone)), certificates)
    starting = asyncio.create_task(manager.start())
    ending = asyncio.create_task(over.wait())
    try:
        await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            await listener.start(addr)
            log.info("the API is served at %s://%s", listener.scheme, listener.address)
            await ending
            log.info("stopping: each changefeed ends its batch")
    finally:
        starting.cancel()
        ending.cancel()
        await listener.stop()
        await manager.stop()
