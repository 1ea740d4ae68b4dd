"""TiCDC's scenario `lossy_ddl`: what a DDL writes itself is no change of a row."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.capture.captures import caught_up, compare, config, log_changes, running
from tidemill.playground.server import Playground

COLUMNS = (  # of a table, a value that fits before and after, and what is made of the column
    ("int", "1", "modify column b int unsigned"),
    ("int", "1", "modify column b varchar(100)"),
    ("timestamp", "'2023-04-19 11:48:00'", "modify column b datetime"),
    ("varchar(256)", "'2023-04-19 11:48:00'", "modify column b varchar(100)"),
    ("int", "-1", "drop column b"),
    ("int", "-1", "add column c int"),
    (
        "varchar(256) character set utf8 collate utf8_general_ci",
        "'x'",
        "modify column b varchar(256) character set utf8mb4 collate utf8mb4_bin",
    ),
    ("varchar(256)", "'2023-04-19 11:48:00'", "modify column b varchar(300)"),
    ("double", "1.0", "modify column b float"),
    ("bigint", "1", "modify column b int"),
    ("longtext", "'2023-04-19 11:48:00'", "modify column b varchar(100)"),
    ("enum('a', 'b', 'c')", "'a'", "modify column b enum('a', 'b')"),
)
CUT = (  # without strict mode, and what is left of the value
    ("varchar(256)", "'2023-04-19 11:48:00'", "modify column b varchar(1)", "2"),
    ("int", "-1", "modify column b int unsigned", 0),
    ("bigint", "5000000000", "modify column b int", 2**31 - 1),
)
PARTITIONS = """
create table p8 (id int primary key, b int) partition by range (id)
 (partition b0 values less than (0), partition b1 values less than maxvalue);
insert into p8 values (-1, -1); insert into p8 values (1, 1);
alter table p8 drop partition b0;
create table p16 (a int primary key) partition by range (a)
 (partition p0 values less than (6), partition p1 values less than (11), partition p2 values less than (21));
insert into p16 values (1);
create table t17 (a int primary key); insert into t17 values (18);
alter table p16 exchange partition p2 with table t17;
create table p18 (id int primary key) partition by range (id) (partition pbefore1950 values less than (1950),
 partition p1950 values less than (1960), partition p1960 values less than (1970), partition p1970 values less than (1980),
 partition p1980 values less than (1990), partition p1990 values less than (2000));
insert into p18 values (1), (1977), (1999);
alter table p18 reorganize partition pbefore1950, p1950 into (partition pbefore1960 values less than (1960));
alter table p18 drop partition p1990;
alter table p18 truncate partition p1980;
alter table p18 add partition (partition p1990to2010 values less than (2010));
insert into p18 values (2003);
alter table p18 reorganize partition p1990to2010 into
 (partition p1990 values less than (2000), partition p2000 values less than (2010), partition pmax values less than maxvalue);
create table t19 (a int not null primary key); insert into t19 values (1); truncate table t19
"""


def test_rows_that_ddls_rewrite_are_not_captured(tmp_path: Path) -> None:
    async def main() -> int:
        async with Playground(2, resolved_interval=0.1) as playground:
            playground.execute("create database lossy; use lossy; ")
            async with running(config(playground, tmp_path / "log")) as capture:
                for number, (of, value, ddl) in enumerate(COLUMNS):
                    playground.execute(f"create table t{number} (id int primary key, b {of}); insert into t{number} values (1, {value})")
                    playground.execute(f"alter table t{number} {ddl}")
                playground.execute("set @@session.sql_mode = 'NO_ENGINE_SUBSTITUTION'")
                for number, (of, value, ddl, left) in enumerate(CUT):
                    playground.execute(f"create table c{number} (id int primary key, b {of}); insert into c{number} values (1, {value})")
                    playground.execute(f"alter table c{number} {ddl}")
                    assert playground.execute(f"select b from c{number}").rows == ((left,),)
                playground.execute(PARTITIONS)
                await caught_up(capture, playground.cluster.oracle.next())
            return compare(playground.cluster, tmp_path / "log")[0]

    compared = asyncio.run(main())
    captured = [change for rows in log_changes(tmp_path / "log").values() for change in rows]
    assert len(captured) == compared == len(COLUMNS) + len(CUT) + 2 + 2 + 4 + 1
    assert all(change.old_value is None for change in captured), "inserts"
