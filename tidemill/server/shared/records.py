"""The changefeeds of a log as its servers share them: LOG/server/state.json. Calls do IO, and belong in a thread.

The file is of one term: the server that leads writes its term into it when it takes over, and writes only while its term stands there. So a
leader that was frozen can change nothing once another one has begun, whatever it was about to do. All changefeeds are written at once:
there are hundreds at most, and only a person or an error changes a state. Checkpoints lie in files of their own, with the term in them.

`format` is the oldest version of this file that a reader has to know. A server refuses a newer one. A field that it does not know it keeps.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill import statefile
from tidemill.changelog.storage.open import Storage
from tidemill.errors import LogCorrupt, TidemillError, redact
from tidemill.server.errors import NotOwner
from tidemill.server.shared.file import SharedFile
from tidemill.server.shared.lease import MOST_TERMS

NAME = "state.json"
FORMAT = 1
"""What this version writes, and the newest that it reads."""
NEWEST_FORMAT = 1 << 20
SERVERS_FILE = statefile.Kind(LogCorrupt, "Restore it from a copy, and start the servers again.")


class NewerState(TidemillError):
    """The shared state is of a newer version of Tidemill."""

    code = "TM:ErrNewerState"


@dataclass(frozen=True, slots=True)
class Record:
    """A changefeed. `settings`: as `settings.FeedSettings` writes them. `error`: code, message, at (Unix seconds)."""

    settings: Mapping[str, Any] = field(repr=False)
    state: str
    error: Mapping[str, Any] | None = None
    others: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a later version."""


class Records:
    """The changefeeds, as the server of one term changes them."""

    def __init__(self, storage: Storage) -> None:
        self._file = SharedFile(storage, NAME)
        self._turn = threading.Lock()
        self._term, self._server = 0, ""
        self._feeds: dict[str, Record] = {}
        self._others: dict[str, Any] = {}
        self._version = self._written = 0

    @property
    def place(self) -> str:
        """Path or URL of the file."""
        return self._file.place

    def read(self) -> dict[str, Record] | None:
        """Return the changefeeds as they are stored; None if no server ever led. Raises NewerState, LogCorrupt, LogUnavailable."""
        data = self._file.read()
        return None if data is None else self._parsed(data)[1]

    def take(self, least: int, server: str) -> tuple[int, dict[str, Record] | None]:
        """Become the server that may change them. Return its term, which is `least` or more and above that of every other server, and the
        changefeeds as they are (None: no server ever led). Raises as `read`."""
        with self._turn:
            self._server = server
            known = False

            def change(data: bytes | None) -> bytes:
                nonlocal known
                known, self._feeds, self._others, found = data is not None, {}, {}, 0
                if data is not None:
                    found, self._feeds, self._others = self._parsed(data)
                self._term = max(least, found + 1)
                return self._whole()

            self._file.change(change)
            return self._term, dict(self._feeds) if known else None

    def known(self, feed: str) -> Record | None:
        """Return a changefeed as this server last read or wrote it; None if it does not exist."""
        with self._turn:
            return self._feeds.get(feed)

    def put(self, feed: str, record: Record) -> None:
        """Create or change one. It is durable when this returns. Raises NotOwner, LogUnavailable; a change that could not be
        written is written with the next one, a new one is not there."""
        with self._turn:
            before = self._feeds.get(feed)
            if before == record and self._written == self._version:
                return
            self._feeds[feed] = record
            self._version += 1
            try:
                self._write()
            except TidemillError:
                if before is None:
                    del self._feeds[feed]
                raise

    def drop(self, feed: str) -> None:
        """Remove one. Raises as `put`."""
        with self._turn:
            self._feeds.pop(feed, None)
            self._version += 1
            self._write()

    def flush(self) -> None:
        """Write what could not be written before. Raises as `put`."""
        with self._turn:
            if self._written != self._version:
                self._write()

    def _write(self) -> None:
        def change(data: bytes | None) -> bytes:
            if data is None:
                raise NotOwner(f"{redact(self.place)} is gone", hint="Restore it from a copy, and start the servers again.")
            found = self._parsed(data)[0]
            if found != self._term:
                raise NotOwner(f"another server leads: {redact(self.place)} is of term {found}, this server led in term {self._term}")
            return self._whole()

        version = self._version
        self._file.change(change)
        self._written = version

    def _whole(self) -> bytes:
        feeds = {
            name: {**one.others, "settings": dict(one.settings), "state": one.state, "error": one.error}
            for name, one in self._feeds.items()
        }
        head = {"format": FORMAT, "term": self._term, "server": self._server, "version": self._version}
        return (json.dumps({**self._others, **head, "feeds": feeds}, indent=1) + "\n").encode()

    def _parsed(self, data: bytes) -> tuple[int, dict[str, Record], dict[str, Any]]:
        """Return the term, the changefeeds and the fields of a later version."""
        place = redact(self.place)
        found = statefile.read(data, place, SERVERS_FILE)
        form = found.integer("format", 1, NEWEST_FORMAT)
        if form > FORMAT:
            raise NewerState(
                f"{place} has format {form}: a newer version of Tidemill leads or has led; this one knows formats up to {FORMAT}",
                hint="Run the newer version on all servers. There is no way back for a state that it has written.",
            )
        feeds = {}
        parts = found.part("feeds")
        for name in parts.others():
            one = parts.part(name)
            error = one.plain("error") if "error" in one else None
            others = one.others(("settings", "state", "error"))
            feeds[name] = Record(one.plain("settings"), one.text("state"), error, others)
        return found.integer("term", 1, MOST_TERMS), feeds, found.others(("format", "term", "server", "version", "feeds"))
