"""Which tables a capture subscribes to: the rules of `capture --config`, as log.json keeps them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemill import tso
from tidemill.changelog.layout import CaptureRules, LogIdentity
from tidemill.changelog.writer import LogWriter
from tidemill.rules.table_filter import TableFilter
from tidemill.tidb.schema.tracking.versions import TableVersion

_log = logging.getLogger(__name__)

EVERYTHING = ("*.*",)

Wants = Callable[[TableVersion], bool]


def table_filter(rules: CaptureRules) -> TableFilter:
    """The rules compiled. Raises ConfigError."""
    return TableFilter(rules.rules, case_sensitive=rules.case_sensitive, where="capture rule:")


def wants_of(*entries: CaptureRules | None) -> Wants:
    """Is a table wanted by some of the entries? None stands for all tables."""
    filters = [table_filter(entry) for entry in entries if entry is not None]
    if len(filters) < len(entries):
        return lambda version: True
    return lambda version: any(f.matches(version.schema, version.table) for f in filters)


def in_force(identity: LogIdentity, from_ts: int) -> list[CaptureRules | None]:
    """The rules of rows above `from_ts`, one after the other; None: all tables."""
    entries = sorted(identity.capture_rules, key=lambda entry: entry.from_ts)
    before = [entry for entry in entries if entry.from_ts <= from_ts]
    return [before[-1] if before else None, *(entry for entry in entries if entry.from_ts > from_ts)]


def same(one: CaptureRules | None, other: CaptureRules | None) -> bool:
    """Do two entries let the same tables in, whenever they began?"""
    return _plain(one) == _plain(other)


def _plain(entry: CaptureRules | None) -> tuple[Sequence[str], bool]:
    if entry is None or entry.rules == EVERYTHING:
        return EVERYTHING, False
    return entry.rules, entry.case_sensitive


def settle(writer: LogWriter, wanted: CaptureRules | None, log_end: int) -> None:
    """Where the rules that are wanted differ from the log's, the latter hold up to `log_end`, which no partition is past."""
    identity = writer.identity
    if wanted is not None and not same(in_force(identity, tso.MAX_TS)[0], wanted):
        writer.set_identity(identity.with_rules(replace(wanted, from_ts=log_end)))
        _log.info("from %s on tables are captured by the rules %s", tso.describe(log_end), ", ".join(wanted.rules))
