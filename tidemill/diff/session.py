"""A comparison from its beginning to its end: structure, sums, rows, and what came of it."""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidemill.capture.config import DEFAULT_SCANS
from tidemill.diff.database import Known
from tidemill.diff.digest import Sums, different
from tidemill.diff.job import CHUNKS, Buckets, Here, OnSpark, Place, Tick, Wanted, Work
from tidemill.diff.log_state import LogPart
from tidemill.diff.model import DiffTable, Ranges
from tidemill.diff.rows import RowDifference, What
from tidemill.diff.upstream import KvPart, UpstreamTables, Wish
from tidemill.errors import MalformedKey
from tidemill.sinks.mysql.session import Server
from tidemill.tidb.keys import parse_record_key
from tidemill.tidb.names import folded, folded_table

SMALL_ROWS = 200_000
"""With fewer rows downstream all is compared in this process, unless a Spark master is named: Spark takes seconds to start."""
CHUNK_ROWS = 10_000

Show = Callable[[str, int], Tick]
"""Begins a step of so many items, for a person to see."""


@dataclass
class TableReport:
    """What came of a table. `problem`: why its rows were not compared."""

    name: str
    problem: str = ""
    touched_only: bool = False
    upstream_rows: int = 0
    downstream_rows: int = 0
    is_absent: bool = False  # it is not downstream at all
    rows: dict[What, int] = field(default_factory=lambda: dict.fromkeys(What, 0))

    @property
    def equal(self) -> bool:
        return not self.problem and not any(self.rows.values())


@dataclass
class Report:
    """What came of a comparison."""

    ts: int
    tables: list[TableReport]
    compared: tuple[DiffTable, ...]
    left_out: tuple[str, ...] = ()  # tables that are not compared, for want of a key
    moved: tuple[str, ...] = ()  # and because their rows are in other partitions than the log says
    server: Server | None = None  # what is downstream; None: no database server
    differences: list[RowDifference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return all(table.equal for table in self.tables)


@dataclass(frozen=True)
class Options:
    """How it is compared. `threads`: about how many queries the downstream runs at a time."""

    chunk: int = CHUNK_ROWS
    structure_only: bool = False
    absent_rows: bool = False  # name the rows of tables that are not downstream, too: they are to be repaired
    master: str | None = None
    threads: int = 4
    scans: int = DEFAULT_SCANS  # of TiKV at once, at most


class Comparison:
    """One comparison. Raises what either side raises."""

    def __init__(self, upstream: UpstreamTables, place: Place, wish: Wish, options: Options, show: Show) -> None:
        self._upstream, self._place, self._rules, self._options, self._show = upstream, place, wish.rules, options, show
        self._tables = [*upstream.tables]
        self._absent: set[int] = set()

    def run(self) -> Report:
        """Compare all tables."""
        with closing(self._place.open()) as downstream:
            known = downstream.known()
            reports = [self._structure(table, known.get(_folded(table))) for table in self._tables]
            alike = [table for table, one in zip(self._tables, reports, strict=True) if not one.problem]
            rows = {table.number: known[_folded(table)].rows for table in alike}
            if not self._options.structure_only:
                tick = self._show("dividing tables", len(alike))
                for table in alike:
                    self._tables[table.number] = downstream.divided(table, rows[table.number], self._options.chunk)
                    tick(1)
            remote, server = downstream.is_remote, downstream.server
        only_there = self._only_there(known)
        report = Report(
            self._upstream.ts, [*reports, *only_there], tuple(self._tables), self._upstream.left_out, self._upstream.moved, server
        )
        if not self._options.structure_only:
            with ExitStack() as stack:
                use_spark = remote and (self._options.master is not None or sum(rows.values()) >= SMALL_ROWS)
                runner = OnSpark(_session(stack, self._options.master), self._options.scans) if use_spark else Here()
                self._compare_rows(report, set(rows), runner)
        return report

    # Structure

    def _structure(self, table: DiffTable, known: Known | None) -> TableReport:
        if known is None:
            self._absent.add(table.number)
            return TableReport(table.name, "is not downstream", is_absent=True)
        lacking = [c.name for c in (*table.sql.key, *table.sql.columns) if folded(c.name) not in known.columns]
        problem = f"has no column {', '.join(dict.fromkeys(lacking))} downstream" if lacking else ""
        return TableReport(table.name, problem, table.touched_only)

    def _only_there(self, known: dict[tuple[str, str], Known]) -> Iterator[TableReport]:
        known_here = (*self._upstream.left_out, *self._upstream.moved)
        here = {_folded(table) for table in self._tables} | {tuple(folded(name).split(".", 1)) for name in known_here}
        for name in sorted(known.keys() - here):
            if self._rules.matches(*known[name].name):
                yield TableReport(".".join(known[name].name), "is only downstream", downstream_rows=known[name].rows)

    # Rows

    def _compare_rows(self, report: Report, alike: set[int], runner: Here | OnSpark) -> None:
        """Fill in the report. The rows of a table that is not downstream are all missing."""
        parts = self._parts(alike | self._absent)
        work = [*parts, *self._there({number: None for number in alike if not self._tables[number].touched_only})]
        ours, theirs = runner.sums(work, self._tables, self._show("comparing sums", len(work)))
        _count(report, ours, theirs)
        wanted = self._wanted(alike, different(ours, theirs))
        if not wanted:
            return
        parts = [part for part in self._parts(set(wanted)) if self._may_hold(part, wanted)]
        work = [*parts, *self._there({n: tuple(sorted(b)) for n, b in wanted.items() if n in alike})]
        found = [*runner.differences(work, self._tables, wanted, self._show("comparing rows", len(work)))]
        report.differences = sorted(found, key=lambda one: (one.table, one.key))
        for one in report.differences:
            report.tables[one.table].rows[one.what] += one.times

    def _wanted(self, alike: set[int], found: set[tuple[int, int]]) -> Wanted:
        wanted: dict[int, set[int]] = {}
        for number, bucket in found:
            if number in self._absent and not self._options.absent_rows:
                continue
            wanted.setdefault(number, set()).add(bucket)
        for number in alike:
            if self._tables[number].touched_only:
                wanted[number] = set(range(self._tables[number].buckets.count))
        return {number: frozenset(buckets) for number, buckets in wanted.items()}

    def _parts(self, numbers: set[int]) -> list[KvPart | LogPart]:
        """Return what holds rows of these tables upstream."""
        found: list[KvPart | LogPart] = []
        for part in self._upstream.parts:
            if isinstance(part, KvPart):
                found += [part] if part.table in numbers else []
            elif mine := {id_: physical for id_, physical in part.tables.items() if physical.table in numbers}:
                found.append(replace(part, tables=mine))
        return found

    def _may_hold(self, part: KvPart | LogPart, wanted: Wanted) -> bool:
        """Return whether a part may hold rows of wanted buckets: a range of integer handles holds those of some ranges of the key."""
        if isinstance(part, LogPart):
            return True
        table = self._tables[part.table]
        column = table.range_column
        if not (isinstance(table.buckets, Ranges) and table.info.pk_is_handle and column is not None and not column.unsigned):
            return True
        low, high = (_handle(key) for key in (part.part.start, part.part.end))
        first = 0 if low is None else bisect_right(table.buckets.bounds, low)
        last = table.buckets.count - 1 if high is None else bisect_right(table.buckets.bounds, high)
        return any(first <= bucket <= last for bucket in wanted[part.table])

    def _there(self, wanted: dict[int, tuple[int, ...] | None]) -> list[Work]:
        """Return work items for buckets downstream."""
        found: list[Work] = []
        for number, buckets in wanted.items():
            table = self._tables[number]
            asked = tuple(range(table.buckets.count)) if buckets is None else buckets
            if table.range_column is None or len(asked) <= CHUNKS:
                found.append(Buckets(self._place, number, buckets))
            else:
                found += [Buckets(self._place, number, asked[at : at + CHUNKS]) for at in range(0, len(asked), CHUNKS)]
        return found


def _count(report: Report, ours: Sums, theirs: Sums) -> None:
    for (number, _), one in ours.items():
        report.tables[number].upstream_rows += one.rows
    for (number, _), one in theirs.items():
        report.tables[number].downstream_rows += one.rows


def _handle(key: bytes) -> int | None:
    """Return the integer handle of a record key; None for a key that ends elsewhere, as the borders of a table do."""
    try:
        found = parse_record_key(key).handle
    except MalformedKey:
        return None
    return found if isinstance(found, int) else None


def _folded(table: DiffTable) -> tuple[str, str]:
    return folded_table((table.schema, table.table))


def _session(stack: ExitStack, master: str | None) -> Any:
    from tidemill.spark.session import start_context, stop_spark

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-diff-")))
    context: Any = start_context(folder / "spark.log", master=master, name="tidemill diff")
    stack.callback(stop_spark, context)
    return context
