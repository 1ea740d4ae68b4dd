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

from tidemill import logs
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.delivery.zone import parse_zone
from tidemill.errors import TidemillError
from tidemill.server.api import create_app
from tidemill.server.api.listener import Certificates, Listener
from tidemill.server.api.tokens import Tokens
from tidemill.server.manager import Manager, ServerOptions
from tidemill.server.page.log_lines import FileEnd, Ring
from tidemill.server.page.watch import Watch
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
    options: ServerOptions,
    commands: Commands,
    addr: str,
    upstream: Upstream,
    certificates: Certificates,
    tokens: Tokens | None,
    log_file: Path | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. `log_file`: where all processes write their log.

    Raises what makes a start useless: PD that does not answer, another cluster, a port that is taken."""
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    manager = Manager(options, upstream, lambda delivered: OwnProcesses(commands, delivered))
    watch = _watch(manager, options, tokens, log_file)
    listener = Listener(create_app(manager, tokens=tokens, zone=parse_zone(options.zone), watch=watch), certificates)
    looking: asyncio.Task[None] | None = None
    starting = asyncio.create_task(manager.start())
    ending = asyncio.create_task(over.wait())
    try:
        await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            await listener.start(addr)
            looking = asyncio.create_task(watch.run())
            log.info("the API and a web page are served at %s://%s", listener.scheme, listener.address)
            await ending
            log.info("stopping: each changefeed ends its batch")
    finally:
        starting.cancel()
        ending.cancel()
        watch.close()
        if looking is not None:
            looking.cancel()
        await listener.stop()
        await manager.stop()


def _watch(manager: Manager, options: ServerOptions, tokens: Tokens | None, log_file: Path | None) -> Watch:
    """Return what the page shows. Lines of the log come from the file, or from this process, which passes its children's on."""
    ring = Ring()
    if log_file is None:
        logs.listen(ring.add)
    file = FileEnd(log_file) if log_file is not None else None
    return Watch(manager, ring=ring, file=file, address=options.address, tokens=tokens is not None)
