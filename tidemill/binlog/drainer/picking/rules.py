"""[syncer.binlog-filter-rule] and [[syncer.table-migrate-rule]]: changes that are left out by their kind, or DDLs by their text. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.binlog.messages import MutationType
from tidemill.binlog.outputs.ddl_text import KINDS
from tidemill.errors import ConfigError

ROWS = {MutationType.INSERT: "insert", MutationType.UPDATE: "update", MutationType.DELETE_ROW: "delete"}
_DML = frozenset(ROWS.values())
OTHER = "other ddl"
"""A DDL that has no name among the events."""
_DDL = KINDS | {OTHER}
_GROUPS = {
    "all": _DML | _DDL, "all dml": _DML, "all ddl": _DDL,
    "none": frozenset[str](), "none dml": frozenset[str](), "none ddl": frozenset[str](),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """What is left out of tables that fit. Names may have `*`, `?` and `[…]`; an empty `table` means the whole database."""

    schema: str
    table: str
    events: frozenset[str]
    queries: tuple[str, ...]


def read_rules(filters: Any, tables: Any, path: object) -> tuple[Rule, ...]:
    """Return the rules of the two tables of a TOML file. Raises ConfigError."""
    wrong = ConfigError(
        f"binlog-filter-rule or table-migrate-rule of {path} is not of the right kind",
        hint='Write [syncer.binlog-filter-rule.NAME] with ignore-event and ignore-sql, and [[syncer.table-migrate-rule]] with '
        'binlog-filter-rule = ["NAME"] and source = { schema = "…", table = "…" }.',
    )  # fmt: skip
    if not isinstance(filters, Mapping) or not isinstance(tables, list):
        raise wrong
    made: list[Rule] = []
    for one in tables:
        if not isinstance(one, Mapping) or not isinstance(one.get("source"), Mapping) or one.keys() - {"source", "binlog-filter-rule"}:
            if isinstance(one, Mapping) and "target" in one:
                raise ConfigError(
                    f"{path} has a target in table-migrate-rule: this Drainer gives tables no other name",
                    hint="Remove it, or route rows in a changefeed.",
                )
            raise wrong
        schema, table = one["source"].get("schema"), one["source"].get("table", "")
        names = one.get("binlog-filter-rule", [])
        if not isinstance(schema, str) or not schema or not isinstance(table, str) or not isinstance(names, list):
            raise wrong
        for name in names:
            rule = filters.get(name) if isinstance(name, str) else None
            if rule is None:
                raise ConfigError(f"{path} has no binlog-filter-rule {name!r}, which a table-migrate-rule names")
            made.append(_rule(schema, table, rule, f"binlog-filter-rule {name} of {path}", wrong))
    return tuple(made)


def _rule(schema: str, table: str, rule: Any, what: str, wrong: ConfigError) -> Rule:
    if not isinstance(rule, Mapping) or rule.keys() - {"ignore-event", "ignore-sql"}:
        raise wrong
    events, queries = rule.get("ignore-event", []), rule.get("ignore-sql", [])
    for value in (events, queries):
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise wrong
    chosen: set[str] = set()
    for event in (one.lower().strip() for one in events):
        if event not in _GROUPS and event not in _DML | _DDL:
            raise ConfigError(
                f"{what} ignores {event!r}, which is not an event",
                hint=f"Events are {', '.join(sorted(_GROUPS | dict.fromkeys(_DML | _DDL)))}.",
            )
        chosen |= _GROUPS.get(event, {event})
    for query in queries:
        try:
            re.compile(query)
        except re.error as error:
            raise ConfigError(f"{what} ignores {query!r}, which is not a regular expression: {error}") from None
    return Rule(schema, table, frozenset(chosen), tuple(queries))


class Rules:
    """Says what is left out. Names are compared without regard to case."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [
            (
                _wild(one.schema),
                _wild(one.table) if one.table else None,
                one.events,
                [re.compile(text, re.IGNORECASE) for text in one.queries],
            )
            for one in rules
        ]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def leaves_out(self, schema: str, table: str, event: str, query: str = "") -> bool:
        """Whether a change is left out; `query`: that of a DDL. A DDL of a database fits only rules without a table."""
        for of_schema, of_table, events, queries in self._rules:
            fits = of_schema.match(schema) and (of_table is None or (table and of_table.match(table)))
            if fits and (event in events or (query and any(one.search(query) for one in queries))):
                return True
        return False


def _wild(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern), re.IGNORECASE)
