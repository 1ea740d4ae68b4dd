"""Which tables the capture of a server takes: those that some changefeed wants. Pure.

Rules of several changefeeds cannot always be joined into one list: a later rule of a list takes back what an earlier one selects. Where
lists differ, the exclusions are left out, and the capture takes some tables more than it needs. It never takes fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemill.changelog.log_format import CaptureRules, LogIdentity
from tidemill.config.file import ChangefeedConfig
from tidemill.rules.table_filter import TableFilter
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tso import MAX_TS

EVERYTHING = CaptureRules(0, ("*.*",))


def of_config(config: ChangefeedConfig) -> CaptureRules:
    """The rules of one changefeed."""
    return CaptureRules(0, tuple(config.filter.rules), config.case_sensitive)


def union(wanted: Iterable[CaptureRules]) -> CaptureRules:
    """Rules that select at least what each of them selects; everything if there are none."""
    found = list(dict.fromkeys(CaptureRules(0, one.rules, one.case_sensitive) for one in wanted))
    if len(found) == 1:
        return found[0]
    if not found or any(one.rules == EVERYTHING.rules or any(rule.startswith("@") for rule in one.rules) for one in found):
        return EVERYTHING
    rules = dict.fromkeys(rule for one in found for rule in one.rules if not rule.startswith("!"))
    return CaptureRules(0, tuple(rules), all(one.case_sensitive for one in found))


def newest(identity: LogIdentity) -> CaptureRules:
    """The rules that hold at the end of a log. Their from_ts is the one from which on they hold."""
    return identity.rules_above(MAX_TS)[0] or EVERYTHING


def lacking(identity: LogIdentity, ts: int, wanted: TableFilter, tables: Sequence[TableVersion]) -> list[str]:
    """The names of tables that a changefeed wants from `ts` on, and that the log does not have from there on."""
    filters = [
        TableFilter(entry.rules, case_sensitive=entry.case_sensitive, where="capture rule:")
        for entry in identity.rules_above(ts)
        if entry is not None
    ]
    ours = [(v.schema, v.table) for v in tables if v.info.has_rows and wanted.matches(v.schema, v.table)]
    return [f"{schema}.{table}" for schema, table in ours if not all(f.matches(schema, table) for f in filters)]
