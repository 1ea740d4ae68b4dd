"""Where a Drainer writes: one outlet for each dest-db-type, and a place for the position."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Protocol, runtime_checkable

from tidemill.binlog.drainer.database.applying import Manner
from tidemill.binlog.drainer.database.checkpoint import CheckpointTable
from tidemill.binlog.drainer.database.database import Database, Session
from tidemill.binlog.drainer.database.moments import Moments
from tidemill.binlog.drainer.kafka import KafkaOutlet
from tidemill.binlog.drainer.mysql import MysqlOutlet
from tidemill.binlog.drainer.picking.picking import Picking
from tidemill.binlog.drainer.records.files import RecordFiles
from tidemill.binlog.drainer.records.relay import RelayLog
from tidemill.binlog.drainer.rows.batching import Pieces
from tidemill.binlog.drainer.rows.messages import Form, MessageEncoding
from tidemill.binlog.drainer.rows.reading import Delivered, Rows
from tidemill.binlog.drainer.savepoint import Position, Savepoint
from tidemill.binlog.drainer.settings import DATABASES, DrainerSettings
from tidemill.binlog.outputs import pb
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry
from tidemill.config.database import MysqlOptions


class Writing(Protocol):
    """Takes what is delivered, in order. Its calls come one at a time (but for `close`), from any thread, and may block."""

    def write(self, entries: Sequence[Entry]) -> None:
        """Take entries. Raises SinkError, OSError."""

    def flush(self) -> None:
        """Return when all that was taken is kept downstream. Raises SinkError, OSError."""

    def close(self) -> None:
        """Let go of the downstream."""


class TakesRows(Writing, Protocol):
    """Takes rows too."""

    def write_rows(self, rows: Rows) -> None:
        """Take rows. Raises SinkError, MalformedRow."""


class Places(Protocol):
    """Where the position is kept."""

    def load(self) -> Position | None:
        """Return how far everything is delivered; None at the first start. Raises ConfigError, SinkError."""

    def save(self, position: Position) -> None:
        """Keep how far everything is delivered. Raises SinkError, OSError."""

    def close(self) -> None:
        """Let go of the place."""


@runtime_checkable
class CountsMissed(Protocol):
    """Knows whether rows that it changes were there."""

    @property
    def missed_rows(self) -> int:
        """How many rows were to be changed or deleted and were not there, since the start."""


class Outlet:
    """A downstream, and how far it is. Safe for threads: a Drainer that is asked to end while entries are written waits for them."""

    def __init__(
        self, writing: Writing, places: Places, picking: Picking, rows: TakesRows | None = None, *, is_behind: bool = False
    ) -> None:
        """`rows`: `writing`, if it takes rows; `is_behind`: these are downstream when the next ones are taken."""
        self._writing, self._places, self._picking, self._rows, self.is_behind = writing, places, picking, rows, is_behind
        self._turn = threading.Lock()
        self.load = places.load

    @property
    def missed_rows(self) -> int:
        """How many rows were to be changed or deleted in a database and were not there, since the start."""
        return self._writing.missed_rows if isinstance(self._writing, CountsMissed) else 0

    def write(self, entries: Sequence[Delivered]) -> None:
        """Take what is delivered; entries that are left out are passed over. Raises SinkError, MalformedRow, OSError."""
        with self._turn:
            waiting: list[Entry] = []
            for one in entries:
                if not isinstance(one, Rows):
                    waiting.append(one)
                    continue
                assert self._rows is not None, "rows come only where they are taken"
                if waiting:
                    self._write(waiting)
                    waiting = []
                self._rows.write_rows(one)
            if waiting:
                self._write(waiting)

    def _write(self, entries: list[Entry]) -> None:
        if self._picking.is_needed:
            entries = [one for one in map(self._picking.picked, entries) if one is not None]
        if entries:
            self._writing.write(entries)
        elif self._rows is not None and self.is_behind:
            self._rows.flush()  # `write` promises that earlier rows are downstream, and no entry is left whose write would see to it

    def flush(self) -> None:
        """Return when all that was taken is kept downstream. Raises SinkError, OSError."""
        with self._turn:
            self._writing.flush()

    def save(self, position: Position) -> None:
        """Keep how far everything is delivered. Raises SinkError, OSError."""
        with self._turn:
            self._places.save(position)

    def close(self) -> None:
        """Let go of all, also of what is being written."""
        self._places.close()
        self._writing.close()


class FileOutlet:
    """The `file` form: pb_binlog messages."""

    def __init__(self, folder: Path, zone: tzinfo) -> None:
        self._files, self._zone = RecordFiles(folder), zone
        self._encoding = MessageEncoding(Form.FILE, zone)

    def write(self, entries: Sequence[Entry]) -> None:
        """Append each as a record."""
        self._files.append(*(pb.encode(entry, self._zone) for entry in entries))
        if any(isinstance(entry, DdlBinlog) for entry in entries):
            self._encoding.forget()

    def write_rows(self, rows: Rows) -> None:
        """Append each transaction as a record."""
        if isinstance(rows.batches, Pieces):
            self._files.append_in_parts(*self._encoding.in_parts(rows, rows.batches))
        else:
            self._files.append(*self._encoding.payloads(rows))

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

    @property
    def missed_rows(self) -> int:
        """Those of the database."""
        return self._outlet.missed_rows

    def write(self, entries: Sequence[Entry]) -> None:
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
    picking = Picking(settings)
    if settings.db_type not in DATABASES:
        writing = KafkaOutlet(settings.to, cluster_id, zone) if settings.db_type == "kafka" else FileOutlet(_folder(settings), zone)
        return Outlet(writing, open_places(settings, cluster_id, None), picking, writing)
    outlet = MysqlOutlet(settings, cluster_id)
    try:
        places = open_places(settings, cluster_id, outlet.database)
    except BaseException:
        outlet.close()
        raise
    if not settings.relay_dir:
        return Outlet(outlet, places, picking, outlet, is_behind=True)
    relay = RelayLog(Path(settings.relay_dir), settings.relay_max_file_size, zone)
    return Outlet(RelayedOutlet(outlet, relay), places, picking)


def _folder(settings: DrainerSettings) -> Path:
    return Path(settings.to.dir or settings.data_dir)


def open_places(settings: DrainerSettings, cluster_id: int | None, downstream: Database | None) -> Places:
    """Return where the position is kept: as [syncer.to.checkpoint] says, else with the rows in a database, else in the data folder.

    `cluster_id` None: PD does not tell it. Raises SinkError, ConfigError.
    """
    place = settings.to.checkpoint
    kind = place.type or ("file" if downstream is None else settings.db_type)
    if kind == "file":
        return Savepoint(Path(settings.data_dir))
    moments = Moments(downstream) if downstream is not None and settings.db_type == "tidb" else None
    if not place.host and downstream is not None:
        return CheckpointTable(downstream, place.schema, place.table, cluster_id, moments)
    database = Database(
        MysqlOptions(place.host or "localhost", place.port, place.user, place.password, servers_key=True), Session(), Manner()
    )
    return OwnCheckpoint(database, place.schema, place.table, cluster_id, moments)


class OwnCheckpoint(CheckpointTable):
    """A checkpoint table that has its own database."""

    def close(self) -> None:
        """Close its connection."""
        self._database.close()
