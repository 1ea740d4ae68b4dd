"""DDLs for servers that are not TiDB. What MariaDB is to run is run in one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.servers.mariadb import MariaDb
from tidemill.errors import SinkError
from tidemill.sinks.mysql.dialect import RULES, For, rewritten
from tidemill.sinks.mysql.session import Server
from tidemill.tidb.ddltext import EXACT, Part, canonical_ddl

MARIADB, MYSQL, TIDB = Server("10.11.19-MariaDB"), Server("8.0.36"), Server("8.0.11-TiDB-v8.5.7")
TABLES = (
    "CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "CREATE TABLE d.r (id INT PRIMARY KEY)",
    "CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b INT, v VARCHAR(20), j JSON, CONSTRAINT ck CHECK (b > 0), KEY ia (a))",
    "CREATE TABLE d.e (id INT PRIMARY KEY, a INT) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9))",
    "CREATE TABLE d.f (id INT PRIMARY KEY, a INT)",
)

CASES = [
    ("alter table d.t drop constraint ck", "ALTER TABLE `d`.`t` DROP CONSTRAINT `ck`", None),
    ("alter table d.t alter check ck not enforced", "", None),
    ("alter table d.t alter check ck enforced", "", "ALTER TABLE `d`.`t` ALTER CHECK `ck` NOT ENFORCED"),
    ("alter table d.t alter index ia invisible", "ALTER TABLE `d`.`t` ALTER INDEX `ia` IGNORED", None),
    ("alter table d.t alter index ia visible", "ALTER TABLE `d`.`t` ALTER INDEX `ia` NOT IGNORED", None),
    (
        "alter table d.t add constraint c check (a > 1)",
        "ALTER TABLE `d`.`t` ADD CONSTRAINT `c` CHECK(`a`>1)",
        "ALTER TABLE `d`.`t` ADD CONSTRAINT `c` CHECK(`a`>1) /*!80016 NOT ENFORCED */",
    ),
    (
        "create table d.x (a int check (a > 1) not null)",
        "CREATE TABLE `d`.`x` (`a` INT NOT NULL CHECK(`a`>1))",
        "CREATE TABLE `d`.`x` (`a` INT NOT NULL CHECK(`a`>1) /*!80016 NOT ENFORCED */)",
    ),
    ("create table d.x (a double auto_increment primary key)", None, "CREATE TABLE `d`.`x` (`a` DOUBLE PRIMARY KEY)"),
    ("create table d.x (a int check (a > 1) not enforced)", "CREATE TABLE `d`.`x` (`a` INT CHECK(`a`>1))", None),
    ("create table d.x (a int references d.r (id))", *["CREATE TABLE `d`.`x` (`a` INT)"] * 2),
    (
        "create table d.x (a int, g int as (a + 1) virtual not null)",
        "CREATE TABLE `d`.`x` (`a` INT,`g` INT GENERATED ALWAYS AS(`a`+1) VIRTUAL)",
        None,
    ),
    (
        "create table d.x (a char(1) collate utf8mb4_0900_ai_ci comment 'NOT ENFORCED', b char collate utf8mb4_bin)",
        "CREATE TABLE `d`.`x` (`a` CHAR(1) COLLATE utf8mb4_uca1400_ai_ci COMMENT 'NOT ENFORCED',`b` CHAR COLLATE utf8mb4_bin)",
        None,
    ),
    ("create table d.x (vector vector(3), w vector)", *["CREATE TABLE `d`.`x` (`vector` LONGTEXT,`w` LONGTEXT)"] * 2),
    (
        "create table d.x (v vector(3), vector index i ((vec_l2_distance(v))))",
        *["CREATE TABLE `d`.`x` (`v` LONGTEXT)"] * 2,
    ),
    ("create vector index i on d.t ((vec_l2_distance(v)))", "", ""),
    (
        "alter table d.t add vector index i ((vec_l2_distance(v))), add column z int",
        *["ALTER TABLE `d`.`t` ADD COLUMN `z` INT"] * 2,
    ),
    ("create index i on d.t ((lower(v)), a)", "", None),
    ("alter table d.t add index i ((lower(v))), add index k (b)", "ALTER TABLE `d`.`t` ADD INDEX `k`(`b`)", None),
    (
        "create table d.x (a int, j json, key m ((cast(j->'$.a' as unsigned array))), key k (a))",
        "CREATE TABLE `d`.`x` (`a` INT,`j` JSON,INDEX `k`(`a`))",
        None,
    ),
    ("create unique index i on d.t (a) where b > 1", *["CREATE INDEX `i` ON `d`.`t` (`a`)"] * 2),
    ("alter table d.t add unique i (a) where b > 1", *["ALTER TABLE `d`.`t` ADD INDEX `i`(`a`)"] * 2),
    ("alter table d.t add index i (a) where b > 1", *["ALTER TABLE `d`.`t` ADD INDEX `i`(`a`)"] * 2),
    ("alter table d.t add fulltext i (v) with parser standard", *["ALTER TABLE `d`.`t` ADD FULLTEXT `i`(`v`)"] * 2),
    ("alter table d.t add fulltext i (v) with parser ngram", "ALTER TABLE `d`.`t` ADD FULLTEXT `i`(`v`)", None),
    ("alter table d.t set tiflash replica 2", "", ""),
    ("alter table d.t set tiflash replica 2, add column z int", *["ALTER TABLE `d`.`t` ADD COLUMN `z` INT"] * 2),
    ("create global temporary table d.x (a int) on commit delete rows", "", ""),
    ("alter table d.t add column z int, algorithm = instant, lock = none", *["ALTER TABLE `d`.`t` ADD COLUMN `z` INT"] * 2),
    ("create index i on d.t (a) algorithm = inplace", *["CREATE INDEX `i` ON `d`.`t` (`a`)"] * 2),
    (
        "alter table d.e exchange partition p with table d.f without validation",
        "ALTER TABLE `d`.`e` EXCHANGE PARTITION `p` WITH TABLE `d`.`f`",
        None,
    ),
    ("alter table d.t cache", "", ""),
    ("alter table d.t split primary key between (0) and (9) regions 3", "", ""),
    ("create table d.x (a int) engine = MyISAM", *["CREATE TABLE `d`.`x` (`a` INT) ENGINE = InnoDB"] * 2),
    ("create table d.x (a int) engine InnoDB data directory '/x' stats_topn 3", *["CREATE TABLE `d`.`x` (`a` INT) ENGINE = InnoDB"] * 2),
    ("create table d.x (a int) compression = 'zlib' comment 'x'", "CREATE TABLE `d`.`x` (`a` INT) COMMENT = 'x'", None),
    ("create view d.x as table d.t", None, None),
    ("create view d.x as values row(1, 2)", None, None),
    ("alter table d.t add column if not exists z int", None, "ALTER TABLE `d`.`t` ADD COLUMN `z` INT"),
    ("create index i on d.t (a)", None, None),
    ("alter table d.t attributes = 'merge_option=deny'", None, None),
    ("alter table d.e partition p attributes = 'merge_option=allow'", None, None),
    ("create table d.x (id bigint primary key auto_increment, b varchar(255)) placement policy = p1", None, None),
    ("create table d.x (id bigint primary key, t datetime) ttl = `t` + interval 1 day ttl_enable = 'off'", None, None),
    ("alter table d.t remove ttl", None, None),
    ("alter table d.t ttl_job_interval = '7h'", None, None),
    ("alter table d.t ttl_enable = 'on'", None, None),
    (r"create table d.x (a bigint auto_random primary key comment 'it''s VISIBLE \\')", None, None),
]


@pytest.mark.parametrize(("sql", "mariadb", "mysql"), CASES)
def test_what_others_cannot_take_is_rewritten(sql: str, mariadb: str | None, mysql: str | None) -> None:
    query = canonical_ddl(sql, dialect=EXACT)
    for server, expected in ((MARIADB, mariadb), (MYSQL, mysql)):
        text, changes = rewritten(query, server)
        if expected is not None:
            assert text == expected
            assert changes
        elif " VIEW " not in query:
            assert (text, changes) == (query, [])
    assert rewritten(query, TIDB) == (query, [])


@pytest.mark.slow
@pytest.mark.not_tidb("it may be older than the statements")
def test_the_server_runs_what_is_rewritten(mariadb: MariaDb) -> None:
    server = Server(str(mariadb.rows("SELECT VERSION()")[0][0]))
    for sql, *_ in CASES:
        mariadb.clear()
        mariadb.run(*TABLES)
        text, _ = rewritten(canonical_ddl(str(sql), dialect=EXACT), server)
        if text:
            mariadb.run(text)


@pytest.mark.parametrize(
    ("sql", "cure"),
    [
        ("recover table d.t", "load its rows"),
        ("flashback table d.t to u", "load its rows"),
        ("alter table d.t last partition less than (9)", "SHOW CREATE TABLE"),
        (
            "create table d.x (a int) partition by range (a) interval (5) first partition less than (5) last partition less than (9)",
            "by hand",
        ),
    ],
)
def test_what_has_no_words_elsewhere_is_refused_with_a_cure(sql: str, cure: str) -> None:
    for server in (MARIADB, MYSQL):
        with pytest.raises(SinkError, match=f"{'MariaDB' if server is MARIADB else 'MySQL'} cannot run ") as caught:
            rewritten(canonical_ddl(sql, dialect=EXACT), server)
        assert cure in caught.value.hint
        assert all(way in caught.value.hint for way in ("ignore-sql", "ignore-txn-commit-ts", "--skip-ddl"))


DEFAULTS = [
    ("create table d.x (a int) partition by list (a) (partition p values in (1), partition q default)", "PARTITION `q` DEFAULT)"),
    ("create table d.x (a int) partition by list (a) (partition q values in (default))", "PARTITION `q` DEFAULT)"),
    ("create table d.x (a int) partition by list (a) (partition q values in (1, default))", "PARTITION `q` DEFAULT)"),
    ("create table d.x (a int) partition by list columns (a) (partition q values in (2, default, 1))", "PARTITION `q` DEFAULT)"),
    ("alter table d.l add partition (partition q values in (7, default))", "PARTITION `q` DEFAULT)"),
    ("alter table d.l reorganize partition p into (partition p values in (1), partition q default)", "PARTITION `q` DEFAULT)"),
]


@pytest.mark.parametrize(("sql", "mariadb"), DEFAULTS)
def test_a_default_partition_of_list_stands_alone_or_is_refused(sql: str, mariadb: str) -> None:
    query = canonical_ddl(sql, dialect=EXACT)
    assert rewritten(query, MARIADB)[0].endswith(mariadb)
    assert rewritten(query, TIDB) == (query, [])
    with pytest.raises(SinkError, match=r"MySQL cannot run a DEFAULT partition of LIST: .*`d`\.`[xl]`") as caught:
        rewritten(query, MYSQL)
    assert "by hand" in caught.value.hint
    assert "ignore-sql" in caught.value.hint


@pytest.mark.slow
@pytest.mark.mariadb("MySQL has no DEFAULT of LIST, TiDB reads its own words")
@pytest.mark.parametrize("sql", [sql for sql, _ in DEFAULTS])
def test_mariadb_places_rows_in_a_default_partition(mariadb: MariaDb, sql: str) -> None:
    mariadb.clear()
    mariadb.run("CREATE DATABASE d", "CREATE TABLE d.l (a INT) PARTITION BY LIST (a) (PARTITION p VALUES IN (1))")
    mariadb.run(rewritten(canonical_ddl(sql, dialect=EXACT), MARIADB)[0])
    table = "d.l" if "d.l" in sql else "d.x"
    mariadb.run(f"INSERT INTO {table} VALUES (1), (2), (7)", f"ALTER TABLE {table} TRUNCATE PARTITION q")
    assert mariadb.rows(f"SELECT a FROM {table}") == ([(1,)] if "partition p" in sql or "d.l" in sql else [])


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("ALTER TABLE `t` DROP INDEX `E`, ADD COLUMN `z` INT", "ALTER TABLE `t` ADD COLUMN `z` INT"),
        ("ALTER TABLE `t` RENAME INDEX `e` TO `f`, ALTER INDEX `e` VISIBLE", ""),
        ("DROP INDEX `e` ON `t`", ""),
    ],
)
def test_a_change_of_an_index_that_was_left_out_is_left_out(query: str, left: str) -> None:
    special = [("e", Part.EXPRESSION_INDEX.name)]
    assert rewritten(query, MARIADB, special)[0] == left
    assert rewritten(query, MYSQL, special)[0] == query
    assert rewritten(query, MARIADB) == (rewritten(query, MARIADB)[0], rewritten(query, MARIADB)[1])


def test_a_text_that_cannot_be_parsed_stays() -> None:
    assert rewritten("ALTER TABLE t ADD COLUMN a NEWTYPE, DROP CHECK c", MARIADB) == (
        "ALTER TABLE t ADD COLUMN a NEWTYPE, DROP CHECK c",
        [],
    )


def test_every_rule_says_why_and_stands_in_the_docs() -> None:
    assert all(rule.about for rule in RULES)
    page = Path("docs/sinks/mysql.md").read_text()
    table = {
        cells[1]: (cells[2], cells[3])
        for line in page[page.index("| TiDB | MariaDB | MySQL |") :].split("\n\n")[0].splitlines()[2:]
        if len(cells := [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]) > 3
    }
    expected: dict[str, dict[For, str]] = {}
    for rule in RULES:
        shown = "refused" if rule.cure else rule.shown or (f"`{rule.instead}`" if rule.instead else "left out")
        row = expected.setdefault(f"`{rule.part.value}`" if rule.part.value.isupper() else rule.part.value, {})
        row |= {server: shown for server in (For.MARIADB, For.MYSQL) if server in rule.servers}
    assert table == {part: tuple(row.get(server, "the same") for server in (For.MARIADB, For.MYSQL)) for part, row in expected.items()}
