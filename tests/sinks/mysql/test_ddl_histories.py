"""Histories of DDLs made by chance, with rows between them, into a MariaDB: its tables are those of the playground after every statement.

Names come in any letters, elements and comments with escapes; tables are renamed, emptied, made like others, partitioned.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.database_runs import FORCED, hurried, wrong
from tests.support.servers.mariadb import MariaDb
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.errors import SqlError

STATEMENTS = 16
SEEDS = range(2 * int(os.environ.get("TIDEMILL_FUZZ", "1")))
NAMES = ("Orders", "people", "T-1", "日本", "a b")
TYPES = (
    "INT DEFAULT 3", "BIGINT NOT NULL DEFAULT -1", "VARCHAR(20) DEFAULT 'it''s \\\\ x'", "DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)",
    "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP", "ENUM('a\\\\b', '\\\\', '''') DEFAULT '\\\\'", "SET('x\\\\y', 'z')",
    "DECIMAL(9,2) DEFAULT 1.50", "JSON", "DATE DEFAULT '2020-02-29'",
)  # fmt: skip


class History:
    """Makes statements. Names of tables and columns are kept as they were made."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._tables: dict[str, list[str]] = {}
        self._number = 0

    def _letters(self, name: str) -> str:
        return "`" + "".join(self._random.choice((char.lower(), char.upper())) for char in name) + "`"

    def _new(self) -> str:
        self._number += 1
        return f"{self._random.choice(NAMES)}{self._number}"

    def create(self) -> str:
        name = self._new()
        self._tables[name] = []
        parts = " PARTITION BY RANGE (id) (PARTITION P0 VALUES LESS THAN (1000), PARTITION `p-1` VALUES LESS THAN (100000))"
        comment = self._random.choice(("", " COMMENT 'c\\\\d'"))
        return f"CREATE TABLE `{name}` (Id INT PRIMARY KEY){comment}{self._random.choice(('', parts))}"

    def like(self) -> str:
        old, name = self._any(), self._new()
        self._tables[name] = list(self._tables[old])
        return f"CREATE TABLE `{name}` LIKE {self._letters(old)}"

    def _any(self) -> str:
        return self._random.choice(sorted(self._tables))

    def statement(self) -> tuple[str, str]:
        """Return a DDL, and an INSERT into a table that is there after it."""
        made = self._random.choice((self.create, self.like, self.add, self.drop_column, self.rename, self.truncate, self.drop, self.index))
        text = made() if self._tables else self.create()
        self._number += 1
        return text, f"INSERT INTO {self._letters(self._any())} (iD) VALUES ({self._number})"

    def add(self) -> str:
        table = self._any()
        self._number += 1
        self._tables[table].append(f"Col{self._number}")
        place = self._random.choice(("", " FIRST", " AFTER iD"))
        return f"ALTER TABLE {self._letters(table)} ADD COLUMN `Col{self._number}` {self._random.choice(TYPES)}{place}"

    def drop_column(self) -> str:
        table = self._any()
        if not self._tables[table]:
            return self.add()
        return f"ALTER TABLE {self._letters(table)} DROP COLUMN {self._letters(self._tables[table].pop())}"

    def rename(self) -> str:
        old, new = self._any(), self._new()
        self._tables[new] = self._tables.pop(old)
        return f"RENAME TABLE {self._letters(old)} TO `{new}`"

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


def steps(seed: int, sql: SqlLog) -> Iterator[tuple[str, int]]:
    """Run a history. Yields each DDL with a ts past it and the rows behind it."""
    history = History(seed)
    for _ in range(STATEMENTS):
        ddl, insert = history.statement()
        try:
            yield ddl, sql.run(ddl, insert)
        except SqlError as error:
            raise AssertionError(f"the playground refuses {ddl}; {insert}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_tables_are_equal_after_every_statement(mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    hurried(monkeypatch)
    mariadb.clear()
    mariadb.run("CREATE DATABASE app CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    sql, config = SqlLog(), parse_config(FORCED)
    done = list(steps(seed, sql))
    log, begin = sql.write(tmp_path / "log"), sql.start_ts
    for number, (ddl, ts) in enumerate(done):
        replay(log, Settings(f"step{number}", config.sink_uri(mariadb.uri), config, UTC), start_ts=begin, target_ts=ts)
        assert not list(wrong(mariadb, sql, ts=ts)), f"seed {seed}, after {ddl}"
        begin = ts
