"""`View`: keeps a view up to date, interval by interval. This module does IO.

    the log is complete up to `to`
    one transaction of the state: changes of (at, to] → the view's changes, which it holds as pending, and the resolved ts `to`
    the target takes the pending changes in one commit, with the resolved ts
    the state notes that they are delivered

Killed anywhere, the next start finds the pending changes, and asks the target whether it has them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from tidemill.changelog import feeds
from tidemill.errors import LogUnavailable, SinkUnavailable
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tso import describe
from tidemill.views.changes import Begin, Catalog, TableChanges
from tidemill.views.definition import Definition, Progress, Views, check_name, new_id
from tidemill.views.engine import Engine
from tidemill.views.figures import Figures
from tidemill.views.plan import Plan, Table
from tidemill.views.refusal import ViewError, ViewStopped
from tidemill.views.shape import ROW_KEY
from tidemill.views.spark.analysis import Analysis, Find, analysed
from tidemill.views.spark.session import ViewSession
from tidemill.views.sql import plan_of
from tidemill.views.targets.base import Target
from tidemill.views.targets.open import MEMORY, target_of

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
BATCH_BYTES = 32 << 20
"""An interval ends when the log's files in it have about so many bytes."""
FIRST_AWAY_S, LONGEST_AWAY_S = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class Step:
    """What an interval did. `changes`: rows of the view that came or went."""

    from_ts: int
    to_ts: int
    changes: int


Analyse = Callable[[str, Find, str], Analysis]
"""Has a query analysed by Spark: the query, the tables, the database of those that are named without one."""


def by_spark(sql: str, find: Find, database: str) -> Analysis:
    """Have a query analysed by the Spark that runs in this process, or by one that is started for it. Raises ViewRefused, NoJava,
    SparkUnavailable."""
    with ViewSession() as session:
        return analysed(session, sql, find, database)


@dataclass(frozen=True, slots=True)
class Planned:
    """What a view of a query would be. `bases`: of each table of the plan, a ts at which it has its columns."""

    plan: Plan
    begin: Begin
    bases: tuple[int, ...]
    analysis: str


def planned(log_place: str, sql: str, database: str = "", analyse: Analyse = by_spark) -> Planned:
    """Plan a query over the tables of a log. Raises ViewRefused, NoJava, SparkUnavailable, LogError and its kinds."""
    catalog = Catalog.open(log_place)
    analysis = analyse(sql, catalog.find, database)
    plan = plan_of(analysis.document, analysis.tables, sql, database)
    begin = catalog.begin(plan.tables)
    bases = []
    for table in plan.tables:
        version = catalog.version(table.database, table.name)
        assert version is not None, "it was found"
        bases.append(version.from_ts)
    return Planned(plan, begin, tuple(bases), analysis.document)


def create(views: Views, name: str, log_place: str, sql: str, into: str, database: str = "", *, analyse: Analyse = by_spark) -> Definition:
    """Create a view: write down that it begins, let the log keep changes for it, take its target, confirm it. A creation that was killed is
    finished by the next one of that name, or undone by `drop`. Raises ViewError, SinkError, LogError,
    ConfigError, NoJava, SparkUnavailable."""
    check_name(name)
    _release(views)
    with views.creating(name) as left, ExitStack() as stack:
        stack.callback(views.remove, name)
        found = planned(log_place, sql, database, analyse)
        begin, tables = found.begin, found.plan.tables
        known_as = left.id if left is not None else new_id()  # a target that was taken under it is this view's
        view = Definition(name, known_as, sql, database, log_place, into, begin.ts, begin.snapshot, tables, found.bases, found.analysis)
        views.begin(view)
        stack.callback(feeds.remove, log_place, view.feed)
        _register(view)
        target = target_of(into, name, view.feed, view.shape())
        target.create()
        target.close()
        views.confirm(view)
        stack.pop_all()
    return view


def _release(views: Views) -> None:
    """Let the log go on where a creation was killed: only a view that is there needs it."""
    for name in views.all_begun():
        try:
            with views.lock(name):
                view = views.begun(name)
                if view is not None:
                    feeds.remove(view.log, view.feed)
        except ViewError:  # it is being created
            continue


def _register(view: Definition) -> None:
    """Let the log keep what lies above the view's begin. Raises StartTsOutOfLog."""
    from tidemill.changelog.files.bounds import saved_begin
    from tidemill.changelog.reader import LogReader

    feeds.register(view.log, view.feed, saved_begin(LogReader(view.log), view.saved_ts))


def drop(views: Views, name: str, *, keep_target: bool = False) -> None:
    """Remove a view, and what it delivered unless that is to stay. Raises ViewError, SinkError."""
    begun = views.begun(name)
    view = begun or views.read(name)
    with views.lock(name) if begun is not None else View(views, name):  # raises where it runs
        pass
    if not keep_target:
        target = target_of(view.into, name, view.feed, view.shape())
        if begun is not None:
            target.create()  # raises where it is not this view's
        target.drop()
        target.close()
    feeds.remove(view.log, view.feed)
    views.remove(name)


class View:
    """A view that is kept by this process. A context manager.

        with View("views", "order_totals") as view:
            view.catch_up()
            view.read()

    Raises ViewError, ViewStopped, SinkError, LogError and its kinds, MalformedRow.
    """

    def __init__(self, views: Views | str | Path, name: str, *, threads: int = 1) -> None:
        """`threads`: of the engine."""
        self._views = views if isinstance(views, Views) else Views(views)
        self.name, self.definition = name, self._views.read(name)
        self._plan, self._shape = self.definition.plan(), self.definition.shape()
        self._tables = [TableChanges(self.definition.log, table, self._base(table)) for table in self._plan.tables]
        self._memory = self.definition.into == MEMORY
        self._lock = self._views.lock(name)
        self._target: Target | None = None
        self._registration: feeds.Registration | None = None
        self._engine = Engine(
            self._views.state(name),
            self._plan,
            self._shape,
            self.definition.digest(),
            begin_ts=self.definition.begin_ts,
            keeps_content=self._memory,
            threads=threads,
        )
        known = self._views.progress(name)
        self._changes = known.changes if known is not None else 0
        self.figures = Figures(name, max(self._engine.resolved_ts, 0))
        """For other threads: the state is this one's."""

    def _base(self, table: Table) -> int:
        found = zip(self.definition.tables, self.definition.base_ts, strict=True)
        return next(ts for one, ts in found if (one.database, one.name) == (table.database, table.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the state and the target."""
        self._engine.close()
        self._lock.close()
        if self._target is not None:
            self._target.close()

    # ---- reading

    @property
    def resolved_ts(self) -> int:
        """The ts that the view is of: all transactions up to it, none after it."""
        return self._engine.resolved_ts

    def read(self) -> pa.Table:
        """Return the rows of a view into memory, at `resolved_ts`, in any order. Raises ViewError for another target."""
        if not self._memory:
            raise ViewError(f"the rows of {self.name} are in {self.definition.into.partition('://')[0]}", hint="Read them there.")
        found = self._engine.content()
        return found.drop_columns([ROW_KEY]) if ROW_KEY in found.column_names else found

    def recomputed(self) -> pa.Table:
        """Return the rows as computed out of the tables at `resolved_ts`, without what is kept up to date: for comparisons."""
        return self._engine.whole()

    # ---- keeping it up to date

    def log_ts(self) -> int:
        """Return how far the log is."""
        return self._tables[0].reader.resolved_ts()

    @property
    def target(self) -> Target:
        """Where the rows go. The first use delivers what a process that died has left."""
        if self._target is None:
            target = target_of(self.definition.into, self.name, self.definition.feed, self._shape)
            pending = self._engine.pending_ts
            if pending:
                if target.delivered() < pending:
                    target.deliver(self._engine.pending(), pending)
                self._engine.delivered()
            else:
                target.delivered()
            self._target = target
        return self._target

    def step(self, until_ts: int | None = None) -> Step | None:
        """Bring the view over one interval; None if the log is not further, or the view is at `until_ts`."""
        target = self.target
        self._flush(target)
        at = self._engine.resolved_ts
        if self._engine.is_new and self.definition.snapshot:
            return self._advance(target, at, at + 1, frozenset(), snapshot=True)
        end = self._tables[0].reader.resolved_ts_if_above(at)
        end = end if until_ts is None else min(end, until_ts)
        if end <= at:
            return None
        end = self._tables[0].end_of_batch(at, self._tables[0].readable_to(at, end), BATCH_BYTES)
        end, truncated = self._before_ddl(at, end)
        return self._advance(target, at, end, truncated, snapshot=False)

    def _flush(self, target: Target) -> None:
        """Deliver what an attempt that failed has left."""
        pending = self._engine.pending_ts
        if pending:
            target.deliver(self._engine.pending(), pending)
            self._engine.delivered()

    def _before_ddl(self, at: int, end: int) -> tuple[int, frozenset[int]]:
        """Where the interval ends for DDLs, and the tables that are empty then. Raises ViewStopped at a DDL that the view cannot pass."""
        found: list[tuple[int, int, DdlEvent]] = []
        for number, table in enumerate(self._tables):
            found += [(event.ts, number, event) for event in table.ddls(at, end)]
        for ts, number, event in sorted(found, key=lambda one: one[:2]):
            if event.type == Action.TRUNCATE_TABLE:
                return ts, frozenset({number})
            try:
                self._tables[number].check(event)
            except ViewStopped:
                if at >= ts - 1:
                    raise
                return ts - 1, frozenset()
        return end, frozenset()

    def _advance(self, target: Target, at: int, end: int, truncated: frozenset[int], *, snapshot: bool) -> Step:
        changes = {}
        for number, table in enumerate(self._tables):
            if number not in truncated and (found := table.changes(at, end, snapshot=snapshot)) is not None:
                changes[number] = found
        count = self._engine.advance(end, changes, truncated)
        if self._engine.pending_ts:
            self._flush(target)
        else:
            target.resolved(end)
        self._changes += count
        self._note(end, count)
        self._views.write_progress(self.name, Progress(end, self._changes))
        return Step(at, end, count)

    def _note(self, end: int, count: int) -> None:
        told = self.figures
        told.resolved_ts, told.changes, told.intervals = end, told.changes + count, told.intervals + 1

    def catch_up(self, until_ts: int | None = None) -> int:
        """Bring the view to `until_ts`, or as far as the log is now. Returns its resolved ts. What is away raises at once."""
        goal = self.log_ts() if until_ts is None else until_ts
        self._flush(self.target)  # also where the log is not further than the attempt that failed
        while self.resolved_ts < goal and self.step(goal) is not None:
            pass
        self._tell_log()
        return self.resolved_ts

    def _tell_log(self) -> None:
        """Let the log go on past what the state has. The view's lock is this process's, so the registration is."""
        if self._registration is None:
            self._registration = feeds.registered(self.definition.log, self.definition.feed)
        self._registration.update(self._engine.saved_ts)

    def run(self, stop: threading.Event, *, interval_s: float = INTERVAL_S, until_ts: int | None = None) -> None:
        """Keep the view until `stop` is set, or until it is at `until_ts`. Log and target may be away: it waits for them."""
        away_s, kept = 0.0, 0
        while not stop.is_set() and (until_ts is None or self.resolved_ts < until_ts):
            try:
                began = time.monotonic()
                step = self.step(until_ts)
            except (LogUnavailable, SinkUnavailable) as error:
                self.figures.away = error.message
                away_s = min(LONGEST_AWAY_S, max(FIRST_AWAY_S, 2 * away_s))
                log.warning("view %s: %s; it tries again in %.0f s", self.name, error.message, away_s)
                stop.wait(away_s)
                continue
            away_s, self.figures.away = 0.0, ""
            if step is not None:
                self.figures.interval_s = time.monotonic() - began
            if step is not None and step.changes:
                log.debug("view %s: %d changes up to %s", self.name, step.changes, describe(step.to_ts))
            if (step is None or step.to_ts - step.from_ts) and self.resolved_ts > kept:
                kept = self.resolved_ts
                self._tell_log()
            stop.wait(interval_s)
