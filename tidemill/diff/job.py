"""The two passes of a comparison, each as one Spark job or in this process: sums of all buckets, then rows of those whose sums differ.

Rows go through Spark only in the second pass, those of buckets that differ: both sides of a row meet by the hash of its key.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidemill.capture.config import DEFAULT_SCANS
from tidemill.capture.tikv.read.tables import tasks_at_once
from tidemill.delivery.machine.failures import JobLost
from tidemill.delivery.zone import parse_zone
from tidemill.diff.database import Database, Known
from tidemill.diff.digest import Row, Sums, added, sums_of
from tidemill.diff.files import SqliteFile
from tidemill.diff.log_state import LogPart
from tidemill.diff.model import DiffTable
from tidemill.diff.rows import RowDifference, compare
from tidemill.diff.upstream import KvPart, rows_of
from tidemill.errors import TidemillError, made
from tidemill.spark.jobs import cause_of

CHUNKS = 16
"""Buckets of one work item of the downstream."""


class Downstream(Protocol):
    """What is compared with. Opened in each task, and by the driver. Raises SinkError, SinkUnavailable."""

    def close(self) -> None: ...
    def known(self) -> dict[tuple[str, str], Known]: ...
    def divided(self, table: DiffTable, rows: int, chunk: int) -> DiffTable: ...
    def sums(self, table: DiffTable, buckets: Sequence[int] | None) -> Sums: ...
    def rows(self, table: DiffTable, buckets: Iterable[int]) -> Iterator[list[Row]]: ...


@dataclass(frozen=True)
class Place:
    """How a downstream is opened: a URI of a database, or the path of an SQLite file. `zone`: of its timestamps."""

    uri: str = ""
    path: str = ""
    snapshot: str = ""
    zone: str = "UTC"

    def open(self) -> Database | SqliteFile:
        """Open it."""
        return SqliteFile(self.path, parse_zone(self.zone)) if self.path else Database(self.uri, self.snapshot)


@dataclass(frozen=True)
class Buckets:
    """Work of the downstream: some buckets of a table, None: all."""

    place: Place
    table: int
    buckets: tuple[int, ...] | None


Work = KvPart | LogPart | Buckets
Wanted = Mapping[int, frozenset[int]]
"""Buckets by table."""
UP, DOWN = 0, 1
Shown = tuple[tuple[int, bytes], tuple[int, bytes]]
"""Table and key; side and row."""


@dataclass(frozen=True)
class Failed:
    """An error of a task, on its way to the driver."""

    code: str
    message: str
    retryable: bool


def sums(work: Iterable[Work], tables: Sequence[DiffTable]) -> Iterator[tuple[int, Sums] | Failed]:
    """Yield the sums of work items, each with its side. It consumes all its input, else Spark would not use the worker again."""
    for item in work:
        try:
            yield (DOWN, _sums_there(item, tables)) if isinstance(item, Buckets) else (UP, _sums_here(item, tables))
        except TidemillError as error:
            yield Failed(error.code, str(error), error.retryable)


def _sums_here(part: KvPart | LogPart, tables: Sequence[DiffTable]) -> Sums:
    return added(sums_of(tables[number], rows) for number, rows in rows_of(part, tables) if not tables[number].touched_only)


def _sums_there(item: Buckets, tables: Sequence[DiffTable]) -> Sums:
    with closing(item.place.open()) as downstream:
        return downstream.sums(tables[item.table], item.buckets)


def rows(work: Iterable[Work], tables: Sequence[DiffTable], wanted: Wanted) -> Iterator[Shown | Failed]:
    """Yield the rows of buckets of both sides."""
    for item in work:
        try:
            yield from _rows_there(item, tables) if isinstance(item, Buckets) else _rows_here(item, tables, wanted)
        except TidemillError as error:
            yield Failed(error.code, str(error), error.retryable)


def _rows_here(part: KvPart | LogPart, tables: Sequence[DiffTable], wanted: Wanted) -> Iterator[Shown]:
    for number, found in rows_of(part, tables):
        mine, buckets = wanted.get(number, frozenset()), tables[number].buckets
        for key, row in found if mine else ():
            if buckets.count == 1 or buckets.of(key) in mine:
                yield (number, key), (UP, row)


def _rows_there(item: Buckets, tables: Sequence[DiffTable]) -> Iterator[Shown]:
    assert item.buckets is not None
    with closing(item.place.open()) as downstream:
        for found in downstream.rows(tables[item.table], item.buckets):
            for key, row in found:
                yield (item.table, key), (DOWN, row)


def compared(shown: Iterable[Shown | Failed], tables: Sequence[DiffTable]) -> Iterator[RowDifference | Failed]:
    """Yield the differences between the rows of the two sides; all rows of a key are among them."""
    sides: dict[int, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for one in shown:
        if isinstance(one, Failed):
            yield one
        else:
            (table, key), (side, row) = one
            sides[table][side].append((key, row))
    for number, (upstream, downstream) in sorted(sides.items()):
        yield from compare(tables[number], upstream, downstream)


def home_of(key: tuple[int, bytes]) -> int:
    """Return a number by which rows of a key meet. (Python's own hash differs between processes.)"""
    return zlib.crc32(key[1], key[0])


Tick = Callable[[int], None]
"""Told how many work items are done."""


class Here:
    """Runs a comparison in this process."""

    def sums(self, work: Sequence[Work], tables: Sequence[DiffTable], tick: Tick) -> tuple[Sums, Sums]:
        """Return the sums of both sides. Raises the error of an item."""
        found: tuple[list[Sums], list[Sums]] = ([], [])
        for item in work:
            for one in _unfailed(sums([item], tables)):
                found[one[0]].append(one[1])
            tick(1)
        return added(found[UP]), added(found[DOWN])

    def differences(self, work: Sequence[Work], tables: Sequence[DiffTable], wanted: Wanted, tick: Tick) -> Iterator[RowDifference]:
        """Yield what differs in buckets. Raises the error of an item."""

        def all_rows() -> Iterator[Shown | Failed]:
            for item in work:
                yield from rows([item], tables, wanted)
                tick(1)

        yield from _unfailed(compared(all_rows(), tables))


class OnSpark:
    """Runs a comparison as Spark jobs."""

    def __init__(self, context: Any, scans: int = DEFAULT_SCANS) -> None:
        """`scans`: of TiKV at once, at most."""
        self._context, self._scans = context, scans

    def sums(self, work: Sequence[Work], tables: Sequence[DiffTable], tick: Tick) -> tuple[Sums, Sums]:
        """As `Here.sums`."""
        found: tuple[list[Sums], list[Sums]] = ([], [])
        made = self._made(work).mapPartitions(partial(sums, tables=tables))
        with _lost():
            arrived = made.collect()
        for side, one in _unfailed(arrived):
            found[side].append(one)
        tick(len(work))
        return added(found[UP]), added(found[DOWN])

    def _made(self, work: Sequence[Work]) -> Any:
        return self._context.parallelize([*work], tasks_at_once(len(work), self._context.defaultParallelism, self._scans))

    def differences(self, work: Sequence[Work], tables: Sequence[DiffTable], wanted: Wanted, tick: Tick) -> Iterator[RowDifference]:
        """As `Here.differences`."""
        read = self._made(work).mapPartitions(partial(rows, tables=tables, wanted=wanted))
        meeting = max(self._context.defaultParallelism, len(work) // 4)
        met = read.map(_keyed).partitionBy(meeting, home_of).map(_unkeyed)
        with _lost():
            yield from _unfailed(met.mapPartitions(partial(compared, tables=tables)).toLocalIterator())
        tick(len(work))


@contextmanager
def _lost() -> Iterator[None]:
    """Turn what Spark raises into our error."""
    try:
        yield
    except OSError as error:
        raise JobLost(f"Spark's Java process is gone: {error}") from error
    except (Py4JError, PySparkException) as error:
        raise JobLost(f"Spark gave the job up: {cause_of(str(error))}") from error


def _keyed(one: Shown | Failed) -> tuple[tuple[int, bytes], tuple[int, bytes] | Failed]:
    return ((0, b""), one) if isinstance(one, Failed) else one


def _unkeyed(one: tuple[tuple[int, bytes], tuple[int, bytes] | Failed]) -> Shown | Failed:
    return one[1] if isinstance(one[1], Failed) else (one[0], one[1])


def _unfailed(found: Iterable[Any]) -> Iterator[Any]:
    """Yield what is not an error. Raises the first error."""
    for one in found:
        if isinstance(one, Failed):
            raise made(one.code, one.message, retryable=one.retryable)
        yield one
