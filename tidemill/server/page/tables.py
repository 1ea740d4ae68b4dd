"""The tables of one changefeed, with how far the log has each of them and what holds it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.capture.status import CaptureStatus
from tidemill.changelog.spread import partition_of
from tidemill.server.page.overview import lag_s
from tidemill.server.page.remedies import remedy
from tidemill.server.service import TableLists, TableName

SHOWN = 1000
"""Tables in an answer at most. Those that are held up come first."""


def tables(lists: TableLists, found: CaptureStatus, now: float) -> dict[str, Any]:
    """Return `total`, and `items`: database, table, id, whether it has a usable key (`eligible`), log partition, lag in seconds, and of a
    table that is held up the cause, since when, and what to do.

    A table's rows are in the log up to the head of its log partition, or of the partitions that it is split over.
    """
    held: dict[str, dict[str, Any]] = {}
    for one in found.held_tables:
        held.setdefault(str(one.get("table", "")), one)
    eligible = [_table(one, found, held, now) | {"eligible": True} for one in lists.eligible_tables]
    others = [_table(one, found, held, now) | {"eligible": False} for one in lists.ineligible_tables]
    rows = sorted((*eligible, *others), key=lambda row: (row["cause"] is None, row["eligible"], row["database"], row["table"]))
    return {"total": len(rows), "items": rows[:SHOWN]}


def _table(one: TableName, found: CaptureStatus, held: dict[str, dict[str, Any]], now: float) -> dict[str, Any]:
    name = f"{one.database_name}.{one.table_name}"
    partitions = _partitions(one, name, found)
    heads = [found.heads[p] for p in partitions]
    holder = held.get(name)
    ts = holder["resolved_ts"] if holder is not None else min(heads, default=0)
    cause = holder["cause"] if holder is not None else None
    return {
        "database": one.database_name,
        "table": one.table_name,
        "table_id": one.table_id,
        "is_partition": one.is_partition,
        "partitions": partitions,
        "resolved_ts": str(ts),
        "resolved_lag_s": lag_s(ts, now),
        "cause": cause,
        "held_s": holder["seconds"] if holder is not None else None,
        "remedy": remedy(cause) if cause is not None else "",
    }


def _partitions(one: TableName, name: str, found: CaptureStatus) -> Sequence[int]:
    count = len(found.heads)
    split = [p for p in found.split_tables.get(name, ()) if p < count]
    if split:
        return split
    return [partition_of(one.table_id, count)] if count else []
