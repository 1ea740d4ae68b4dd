"""TiDB's DDLs as MySQL and MariaDB take them. Pure.

What only TiDB has stands in its special comments, which others do not read: AUTO_RANDOM, CLUSTERED, SHARD_ROW_ID_BITS, PRE_SPLIT_REGIONS,
AUTO_ID_CACHE, TTL, placement, AFFINITY. The rest is in `RULES`, by the part of the grammar. A statement is parsed and printed again with
them, so that no word in a name, a comment or a value counts.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tidemill.errors import SinkError, redact
from tidemill.sinks.mysql.session import Server
from tidemill.tidb.ddltext import DdlSyntaxError, Dialect, Part, canonical_ddl
from tidemill.tidb.schema.model import TableInfo


class CannotRun(SinkError):
    """A server can run a statement in no words."""

    def __init__(self, message: str, cure: str) -> None:
        left_out = "an event filter (ignore-sql) of a changefeed, ignore-txn-commit-ts of a Drainer, --skip-ddl of `tidemill consume`"
        super().__init__(message, hint=f"{cure}. Then leave the statement out: {left_out}.")
        self.cure = cure


class For(enum.Flag):
    """Servers that a rule is for."""

    MYSQL = enum.auto()
    MARIADB = enum.auto()
    BOTH = MYSQL | MARIADB


@dataclass(frozen=True, slots=True)
class Rule:
    """What stands for a part of a statement: a text, empty where it is left out, or what a function makes of TiDB's text, None where that
    may stay. `cure`: no statement with it can be run, and what to do about it. `about`: why. `shown`: the docs' word for `instead`."""

    servers: For
    part: Part
    instead: str | Callable[[str], str | None] = ""
    about: str = ""
    shown: str = ""
    cure: str = ""


_COLLATIONS = {
    "utf8mb4_0900_ai_ci": "utf8mb4_uca1400_ai_ci",
    "utf8mb4_0900_bin": "utf8mb4_nopad_bin",
    "gb18030_bin": "utf8mb4_bin",
    "gb18030_chinese_ci": "utf8mb4_unicode_ci",
}
_INNODB = re.compile(r"ENGINE = '?innodb'?", re.I)
_NGRAM = re.compile(r"WITH PARSER `?ngram`?", re.I)
_NO_EXPRESSIONS = "MariaDB has no indexes of expressions"
_NOT_CHECKED = "a TiDB that does not check, which is its default, has rows that MySQL would refuse; no session can turn that off"
_ONLY_NGRAM = "of TiDB's full-text parsers MySQL has ngram alone"
_ONLY_TIDB = "it concerns TiDB's own storage or statistics"

RULES = (
    Rule(For.MARIADB, Part.DROP_CHECK, "DROP CONSTRAINT", "MariaDB's word for it"),
    Rule(For.MARIADB, Part.ALTER_CHECK, about="every CHECK is enforced in MariaDB; Tidemill's sessions do not check"),
    Rule(
        For.MYSQL, Part.ALTER_CHECK, lambda text: re.sub(r"(?<! NOT) ENFORCED$", " NOT ENFORCED", text), _NOT_CHECKED,
        "`ALTER CHECK … NOT ENFORCED`",
    ),
    Rule(For.MARIADB, Part.NOT_ENFORCED, about="MariaDB has no CHECK that is not enforced; Tidemill's sessions do not check"),
    Rule(For.MARIADB, Part.ENFORCED, about="every CHECK is enforced in MariaDB; Tidemill's sessions do not check"),
    Rule(For.MYSQL, Part.ENFORCED, "/*!80016 NOT ENFORCED */", _NOT_CHECKED),
    Rule(For.BOTH, Part.COLUMN_REFERENCES, about="TiDB makes no foreign key of it, MariaDB and MySQL 9 would"),
    Rule(For.MARIADB, Part.GENERATED_NOT_NULL, about="a generated column of MariaDB cannot be NOT NULL"),
    Rule(For.MYSQL, Part.FLOAT_AUTO_INCREMENT, about="MySQL 8.4 has it for integers only; rows come with their numbers"),
    Rule(For.MARIADB, Part.COLUMN_FORMAT, about="MariaDB does not have it, TiDB ignores it"),
    Rule(For.MARIADB, Part.INVISIBLE, "IGNORED", "an invisible index"),
    Rule(For.MARIADB, Part.VISIBLE, "NOT IGNORED", "a visible index"),
    Rule(
        For.MARIADB, Part.COLLATION, lambda text: _COLLATIONS.get(text.lower()), "a collation that MariaDB does not have",
        "`utf8mb4_uca1400_ai_ci` for `utf8mb4_0900_ai_ci`, `utf8mb4_nopad_bin` for `utf8mb4_0900_bin`",
    ),
    Rule(
        For.MARIADB, Part.CHARSET, lambda text: "UTF8MB4" if text.upper() == "GB18030" else None,
        "a character set that MariaDB does not have", "`utf8mb4` for `gb18030`",
    ),
    Rule(For.BOTH, Part.VECTOR_TYPE, "LONGTEXT", "a vector is kept as its text"),
    Rule(For.BOTH, Part.COLUMNAR_INDEX, about="a vector is kept as its text, and there are no columnar replicas"),
    Rule(For.MARIADB, Part.EXPRESSION_INDEX, about=_NO_EXPRESSIONS),
    Rule(For.MARIADB, Part.MULTI_VALUED_INDEX, about=_NO_EXPRESSIONS),
    Rule(For.BOTH, Part.UNIQUE_PARTIAL_INDEX, "", "only a part of the rows is unique", "not unique"),
    Rule(For.BOTH, Part.INDEX_CONDITION, about="the index holds all rows"),
    Rule(For.BOTH, Part.MISSING_INDEX, about="the index was left out when it was made"),
    Rule(For.MARIADB, Part.WITH_PARSER, about="MariaDB has no full-text parsers of this kind"),
    Rule(
        For.MYSQL, Part.WITH_PARSER, lambda text: None if _NGRAM.fullmatch(text) else "", _ONLY_NGRAM,
        "left out, but for `ngram`",
    ),
    Rule(For.BOTH, Part.GLOBAL_KEY, about="there are no global indexes"),
    Rule(For.BOTH, Part.UPDATE_INDEXES, about="there are no global indexes"),
    Rule(For.MYSQL, Part.IF_EXISTS, about="MySQL does not have it here"),
    Rule(For.BOTH, Part.ALGORITHM, about="whether the server can do it so is another matter than whether TiDB could"),
    Rule(For.MARIADB, Part.WITHOUT_VALIDATION, about="MariaDB looks at the rows"),
    Rule(For.BOTH, Part.TIFLASH_REPLICA, about="TiFlash replicas are TiDB's own"),
    Rule(For.BOTH, Part.TIDB_SPEC, about=_ONLY_TIDB),
    Rule(For.BOTH, Part.TIDB_OPTION, about=_ONLY_TIDB),
    Rule(For.MARIADB, Part.MYSQL_OPTION, about="MariaDB does not have it, TiDB ignores it"),
    Rule(
        For.BOTH, Part.ENGINE, lambda text: None if _INNODB.fullmatch(text) else "ENGINE = InnoDB",
        "every table of TiDB has transactions", "`ENGINE = InnoDB`",
    ),
    Rule(For.BOTH, Part.DIRECTORY, about="TiDB ignores it, the server would write there"),
    Rule(For.BOTH, Part.GLOBAL_TEMPORARY, about="the rows of a temporary table are each session's own"),
    Rule(For.MARIADB, Part.VALUES_ROW, "", "MariaDB writes rows without ROW", "`(…)`"),
    Rule(For.MARIADB, Part.TABLE_QUERY, "SELECT * FROM", "MariaDB's words for it"),
    Rule(
        For.BOTH, Part.INTERVAL_PARTITIONS,
        about="the partitions that TiDB makes or drops are not in the statement",
        cure="Make the partitions by hand as they are upstream (SHOW CREATE TABLE there)",
    ),
    Rule(
        For.MARIADB, Part.LIST_DEFAULT, "DEFAULT", "MariaDB's DEFAULT stands alone; it takes the values beside it too", "`DEFAULT` alone",
    ),
    Rule(
        For.MYSQL, Part.LIST_DEFAULT,
        about="it would have no place for rows whose values no partition names",
        cure="Make the table by hand as it is upstream (SHOW CREATE TABLE there), without partitions or with others; from then on leave "
        "out what is about its partitions too",
    ),
    Rule(
        For.BOTH, Part.RECOVER,
        about="it brings back rows of which there are no changes",
        cure="Make the table as it is upstream and load its rows: `tidemill resync` where a server has create-tables = true, else a copy",
    ),
)  # fmt: skip
"""A row for each part that a server does not have as TiDB has it. docs/sinks/mysql.md shows the same table."""

_BY_SERVER: Mapping[For, Mapping[Part, Rule]] = {
    server: {rule.part: rule for rule in RULES if server in rule.servers} for server in (For.MYSQL, For.MARIADB)
}


def rewritten(query: str, server: Server, special: Iterable[tuple[str, str]] = ()) -> tuple[str, list[str]]:
    """Return a statement as a server takes it, empty for one that it has no use for, and why it was changed.

    `special`: indexes of the table, see `special_indexes`. A statement that cannot be parsed stays as it is. Raises CannotRun for one that
    the server cannot run in any words.
    """
    if server.is_tidb:
        return query, []
    dialect = _ServerDialect(query, server, special)
    try:
        text = canonical_ddl(query, dialect=dialect)
    except DdlSyntaxError:
        return query, []
    return (text, list(dialect.changes)) if dialect.changes else (query, [])


class _ServerDialect(Dialect):
    """The rules of one server, for one statement."""

    exact = True

    def __init__(self, query: str, server: Server, special: Iterable[tuple[str, str]]) -> None:
        self._query = query
        self._name = "MariaDB" if server.is_mariadb else "MySQL"
        self._rules = _BY_SERVER[For.MARIADB if server.is_mariadb else For.MYSQL]
        self._missing = {name for name, part in special if (rule := self._rules.get(Part[part])) is not None and rule.instead == ""}
        self.changes: dict[str, None] = {}

    def part(self, part: Part, text: str) -> str:
        """See Dialect. Raises SinkError."""
        rule = self._rules.get(part)
        if rule is None:
            return text
        if rule.cure:
            raise CannotRun(f"{self._name} cannot run {part.value}: {rule.about}: {redact(self._query)}", rule.cure)
        instead = rule.instead if isinstance(rule.instead, str) else rule.instead(text)
        if instead is None or instead == text:
            return text
        self.changes[rule.about] = None
        return instead

    def index(self, name: str) -> bool:
        return name.lower() not in self._missing


def special_indexes(info: TableInfo) -> tuple[tuple[str, str], ...]:
    """Return the indexes of a table that not every server has: the name in lower case, and the name of the Part."""
    found = []
    for index in info.public_indices:
        if index.distance:
            found.append((index.name.lower(), Part.COLUMNAR_INDEX.name))
        elif index.multi_valued:
            found.append((index.name.lower(), Part.MULTI_VALUED_INDEX.name))
        elif any(info.columns[part.offset].hidden for part in index.columns):
            found.append((index.name.lower(), Part.EXPRESSION_INDEX.name))
    return tuple(found)
