"""What a format of tables does for the driver: `Tables`. One class for Delta, one for Iceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from tidemill.sinks.base import FenceCheck
from tidemill.sinks.lake.manifest import TableAt
from tidemill.sinks.lake.shapes import LakeTable

RESOLVED_TS, EPOCH, CHANGEFEED = "tidemill.resolved_ts", "tidemill.epoch", "tidemill.changefeed"
"""What a commit's metadata say."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What each commit carries. `check_fence` is asked right before each commit."""

    changefeed: str
    resolved_ts: int
    epoch: int
    check_fence: FenceCheck

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of a commit."""
        return {CHANGEFEED: self.changefeed, RESOLVED_TS: str(self.resolved_ts), EPOCH: str(self.epoch)}


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table at a version. `schema`: as Spark writes a StructType in JSON. `sizes`: bytes of each data file, by its path in the table."""

    schema: dict[str, Any]
    paths: tuple[str, ...]
    rows: int
    bytes: int
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Move:
    """A table that gets another name. `at`: its last version under the old one. `place`, `table`: where and what it is afterwards."""

    at: TableAt
    place: str
    table: LakeTable


class Tables(Protocol):
    """The tables of a lake. A table is found by `place`. All methods raise SinkError, SinkUnavailable, Fenced.

    A change of a table is made in this order: read what is there, check the fence, commit on what was read. The commit fails if the table
    was changed since. So a driver that was replaced fails at the fence if it has read what its successor wrote, and else at the commit.
    Each method may be called again after it was done in part or whole.
    """

    def place(self, schema: str, table: str) -> str:
        """Return where a table of this name lies. Raises SinkError for a name that cannot be."""

    def exists(self, place: str) -> bool:
        """Return whether there is such a table."""

    def delivered(self, place: str, changefeed: str) -> int:
        """Return the resolved ts of the newest rows that a changefeed has committed, 0 if none."""

    def shape(self, place: str, want: LakeTable, stamp: Stamp) -> None:
        """Make the table, or give it these columns."""

    def begin(self, place: str, want: LakeTable, stamp: Stamp) -> None:
        """Make the table, or take what is there for an earlier table of the name: without rows, with these columns."""

    def merge(self, place: str, want: LakeTable, rows: pa.Table, stamp: Stamp, *, of_interval: bool = True) -> None:
        """Commit rows, each with OP, of which no two have one key. `of_interval`: they are the interval's, which is noted."""

    def append(self, place: str, want: LakeTable, rows: pa.Table, stamp: Stamp) -> None:
        """Commit rows of a change table."""

    def read(self, place: str, at: TableAt | None = None) -> Iterator[pa.RecordBatch]:
        """Return the rows of a version, None for the newest."""

    def empty(self, place: str, stamp: Stamp) -> None:
        """Take all rows out."""

    def rename(self, moves: Sequence[Move], stamp: Stamp) -> None:
        """Let tables be found at their new places, all of them, and nothing at old places that none of them gets. They may take each
        other's places."""

    def drop(self, at: TableAt, stamp: Stamp) -> None:
        """Take all rows out, and the table where older versions can be read without it. Another table at its place stays."""

    def compact(self, place: str, stamp: Stamp) -> None:
        """Join small files."""

    def version(self, schema: str, table: str, table_id: int, place: str) -> TableAt:
        """Return the table's newest version."""

    def clear(self, place: str) -> None:
        """Remove a table with all that it ever held."""

    def files(self, at: TableAt) -> TableFiles:
        """Return the data files of a version."""
