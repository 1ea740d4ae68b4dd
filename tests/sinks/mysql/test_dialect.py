"""DDLs for servers that are not TiDB."""

from __future__ import annotations

import pytest

from tidemill.sinks.mysql.dialect import RULES, rewritten
from tidemill.sinks.mysql.session import Server

MARIADB, MYSQL, TIDB = Server("10.11.19-MariaDB"), Server("8.0.36"), Server("8.0.11-TiDB-v8.5.7")


@pytest.mark.parametrize(
    ("query", "mariadb", "mysql"),
    [
        ("ALTER TABLE `t` ALTER INDEX `INVISIBLE` INVISIBLE", "ALTER TABLE `t` ALTER INDEX `INVISIBLE` IGNORED", None),
        ("ALTER TABLE `t` ALTER INDEX `i` VISIBLE", "ALTER TABLE `t` ALTER INDEX `i` NOT IGNORED", None),
        ("ALTER TABLE `t` ADD CONSTRAINT `c` CHECK(`a`>1) ENFORCED", "ALTER TABLE `t` ADD CONSTRAINT `c` CHECK(`a`>1) ", None),
        ("CREATE TABLE `t` (`a` INT CHECK(`a`>1) NOT ENFORCED)", "CREATE TABLE `t` (`a` INT CHECK(`a`>1) )", None),
        (
            "CREATE TABLE `t` (`a` CHAR(1) COLLATE utf8mb4_0900_ai_ci COMMENT 'NOT ENFORCED')",
            "CREATE TABLE `t` (`a` CHAR(1) COLLATE utf8mb4_uca1400_ai_ci COMMENT 'NOT ENFORCED')",
            None,
        ),
        ("CREATE TABLE `t` (`vector` VECTOR(3),`w` VECTOR)", *["CREATE TABLE `t` (`vector` LONGTEXT,`w` LONGTEXT)"] * 2),
        ("ALTER TABLE `t` SET TIFLASH REPLICA 2", "", ""),
        ("CREATE INDEX `i` ON `t` ((LOWER(`a`)))", "", None),
        ("CREATE GLOBAL TEMPORARY TABLE `t` (`a` INT) ON COMMIT DELETE ROWS", "", ""),
        ("CREATE INDEX `i` ON `t` (`a`)", None, None),
        ("CREATE TABLE `t` (`a` INT /*T![auto_rand] AUTO_RANDOM(5) */ COMMENT 'it''s VISIBLE')", None, None),
    ],
)
def test_what_others_cannot_take_is_rewritten(query: str, mariadb: str | None, mysql: str | None) -> None:
    for server, expected in ((MARIADB, mariadb), (MYSQL, mysql)):
        text, changes = rewritten(query, server)
        assert text == (query if expected is None else expected)
        assert bool(changes) == (expected is not None)
    assert rewritten(query, TIDB) == (query, [])


def test_every_rule_says_what_it_does() -> None:
    assert all(rule.about and all(word == word.upper() for word in rule.words) for rule in RULES)
