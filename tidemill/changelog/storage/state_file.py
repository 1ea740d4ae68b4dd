"""A small file of state that several processes change: what follows from its content, and writing that, are one step.

A change is made of the content that was seen, and takes effect only if the file still holds it: compare-and-swap. An object store does
that by a conditional PUT, a file system under a short lock, for which the new content is synced already: a process that is stopped keeps
others out only in the moment of the rename. Other stores have neither: there the file has one writer at a time.

What an empty or cut file means is a rule of its kind, see `statefile.whole`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from tidemill.changelog.storage.base import Storage, Token
from tidemill.changelog.storage.flock import FolderLock
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.errors import TidemillError

Change = Callable[[bytes | None], bytes | None]
"""Makes the new content of the old one (None: there is no file). It returns None if nothing is to be written. Each version that it makes
has to differ from all others, because its content shows whose request won. It may be called more than once."""


class Swapping(Protocol):
    """A store of another kind that swaps versions, as `Storage` does where it can."""

    def path(self, name: str) -> str: ...

    def read(self, name: str) -> bytes | None: ...

    def versioned(self, name: str) -> tuple[bytes, Token] | None: ...

    def swap(self, name: str, expected: Token | None, data: bytes) -> Token | None: ...


class StateFile:
    """One file, as one writer uses it. Its threads take turns."""

    def __init__(
        self,
        storage: Storage | Swapping,
        name: str,
        *,
        lock: AbstractContextManager[None] | None = None,
        brief: bool = False,
        held: bool = False,
        durable: bool = True,
    ) -> None:
        """`lock`: on a file system, of all who change the file, which is written under it, or, if that is to be `brief`, renamed under it;
        None: one beside the file. `held`: the caller holds a lock of all who do whenever it changes the file. `durable`: a change survives
        a crash of the machine when it returns."""
        self._storage, self._name, self._held, self._durable = storage, name, held, durable
        self.place = storage.path(name)
        self._lock = FolderLock(self.place) if lock is None and isinstance(storage, Storage) and storage.local and not held else lock
        self._under_lock = (lock is not None and not brief) or not durable
        self._turn = threading.Lock()
        self._seen: tuple[bytes | None, Token | None] | None = None
        """The version that this writer read or wrote last; None: it has to be read."""

    def read(self) -> bytes | None:
        """Return the content; None if there is no file. Raises LogUnavailable, LogRefused."""
        with storage_errors(self.place):
            return self._storage.read(self._name)

    def create(self, data: bytes) -> bool:
        """Write the file unless it exists. Return whether it was written. Raises as `change`."""
        with self._turn:
            self._seen = None, None
        return self.change(lambda found: data if found is None else None) is not None

    def change(self, change: Change) -> bytes | None:
        """Write what `change` makes of the content. Return what was written; None if nothing was. What `change` raises, and that it has
        nothing to write, counts only for a version that was read now. Raises that, FolderHeld, LogUnavailable, LogRefused, DiskLow."""
        with self._turn, storage_errors(self.place, writing=True):
            while True:
                seen, is_new = self._seen, self._seen is None
                self._seen = None  # also where the outcome stays unknown
                found, token = self._look() if seen is None else seen
                try:
                    data = change(found)
                except TidemillError:
                    if is_new:
                        raise
                    continue
                if data is None and is_new:
                    return None
                if data is not None and self._put(found, token, data):
                    return data

    def _look(self) -> tuple[bytes | None, Token | None]:
        if not isinstance(self._storage, Storage) or self._storage.can_swap:
            return self._storage.versioned(self._name) or (None, None)
        return self._storage.read(self._name), None

    def _put(self, found: bytes | None, token: Token | None, data: bytes) -> bool:
        """Write over a version. False: another one is there."""
        if not isinstance(self._storage, Storage) or self._storage.can_swap:
            written = self._storage.swap(self._name, token, data)
            if written is None:
                return False
            self._seen = data, written
        elif self._lock is None:
            self._storage.replace(self._name, data, durable=self._durable)
        elif not (self._overwrite if self._under_lock else self._publish)(self._storage, found, data):
            return False
        else:
            self._seen = data, None
        return True

    def _overwrite(self, storage: Storage, found: bytes | None, data: bytes) -> bool:
        assert self._lock is not None
        with self._lock:
            if storage.read(self._name) != found:
                return False
            storage.replace(self._name, data, durable=self._durable)
            return True

    def _publish(self, storage: Storage, found: bytes | None, data: bytes) -> bool:
        assert self._lock is not None
        folder, _, name = self._name.rpartition("/")
        draft = storage.draft(folder)
        try:
            draft.sink.write(data)
            draft.seal()
            with self._lock:
                if storage.read(self._name) != found:
                    return False
                draft.publish(name)
        finally:
            draft.discard()
        storage.settle(folder)
        return True
