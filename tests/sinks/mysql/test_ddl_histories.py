"""Histories of DDLs made by chance, with rows between them, into a MariaDB: its tables are those of the playground after every statement.

Names come in any letters, elements and comments with escapes; tables are renamed, also in rings, emptied, made like others, partitioned; a
statement may have several changes. Half of them have the parts that MariaDB does not have as TiDB has them, see
`sinks.mysql.dialect`. `TIDEMILL_FUZZ=N` makes N times as many.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.changelog.told_otherwise import telling
from tests.support.delivery.database_runs import FORCED, hurried, wrong
from tests.support.servers.mariadb import MariaDb
from tests.support.thorough import FUZZ
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.errors import SqlError
from tidemill.sinks.mysql.dialect import RULES, For
from tidemill.tidb.ddltext import ExactDialect, Part, canonical_ddl

STATEMENTS = 16
SEEDS = [pytest.param(seed, marks=[pytest.mark.thorough("another seed")] * (seed == 1)) for seed in range(2 * FUZZ)]
NAMES = ("Orders", "people", "T-1", "日本", "a b")
TYPES = (
    "INT DEFAULT 3", "BIGINT NOT NULL DEFAULT -1", "VARCHAR(20) DEFAULT 'it''s \\\\ x'", "DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)",
    "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP", "ENUM('a\\\\b', '\\\\', '''') DEFAULT '\\\\'", "SET('x\\\\y', 'z')",
    "DECIMAL(9,2) DEFAULT 1.50", "JSON", "DATE DEFAULT '2020-02-29'",
)  # fmt: skip


COMMENTS = ("", " COMMENT 'c\\\\d'", " COMMENT 'it''s \\n; -- x'", ' COMMENT "`a` 日本"')


class History:
    """Makes statements. Names of tables and columns are kept as they were made, and of partitions with their ends."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._tables: dict[str, list[str]] = {}
        self._parts: dict[str, list[tuple[str, int]]] = {}
        self._types: dict[str, str] = {}
        self._number = 0

    def _letters(self, name: str) -> str:
        return "`" + "".join(self._random.choice((char.lower(), char.upper())) for char in name) + "`"

    def _new(self) -> str:
        self._number += 1
        return f"{self._random.choice(NAMES)}{self._number}"

    def create(self) -> str:
        name = self._new()
        self._tables[name] = []
        parts = ""
        if self._random.random() < 0.5:
            self._parts[name] = [("P0", 1_000), ("p-1", 100_000)]
            parts = f" PARTITION BY RANGE (id) ({self._defined(self._parts[name])})"
        return f"CREATE TABLE `{name}` (Id INT PRIMARY KEY{self._random.choice(COMMENTS)}){self._random.choice(COMMENTS)}{parts}"

    @staticmethod
    def _defined(parts: list[tuple[str, int]]) -> str:
        return ", ".join(f"PARTITION `{name}` VALUES LESS THAN ({end})" for name, end in parts)

    def like(self) -> str:
        old, name = self._any(), self._new()
        self._tables[name], self._parts[name] = list(self._tables[old]), list(self._parts.get(old, []))
        return f"CREATE TABLE `{name}` LIKE {self._letters(old)}"

    def _any(self) -> str:
        return self._random.choice(sorted(self._tables))

    def statement(self) -> tuple[str, str]:
        """Return a DDL, and an INSERT into a table that is there after it."""
        steps = (
            self.create, self.like, self.add, self.drop_column, self.rename, self.truncate, self.drop, self.index, self.ring,
            self.change, self.several, self.partition, self.partition,
        )  # fmt: skip
        text = self._random.choice(steps)() if self._tables else self.create()
        self._number += 1
        return text, f"INSERT INTO {self._letters(self._any())} (iD) VALUES ({self._number})"

    def add(self) -> str:
        table = self._any()
        return f"ALTER TABLE {self._letters(table)} {self._added(table)}"

    def _added(self, table: str) -> str:
        self._number += 1
        column = f"Col{self._number}"
        self._tables[table].append(column)
        self._types[column] = self._random.choice(TYPES)
        place = self._random.choice(("", " FIRST", " AFTER iD"))
        return f"ADD COLUMN `{column}` {self._types[column]}{self._random.choice(COMMENTS)}{place}"

    def several(self) -> str:
        table = self._any()
        index = f"ADD INDEX `I{self._number}` (iD)"
        return f"ALTER TABLE {self._letters(table)} {self._added(table)}, {index}, {self._added(table)}"

    def change(self) -> str:
        """A column gets another name, alone or with its comment."""
        table = self._any()
        columns = self._tables[table]
        if not columns:
            return self.add()
        old, new = columns.pop(self._random.randrange(len(columns))), f"Col{self._number + 1}"
        self._number += 1
        columns.append(new)
        self._types[new] = self._types[old]
        if self._random.random() < 0.5:
            return f"ALTER TABLE {self._letters(table)} RENAME COLUMN {self._letters(old)} TO `{new}`"
        kind = f"{self._types[new]}{self._random.choice(COMMENTS)}"
        return f"ALTER TABLE {self._letters(table)} CHANGE COLUMN {self._letters(old)} `{new}` {kind}"

    def partition(self) -> str:
        """A partition comes, is divided, is emptied or goes."""
        tables = [table for table in sorted(self._tables) if self._parts.get(table)]
        if not tables:
            return self.create()
        table = self._random.choice(tables)
        parts, head = self._parts[table], f"ALTER TABLE {self._letters(table)}"
        self._number += 1
        name, end = parts[-1]
        match self._random.choice(("ADD", "TRUNCATE", "DROP", "REORGANIZE")):
            case "TRUNCATE":
                return f"{head} TRUNCATE PARTITION {self._letters(self._random.choice(parts)[0])}"
            case "DROP" if len(parts) > 1:
                return f"{head} DROP PARTITION {self._letters(parts.pop(self._random.randrange(len(parts) - 1))[0])}"
            case "REORGANIZE":
                middle = ((parts[-2][1] if len(parts) > 1 else 0) + end) // 2
                parts[-1:] = [(f"A-{self._number}", middle), (f"b {self._number}", end)]
                return f"{head} REORGANIZE PARTITION {self._letters(name)} INTO ({self._defined(parts[-2:])})"
        parts.append((f"Q{self._number}", end + 1_000))
        return f"{head} ADD PARTITION ({self._defined(parts[-1:])})"

    def drop_column(self) -> str:
        table = self._any()
        if not self._tables[table]:
            return self.add()
        return f"ALTER TABLE {self._letters(table)} DROP COLUMN {self._letters(self._tables[table].pop())}"

    def rename(self) -> str:
        old, new = self._any(), self._new()
        self._tables[new], self._parts[new] = self._tables.pop(old), self._parts.pop(old, [])
        return f"RENAME TABLE {self._letters(old)} TO `{new}`"

    def ring(self) -> str:
        """Up to three tables change places."""
        names = self._random.sample(sorted(self._tables), min(3, len(self._tables)))
        if len(names) < 2:
            return self.create()
        spare = self._new()
        for held in (self._tables, self._parts):
            contents = [held.get(name, []) for name in names]
            held.update(zip(names, contents[1:] + contents[:1], strict=True))  # type: ignore[arg-type]
        ways = [(names[0], spare), *((after, before) for before, after in pairwise(names)), (spare, names[-1])]
        return "RENAME TABLE " + ", ".join(f"{self._letters(old)} TO `{new}`" for old, new in ways)

    def truncate(self) -> str:
        return f"TRUNCATE TABLE {self._letters(self._any())}"

    def drop(self) -> str:
        table = self._any()
        if len(self._tables) == 1:
            return self.create()
        del self._tables[table]
        return f"DROP TABLE {self._letters(table)}"

    def index(self) -> str:
        self._number += 1
        return f"ALTER TABLE {self._letters(self._any())} ADD INDEX `I{self._number}` (iD)"


COLUMNS = (
    ("INT", "INT COLUMN_FORMAT FIXED STORAGE DISK"),
    ("INT", "INT REFERENCES app.nothing (id)"),
    ("INT", "INT CHECK ({0} > 0) NOT ENFORCED"),
    ("INT", "INT CHECK ({0} > 0) ENFORCED"),
    ("INT DEFAULT 4", "INT DEFAULT 4 COMMENT 'NOT ENFORCED, VISIBLE, GLOBAL'"),
    ("VARCHAR(20) DEFAULT 'é'", "VARCHAR(20) CHARACTER SET gb18030 COLLATE gb18030_chinese_ci DEFAULT 'é'"),
    ("VARCHAR(20) DEFAULT 'é'", "VARCHAR(20) COLLATE utf8mb4_0900_ai_ci DEFAULT 'é'"),
    ("VARCHAR(20) DEFAULT 'é'", "VARCHAR(20) COLLATE utf8mb4_0900_bin DEFAULT 'é'"),
    ("INT", "INT UNIQUE GLOBAL"),
    ("VECTOR(2)", "VECTOR(2)"),
    ("INT GENERATED ALWAYS AS (iD + 1) VIRTUAL", "INT GENERATED ALWAYS AS (iD + 1) VIRTUAL NOT NULL"),
)
"""Columns as the playground makes them, and as the job tells of them; {0}: the name."""
KEYS = (
    "INDEX {0} ((iD + 1))", "INDEX {0} ((CAST(CAST(iD AS JSON) AS UNSIGNED ARRAY)))", "UNIQUE INDEX {0} (iD) WHERE iD > 3",
    "INDEX {0} (iD) COMMENT 'it''s \\\\ INVISIBLE'", "INDEX {0} (iD) WHERE iD IS NOT NULL", "INDEX {0} (iD) INVISIBLE",
    "INDEX {0} (iD) VISIBLE", "INDEX {0} (iD) GLOBAL",
    "CONSTRAINT {0} CHECK (iD > -1)", "CONSTRAINT {0} CHECK (iD > -1) NOT ENFORCED",
)  # fmt: skip
OPTIONS = (
    "ENGINE = MyISAM", "DATA DIRECTORY = '/nowhere'", "STATS_TOPN = 3 STATS_BUCKETS = 10", "COMPRESSION = 'zlib' ENCRYPTION = 'n'",
    "AUTO_ID_CACHE = 100", "ENGINE = InnoDB INDEX DIRECTORY = '/nowhere'", "",
)  # fmt: skip
ACTIONS = (
    "SET TIFLASH REPLICA 1", "ATTRIBUTES = 'merge_option=allow'", "STATS_OPTIONS = 'SAMPLE_RATE=0.1'", "CACHE",
    "SPLIT PRIMARY KEY BETWEEN (0) AND (9) REGIONS 3",
)  # fmt: skip
TOGETHER = (", ALGORITHM = INSTANT", ", ALGORITHM = INPLACE, LOCK = NONE", ", SET TIFLASH REPLICA 2", "")
NOT_MADE = {
    Part.UPDATE_INDEXES,
    Part.WITHOUT_VALIDATION,
    Part.WITH_PARSER,
    Part.COLUMNAR_INDEX,
    Part.MISSING_INDEX,
    Part.VALUES_ROW,
    Part.LIST_DEFAULT,
}
"""Parts whose statements test_dialect.py has: they take tables of their own. What a statement drops is known by the catalogue alone."""


class Dialects(History):
    """Statements with parts that MariaDB lacks. They come as the playground runs them and as the job has them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._keys: dict[str, list[str]] = {}
        self._checks: dict[str, list[str]] = {}

    def told(self) -> tuple[str, str, str]:
        """Return a DDL, its text in the job, and an INSERT into a table that is there after it."""
        steps = (self.table, self.table, self.column, self.column, self.key, self.key, self.action, self.dropped, self.view, self.plain)
        statement, text = self._random.choice(steps)() if self._tables else self.table()
        self._number += 1
        return statement, text, f"INSERT INTO {self._letters(self._any())} (iD) VALUES ({self._number})"

    def plain(self) -> tuple[str, str]:
        return (text := self._random.choice((self.rename, self.truncate, self.drop))()), text

    def rename(self) -> str:
        old = set(self._tables)
        text = super().rename()
        (gone,), (come,) = old - set(self._tables), set(self._tables) - old
        for named in (self._keys, self._checks):
            named[come] = named.pop(gone, [])
        return text

    def _name(self) -> str:
        self._number += 1
        return f"`X{self._number}`"

    def table(self) -> tuple[str, str]:
        name, column = self._new(), self._name()
        made, told = self._random.choice(COLUMNS)
        key, option = self._key(name), self._random.choice(OPTIONS)
        self._tables[name] = [column.strip("`")]
        head = f"CREATE TABLE `{name}` (Id INT PRIMARY KEY, {column} "
        return f"{head}{made})", f"{head}{told.format(column)}, {key}) {option}"

    def _key(self, table: str) -> str:
        name, text = self._name(), self._random.choice(KEYS)
        (self._checks if "CHECK" in text else self._keys).setdefault(table, []).append(name)
        return text.format(name)

    def column(self) -> tuple[str, str]:
        table, column = self._any(), self._name()
        made, told = self._random.choice(COLUMNS)
        self._tables[table].append(column.strip("`"))
        head, more = f"ALTER TABLE {self._letters(table)} ADD COLUMN", self._random.choice(TOGETHER)
        return f"{head} {column} {made}", f"{head} {column} {told.format(column)}{more}"

    def _nothing(self, table: str, told: str) -> tuple[str, str]:
        """Return a statement of which the playground's rows and columns know nothing."""
        self._number += 1
        return f"ALTER TABLE `{table}` COMMENT = '{self._number}'", f"ALTER TABLE {self._letters(table)} {told}"

    def key(self) -> tuple[str, str]:
        table = self._any()
        return self._nothing(table, f"ADD {self._key(table)}{self._random.choice(TOGETHER)}")

    def action(self) -> tuple[str, str]:
        return self._nothing(self._any(), self._random.choice(ACTIONS))

    def dropped(self) -> tuple[str, str]:
        """Return a statement about a key or a check that was made, perhaps only upstream."""
        table = self._any()
        checks, keys = self._checks.get(table, []), self._keys.get(table, [])
        if checks and self._random.random() < 0.5:
            if self._random.random() < 0.5:
                return self._nothing(table, f"ALTER CHECK {self._random.choice(checks)} NOT ENFORCED")
            return self._nothing(table, f"DROP CHECK {checks.pop()}")
        return self._nothing(table, f"DROP INDEX {keys.pop()}") if keys else self.column()

    def view(self) -> tuple[str, str]:
        table, view = self._any(), self._name()
        if self._random.random() < 0.3:
            return self._nothing(table, "CACHE")[0], f"CREATE GLOBAL TEMPORARY TABLE {view} (id INT) ON COMMIT DELETE ROWS"
        return f"CREATE VIEW {view} AS SELECT * FROM `{table}`", f"CREATE VIEW {view} AS TABLE `{table}`"


def steps(seed: int, sql: SqlLog) -> Iterator[tuple[str, int]]:
    """Run a history. Yields each DDL with a ts past it and the rows behind it."""
    history = History(seed)
    for _ in range(STATEMENTS):
        ddl, insert = history.statement()
        try:
            yield ddl, sql.run(ddl, insert)
        except SqlError as error:
            raise AssertionError(f"the playground refuses {ddl}; {insert}: {error}") from error


def judged(mariadb: MariaDb, folder: Path, sql: SqlLog, done: list[tuple[str, int]], seed: int) -> None:
    """Deliver statement by statement, and compare after each of them."""
    config, begin = parse_config(FORCED), sql.start_ts
    log = sql.write(folder / "log")
    for number, (ddl, ts) in enumerate(done):
        replay(log, Settings(f"step{number}", config.sink_uri(mariadb.uri), config, UTC), start_ts=begin, target_ts=ts)
        assert not list(wrong(mariadb, sql, ts=ts)), f"seed {seed}, after {ddl}"
        begin = ts


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_tables_are_equal_after_every_statement(mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    hurried(monkeypatch)
    mariadb.clear()
    mariadb.run("CREATE DATABASE app CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    sql = SqlLog()
    judged(mariadb, tmp_path, sql, list(steps(seed, sql)), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.not_tidb("it may be older than the statements")
def test_tables_are_equal_after_every_statement_with_parts_that_mariadb_lacks(
    mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    hurried(monkeypatch)
    mariadb.clear()
    mariadb.run("CREATE DATABASE app CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    sql, history = SqlLog(), Dialects(seed)
    run = telling(monkeypatch, sql)
    done = []
    for _ in range(STATEMENTS):
        statement, told, insert = history.told()
        run(statement, told)
        done.append((told, sql.run(insert)))
    judged(mariadb, tmp_path, sql, done, seed)


class Seen(ExactDialect):
    """The parts that statements have."""

    def __init__(self) -> None:
        self.parts: set[Part] = set()

    def part(self, part: Part, text: str) -> str:
        self.parts.add(part)
        return text


def test_the_statements_have_the_parts_that_mariadb_lacks() -> None:
    seen = Seen()
    for seed in range(40):
        history = Dialects(seed)
        for _ in range(STATEMENTS):
            canonical_ddl(history.told()[1], dialect=seen)
    wanted = {rule.part for rule in RULES if For.MARIADB in rule.servers and not rule.cure}
    assert wanted - seen.parts == NOT_MADE
