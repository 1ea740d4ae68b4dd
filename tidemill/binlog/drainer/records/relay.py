"""The relay log: what is about to be applied is kept in files first, as the messages of Kafka, and removed once it is applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import tzinfo
from pathlib import Path

from tidemill.binlog.drainer.records.files import NAME, RecordFiles
from tidemill.binlog.drainer.records.replaying import told_in
from tidemill.binlog.outputs import slave
from tidemill.binlog.outputs.named import Told
from tidemill.binlog.outputs.reading import decode_slave
from tidemill.binlog.outputs.transactions import Entry


class RelayLog:
    """All methods raise OSError."""

    def __init__(self, folder: Path, full: int, zone: tzinfo) -> None:
        self._files, self._zone = RecordFiles(folder, full), zone

    def append(self, entries: Sequence[Entry]) -> None:
        """Keep entries. Raises MalformedRow."""
        self._files.append(*(slave.encode(entry, self._zone) for entry in entries))
        self._files.sync()

    def applied(self) -> None:
        """Everything in it is applied: all files but the one that is written to go."""
        for path in self._files.paths[:-1]:
            path.unlink()

    def close(self) -> None:
        """Close the file."""
        self._files.close()


def relayed(folder: Path, zone: tzinfo) -> Iterator[Told]:
    """Yield what a relay log tells that nobody writes. Raises MalformedMessage naming file and offset."""
    paths = sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name)) if folder.is_dir() else []
    return told_in(paths, decode_slave, zone, torn=True)
