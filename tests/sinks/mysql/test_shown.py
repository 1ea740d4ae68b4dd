"""What errors show of a statement."""

from __future__ import annotations

import pytest

from tidemill.sinks.mysql.connection import ServerFault, without_values


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("BEGIN;DELETE FROM `a`.`t1` WHERE `id` IN (63381,-2)", "BEGIN;DELETE FROM `a`.`t1` WHERE `id` IN (?,?)"),
        (
            "REPLACE INTO `a`.`t` (`c1`,`d'`) VALUES (5,'it''s 7'),(0x1f,_binary'\\'x')",
            "REPLACE INTO `a`.`t` (`c1`,`d'`) VALUES (?,?),(?,?)",
        ),
        ("UPDATE `t` SET `a`=1.5e-7, b=NULL, c='cut sho", "UPDATE `t` SET `a`=?, b=NULL, c=?"),
        ("INSERT INTO t1 VALUES ('a\\", "INSERT INTO t1 VALUES (?"),
        ("SELECT 0 FROM tidb_cdc.tidemill_lane_v1 WHERE lane = 0", "SELECT ? FROM tidb_cdc.tidemill_lane_v1 WHERE lane = ?"),
        ("ALTER TABLE `t` ADD COLUMN c VARCHAR(20) DEFAULT 'x'", "ALTER TABLE `t` ADD COLUMN c VARCHAR(20) DEFAULT 'x'"),
        (" create table t (a int default 7)", " create table t (a int default 7)"),
    ],
)
def test_values_of_rows_are_not_shown(statement: str, shown: str) -> None:
    assert without_values(statement) == shown
    assert str(ServerFault(1146, "no table", statement).error("db:3306")).startswith(f"db:3306: error 1146: no table, at {shown}")
