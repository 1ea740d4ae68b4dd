"""The relay log: what is about to be applied is kept in files first, as the messages of Kafka, and removed once it is applied."""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path

from tidemill.binlog.drainer.files import RecordFiles
from tidemill.binlog.outputs import slave
from tidemill.binlog.outputs.transactions import Entry

FULL = 10 << 20


class RelayLog:
    """All methods raise OSError."""

    def __init__(self, folder: Path, full: int, zone: tzinfo) -> None:
        self._files, self._zone = RecordFiles(folder, full), zone

    def append(self, entries: list[Entry]) -> None:
        """Keep entries. Raises MalformedRow."""
        for entry in entries:
            self._files.append(slave.encode(entry, self._zone))
        self._files.sync()

    def applied(self) -> None:
        """Everything in it is applied: all files but the one that is written to go."""
        for path in self._files.paths[:-1]:
            path.unlink()

    def close(self) -> None:
        """Close the file."""
        self._files.close()
