"""Which tables a capture subscribes to: the rules of `capture --capture-config`, as log.json keeps them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemill import tso
from tidemill.changelog.log_format import CaptureRules
from tidemill.changelog.writer import LogWriter
from tidemill.rules.table_filter import TableFilter
from tidemill.tidb.schema.tracking.versions import TableVersion

_log = logging.getLogger(__name__)

EVERYTHING = ("*.*",)

Wants = Callable[[TableVersion], bool]


def table_filter(rules: CaptureRules) -> TableFilter:
    """Compile the rules. Raises ConfigError."""
    return TableFilter(rules.rules, case_sensitive=rules.case_sensitive, where="capture rule:")


def wants_of(*entries: CaptureRules | None) -> Wants:
    """Return a predicate: do some of the entries select the table? None stands for all tables."""
    filters = [table_filter(entry) for entry in entries if entry is not None]
    if len(filters) < len(entries):
        return lambda version: True
    return lambda version: any(f.matches(version.schema, version.table) for f in filters)


def same(one: CaptureRules | None, other: CaptureRules | None) -> bool:
    """Return whether two entries select the same tables, whatever their from_ts."""
    return _plain(one) == _plain(other)


def _plain(entry: CaptureRules | None) -> tuple[Sequence[str], bool]:
    if entry is None or entry.rules == EVERYTHING:
        return EVERYTHING, False
    return entry.rules, entry.case_sensitive


def settle(writer: LogWriter, wanted: CaptureRules | None, log_end: int) -> None:
    """If the wanted rules differ from the log's, record that they apply from `log_end` on, which no partition has passed."""
    identity = writer.identity
    if wanted is not None and not same(identity.rules_above(tso.MAX_TS)[0], wanted):
        rules = replace(wanted, from_ts=log_end)
        writer.change_identity(lambda current: current.with_rules(rules))
        _log.info("from %s on the capture rules are %s", tso.describe(log_end), ", ".join(wanted.rules))
