"""The schema history that a log holds: the newest suitable snapshot, and the schema stream after it."""

from __future__ import annotations

from tidemill.changelog.reader import LogReader
from tidemill.errors import LogCorrupt, SchemaError, redact
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tso import describe


def load_history(
    reader: LogReader, upto_ts: int | None = None, strict: bool = False, *, from_ts: int | None = None, may_stop: bool = False
) -> SchemaHistory:
    """Load the history of (from_ts, upto_ts], by default all that the log holds. It may begin before `from_ts`.

    `strict`: the text of a DDL that cannot be printed raises when it is requested. `may_stop`: see `follow`. Raises StartTsOutOfLog,
    LogCorrupt, SchemaError.
    """
    begin = reader.start_ts if from_ts is None else from_ts
    fitting = [ts for ts in reader.snapshots() if ts <= begin]
    if not fitting:
        raise LogCorrupt(
            f"{redact(reader.location)} has no schema snapshot at or before {describe(begin)}",
            hint="A log has one at its start_ts. Restore it from a copy, or start a new log.",
        )
    pairs = reader.read_snapshot(fitting[-1])
    history = SchemaHistory.bootstrap(fitting[-1], zip(pairs["key"].to_pylist(), pairs["value"].to_pylist(), strict=True), strict=strict)
    return follow(history, reader, upto_ts, may_stop=may_stop)


def follow(history: SchemaHistory, reader: LogReader, upto_ts: int | None = None, *, may_stop: bool = False) -> SchemaHistory:
    """Advance a history by the schema stream, up to its head or `upto_ts`. Return the same history.

    `may_stop`: a FLASHBACK CLUSTER ends the history just before it (`history.stopped`) instead of raising, so that all before it can be
    read."""
    if may_stop and history.stopped is not None:
        return history
    end = reader.schema_head() if upto_ts is None else upto_ts
    if end > history.resolved_ts:
        try:
            history.advance(reader.read_schema(history.resolved_ts, end), end)
        except SchemaError:
            if not may_stop or history.stopped is None:
                raise
    return history
