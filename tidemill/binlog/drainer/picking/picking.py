"""Which entries go downstream, beside the filters of tables: `sync-ddl`, event rules, and loopback control. Pure.

Loopback control: two clusters, each with a Drainer into the other. A Drainer notes its channel in each transaction that it makes, in the
table retl._drainer_repl_mark. The other one, of the same channel, sees that row in the binlog and leaves the transaction out.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.binlog.drainer.picking.rules import OTHER, ROWS, Rules
from tidemill.binlog.drainer.settings import DrainerSettings
from tidemill.binlog.filters import Filter
from tidemill.binlog.outputs.ddl_text import read_ddl
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry, TableChanges, Transaction

MARK_SCHEMA, MARK_TABLE = "retl", "_drainer_repl_mark"
MARK_CHANNEL = "channel_id"


class Tables(Filter):
    """The tables that are read: those that the settings take, and the marks."""

    def __init__(self, settings: DrainerSettings) -> None:
        super().__init__(settings.ignore_schemas, settings.ignore_tables, settings.do_schemas, settings.do_tables)
        self._marks = settings.loopback_control

    def takes(self, schema: str, table: str) -> bool:
        """Whether a table is read."""
        return (self._marks and is_mark(schema, table)) or self.delivers(schema, table)

    def delivers(self, schema: str, table: str) -> bool:
        """Whether a table is delivered."""
        return super().takes(schema, table)


def is_mark(schema: str, table: str) -> bool:
    """Whether a table is that of the marks."""
    return schema.lower() == MARK_SCHEMA and table.lower() == MARK_TABLE


class Picking:
    """Raises ConfigError for a pattern that is none."""

    def __init__(self, settings: DrainerSettings) -> None:
        self._tables, self._rules = Tables(settings), Rules(settings.rules)
        self._ddls = settings.sync_ddl
        self._channel = settings.channel_id if settings.loopback_control else None

    @property
    def is_needed(self) -> bool:
        """Whether anything is left out at all."""
        return bool(self._rules) or not self._ddls or self._channel is not None

    def looks_at_rows(self, schema: str, table: str) -> bool:
        """Whether single changes of a table's rows may be left out, or say what else is."""
        if self._channel is not None and is_mark(schema, table):
            return True
        return any(self._rules.leaves_out(schema, table, event) for event in ROWS.values())

    def picked(self, entry: Entry) -> Entry | None:
        """Return what of an entry goes downstream; None: nothing."""
        if isinstance(entry, DdlBinlog):
            return entry if self._ddls and not self._is_left_out(entry) else None
        if self._channel is not None:
            if self._is_own(entry):
                return None
            kept = tuple(one for one in entry.tables if not is_mark(*one.version.name) or self._tables.delivers(*one.version.name))
            entry = replace(entry, tables=kept)
        if self._rules:
            entry = replace(entry, tables=tuple(filter(None, map(self._changes, entry.tables))))
        return entry if entry.tables else None

    def _is_left_out(self, entry: DdlBinlog) -> bool:
        ddl = entry.ddl
        if self._channel is not None and is_mark(ddl.schema, ddl.table) and not self._tables.delivers(ddl.schema, ddl.table):
            return True
        if not self._rules:
            return False
        kind = read_ddl(ddl.query, ddl.schema).kind or OTHER
        return self._rules.leaves_out(ddl.schema, ddl.table, kind, ddl.query)

    def _changes(self, changes: TableChanges) -> TableChanges | None:
        name = changes.version.name
        kept = tuple(row for row in changes.rows if not self._rules.leaves_out(*name, ROWS[row.kind]))
        return replace(changes, rows=kept) if kept else None

    def _is_own(self, transaction: Transaction) -> bool:
        """Whether a Drainer of the own channel made a transaction."""
        for changes in transaction.tables:
            if not is_mark(*changes.version.name):
                continue
            number = next((c.id for c in changes.version.info.columns if c.name.lower() == MARK_CHANNEL), None)
            for image in (image for row in changes.rows for image in (row.old, row.new) if image is not None):
                if number is not None and number in image and image[number].value == self._channel:
                    return True
        return False
