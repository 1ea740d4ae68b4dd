"""The server: listens, follows the entry store, keeps the clients' places."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tidemill import credentials
from tidemill.canal.conversation.desk import Desk
from tidemill.canal.conversation.faults import Refused
from tidemill.canal.conversation.subscriber import Key, Record
from tidemill.canal.server.connection import Connection, Office
from tidemill.canal.server.control import Control
from tidemill.canal.server.election import Election
from tidemill.canal.server.memory import Memory
from tidemill.canal.server.metrics import samples
from tidemill.canal.server.pages import status
from tidemill.canal.server.reading import EntrySource, Reading
from tidemill.canal.server.saving import CLIENTS, Saving, file_of, load, settle
from tidemill.canal.server.seat import Seat, check_turns
from tidemill.canal.server.settings import ServerSettings, Tls
from tidemill.changelog.storage.base import Storage, Token
from tidemill.changelog.storage.flock import FolderLock
from tidemill.changelog.storage.status_file import StatusFile
from tidemill.errors import ConfigError, FolderHeld, LogFenced, LogLocked, redact
from tidemill.metrics.http import PageServer
from tidemill.metrics.pages import json_page
from tidemill.metrics.samples import metrics_page
from tidemill.metrics.stalls import StallWatch
from tidemill.process.descriptors import raise_limit

BACKLOG = 128
KEPT_FILES = 64 + BACKLOG
"""Files that clients do not use up: the store's and the log's, and connections that are accepted before they are counted."""
HANDSHAKE_S = 15.0
STATUS_EVERY_S = 1.0
STORE_EVERY_S = 0.2
"""So often the server looks whether a changefeed has made the store."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """What the storage says of clients."""

    records: dict[Key, Record]
    tokens: dict[Key, Token | None]


@dataclass(frozen=True, slots=True)
class Pages:
    """Where the server tells of itself: an address for /status and /metrics, a file with the status."""

    address: str | None = None
    file: Path | None = None


class CanalServer:
    """One server of an entry store. `run` until `stop`."""

    def __init__(
        self,
        open_source: Callable[[], EntrySource | None],
        storage: Storage,
        settings: ServerSettings,
        pages: Pages,
        turns: Election | None = None,
    ) -> None:
        """`open_source` is called in a thread; None: there is no store yet. `turns`: serve only when it is this server's."""
        self._open_source, self._storage = open_source, storage
        self._settings, self._pages, self._turns = settings, pages, turns
        self._over, self._fenced_off = asyncio.Event(), asyncio.Event()
        self._failure: LogFenced | None = None
        self.office: Office | None = None
        self.ready = asyncio.Event()
        self.address = self.status_address = ""

    def stop(self) -> None:
        """End `run`."""
        self._over.set()

    async def run(self, listen: str) -> None:
        """Serve on HOST:PORT until stopped. Raises TidemillError if the store or the address cannot be had, or turns not taken."""
        context = tls_context(self._settings.tls) if self._settings.tls is not None else None
        with StallWatch():
            if self._turns is None:
                with await asyncio.to_thread(self._lock):
                    await self._term(listen, context)
                if self._failure is not None:
                    raise self._failure
            else:
                await self._take_turns(self._turns, listen, context)

    async def _take_turns(self, turns: Election, listen: str, context: ssl.SSLContext | None) -> None:
        """Serve whenever it is this server's turn."""
        await asyncio.to_thread(check_turns, self._storage)
        await turns.start()
        try:
            while await turns.acquire(self._over):
                await self._term(listen, context)
                await turns.release()
                if self._failure is not None:
                    _log.warning("%s", self._failure)
                self._failure = None
        finally:
            await turns.close()

    async def _term(self, listen: str, context: ssl.SSLContext | None) -> None:
        """Serve until stopped, or until another server does."""
        self._fenced_off.clear()
        source = await self._source()
        if source is None:
            return
        seat = Seat(self._storage)
        known = await asyncio.to_thread(self._load, seat)
        reading, saving = Reading(source), Saving(self._storage, seat, self._fenced)
        desk = Desk(self._settings.destinations, self._settings.access, lambda: reading.begins)
        office = self.office = Office(desk, reading, saving, {}, self._most_connections())
        if self._turns is not None:
            office.may_serve = self._turns.valid
        office.memory = Memory(self._settings.memory_limit)
        self._restore(office, known)
        await self._serve(office, listen, context)

    async def _source(self) -> EntrySource | None:
        """The store, as soon as there is one; None: stopped."""
        told = False
        while not self._over.is_set():
            source = await asyncio.to_thread(self._open_source)
            if source is not None:
                return source
            if not told:
                _log.warning("there is no entry store at %s yet: waiting for a changefeed to make it", redact(self._storage.location))
                told = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), STORE_EVERY_S)
        return None

    async def _serve(self, office: Office, listen: str, context: ssl.SSLContext | None) -> None:
        pages = PageServer({"/status": json_page(partial(status, office)), "/metrics": metrics_page(lambda: samples(status(office)))})
        server = await _listen(lambda: Connection(office), listen, context)
        work = [office.reading.run(), office.saving.keep_files(), Control(office, self._storage).run(), self._over.wait()]
        work.append(self._fenced_off.wait())
        if self._turns is not None:
            work.append(self._turns.lost.wait())
        if self._pages.file is not None:
            work.append(self._report(office, self._pages.file))
        tasks = [asyncio.ensure_future(one) for one in work]
        try:
            if self._pages.address:
                await pages.start(self._pages.address)
                self.status_address = pages.address
            name = server.sockets[0].getsockname()
            self.address = f"{name[0]}:{name[1]}"
            _log.info("serving %s at %s", ", ".join(sorted(office.desk.destinations)), self.address)
            self.ready.set()
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            server.close()
            for connection in list(office.connections):
                connection.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await office.saving.close()
            office.reading.close()
            await pages.stop()

    async def _report(self, office: Office, file: Path) -> None:
        """Keep the status in a file, which may be lost."""
        kept = StatusFile(file, "the server")
        while True:
            await asyncio.to_thread(lambda: kept.write(status(office)))
            await asyncio.sleep(STATUS_EVERY_S)

    def _most_connections(self) -> int:
        """How many clients there may be: some files are kept for the store, the log and the pages."""
        return max(1, min(self._settings.connections, raise_limit() - KEPT_FILES))

    def _fenced(self, error: LogFenced) -> None:
        self._failure = error
        self._fenced_off.set()

    def _lock(self) -> contextlib.ExitStack:
        """The lock of the clients' places, where the storage is a folder: two servers would overwrite each other's."""
        stack = contextlib.ExitStack()
        if self._storage.local:
            lock = FolderLock(self._storage.path(CLIENTS))
            try:
                stack.enter_context(lock)
            except FolderHeld as error:
                raise LogLocked(
                    f"another server serves the store {redact(self._storage.location)}: {error.message}",
                    hint="End it, or give its clients this server's address.",
                ) from None
        return stack

    def _load(self, seat: Seat) -> _Known:
        """Take the seat, and read where the clients are: from then on nobody else moves them."""
        seat.take()
        records = load(self._storage)
        if self._storage.local:
            settle(self._storage, records)
        tokens: dict[Key, Token | None] = dict.fromkeys(records)
        if self._storage.can_swap:
            for key in records:
                found = self._storage.versioned(file_of(key))
                if found is not None:  # written again: who had the seat has the old token
                    records[key] = Record.from_json(found[0], self._storage.path(file_of(key)))
                    tokens[key] = self._storage.swap(file_of(key), found[1], records[key].to_json(f"epoch {seat.epoch}"))
        return _Known(records, tokens)

    def _restore(self, office: Office, known: _Known) -> None:
        for key, record in known.records.items():
            try:
                office.saving.adopt(office.desk.restore(key, record), known.tokens[key])
            except Refused as refused:
                _log.warning("%s is kept and not served: %s", key, refused.message)


async def _listen(make: Callable[[], asyncio.Protocol], listen: str, context: ssl.SSLContext | None) -> asyncio.Server:
    host, _, port = listen.rpartition(":")
    try:
        loop = asyncio.get_running_loop()
        where, seconds = host.strip("[]") or None, HANDSHAKE_S if context is not None else None
        return await loop.create_server(make, where, int(port), ssl=context, backlog=BACKLOG, ssl_handshake_timeout=seconds)
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"--listen {listen}: {error}") from None


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Raises ConfigError naming the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.cert, tls.key, credentials.own_key_password)
        if tls.ca is not None:
            context.load_verify_locations(tls.ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"TLS: {tls.cert}, {tls.key}{f', {tls.ca}' if tls.ca else ''}: {error}") from None
    return context
