"""What the books in a database say of changefeeds, for those who only look."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.sinks.mysql.bookkeeping import SCHEMA
from tidemill.sinks.mysql.codes import Fate
from tidemill.sinks.mysql.connection import Connection, ServerFault

_FEED = f"{SCHEMA}.tidemill_feed_v1"
_NO_TABLE, _NO_DATABASE = 1146, 1049


@dataclass(frozen=True, slots=True)
class FeedState:
    """How far a changefeed has written. `checkpoint_ts`: all at or below it is in the database. The newest attempt, which has `epoch`, was
    over (from_ts, to_ts]."""

    checkpoint_ts: int
    epoch: int
    from_ts: int
    to_ts: int

    @property
    def is_whole(self) -> bool:
        """Nothing above the checkpoint was begun."""
        return self.to_ts <= self.checkpoint_ts

    @property
    def interval(self) -> tuple[int, int] | None:
        """The interval that was begun and is not done; None: there is none."""
        return None if self.is_whole else (self.from_ts, self.to_ts)


def cluster_id_of(connection: Connection) -> str:
    """Return the id of the cluster that a TiDB belongs to; empty if it is none, or does not tell. Raises ServerFault."""
    try:
        rows = connection.rows("SELECT VARIABLE_VALUE FROM mysql.tidb WHERE VARIABLE_NAME = 'cluster_id'")
        connection.rollback()
    except ServerFault as fault:
        if fault.fate is Fate.FAIL:  # no such table, or no right to read it
            return ""
        raise
    return str(rows[0][0]) if rows else ""


def feeds(connection: Connection) -> dict[str, FeedState]:
    """Return the changefeeds that have written into the database, by name. Raises ServerFault."""
    try:
        rows = connection.rows(f"SELECT changefeed, checkpoint_ts, epoch, from_ts, to_ts FROM {_FEED}")
        connection.rollback()
    except ServerFault as fault:
        if fault.code in (_NO_TABLE, _NO_DATABASE):
            return {}
        raise
    return {str(name): FeedState(*map(int, numbers)) for name, *numbers in rows if numbers[-1]}
