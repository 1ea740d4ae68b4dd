"""Where a Drainer writes: one outlet for each dest-db-type."""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path
from typing import Protocol

from tidemill.binlog.drainer.files import RecordFiles
from tidemill.binlog.drainer.kafka import KafkaOutlet
from tidemill.binlog.drainer.mysql import MysqlOutlet
from tidemill.binlog.drainer.relay import RelayLog
from tidemill.binlog.drainer.savepoint import Position, Savepoint
from tidemill.binlog.drainer.settings import DrainerSettings
from tidemill.binlog.outputs import pb
from tidemill.binlog.outputs.transactions import Entry


class Outlet(Protocol):
    """Takes what is delivered, in order. Its calls come one at a time, from any thread, and may block."""

    def write(self, entries: list[Entry]) -> None:
        """Take entries. Raises SinkError, OSError."""

    def flush(self) -> None:
        """Return when all that was taken is kept downstream. Raises SinkError, OSError."""

    def close(self) -> None:
        """Let go of the downstream."""

    def load(self) -> Position | None:
        """Return how far everything is delivered; None at the first start. Raises ConfigError, SinkError."""

    def save(self, position: Position) -> None:
        """Keep how far everything is delivered. Raises SinkError, OSError."""


class FileOutlet:
    """The `file` form: pb_binlog messages."""

    def __init__(self, folder: Path, zone: tzinfo, savepoint: Savepoint) -> None:
        self._files, self._zone = RecordFiles(folder), zone
        self.load, self.save = savepoint.load, savepoint.save

    def write(self, entries: list[Entry]) -> None:
        """Append each as a record."""
        for entry in entries:
            self._files.append(pb.encode(entry, self._zone))

    def flush(self) -> None:
        """Sync the file."""
        self._files.sync()

    def close(self) -> None:
        """Close the file."""
        self._files.close()


class RelayedOutlet:
    """A database behind a relay log."""

    def __init__(self, outlet: MysqlOutlet, relay: RelayLog) -> None:
        self._outlet, self._relay = outlet, relay
        self.load, self.save = outlet.load, outlet.save

    def write(self, entries: list[Entry]) -> None:
        """Keep entries in the relay log, and apply them."""
        self._relay.append(entries)
        self._outlet.write(entries)

    def flush(self) -> None:
        """Everything is applied: the relay log is not needed any more."""
        self._outlet.flush()
        self._relay.applied()

    def close(self) -> None:
        """Close both."""
        self._relay.close()
        self._outlet.close()


def open_outlet(settings: DrainerSettings, cluster_id: int, zone: tzinfo) -> Outlet:
    """Return the outlet of the settings. Raises ConfigError, SinkError, OSError."""
    match settings.db_type:
        case "file":
            return FileOutlet(Path(settings.to.dir or settings.data_dir), zone, Savepoint(Path(settings.data_dir)))
        case "kafka":
            return KafkaOutlet(settings.to, cluster_id, zone, Savepoint(Path(settings.data_dir)))
    outlet = MysqlOutlet(settings, cluster_id)
    if not settings.relay_dir:
        return outlet
    return RelayedOutlet(outlet, RelayLog(Path(settings.relay_dir), settings.relay_max_file_size, zone))
