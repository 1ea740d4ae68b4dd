"""Runs a server until a signal comes: the lock of its data directory, the manager, the election, the HTTP API."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from tidemill import logs
from tidemill.capture.tikv.client.tls import Security
from tidemill.changelog.storage.durable import make_folder
from tidemill.changelog.storage.open import open_storage
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.delivery.zone import parse_zone
from tidemill.errors import TidemillError, redact
from tidemill.server.api import create_app
from tidemill.server.api.forward import Forwarding, client_of
from tidemill.server.api.listener import Certificates, Listener
from tidemill.server.api.tokens import Tokens
from tidemill.server.api.traced import traced
from tidemill.server.manager import Manager
from tidemill.server.options import ServerOptions, own_version
from tidemill.server.page.log_lines import FileEnd, Ring
from tidemill.server.page.watch import Watch
from tidemill.server.processes import OwnProcesses
from tidemill.server.shared.elector import Elector
from tidemill.server.shared.file import SharedFile
from tidemill.server.shared.lease import NAME as LEASE
from tidemill.server.shared.lease import Leases, Place
from tidemill.server.shared.members import Member, Members
from tidemill.server.shared.records import FORMAT
from tidemill.server.standing_by import Standby
from tidemill.server.upstream import Upstream

log = logging.getLogger(__name__)


class DataDirLocked(TidemillError):
    """Another server has the data directory."""

    code = "TM:ErrDataDirLocked"


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Hold the data directory. Raises DataDirLocked with the other server's process id."""
    with storage_errors(str(data_dir), writing=True):
        make_folder(data_dir)
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


class Role:
    """Which server leads, for `api.forward`."""

    def __init__(self, manager: Manager, elector: Elector, scheme: str) -> None:
        self._manager, self._elector, self._scheme = manager, elector, scheme

    @property
    def id(self) -> str:
        return self._manager.id

    @property
    def leads(self) -> bool:
        return self._elector.leads

    @property
    def address(self) -> str | None:
        lease = self._elector.leader
        return None if lease is None else f"{self._scheme}://{lease.address.rpartition('://')[2]}"

    async def settled(self, seconds: float) -> bool:
        return await self._elector.settled(seconds)


async def serve(
    options: ServerOptions,
    standby: Standby,
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
    stand_by = standby.begin if options.standby else lambda: None
    manager = Manager(options, upstream, lambda delivered, term: OwnProcesses(standby, delivered, term), stand_by)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(standby.end)
        stack.push_async_callback(manager.stop)
        starting = asyncio.create_task(manager.start())
        ending = asyncio.create_task(over.wait())
        stack.callback(starting.cancel)
        stack.callback(ending.cancel)
        await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return
        await starting
        elector = await asyncio.to_thread(elector_of, options, manager, upstream.security)
        manager.elects(elector)
        watch = _watch(manager, options, tokens, log_file)
        stack.callback(watch.close)
        app = create_app(manager, tokens=tokens, zone=parse_zone(options.zone), watch=watch, address=options.address)
        role = Role(manager, elector, "https" if certificates.cert is not None else "http")
        forwarding = Forwarding(app, role, lambda: client_of(certificates.ca, certificates.cert, certificates.key))
        stack.push_async_callback(forwarding.close)
        listener = Listener(traced(forwarding), replace(certificates, asks=tokens is not None and tokens.names_certificates))
        electing = asyncio.create_task(elector.run())
        stack.push_async_callback(_ended, electing)
        await listener.start(addr)
        stack.push_async_callback(listener.stop)
        stack.push_async_callback(_ended, asyncio.create_task(watch.run()))
        log.info("the API and a web page are served at %s://%s", listener.scheme, listener.address)
        await asyncio.wait({electing, ending}, return_when=asyncio.FIRST_COMPLETED)
        if electing.done():
            await electing
        log.info("stopping: each changefeed ends its batch")


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def key_of(location: str) -> str:
    """The key in etcd for the servers of a log. Secrets of its URL are not in it."""
    return f"/tidemill/servers/{quote(redact(location).partition('?')[0], safe='')}"


def elector_of(options: ServerOptions, manager: Manager, security: Security | None) -> Elector:
    """This server's part in the election. `security`: how PD is reached. Raises LogError, ConfigError."""
    storage = open_storage(options.log)
    place: Place = SharedFile(storage, LEASE, durable=False)
    if options.etcd:
        from tidemill.server.shared.etcd import EtcdKey, etcd_security

        place = EtcdKey(options.etcd, key_of(storage.location), etcd_security(options.etcd, security))
    if not storage.local and not storage.can_swap:
        log.warning(
            "%s has no conditional writes: no other server may use this log, because nothing decides which one leads", redact(options.log)
        )
    leases = Leases(place, manager.id, options.address, options.ttl)
    member = Member(manager.id, options.address, own_version(), FORMAT)
    return Elector(leases, Members(storage, member, options.ttl), manager.id, options.ttl, manager)


def _watch(manager: Manager, options: ServerOptions, tokens: Tokens | None, log_file: Path | None) -> Watch:
    """Return what the page shows. Lines of the log come from the file, or from this process, which passes its children's on."""
    ring = Ring()
    if log_file is None:
        logs.listen(ring.add)
    file = FileEnd(log_file) if log_file is not None else None
    return Watch(manager, ring=ring, file=file, address=options.address, tokens=tokens is not None)
