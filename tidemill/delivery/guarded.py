"""A small JSON file that only the newest driver of a changefeed may write: the fence and the checkpoint are such files.

Each version names an epoch and the driver that wrote it. A write is refused where a higher epoch stands in the file, or the same one of
another driver. The check and the write are one step where the storage allows it: under a lock on a file system, by compare-and-swap on an
object store with conditional PUT. A version may also name the term of the server that leads: then no driver of an earlier term
can write it, whatever the epochs say. Other stores have neither: there a driver that was stopped between the two may write once more.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from tidemill import statefile
from tidemill.changelog.storage.flock import FolderLock
from tidemill.changelog.storage.open import Storage, Token
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.errors import Fenced, redact

EPOCH, DRIVER, TERM = "epoch", "driver", "term"


MOST_EPOCHS = 1 << 62


class GuardedFile:
    """Such a file, as one driver uses it. Several threads may use it: they take turns."""

    def __init__(self, storage: Storage, name: str, driver: str, *, term: int = 0) -> None:
        """`term`: of the server that leads; 0: no server does."""
        self._storage, self._name, self._driver, self._term = storage, name, driver, term
        self.place = storage.path(name)
        self._turn = threading.Lock()
        self._lock = FolderLock(self.place) if storage.local else nullcontext()
        self._token: Token | None = None
        self._known = False  # the token is of a version that this driver may replace
        self._written: bytes | None = None  # what this driver wrote last, on a file system

    def read(self) -> dict[str, Any] | None:
        """Its content; None if there is no file. Raises FeedBroken, LogUnavailable."""
        with storage_errors(self.place):
            return parsed(self._storage.read(self._name), self.place)

    def write(self, content: Mapping[str, Any], epoch: int) -> None:
        """Durable when this returns. Raises Fenced naming the driver that has come since, LogUnavailable."""
        data = self._signed(content, epoch)
        with self._turn, storage_errors(self.place, writing=True):
            if self._storage.local:
                self._publish(data, epoch)
                return
            if not self._storage.can_swap:
                self._replace(lambda found: data, epoch)
                return
            if not self._known:
                self._take_token(epoch)
            while (token := self._storage.swap(self._name, self._token, data)) is None:
                self._take_token(epoch)
            self._token = token

    def change(self, change: Callable[[Mapping[str, Any] | None], Mapping[str, Any]], epoch: int) -> dict[str, Any] | None:
        """Write what `change` makes of the content. Returns the content before. Raises as `write`."""
        with self._turn, storage_errors(self.place, writing=True):
            if not self._storage.can_swap:
                return self._replace(lambda found: self._signed(change(found), epoch), epoch)
            while True:
                found = self._take_token(epoch)
                token = self._storage.swap(self._name, self._token, self._signed(change(found), epoch))
                if token is not None:
                    self._token = token
                    return found

    def _signed(self, content: Mapping[str, Any], epoch: int) -> bytes:
        signature = {EPOCH: epoch, DRIVER: self._driver} | ({TERM: self._term} if self._term else {})
        return (json.dumps({**content, **signature}) + "\n").encode()

    def _publish(self, data: bytes, epoch: int) -> None:
        """The lock is held for a moment only: a driver that is stopped while it holds the lock keeps the next driver out."""
        folder, _, name = self._name.rpartition("/")
        draft = self._storage.draft(folder)
        try:
            draft.sink.write(data)
            draft.seal()
            with self._lock:
                found = self._storage.read(self._name)
                if found is None or found != self._written:  # else it is this driver's, of this epoch or an earlier one
                    self._check(parsed(found, self.place), epoch)
                draft.publish(name)
                self._written = data
        finally:
            draft.discard()
        self._storage.settle(folder)

    def _replace(self, content: Callable[[Mapping[str, Any] | None], bytes], epoch: int) -> dict[str, Any] | None:
        with self._lock:
            found = self.read()
            self._check(found, epoch)
            self._storage.replace(self._name, content(found))
            return found

    def _take_token(self, epoch: int) -> dict[str, Any] | None:
        """Remember which version the next write replaces. Returns its content. Raises Fenced."""
        found = self._storage.versioned(self._name)
        content = parsed(found[0] if found else None, self.place)
        self._check(content, epoch)
        self._token, self._known = found[1] if found else None, True
        return content

    def _check(self, found: Mapping[str, Any] | None, epoch: int) -> None:
        check_term(found, self._term, self.place)
        if found is None or found[EPOCH] < epoch or (found[EPOCH] == epoch and found.get(DRIVER) == self._driver):
            return
        raise Fenced(
            f"{redact(self.place)} is at epoch {found[EPOCH]} of the driver {found.get(DRIVER)}; this is epoch {epoch} of {self._driver}",
            hint="Another driver has taken the changefeed over; this one stops.",
        )


def check_term(found: Mapping[str, Any] | None, term: int, place: str) -> None:
    """Raises Fenced if the file is of a later term than `term` (0: of no server)."""
    if found is not None and term and found.get(TERM, 0) > term:
        raise Fenced(
            f"{redact(place)} is of term {found[TERM]}; the server of this process led in term {term}",
            hint="Another server leads now; this one stops.",
        )


def parsed(data: bytes | None, place: str) -> dict[str, Any] | None:
    """The content of such a file. One that an earlier version wrote may have no epoch: then it is 0. Raises FeedBroken."""
    if data is None:
        return None
    content = statefile.read(data, place, statefile.FEED_FILE)
    signature = {EPOCH: content.integer(EPOCH, 0, MOST_EPOCHS, default=0)}
    if TERM in content:
        signature[TERM] = content.integer(TERM, 0, MOST_EPOCHS)
    return content.others() | signature | ({DRIVER: content.text(DRIVER)} if DRIVER in content else {})
