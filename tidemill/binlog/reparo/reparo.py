"""Reads a Drainer's files and applies them to a database, or prints them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

from tidemill.binlog.drainer.database.applying import Manner
from tidemill.binlog.drainer.database.database import Database, Session
from tidemill.binlog.filters import Filter
from tidemill.binlog.outputs.ddl_text import read_ddl
from tidemill.binlog.outputs.named import NamedDdl, NamedRows, Told
from tidemill.binlog.outputs.writes import Work
from tidemill.binlog.reparo.files import told_by
from tidemill.binlog.reparo.keyless import KeylessNotes, Table
from tidemill.binlog.reparo.printing import lines
from tidemill.binlog.reparo.settings import ReparoSettings
from tidemill.config.database import MysqlOptions
from tidemill.errors import MalformedMessage, SchemaError
from tidemill.protocols.sql.hints import Program
from tidemill.tso import describe

TOGETHER = 3
"""So many batches of each worker are read before they are written."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Result:
    """What was applied. `last_ts`: all up to here, 0 if nothing was."""

    transactions: int = 0
    ddls: int = 0
    last_ts: int = 0


def reparo(settings: ReparoSettings, zone: tzinfo, show: Callable[[str], None]) -> Result:
    """Apply or print what the files have between start and stop. TIMESTAMP in the files is in `zone`.

    Raises ConfigError, MalformedMessage naming file and offset, SinkError, OSError. What lies before a broken record is applied.
    """
    wanted = _wanted(settings, zone)
    if settings.dest_type == "print":
        return _printed(wanted, show)
    to = settings.dest_db
    manner = Manner(settings.worker_count, settings.txn_batch, program=Program.REPARO)
    database = Database(MysqlOptions(to.host, to.port, to.user, to.password, servers_key=True), Session(), manner)
    try:
        return _Applying(database, settings).run(wanted)
    finally:
        database.close()


def _wanted(settings: ReparoSettings, zone: tzinfo) -> Iterator[Told]:
    """Yield what lies within the bounds, without what is filtered."""
    tables = Filter(",".join(settings.ignore_schemas), settings.ignore_tables, settings.do_schemas, settings.do_tables)
    for told in told_by(Path(settings.data_dir), zone):
        if told.commit_ts < settings.start_tso or (settings.stop_tso and told.commit_ts > settings.stop_tso):
            continue
        if isinstance(told, NamedDdl):
            if any(tables.takes(*name) for name in read_ddl(told.query, told.schema).tables):
                yield told
            continue
        rows = tuple(row for row in told.rows if tables.takes(row.schema, row.table))
        if rows:
            yield NamedRows(told.commit_ts, rows)


def _printed(wanted: Iterator[Told], show: Callable[[str], None]) -> Result:
    result = Result()
    for told in wanted:
        for line in lines(told):
            show(line)
        _count(result, told)
        result.last_ts = told.commit_ts
    return result


def _count(result: Result, told: Told) -> None:
    if isinstance(told, NamedDdl):
        result.ddls += 1
    else:
        result.transactions += 1


class _Applying:
    def __init__(self, database: Database, settings: ReparoSettings) -> None:
        self._database, self._safe = database, settings.safe_mode
        self._most = settings.worker_count * settings.txn_batch * TOGETHER
        self._waiting: list[Work] = []
        self._keyless, self._begun = KeylessNotes(database), dict[Table, int]()
        self._result = Result()

    def run(self, wanted: Iterator[Told]) -> Result:
        try:
            for told in wanted:
                self._take(told)
        except MalformedMessage:
            self._write()
            raise
        else:
            self._write()
        finally:
            result = self._result
            upto = f"; all up to {describe(result.last_ts)} is applied" if result.last_ts else ""
            _log.info("%d transactions, %d DDLs%s", result.transactions, result.ddls, upto)
        return result

    def _take(self, told: Told) -> None:
        if isinstance(told, NamedRows):
            work = self._database.work(told)
            self._check(work)
            self._waiting.append(work)
            if sum(work.count for work in self._waiting) >= self._most:
                self._write()
            return
        self._write()
        self._database.ddl(told.commit_ts, told.schema, told.query, f", which -start-tso {told.commit_ts + 1} leaves out")
        self._result.ddls += 1
        self._result.last_ts = told.commit_ts

    def _check(self, work: Work) -> None:
        """Raises SchemaError for rows without a key that may have been applied before; what came before them is applied."""
        for table in {(row.target.schema, row.target.table) for row in work.rows() if not row.target.has_key}:
            try:
                self._keyless.check(table, work.commit_ts)
            except SchemaError:
                self._write()
                raise
            self._begun[table] = work.commit_ts

    def _write(self) -> None:
        works, self._waiting = self._waiting, []
        begun, self._begun = self._begun, {}
        self._keyless.note(begun)
        if works:
            self._database.write(works, safe=self._safe)
            self._result.transactions += len(works)
            self._result.last_ts = works[-1].commit_ts
