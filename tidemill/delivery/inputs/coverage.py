"""Checks that the log has what a changefeed wants.

A capture may leave tables out; log.json says which, and from when (`capture --capture-config`). And rows may come into a table without
change events, by a physical import or a restore. The changefeed stops if TiDB notes that (TiDB 9 and newer), or if TiKV shows rows of a
physical import (some versions do, for the rows that a scan finds).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemill.changelog.files.bounds import within
from tidemill.changelog.log_format import CaptureRules, LogIdentity
from tidemill.errors import DataWithoutEvents, NotCaptured
from tidemill.rules.table_filter import TableFilter
from tidemill.tidb.schema.codes import TableMode
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tso import describe


class CoverageCheck:
    """Checks the rules of a log. `wants`: whether the changefeed delivers rows of a table."""

    def __init__(
        self,
        identity: Callable[[], LogIdentity],
        wants: Callable[[TableVersion], bool],
        imports: Callable[[], Sequence[tuple[int, int]]] = lambda: (),
    ) -> None:
        """`imports`: commit_ts and physical table id of what the stream showed, see `changelog.imports`."""
        self._identity, self._wants, self._imports = identity, wants, imports
        self._looked = False  # at the tables that are there when the changefeed starts

    def check(self, history: SchemaHistory, from_ts: int, to_ts: int) -> None:
        """Raises NotCaptured or DataWithoutEvents if the log lacks rows of (from_ts, to_ts] that are wanted, or from to_ts on.

        No switch of schemas lies inside the interval.
        """
        self._check_modes(history, within(history.start_ts, from_ts), to_ts)
        self._check_imports(history, within(history.start_ts, from_ts), to_ts)
        identity = self._identity()
        if not identity.capture_rules:
            return
        # Rows as of the log's start stand just before it (an initial load): the rules of the start hold for them.
        now, *later = identity.rules_above(within(identity.start_ts, from_ts))
        for entry in (now, *(e for e in later if e is not None and e.from_ts < to_ts)):
            if entry is not None:
                self._check_tables(history, within(history.start_ts, from_ts), entry)

    def _check_modes(self, history: SchemaHistory, from_ts: int, to_ts: int) -> None:
        versions = [version for change in history.next_table_changes(from_ts, to_ts) for version in change.begun]
        if not self._looked:
            versions += history.snapshot(from_ts).tables.values()
            self._looked = True
        for version in versions:
            if version.info.mode != TableMode.NORMAL and self._wants(version):
                doing = "imported" if version.info.mode == TableMode.IMPORT else "restored"
                name, begun = f"{version.schema}.{version.table}", describe(version.from_ts)
                raise DataWithoutEvents(
                    f"rows are being {doing} into {name} from {begun} on, without change events",
                    hint="Leave the table out in [filter] rules, or start after that ts and bring it over by `tidemill resync`.",
                )

    def _check_imports(self, history: SchemaHistory, from_ts: int, to_ts: int) -> None:
        shown = [one for one in self._imports() if from_ts < one[0] <= to_ts]
        tables = history.snapshot(from_ts).by_physical if shown else {}
        for ts, table_id in shown:
            version = tables.get(table_id)
            if version is not None and self._wants(version):
                raise DataWithoutEvents(
                    f"rows were imported into {version.schema}.{version.table} at {describe(ts)}, of which the log has only some",
                    hint="Leave the table out in [filter] rules, or start after that ts and bring it over by `tidemill resync`.",
                )

    def _check_tables(self, history: SchemaHistory, ts: int, entry: CaptureRules) -> None:
        captured = TableFilter(entry.rules, case_sensitive=entry.case_sensitive, where="capture rule:")
        for version in history.snapshot(ts).tables.values():
            if not captured.matches(version.schema, version.table) and self._wants(version):
                raise NotCaptured(
                    f"the changefeed wants {version.schema}.{version.table} from {describe(ts)} on, "
                    f"but the log has only tables of the rules {', '.join(entry.rules)} from {describe(entry.from_ts)} on",
                    hint="Leave the table out in [filter] rules, or widen the capture's rules (`--capture-config`) and start later.",
                )
