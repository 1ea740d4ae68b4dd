"""Errors by which a server may say that what a DDL wants is so: the database is asked whether it is. What is so is passed over, the rest
of a statement runs, and anything else stops the changefeed with both states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.delivery.database_sinks import CREATE, LATER, made_of
from tests.support.servers.mariadb import MariaDb
from tidemill.errors import SinkError
from tidemill.tidb.schema.codes import Action

pytestmark = pytest.mark.slow

END = LATER + 10
TABLES = (
    "CREATE TABLE s.w (id INT, a VARCHAR(20), b INT DEFAULT 3 COMMENT 'x', KEY ib (b), UNIQUE KEY ua (a), "
    "PRIMARY KEY (id) /*T![clustered_index] NONCLUSTERED */)",
    "CREATE TABLE s.p (id INT PRIMARY KEY) PARTITION BY RANGE (id) "
    "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
    "CREATE VIEW s.v AS SELECT id, a FROM s.w",
)


@pytest.fixture(scope="module")
def filled(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    mariadb.run(*CREATE, *TABLES)
    return mariadb


@pytest.fixture
def sinks(filled: MariaDb) -> Iterator[Any]:
    with made_of(filled) as make:
        yield make


SO = [
    "CREATE TABLE `w` (`id` INT PRIMARY KEY, `a` VARCHAR(20) UNIQUE, `b` INT)",
    "CREATE DATABASE `s`",
    "CREATE VIEW `v` AS SELECT `id`,`a` FROM `w`",
    "DROP TABLE `gone`",
    "DROP TABLE `elsewhere`.`gone`",
    "DROP VIEW `gone`",
    "DROP DATABASE `gone`",
    "ALTER TABLE `w` ADD COLUMN `b` INT DEFAULT 3 COMMENT 'x'",
    "ALTER TABLE `w` ADD COLUMN `b` INT DEFAULT 3 COMMENT 'x' FIRST, DROP COLUMN `gone`",
    "ALTER TABLE `w` DROP COLUMN `gone`",
    "ALTER TABLE `w` RENAME COLUMN `gone` TO `b`",
    "ALTER TABLE `w` CHANGE COLUMN `gone` `b` INT DEFAULT 3 COMMENT 'x'",
    "ALTER TABLE `w` ADD INDEX `ib`(`b`)",
    "CREATE INDEX `ib` ON `w` (`b`)",
    "CREATE UNIQUE INDEX `ua` ON `w` (`a`)",
    "DROP INDEX `gone` ON `w`",
    "ALTER TABLE `w` RENAME INDEX `gone` TO `ib`",
    "ALTER TABLE `w` ADD PRIMARY KEY(`id`)",
    "ALTER TABLE `k` DROP PRIMARY KEY",
    "ALTER TABLE `p` ADD PARTITION (PARTITION `p1` VALUES LESS THAN (20))",
    "ALTER TABLE `p` DROP PARTITION `gone`",
    "ALTER TABLE `w` REMOVE PARTITIONING",
    "RENAME TABLE `gone` TO `w`",
]
NOT_SO = [
    "CREATE TABLE `w` (`id` INT PRIMARY KEY, `a` VARCHAR(30), `b` INT)",
    "CREATE TABLE `w` (`id` INT PRIMARY KEY, `a` VARCHAR(20), `b` INT, `c` INT)",
    "CREATE TABLE `w` (`id` INT, `a` VARCHAR(20) PRIMARY KEY, `b` INT)",
    "CREATE TABLE `v` (`id` INT PRIMARY KEY)",
    "CREATE VIEW `v` AS SELECT `id`,`b` FROM `w`",
    "CREATE VIEW `w` AS SELECT 1 AS `a`",
    "CREATE VIEW `new` AS SELECT `id` FROM `gone`",
    "CREATE TABLE `new` LIKE `gone`",
    "CREATE TABLE `gone`.`new` (`id` INT)",
    "ALTER TABLE `w` ADD COLUMN `b` BIGINT DEFAULT 3 COMMENT 'x'",
    "ALTER TABLE `w` ADD COLUMN `b` INT DEFAULT 4 COMMENT 'x'",
    "ALTER TABLE `w` ADD COLUMN `b` INT DEFAULT 3 COMMENT 'y'",
    "ALTER TABLE `w` ADD COLUMN `c` INT AFTER `gone`",
    "ALTER TABLE `w` MODIFY COLUMN `gone` BIGINT",
    "ALTER TABLE `w` RENAME COLUMN `gone` TO `gone2`",
    "ALTER TABLE `w` CHANGE COLUMN `gone` `b` BIGINT",
    "ALTER TABLE `w` ALTER COLUMN `gone` SET DEFAULT 3",
    "ALTER TABLE `w` ADD INDEX `ib`(`a`)",
    "ALTER TABLE `w` ADD UNIQUE `ib`(`b`)",
    "CREATE INDEX `ib` ON `w` (`a`,`b`)",
    "ALTER TABLE `w` RENAME INDEX `gone` TO `gone2`",
    "ALTER TABLE `w` ADD PRIMARY KEY(`b`)",
    "ALTER TABLE `p` ADD PARTITION (PARTITION `p1` VALUES LESS THAN (30))",
    "ALTER TABLE `p` TRUNCATE PARTITION `gone`",
    "ALTER TABLE `gone` DROP COLUMN `a`",
    "TRUNCATE TABLE `gone`",
    "RENAME TABLE `w` TO `u`",
    "RENAME TABLE `gone` TO `gone2`",
    "RENAME TABLE `w` TO `x`, `u` TO `w`, `gone` TO `u`",
]


def run(sinks: Any, query: str) -> None:
    sink = sinks()
    sink.begin(1, LATER, END)
    name = "" if "DATABASE" in query else "t"
    sink.ddl(query, END, type=Action.CREATE_SCHEMA if not name else Action.MULTI_SCHEMA_CHANGE)


@pytest.mark.parametrize("query", SO)
def test_what_is_so_already_is_passed_over(filled: MariaDb, sinks: Any, query: str) -> None:
    before = structure(filled)
    run(sinks, query)
    assert structure(filled) == before


@pytest.mark.parametrize("query", NOT_SO)
def test_what_is_not_so_stops_with_both_states(filled: MariaDb, sinks: Any, query: str) -> None:
    before = structure(filled)
    with pytest.raises(SinkError, match=r"(?s)refuses a DDL: error \d+.*(wanted: .*there: |cannot be looked up)") as caught:
        run(sinks, query)
    assert not caught.value.retryable
    assert structure(filled) == before
    assert filled.rows("SELECT COUNT(*) FROM tidb_cdc.tidemill_plan_v1") == [(0,)]


CODES = {
    1007: "CREATE DATABASE `s`",
    1008: "DROP DATABASE `gone`",
    1049: "CREATE TABLE `gone`.`new` (`id` INT)",
    1050: "CREATE TABLE `w` (`id` INT PRIMARY KEY, `a` VARCHAR(20) UNIQUE, `b` INT)",
    1051: "DROP TABLE `gone`",
    1054: "ALTER TABLE `w` RENAME COLUMN `gone` TO `b`",
    1060: "ALTER TABLE `w` ADD COLUMN `b` INT DEFAULT 3 COMMENT 'x'",
    1061: "ALTER TABLE `w` ADD INDEX `ib`(`b`)",
    1068: "ALTER TABLE `w` ADD PRIMARY KEY(`id`)",
    1091: "ALTER TABLE `w` DROP COLUMN `gone`",
    1146: "TRUNCATE TABLE `gone`",
}


@pytest.mark.parametrize("code", CODES)
def test_it_is_the_error_that_is_looked_at(filled: MariaDb, sinks: Any, caplog: pytest.LogCaptureFixture, code: int) -> None:
    said = ""
    try:
        run(sinks, CODES[code])
    except SinkError as error:
        said = str(error)
    assert f"error {code}: " in said + caplog.text
    assert "wanted: " in said or "cannot be looked up" in said or "the database is so already" in caplog.text


def structure(db: MariaDb) -> list[Any]:
    names = db.rows("SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema = 's' ORDER BY 1, 2")
    assert not db.rows("SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'tidemill%'")
    return [db.rows(f"SHOW CREATE TABLE `{schema}`.`{table}`") for schema, table in names]


REST = {
    "an index that the sink left out": (
        "ALTER TABLE `r` DROP INDEX `e`, ADD COLUMN `z` INT DEFAULT 4, MODIFY COLUMN `a` VARCHAR(200)",
        ["`id` int NOT NULL", "`a` varchar(200) DEFAULT NULL", "`z` int DEFAULT 4", "PRIMARY KEY (`id`)"],
    ),
    "a column that is there": (
        "ALTER TABLE `r` ADD COLUMN `a` VARCHAR(20), ADD COLUMN `z` INT, ADD INDEX `ii`(`id`,`a`)",
        ["`id` int NOT NULL", "`a` varchar(20) DEFAULT NULL", "`z` int DEFAULT NULL", "PRIMARY KEY (`id`)", "KEY `ii` (`id`,`a`)"],
    ),
    "a key made again that was missing": (
        "ALTER TABLE `r` DROP INDEX `e`, ADD INDEX `e`(`a`)",
        ["`id` int NOT NULL", "`a` varchar(20) DEFAULT NULL", "PRIMARY KEY (`id`)", "KEY `e` (`a`)"],
    ),
    "several parts": (
        "ALTER TABLE `r` DROP INDEX `e`, DROP COLUMN `gone`, ADD COLUMN `z` INT",
        ["`id` int NOT NULL", "`a` varchar(20) DEFAULT NULL", "`z` int DEFAULT NULL", "PRIMARY KEY (`id`)"],
    ),
}


@pytest.mark.parametrize("what", REST)
def test_the_rest_of_a_statement_runs(filled: MariaDb, sinks: Any, what: str) -> None:
    filled.run("DROP TABLE IF EXISTS s.r", "CREATE TABLE s.r (id INT PRIMARY KEY, a VARCHAR(20))")
    query, expected = REST[what]
    run(sinks, query)
    text = re.sub(r"\(11\)| /\*T!.*?\*/", "", filled.rows("SHOW CREATE TABLE s.r")[0][1])
    text = re.sub(r"DEFAULT '(\d+)'", r"DEFAULT \1", text)
    assert [line.strip().rstrip(",") for line in text.splitlines()[1:-1]] == expected
    filled.run("DROP TABLE s.r")


def test_partitions_that_are_left_are_dropped(filled: MariaDb, sinks: Any) -> None:
    filled.run("CREATE TABLE s.q (id INT) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (1), PARTITION b VALUES LESS THAN (2))")
    run(sinks, "ALTER TABLE `q` DROP PARTITION `gone`,`a`")
    query = "SELECT partition_name FROM information_schema.partitions WHERE table_name = 'q'"
    assert filled.rows(query) == [("b",)]
    filled.run("DROP TABLE s.q")
