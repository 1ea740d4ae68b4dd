"""TiCDC's dispatchers: the partition of a topic for each row. This is the reference of kernels/routing.

hash = XOR of the CRC32 (IEEE) of each part, partition = hash mod count. The first part is schema name + table name; then, for `index-value`
and `columns`, one part for each column: name + value as text. `ts` is commit_ts mod count. The rules are those of TiCDC v8.5.7, checked
against golden/ticdc/dispatch.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.errors import ConfigError
from tidemill.rules.names import did_you_mean
from tidemill.rules.table_filter import TableFilter
from tidemill.rules.topics import TopicExpression, check_topic
from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tidb.types.floats import go_float_plain


class DispatchMode(enum.IntEnum):
    """How a partition is chosen. TiCDC's `default` is TABLE."""

    TABLE = 0
    TS = 1
    INDEX_VALUE = 2
    COLUMNS = 3
    PHYSICAL = 4  # a partition for each physical table, used by sinks that choose topics themselves; the TOML file has no word for it


WORDS = {
    "default": DispatchMode.TABLE,
    "table": DispatchMode.TABLE,
    "ts": DispatchMode.TS,
    "index-value": DispatchMode.INDEX_VALUE,
    "rowid": DispatchMode.INDEX_VALUE,  # its name in old versions
    "columns": DispatchMode.COLUMNS,
}
"""The modes by their words in the TOML file."""


@dataclass(frozen=True, slots=True)
class DispatchRule:
    """One table's dispatcher. `index` is for INDEX_VALUE, empty for the handle columns; `columns` is for COLUMNS, in configured order."""

    mode: DispatchMode = DispatchMode.TABLE
    index: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """One [[sink.dispatchers]]: its tables, and the dispatch of their rows."""

    matcher: TableFilter
    rule: DispatchRule
    topic: TopicExpression


class Dispatcher:
    """The dispatchers of a changefeed. The first whose matcher lets the table in counts; the default is `table` and the sink's topic."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = tuple(routes)

    def _route(self, schema: str, table: str) -> Route | None:
        return next((route for route in self._routes if route.matcher.matches(schema, table)), None)

    def named(self, schema: str, table: str) -> DispatchRule:
        """Return the rule for a table of this name, without checking it against the table."""
        route = self._route(schema, table)
        return route.rule if route is not None else DispatchRule()

    def topic(self, schema: str, table: str, default: str) -> str:
        """Return the topic of a table of this name. Raises ConfigError for one that Kafka would refuse."""
        route = self._route(schema, table)
        if route is None:
            return default
        topic = route.topic.topic(schema, table, default)
        try:
            return check_topic(topic)
        except ValueError as error:
            raise ConfigError(f"topic = {route.topic.text!r} makes {topic!r} of {schema}.{table}: {error}") from None

    def rule(self, version: TableVersion) -> DispatchRule:
        """Return the rule for a table. Raises ConfigError if it names an index or column that the table does not have."""
        rule = self.named(version.schema, version.table)
        try:
            hashed_columns(rule, version.info)
        except ConfigError as error:
            raise ConfigError(f"dispatcher for {version.schema}.{version.table}: {error.message}") from None
        return rule


def crc(text: str | bytes) -> int:
    """Return the CRC32 of one part of a hash."""
    return zlib.crc32(text.encode() if isinstance(text, str) else text)


def table_hash(schema: str, table: str) -> int:
    """Return the first part of a hash, which is the whole hash for TABLE."""
    return crc(schema + table)


def hashed_columns(rule: DispatchRule, info: TableInfo) -> tuple[ColumnInfo, ...]:
    """Return the columns whose values the rule hashes, in order; none for TABLE and TS, and for INDEX_VALUE of a table without a key."""
    match rule.mode:
        case DispatchMode.TABLE | DispatchMode.TS | DispatchMode.PHYSICAL:
            return ()
        case DispatchMode.INDEX_VALUE:
            return _index_columns(rule.index, info) if rule.index else tuple(info.columns_by_id[i] for i in info.handle_key_ids)
        case DispatchMode.COLUMNS:
            return tuple(_column(name, info) for name in rule.columns)


def _index_columns(name: str, info: TableInfo) -> tuple[ColumnInfo, ...]:
    index = next((i for i in info.public_indices if i.name.lower() == name.lower()), None)
    if index is None:
        raise ConfigError(f"there is no index {name!r}{did_you_mean(name, [i.name for i in info.public_indices])}")
    return tuple(_delivered(column, info) for column in info.index_columns(index))


def _column(name: str, info: TableInfo) -> ColumnInfo:
    column = next((c for c in info.public_columns if c.name.lower() == name.lower() and not c.hidden), None)
    if column is None:
        raise ConfigError(f"there is no column {name!r}{did_you_mean(name, [c.name for c in info.output_columns])}")
    return _delivered(column, info)


def _delivered(column: ColumnInfo, info: TableInfo) -> ColumnInfo:
    if column not in info.output_columns:
        raise ConfigError(f"column {column.name!r} is virtual or hidden: rows do not hold it")
    return column


def cell_text(column: ColumnInfo, cell: Cell) -> bytes:
    """Return the text of a value for hashing: NULL is `null`, floats are shortest and without exponent, other values are as they are."""
    if cell is None:
        return b"null"
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, float):
        return go_float_plain(cell, 32 if column.tp == MySQLType.FLOAT else 64).encode()
    return str(cell).encode()


def row_hash(rule: DispatchRule, version: TableVersion, cells: Sequence[Cell]) -> int:
    """Return the hash of a row. `cells` are in the order of `output_columns`."""
    info = version.info
    place = {column.id: i for i, column in enumerate(info.output_columns)}
    found = table_hash(version.schema, version.table)
    for column in hashed_columns(rule, info):
        found ^= crc(column.name.encode() + cell_text(column, cells[place[column.id]]))
    return found


def partition(
    rule: DispatchRule, version: TableVersion, before: Sequence[Cell] | None, after: Sequence[Cell] | None, commit_ts: int, count: int
) -> int:
    """Return the partition of a change, from 0 to count - 1. For a delete (`after` is None) the old values count."""
    if rule.mode is DispatchMode.TS:
        return commit_ts % count
    cells = after if after is not None else before
    if cells is None:
        raise ValueError("a change has values before or after it")
    return row_hash(rule, version, cells) % count
