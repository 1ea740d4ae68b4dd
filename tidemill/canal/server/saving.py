"""Keeps the clients' places in the store: clients/DESTINATION/CLIENT.json, and in a folder the `journal` beside them.

A client's place is written as often as it can be, not more: what changed while it was written is written next, in one. Where the storage
has conditional writes a file that another server wrote is not overwritten. In a folder most changes go into the journal; a file is written
at once where it would let retention remove what its client needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from tidemill.canal.conversation.subscriber import Key, Record, Subscriber
from tidemill.canal.server.journal import JOURNAL, OLD, Journal, line_of, parse_journal
from tidemill.canal.server.seat import Seat
from tidemill.changelog.storage.base import Storage, Token
from tidemill.errors import LogFenced, TidemillError, redact

CLIENTS = "clients"
THREADS = 4
FILES_S = 30.0
"""So often files are written of what the journal says."""
AGAIN_S, SELDOM_S = 0.2, 5.0
"""Pauses between tries while the storage fails: the first, the longest."""
LATER_S = 60.0
"""What need not be safe at once is written so much later."""

_log = logging.getLogger(__name__)


def file_of(key: Key) -> str:
    """The name of a client's file in the store."""
    return f"{CLIENTS}/{quote(key.destination, safe='')}/{key.client}.json"


def key_of(folder: str, name: str) -> Key | None:
    """The client of a file; None for another's."""
    number = name.removesuffix(".json")
    if not name.endswith(".json") or not number.removeprefix("-").isdecimal():
        return None
    return Key(unquote(folder), int(number))


def load(storage: Storage) -> dict[Key, Record]:
    """All clients that are known. Raises LogCorrupt naming a file that is broken."""
    found: dict[Key, Record] = {}
    for folder in storage.subfolders(CLIENTS):
        for name in storage.names(f"{CLIENTS}/{folder}"):
            path = f"{CLIENTS}/{folder}/{name}"
            key = key_of(folder, name)
            if key is None or (data := storage.read(path)) is None:
                continue
            found[key] = Record.from_json(data, storage.path(path))
    for name in (JOURNAL + OLD, JOURNAL) if storage.local else ():
        for key, record in parse_journal(storage.read(f"{CLIENTS}/{name}") or b"", storage.path(f"{CLIENTS}/{name}")):
            if record is not None:
                found[key] = record
            else:
                found.pop(key, None)
    return found


def settle(storage: Storage, records: Mapping[Key, Record]) -> None:
    """Write the files of what journals say, and remove these. Before a server begins; raises the storage's errors."""
    journals = [name for name in storage.names(CLIENTS) if name in (JOURNAL, JOURNAL + OLD)]
    if not journals:
        return
    for key, record in records.items():
        data = record.to_json()
        if storage.read(file_of(key)) != data:
            storage.replace(file_of(key), data)
    for folder in storage.subfolders(CLIENTS):
        for name in storage.names(f"{CLIENTS}/{folder}"):
            key_there = key_of(folder, name)
            if key_there is not None and key_there not in records:  # forgotten
                storage.delete(f"{CLIENTS}/{folder}/{name}")
    for name in journals:
        storage.delete(f"{CLIENTS}/{name}")


@dataclass(slots=True)
class _Kept:
    """A client's file. Versions count the changes of the record."""

    wanted: int = 0
    written: int = 0
    token: Token | None = None
    failure: TidemillError | None = None
    safe: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    last: Record | None = None
    filed: Record | None = None
    """What the file has, in a folder."""


class Saving:
    """Writes records. For one event loop."""

    def __init__(self, storage: Storage, seat: Seat, fenced: Callable[[LogFenced], None]) -> None:
        """`seat`: taken by this server. `fenced` is called when another one has it: nothing more may be served."""
        self._storage, self._seat, self._fenced = storage, seat, fenced
        self._word = secrets.token_hex(4)  # else two servers that write the same would not notice each other
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="canal-places")
        self._kept: dict[Key, _Kept] = {}
        self._later: dict[Key, Subscriber] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._journal = Journal(storage.path(f"{CLIENTS}/{JOURNAL}"), seat.held) if storage.local else None
        self._changed: dict[Key, Subscriber] = {}
        self._settling: asyncio.Task[None] | None = None
        self._settling_now = asyncio.Lock()
        self.failure: TidemillError | None = None

    def adopt(self, client: Subscriber, token: Token | None) -> None:
        """A client that is known from its file."""
        self._kept[client.key] = _Kept(token=token, last=client.record, filed=client.record)

    def save(self, client: Subscriber) -> None:
        """The record has changed and has to be written."""
        self._later.pop(client.key, None)
        kept = self._kept.setdefault(client.key, _Kept())
        kept.wanted += 1
        if kept.task is None:
            kept.task = asyncio.get_running_loop().create_task(self._write(client, kept))

    def save_later(self, client: Subscriber) -> None:
        """The record has changed; that may get lost."""
        self._later[client.key] = client
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LATER_S, self._flush)

    def _flush(self) -> None:
        self._timer = None
        for client in list(self._later.values()):
            self.save(client)

    async def keep_files(self) -> None:
        """Write the files of what the journal says now and then, until cancelled: retention reads them."""
        while True:
            await asyncio.sleep(FILES_S)
            await self._settle()

    async def _settle(self) -> None:
        """Write the files of clients that the journal names, and begin a new journal. One at a time: else one would drop the old journal
        before the other has written its files."""
        if self._journal is not None:
            async with self._settling_now:
                await self._write_files(self._journal)

    async def _write_files(self, journal: Journal) -> None:
        changed, self._changed = self._changed, {}
        if not changed:
            return
        try:
            await journal.rotate()
            for key, client in list(changed.items()):
                if key in self._kept:
                    await self._file(client, self._kept[key], client.record)
                del changed[key]
            await journal.drop_old()
        except LogFenced as error:
            self._fenced(error)
        except TidemillError as error:
            self._told(error)
            self._changed = {**changed, **self._changed}

    async def _file(self, client: Subscriber, kept: _Kept, record: Record) -> None:
        data = record.to_json(self._word)
        await asyncio.get_running_loop().run_in_executor(self._pool, self._replace, file_of(client.key), data)
        kept.filed = record

    def _replace(self, name: str, data: bytes) -> None:
        with self._seat.held():
            self._storage.replace(name, data)

    def _delete(self, name: str) -> None:
        with self._seat.held():
            self._storage.delete(name)

    def is_safe(self, key: Key) -> bool:
        """Whether all changes of a client's record are written."""
        kept = self._kept.get(key)
        return kept is None or (kept.written >= kept.wanted and kept.failure is None)

    async def safe(self, key: Key) -> None:
        """Wait until what has changed so far is written. Raises LogFenced when another server has written the file."""
        kept = self._kept.get(key)
        if kept is None:
            return
        wanted = kept.wanted
        while kept.written < wanted:
            if kept.failure is not None:
                raise kept.failure
            await kept.safe.wait()

    async def forget(self, key: Key) -> None:
        """Remove a client's file. Raises the storage's errors."""
        self._later.pop(key, None)
        kept = self._kept.get(key)
        if kept is not None and kept.task is not None:
            await self.safe(key)
        async with self._settling_now:  # a file that is being written meanwhile would come behind its removal, and hold the entries
            self._kept.pop(key, None)
            self._changed.pop(key, None)
            if self._journal is not None:
                await self._journal.append(line_of(key, None))
            await asyncio.get_running_loop().run_in_executor(self._pool, self._delete, file_of(key))

    async def close(self) -> None:
        """Write what is left, as far as the storage takes it at once."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush()
        tasks = [kept.task for kept in self._kept.values() if kept.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=SELDOM_S)
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._settle()
        if self._journal is not None:
            await asyncio.to_thread(self._journal.close)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _write(self, client: Subscriber, kept: _Kept) -> None:
        pause = AGAIN_S
        try:
            while kept.written < kept.wanted:
                version = kept.wanted
                try:
                    await self._put(client, kept, client.record)
                except LogFenced as error:
                    kept.failure = error
                    self._fenced(error)
                    return
                except TidemillError as error:
                    self._told(error)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, SELDOM_S)
                    continue
                self.failure, pause = None, AGAIN_S
                kept.written = version
                self._wake(kept)
        finally:
            kept.task = None
            self._wake(kept)

    def _told(self, error: TidemillError) -> None:
        if self.failure is None or str(self.failure) != str(error):
            _log.warning("the place of a client cannot be written: %s", error)
        self.failure = error

    def _wake(self, kept: _Kept) -> None:
        safe, kept.safe = kept.safe, asyncio.Event()
        safe.set()

    async def _put(self, client: Subscriber, kept: _Kept, record: Record) -> None:
        if record == kept.last:
            return
        if self._journal is not None:
            if kept.filed is None or record.place < kept.filed.place:
                await self._file(client, kept, record)
            self._changed[client.key] = client
            await self._journal.append(line_of(client.key, record))
            if self._journal.full and (self._settling is None or self._settling.done()):
                self._settling = asyncio.get_running_loop().create_task(self._settle())
        elif self._storage.can_swap:
            await self._swap(file_of(client.key), kept, record.to_json(self._word))
        else:
            await self._file(client, kept, record)
        kept.last = record

    async def _swap(self, name: str, kept: _Kept, data: bytes) -> None:
        token = await asyncio.get_running_loop().run_in_executor(self._pool, self._storage.swap, name, kept.token, data)
        if token is None:
            raise LogFenced(
                f"{redact(self._storage.path(name))} was written by another server",
                hint="Only one server may serve a store. End one of them.",
            )
        kept.token = token
