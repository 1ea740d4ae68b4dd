"""Where a log begins, for its readers.

start_ts - 2    nothing yet; then the statements that create the tables, at start_ts - 1 (`create-tables`)
start_ts - 1    then the rows that the tables had, at start_ts, if the log holds them (`--snapshot`)
start_ts        then changes: segments and schemas speak of what lies above
"""

from __future__ import annotations

from tidemill.changelog import initial_load
from tidemill.changelog.reader import LogReader
from tidemill.tso import SavedTs


def before_tables(ts: int, *, created: bool) -> int:
    """Return the ts where a batch must begin to include the tables as of `ts`, and, with `created`, the statements that create them."""
    return ts - 2 if created else ts - 1


def holds_tables(reader: LogReader, start_ts: int) -> bool:
    """Return whether the log holds the tables as of its start. They may still be on their way."""
    return initial_load.read_plan(reader.storage, start_ts) is not None


def first_ts(reader: LogReader, *, created: bool = False) -> int:
    """Return the ts above which everything in the log lies."""
    start_ts = reader.start_ts
    return before_tables(start_ts, created=created) if holds_tables(reader, start_ts) else start_ts


def is_covered(reader: LogReader, ts: int, *, created: bool = True) -> bool:
    """Return whether the log has all that lies above `ts`, so that a changefeed or a query can begin there. `created`: it may also take the
    statements that create the tables."""
    start_ts = reader.start_ts
    return ts >= start_ts or (ts >= before_tables(start_ts, created=created) and holds_tables(reader, start_ts))


def within(start_ts: int, ts: int) -> int:
    """Return `ts`, or the log's start if that is higher: below it there are only tables, to which the schemas of the start apply.

    For schemas only. For rows see `begin_of_changes`."""
    return max(start_ts, ts)


def begin_of_changes(reader: LogReader, ts: int) -> int:
    """Return the ts above which the log's segments have what lies above `ts`: the log's start for the instants below it, where only
    tables stand, else `ts`.

    Any other ts below the start stays as it is: the changes between them are gone, and who reads or registers there has to hear that.
    """
    start_ts = reader.identity.start_ts
    is_instant = before_tables(start_ts, created=True) <= ts < start_ts
    return start_ts if is_instant and holds_tables(reader, start_ts) else ts


def saved_begin(reader: LogReader, saved_ts: SavedTs) -> SavedTs:
    """As `begin_of_changes`, of a checkpoint: what the log has to keep for it."""
    return SavedTs(begin_of_changes(reader, saved_ts))
