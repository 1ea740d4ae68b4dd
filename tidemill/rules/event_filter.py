"""Event filters ([[filter.event-filters]] of TiCDC): they leave out changes and DDLs of tables that pass the table rules.

A change is left out if any rule for its table says so: by its kind, by a condition on its values, or because the update changed only
given columns. A DDL is left out by its kind or its text. The rules are those of TiCDC v8.5.7's filter; the kinds of DDLs are those of its
allow list.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemill.errors import ConfigError
from tidemill.rules.expressions import bind, parse
from tidemill.rules.names import did_you_mean
from tidemill.rules.patterns import GoRegex
from tidemill.rules.table_filter import TableFilter
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

log = logging.getLogger(__name__)

ALL_DML, ALL_DDL, ALTER_TABLE = "all dml", "all ddl", "alter table"
DML_WORDS = ("insert", "update", "delete")

_ALTERING: dict[int, str] = {
    Action.RENAME_TABLE: "rename table",
    Action.RENAME_TABLES: "rename table",
    Action.MODIFY_TABLE_COMMENT: "modify table comment",
    Action.MODIFY_TABLE_CHARSET: "modify table charset and collate",
    Action.ADD_TABLE_PARTITION: "add table partition",
    Action.DROP_TABLE_PARTITION: "drop table partition",
    Action.TRUNCATE_TABLE_PARTITION: "truncate table partition",
    Action.EXCHANGE_PARTITION: "exchange table partition",
    Action.REORGANIZE_PARTITION: "reorganize table partition",
    Action.ALTER_PARTITIONING: "alter table partitioning",
    Action.REMOVE_PARTITIONING: "remove table partitioning",
    Action.ADD_COLUMN: "add column",
    Action.ADD_COLUMNS: "add column",
    Action.DROP_COLUMN: "drop column",
    Action.DROP_COLUMNS: "drop column",
    Action.MODIFY_COLUMN: "modify column",
    Action.SET_DEFAULT_VALUE: "set default value",
    Action.REBASE_AUTO_ID: "rebase auto id",
    Action.ADD_PRIMARY_KEY: "add primary key",
    Action.DROP_PRIMARY_KEY: "drop primary key",
    Action.ADD_INDEX: "create index",
    Action.DROP_INDEX: "drop index",
    Action.RENAME_INDEX: "rename index",
    Action.ALTER_INDEX_VISIBILITY: "alter index visibility",
    Action.ADD_FOREIGN_KEY: "add foreign key",
    Action.DROP_FOREIGN_KEY: "drop foreign key",
    Action.ALTER_TTL: "alter ttl info",
    Action.REMOVE_TTL: "alter ttl remove",
    Action.MULTI_SCHEMA_CHANGE: "multi schema change",
}
_OTHERS: dict[int, str] = {
    Action.CREATE_SCHEMA: "create database",
    Action.DROP_SCHEMA: "drop database",
    Action.MODIFY_SCHEMA_CHARSET: "modify schema charset and collate",
    Action.RECOVER_SCHEMA: "recover database",
    Action.CREATE_TABLE: "create table",
    Action.CREATE_TABLES: "create table",
    Action.DROP_TABLE: "drop table",
    Action.TRUNCATE_TABLE: "truncate table",
    Action.RECOVER_TABLE: "recover table",
    Action.CREATE_VIEW: "create view",
    Action.DROP_VIEW: "drop view",
}
_BY_TEXT = (
    (re.compile(r"ADD FULLTEXT INDEX", re.I), "add fulltext index"),
    (re.compile(r"\A\s*CREATE HYBRID INDEX", re.I), "create hybrid index"),
)
"""Kinds of DDLs that TiDB's jobs have no action of their own for: TiCDC tells them by their text (handleDDLJob of its schema store)."""
DDL_WORDS = _ALTERING | _OTHERS
"""TiCDC's words for the kinds of DDLs, by TiDB's action code."""

_ALIASES = {"create schema": "create database", "drop schema": "drop database"}
WORDS = {ALL_DML, ALL_DDL, ALTER_TABLE, *DML_WORDS, *DDL_WORDS.values(), *_ALIASES, *(word for _, word in _BY_TEXT)}


def event_word(text: str) -> str:
    """Check a word of ignore-event. Raises ValueError with the nearest word."""
    word = text.lower()
    if word not in WORDS:
        raise ValueError(f"no such event {text!r}{did_you_mean(word, WORDS)}")
    return _ALIASES.get(word, word)


def _word_of(event: DdlEvent) -> str | None:
    """Return the word for the kind of a DDL; None: there is none."""
    return next((word for pattern, word in _BY_TEXT if pattern.search(event.raw_query)), DDL_WORDS.get(event.type))


@dataclass(frozen=True, slots=True)
class Conditions:
    """The value expressions of a rule, as text. Empty: none."""

    insert: str = ""
    update_new: str = ""
    update_old: str = ""
    delete: str = ""


@dataclass(frozen=True, slots=True)
class EventRule:
    """One [[filter.event-filters]]. `words` are checked."""

    matcher: TableFilter
    words: frozenset[str] = frozenset()
    sql: tuple[GoRegex, ...] = ()
    conditions: Conditions = Conditions()
    update_only_columns: tuple[str, ...] = ()

    def ignores_ddl(self, event: DdlEvent) -> bool:
        """Return whether the DDL's kind is listed or its text matches. A RENAME is judged by the table's old name, as in TiCDC."""
        schema, table = event.schema, event.table
        if event.type in (Action.RENAME_TABLE, Action.RENAME_TABLES) and event.pre_table:
            schema, table = event.pre_schema, event.pre_table
        if not (self.matcher.matches(schema, table) if table else self.matcher.matches_schema(schema)):
            return False
        if ALL_DDL in self.words or _word_of(event) in self.words:
            return True
        if event.type in _ALTERING and ALTER_TABLE in self.words:
            return True
        texts = {event.raw_query, event.query} if event.type == Action.RENAME_TABLE else {event.raw_query}
        return any(pattern.found_in(text) for pattern in self.sql for text in texts)

    @property
    def kinds(self) -> frozenset[int]:
        """The kinds of changes that are always left out."""
        from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE  # with numpy, which a check of a file does not need

        kinds = zip(DML_WORDS, (KIND_INSERT, KIND_UPDATE, KIND_DELETE), strict=True)
        return frozenset(kind for word, kind in kinds if word in self.words or ALL_DML in self.words)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The changes of one table that are left out. It travels in the pack. `unless_changed` has a set of column ids for each rule."""

    kinds: frozenset[int] = frozenset()
    insert: tuple[str, ...] = ()
    update_new: tuple[str, ...] = ()
    update_old: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    unless_changed: tuple[frozenset[int], ...] = ()
    """An update that changes none of these columns is left out."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All value expressions."""
        return (*self.insert, *self.update_new, *self.update_old, *self.delete)


@dataclass(frozen=True, slots=True)
class EventFilters:
    """All event filters of a changefeed."""

    rules: Sequence[EventRule] = ()
    ignored_start_ts: frozenset[int] = frozenset()
    case_sensitive: bool = False
    _warned: set[tuple[int, str]] = field(default_factory=set, compare=False)

    def ignores_ddl(self, event: DdlEvent) -> bool:
        """Return whether a DDL is left out. Its effect on the schema is applied anyway."""
        return event.start_ts in self.ignored_start_ts or any(rule.ignores_ddl(event) for rule in self.rules)

    def row_filter(self, version: TableVersion) -> RowFilter | None:
        """Return the filter of a table's changes, or None. Raises ConfigError for an expression that does not fit the table."""
        rules = [rule for rule in self.rules if rule.matcher.matches(version.schema, version.table)]
        conditions = [rule.conditions for rule in rules]
        found = RowFilter(
            kinds=frozenset(kind for rule in rules for kind in rule.kinds),
            insert=tuple(c.insert for c in conditions if c.insert),
            update_new=tuple(c.update_new for c in conditions if c.update_new),
            update_old=tuple(c.update_old for c in conditions if c.update_old),
            delete=tuple(c.delete for c in conditions if c.delete),
            unless_changed=tuple(ids for rule in rules if (ids := self._watched(rule, version)) is not None),
        )
        for text in found.texts:
            _check(text, version)
        return found if found != RowFilter() else None

    def _watched(self, rule: EventRule, version: TableVersion) -> frozenset[int] | None:
        """Return the columns of which an update has to change one: those of keys or not in ignore-update-only-columns. None: no rule."""
        ignored = {c.id for name in rule.update_only_columns if (c := self._column(name, version)) is not None}
        if not ignored:
            return None
        keys = version.info.unique_key_ids | set(version.info.handle_key_ids)
        return frozenset(c.id for c in version.info.output_columns if c.id not in ignored or c.id in keys)

    def _column(self, name: str, version: TableVersion) -> ColumnInfo | None:
        columns = version.info.output_columns
        same = str if self.case_sensitive else str.lower
        found = next((c for c in columns if same(c.name) == same(name)), None)
        if found is None and (version.table_id, name) not in self._warned:
            self._warned.add((version.table_id, name))
            log.warning(
                "ignore-update-only-columns: %s.%s has no stored column %r%s",
                version.schema, version.table, name, did_you_mean(name, [c.name for c in columns]),
            )  # fmt: skip
        return found


def _check(text: str, version: TableVersion) -> None:
    try:
        bind(parse(text), version.info)
    except ConfigError as error:
        raise ConfigError(
            f"event filter for {version.schema}.{version.table}: {text!r}: {error.message.removeprefix(repr(text) + ': ')}"
        ) from None
