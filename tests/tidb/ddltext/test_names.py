"""Statements printed with other names."""

from __future__ import annotations

import pytest

from tidemill.tidb.ddltext import DdlSyntaxError, FoundNames, RoutedNames, canonical_ddl


def routed(sql: str, default: str = "s") -> str:
    """Tables of schema s are called x.NAME_r; other schemas keep their names."""
    found = FoundNames()
    canonical_ddl(sql, names=found)

    def route(schema: str, table: str) -> tuple[str, str]:
        return ("x", f"{table}_r") if schema.lower() == "s" else (schema, table)

    return canonical_ddl(sql, names=RoutedNames(default, route, lambda schema: "x" if schema == "s" else schema, found))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("create table t (a int)", "CREATE TABLE `x`.`t_r` (`a` INT)"),
        ("create table s.t like o.u", "CREATE TABLE `x`.`t_r` LIKE `o`.`u`"),
        ("create table o.t like s.u", "CREATE TABLE `o`.`t` LIKE `x`.`u_r`"),
        ("alter table t add column b int", "ALTER TABLE `x`.`t_r` ADD COLUMN `b` INT"),
        ("alter table t rename to u", "ALTER TABLE `x`.`t_r` RENAME AS `x`.`u_r`"),
        ("alter table o.t rename to s.u", "ALTER TABLE `o`.`t` RENAME AS `x`.`u_r`"),
        (
            "alter table o.c add constraint f foreign key (a) references s.t (id)",
            "ALTER TABLE `o`.`c` ADD CONSTRAINT `f` FOREIGN KEY (`a`) REFERENCES `x`.`t_r`(`id`)",
        ),
        ("rename table s.a to s.b, o.c to s.d", "RENAME TABLE `x`.`a_r` TO `x`.`b_r`, `o`.`c` TO `x`.`d_r`"),
        ("drop table if exists a, o.b", "DROP TABLE IF EXISTS `x`.`a_r`, `o`.`b`"),
        ("drop view v", "DROP VIEW `x`.`v_r`"),
        ("truncate table t", "TRUNCATE TABLE `x`.`t_r`"),
        ("create index i on t (a)", "CREATE INDEX `i` ON `x`.`t_r` (`a`)"),
        ("drop index i on t", "DROP INDEX `i` ON `x`.`t_r`"),
        ("alter table t exchange partition p with table u", "ALTER TABLE `x`.`t_r` EXCHANGE PARTITION `p` WITH TABLE `x`.`u_r`"),
        ("recover table t", "RECOVER TABLE `x`.`t_r`"),
        ("flashback table t to u", "FLASHBACK TABLE `x`.`t_r` TO `u_r`"),
        ("flashback table o.t to u", "FLASHBACK TABLE `o`.`t` TO `u`"),
        ("create database s", "CREATE DATABASE `x`"),
        ("drop schema if exists s", "DROP DATABASE IF EXISTS `x`"),
        ("alter database charset utf8mb4", "ALTER DATABASE `x` CHARACTER SET = utf8mb4"),
        ("alter database o charset utf8mb4", "ALTER DATABASE `o` CHARACTER SET = utf8mb4"),
        ("flashback database s to o", "FLASHBACK DATABASE `x` TO `o`"),
        ("alter table t add check (t.a > 0)", "ALTER TABLE `x`.`t_r` ADD CHECK(`t_r`.`a`>0) ENFORCED"),
    ],
)
def test_statements(sql: str, expected: str) -> None:
    assert routed(sql) == expected


VIEW = "CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW `x`.`v_r` AS "


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select * from t", "SELECT * FROM `x`.`t_r`"),
        ("select t.a, s.t.b, t.* from t", "SELECT `t_r`.`a`,`x`.`t_r`.`b`,`t_r`.* FROM `x`.`t_r`"),
        ("select z.a from t z where z.b = 1", "SELECT `z`.`a` FROM `x`.`t_r` AS `z` WHERE `z`.`b`=1"),
        ("select u.a, t.a from o.u join t on u.i = t.i", "SELECT `u`.`a`,`t_r`.`a` FROM `o`.`u` JOIN `x`.`t_r` ON `u`.`i`=`t_r`.`i`"),
        ("with c as (select a from t) select c.a from c", "WITH `c` AS (SELECT `a` FROM `x`.`t_r`) SELECT `c`.`a` FROM `c`"),
        (
            "select q.a from (select a from t) q where exists (select 1 from t where t.a = q.a)",
            "SELECT `q`.`a` FROM (SELECT `a` FROM `x`.`t_r`) AS `q` WHERE EXISTS (SELECT 1 FROM `x`.`t_r` WHERE `t_r`.`a`=`q`.`a`)",
        ),
        (
            "select /*+ HASH_JOIN(t, z) */ t.a from t, t z",
            "SELECT /*+ HASH_JOIN(`t_r`, `z`)*/ `t_r`.`a` FROM (`x`.`t_r`) JOIN `x`.`t_r` AS `z`",
        ),
    ],
)
def test_queries_of_views(query: str, expected: str) -> None:
    assert routed(f"create view v as {query}") == VIEW + expected


def test_a_qualifier_that_may_mean_two_things_is_refused() -> None:
    with pytest.raises(DdlSyntaxError, match="cannot tell which table 't' is"):
        routed("create view v as select t.a from t where exists (select 1 from o.u t where t.b = 1)")


def test_names_stay_without_routes() -> None:
    sql = "create view v as select t.a from t, o.u as z"
    assert canonical_ddl(sql, names=FoundNames()) == canonical_ddl(sql)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select Z.a from o.u z", "SELECT `z`.`a` FROM `o`.`u` AS `z`"),
        ("select U.a from o.u", "SELECT `u`.`a` FROM `o`.`u`"),
        ("with C as (select 1 x) select c.x from c", "WITH `C` AS (SELECT 1 AS `x`) SELECT `C`.`x` FROM `C`"),
        ("select Q.a from (select 1 a) q", "SELECT `q`.`a` FROM (SELECT 1 AS `a`) AS `q`"),
    ],
)
def test_a_qualifier_has_the_letters_of_what_it_names(query: str, expected: str) -> None:
    """TiDB takes it in any; MariaDB tells the letters of tables and aliases apart."""
    assert routed(f"create view o.v as {query}") == VIEW.replace("`x`.`v_r`", "`o`.`v`") + expected
