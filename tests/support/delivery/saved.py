"""Positions that count as durable in tests, and what drivers plan of them."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.delivery.batch import Save
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.position import Plan, Position, Ranges, SavedPosition, end_of


def saved(position: Position) -> SavedPosition:
    return SavedPosition(position.ts, position.parts)


def plan(from_ts: int, to_ts: int, ranges: Ranges = ()) -> Plan:
    """Of a batch over (from_ts, to_ts], or over a range for each log partition."""
    begin = Position.of([start for start, _ in ranges]) if ranges else Position(from_ts)
    return Plan(saved(begin), end_of(to_ts, ranges))


def saving(note: Callable[[Report], object]) -> Save:
    """What saves a checkpoint by noting the report."""

    def save(report: Report) -> SavedPosition:
        note(report)
        return saved(report.end)

    return save
