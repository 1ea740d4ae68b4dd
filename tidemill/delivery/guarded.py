"""A small JSON file that only the newest driver of a changefeed may write: the fence and the checkpoint are such files.

Each version names an epoch and the driver that wrote it. A write is refused where a higher epoch stands in the file, or the same one of
another driver. The check and the write are one step where the storage allows it, see `StateFile`. A version may also name the term of the
server that leads: then no driver of an earlier term can write it, whatever the epochs say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tidemill import statefile
from tidemill.changelog.storage.base import Storage
from tidemill.changelog.storage.state_file import StateFile
from tidemill.errors import Fenced, redact

EPOCH, DRIVER, TERM = "epoch", "driver", "term"


MOST_EPOCHS = 1 << 62


class GuardedFile:
    """Such a file, as one driver uses it. Several threads may use it: they take turns."""

    def __init__(self, storage: Storage, name: str, driver: str, *, term: int = 0) -> None:
        """`term`: of the server that leads; 0: no server does."""
        self._file = StateFile(storage, name)
        self._driver, self._term = driver, term
        self.place = self._file.place
        self._written: bytes | None = None  # what this driver wrote last: of this epoch or an earlier one

    def read(self) -> dict[str, Any] | None:
        """Its content; None if there is no file. Raises FeedBroken, LogUnavailable."""
        return parsed(self._file.read(), self.place)

    def write(self, content: Mapping[str, Any], epoch: int) -> None:
        """Durable when this returns. Raises Fenced naming the driver that has come since, LogUnavailable."""
        data = self._signed(content, epoch)

        def change(found: bytes | None) -> bytes:
            if found is None or found != self._written:
                self._check(parsed(found, self.place), epoch)
            return data

        self._written = self._file.change(change)

    def change(self, change: Callable[[Mapping[str, Any] | None], Mapping[str, Any]], epoch: int) -> dict[str, Any] | None:
        """Write what `change` makes of the content. Returns the content before. Raises as `write`."""
        before: dict[str, Any] | None = None

        def changed(found: bytes | None) -> bytes:
            nonlocal before
            before = parsed(found, self.place)
            self._check(before, epoch)
            return self._signed(change(before), epoch)

        self._written = self._file.change(changed)
        return before

    def _signed(self, content: Mapping[str, Any], epoch: int) -> bytes:
        signature = {EPOCH: epoch, DRIVER: self._driver} | ({TERM: self._term} if self._term else {})
        return (json.dumps({**content, **signature}) + "\n").encode()

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
    content = statefile.whole(data, place, statefile.FEED_FILE)
    if content is None:
        return None
    signature = {EPOCH: content.integer(EPOCH, 0, MOST_EPOCHS, default=0)}
    if TERM in content:
        signature[TERM] = content.integer(TERM, 0, MOST_EPOCHS)
    return content.others() | signature | ({DRIVER: content.text(DRIVER)} if DRIVER in content else {})
