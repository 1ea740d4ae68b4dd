"""The SQL subset: statements, constraints, transactions, values of all types."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import SqlError
from tidemill.playground.server import Playground
from tidemill.playground.sql.parse.cursor import Cursor, split_statements
from tidemill.playground.sql.parse.expressions import Scope, evaluate, parse_expression, to_text
from tidemill.tidb.keys import record_range


@pytest.fixture
def db() -> Playground:
    playground = Playground()
    playground.execute("create database d; use d")
    return playground


def rows(db: Playground, sql: str) -> list[tuple[Any, ...]]:
    return list(db.execute(sql).rows)


def value(text: str, **row: Any) -> Any:
    return evaluate(parse_expression(Cursor(text)), Scope(row, "2021-02-03 04:05:06.789012"))


# expressions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-2 - -3", 1),
        ("7 div 2", 3),
        ("-7 % 3", -1),
        ("1 / 4", Decimal("0.25")),
        ("1 / 0", None),
        ("'10' + 1", 11),
        ("null + 1", None),
        ("null = null", None),
        ("null <=> null", 1),
        ("1 <=> null", 0),
        ("1 = 1.0", 1),
        ("'a' < 'b'", 1),
        ("x'6162' = 'ab'", 1),
        ("1 and null", None),
        ("0 and null", 0),
        ("1 or null", 1),
        ("not 0", 1),
        ("3 in (1, 2, 3)", 1),
        ("3 not in (1, 2)", 1),
        ("3 in (1, null)", None),
        ("2 between 1 and 3", 1),
        ("2 not between 1 and 3", 0),
        ("null is null", 1),
        ("1 is not null", 1),
        ("b'101'", b"\x05"),
        ("0x41", b"A"),
        ("'it''s' 'so'", "it'sso"),
        ("concat('a', 1, 'b')", "a1b"),
        ("repeat('ab', 3)", "ababab"),
        ("ifnull(null, 5)", 5),
        ("if(1 > 2, 'x', 'y')", "y"),
        ("now()", "2021-02-03 04:05:06"),
        ("now(3)", "2021-02-03 04:05:06.789"),
        ("year('2021-02-03')", 2021),
        ("length('ü')", 2),
        ("round(2.5)", 3),
        ("abs(-4)", 4),
        ("true", 1),
    ],
)
def test_expressions(text: str, expected: Any) -> None:
    assert value(text) == expected


def test_columns_and_printing() -> None:
    assert value("A + b", a=1, b=2) == 3
    for text in ("`a` + 1", "YEAR(`d`)", "`a` * `b` + 2"):
        assert to_text(parse_expression(Cursor(text))) == text
    with pytest.raises(SqlError, match="unknown column c"):
        value("c")


@given(st.integers(-(10**12), 10**12), st.integers(-(10**6), 10**6))
def test_integer_arithmetic_is_exact(a: int, b: int) -> None:
    assert value(f"{a} + {b}") == a + b
    assert value(f"{a} * {b}") == a * b
    if b:
        assert value(f"{a} div {b}") == abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize(
    "sql", ["selec 1", "insert into", "update t", "create table t (", "select 'open", "alter table t frobnicate", "drop", "1"]
)
def test_what_is_not_understood_is_refused_with_its_place(db: Playground, sql: str) -> None:
    with pytest.raises(SqlError):
        db.execute(sql)


WORDS = [
    "select", "insert", "into", "values", "update", "delete", "from", "where", "set", "create", "table", "alter", "add", "column",
    "drop", "int", "primary", "key", "(", ")", ",", ";", "=", "1", "'x'", "`a`", "t", "partition", "by", "range", "hash", "(id)",
    "less", "than", "maxvalue", "default", "null", "not", "and", "or", "in", "between", "rename", "to", "index", "unique",
    "x'zz'", "1.5e3", "@@x", "--", "/*", "*", "+", "-",
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=14))
def test_nonsense_is_refused_and_nothing_else(words: list[str]) -> None:
    try:
        FUZZED.execute(" ".join(words))
    except SqlError:
        return


FUZZED = Playground()


def test_statements_are_split_outside_strings() -> None:
    assert split_statements("select ';' from t; ; insert into t values (1) -- done;\n") == [
        "select ';' from t",
        "insert into t values (1) -- done;",
    ]


# rows


def test_insert_update_delete(db: Playground) -> None:
    db.execute("create table t (id int primary key, v int not null default 5, w varchar(10))")
    assert db.execute("insert into t (id) values (1), (2)").affected == 2
    db.execute("insert into t values (3, default, 'x')")
    db.execute("insert into t set id = 4, w = 'set'")
    assert db.execute("update t set v = v + id, w = concat('n', id) where id >= 2 limit 2").affected == 2
    assert db.execute("delete from t where v = 5 and w is null").affected == 1
    assert rows(db, "select * from t") == [(2, 7, "n2"), (3, 8, "n3"), (4, 5, "set")]
    assert rows(db, "select count(*) from t where id in (2, 3)") == [(2,)]
    assert db.execute("update t set v = v where id = 2").commit_ts == 0, "no change, no transaction"


def test_constraints(db: Playground) -> None:
    db.execute("create table t (id int primary key, u int, v tinyint, w varchar(3), unique key (u)); insert into t values (1, 10, 1, 'a')")
    for sql, text in (
        ("insert into t values (1, 11, 1, 'a')", "duplicate"),
        ("insert into t values (2, 10, 1, 'a')", "duplicate"),
        ("insert into t values (2, 11, 128, 'a')", "out of range"),
        ("insert into t values (2, 11, 1, 'abcd')", "longer than 3"),
        ("insert into t values (2, 11, 'x', 'a')", "not a value of its type"),
        ("insert into t (u) values (1)", "no default value"),
        ("insert into t values (null, 1, 1, 'a')", "cannot be null"),
        ("insert into t values (1, 2)", "4 columns but 2 values"),
        ("insert into t (nope) values (1)", "no column nope"),
        ("insert into nope values (1)", "does not exist"),
    ):
        with pytest.raises(SqlError, match=text):
            db.execute(sql)
    assert rows(db, "select * from t") == [(1, 10, 1, "a")]


def test_a_failing_statement_changes_nothing(db: Playground) -> None:
    db.execute("create table t (id int primary key, u int unique); insert into t values (3, 3)")
    with pytest.raises(SqlError, match="duplicate"):
        db.execute("insert into t values (1, 1), (2, 2), (3, 9)")
    assert rows(db, "select id from t") == [(3,)]
    db.execute("insert into t values (1, 1)")  # the unique value of the failed statement is free


def test_replace_ignore_and_on_duplicate(db: Playground) -> None:
    db.execute("create table t (id int primary key, u int unique, v int); insert into t values (1, 10, 1), (2, 20, 2)")
    db.execute("replace into t values (3, 10, 3)")
    assert rows(db, "select * from t") == [(2, 20, 2), (3, 10, 3)]
    db.execute("insert ignore into t values (2, 99, 9), (4, 40, 4)")
    db.execute("insert into t values (2, 1, 5) on duplicate key update v = v + values(v), u = 21")
    assert rows(db, "select * from t") == [(2, 21, 7), (3, 10, 3), (4, 40, 4)]


def test_transactions(db: Playground) -> None:
    db.execute("create table t (id int primary key, u int unique)")
    db.execute("begin; insert into t values (1, 1); rollback; insert into t values (2, 1)")
    db.execute("begin; insert into t values (5, 5); update t set id = 6 where id = 5; delete from t where id = 2")
    other = db.database.session("d")
    assert [r[0] for r in other.execute("select id from t").rows] == [2]
    assert db.execute("commit").commit_ts > 0
    assert [r[0] for r in other.execute("select id from t").rows] == [6]
    assert db.execute("begin; insert into t values (9, 9); delete from t where id = 9; commit").commit_ts == 0


def test_a_lock_of_another_transaction_refuses(db: Playground) -> None:
    db.execute("create table t (id int primary key, v int); insert into t values (1, 1)")
    table = next(t for t in db.database.catalog.tables.values() if t.name == "t")
    key = next(iter(db.cluster.mvcc.items(*record_range(table.id))))[0]
    held = db.cluster.prewrite([(key, b"\x80\x00\x00\x00\x00\x00")])
    with pytest.raises(SqlError, match="locked"):
        db.execute("update t set v = 2")
    db.cluster.rollback(held)
    db.execute("update t set v = 2")


@pytest.mark.parametrize(
    ("kind", "literal", "shown"),
    [
        ("tinyint", "-128", -128),
        ("bigint unsigned", "18446744073709551615", 18446744073709551615),
        ("int", "2.5", 3),
        ("boolean", "true", 1),
        ("float", "0.1", 0.10000000149011612),
        ("double", "-1e300", -1e300),
        ("decimal(10,3)", "1.23456", Decimal("1.235")),
        ("decimal(5,0)", "-99999", Decimal("-99999")),
        ("bit(10)", "b'1111111111'", 1023),
        ("date", "'2021-02-03'", "2021-02-03"),
        ("datetime(2)", "'2021-02-03 04:05:06.78'", "2021-02-03 04:05:06.78"),
        ("timestamp", "'2021-02-03 04:05:06'", "2021-02-03 04:05:06"),
        ("time(1)", "'-838:59:59.0'", "-838:59:59.0"),
        ("time", "'112233'", "11:22:33"),
        ("year", "69", 2069),
        ("year", "70", 1970),
        ("char(5)", "'ab  '", "ab"),
        ("varchar(5)", "'ab  '", "ab  "),
        ("varchar(2)", "'潮汐'", "潮汐"),
        ("binary(4)", "x'01'", b"\x01\0\0\0"),
        ("varbinary(4)", "'ab'", b"ab"),
        ("blob", "x'00ff'", b"\0\xff"),
        ("text", "'t'", "t"),
        ("text character set gbk", "'测试'", "测试"),
        ("enum('a','b')", "'b'", "b"),
        ("enum('a','b')", "1", "a"),
        ("set('x','y','z')", "'z,x'", "x,z"),
        ("set('x','y','z')", "5", "x,z"),
        ("json", '\'{"b": 1, "a": [true, null]}\'', '{"a": [true, null], "b": 1}'),
        ("json", "'[-0, -0.0]'", "[0, -0]"),
        ("vector(2)", "'[1,2.5]'", "[1,2.5]"),
    ],
)
def test_values_of_all_types(db: Playground, kind: str, literal: str, shown: Any) -> None:
    db.execute(f"create table t (id int primary key, v {kind}); insert into t values (1, {literal}), (2, null)")
    assert rows(db, "select v from t") == [(shown,), (None,)]
    db.execute("update t set id = id + 10")
    assert rows(db, "select v from t where id = 11") == [(shown,)]


@pytest.mark.parametrize(
    "key",
    [
        "(a)", "(b)", "(c)", "(d)", "(e, a)", "(c, b, a, d)", "(f)", "(g, b)",
    ],
)  # fmt: skip
def test_clustered_keys_of_all_kinds(db: Playground, key: str) -> None:
    db.execute(f"""create table t (a bigint not null, b varchar(10) not null, c decimal(8,2) not null, d datetime(3) not null,
        e varbinary(5) not null, f char(4) collate utf8mb4_general_ci not null, g time not null, v int, primary key {key} clustered)""")
    first = "(-7, 'Abc ', -1.5, '2021-02-03 04:05:06.789', x'0001', 'Q', '-01:00:00', 1)"
    second = "(8, 'abd', 22.25, '1999-01-01 00:00:00.000', x'ff', 'r', '11:22:33', 2)"
    db.execute(f"insert into t values {first}, {second}")
    with pytest.raises(SqlError, match="duplicate"):
        db.execute(f"insert into t values {first}")
    expected = {
        (-7, "Abc ", Decimal("-1.50"), "2021-02-03 04:05:06.789", b"\0\x01", "Q", "-01:00:00", 1),
        (8, "abd", Decimal("22.25"), "1999-01-01 00:00:00.000", b"\xff", "r", "11:22:33", 2),
    }
    assert set(rows(db, "select * from t")) == expected
    (table,) = db.tables_at().values()
    assert {row["v"] for row in table.rows} == {1, 2}
    db.execute("delete from t where v = 1")
    assert len(rows(db, "select * from t")) == 1


def test_keys_that_are_not_clustered_and_no_keys(db: Playground) -> None:
    db.execute("create table n (id int primary key nonclustered, v int); insert into n values (1, 1), (2, 2)")
    with pytest.raises(SqlError, match="duplicate"):
        db.execute("insert into n values (1, 3)")
    db.execute("update n set id = id + 10; create table h (v int); insert into h values (1), (1)")
    assert rows(db, "select id from n") == [(11,), (12,)]
    assert rows(db, "select * from h") == [(1,), (1,)]


def test_generated_columns_and_defaults(db: Playground) -> None:
    db.execute("""create table t (id int primary key, a int, s int as (a + 1) stored, v int as (a * 2) virtual,
        at timestamp(6) default current_timestamp(6) on update current_timestamp(6), n varchar(5) default 'nn')""")
    db.execute("insert into t (id, a) values (1, 5)")
    before = rows(db, "select s, v, n, at from t")[0]
    assert before[:3] == (6, 10, "nn")
    begun = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == begun:  # the playground's clock has milliseconds
        pass
    db.execute("update t set a = 7")
    after = rows(db, "select s, v, n, at from t")[0]
    assert after[:3] == (8, 14, "nn")
    assert after[3] > before[3]
    with pytest.raises(SqlError, match="generated"):
        db.execute("update t set s = 1")


def test_automatic_values(db: Playground) -> None:
    db.execute(
        "create table a (id bigint primary key auto_increment, v int); insert into a (v) values (1), (2); insert into a values (10, 3)"
    )
    db.execute("insert into a (v) values (4); insert into a values (null, 5)")
    assert rows(db, "select id from a") == [(1,), (2,), (10,), (11,), (12,)]
    db.execute("create table r (id bigint primary key auto_random(5), v int); insert into r (v) values (1), (2), (3)")
    ids = [r[0] for r in rows(db, "select id from r")]
    assert len({i >> 58 for i in ids}) > 1
    assert sorted(i & 0xFF for i in ids) == [1, 2, 3]


# partitions


@pytest.mark.parametrize(
    "partitions",
    [
        "range (id) (partition p0 values less than (10), partition p1 values less than (20), partition p2 values less than maxvalue)",
        "hash (id) partitions 3",
        "key (id) partitions 3",
        "list (k) (partition a values in (0, 1), partition b values in (2, null))",
        "list columns (s) (partition a values in ('x'), partition b values in ('y', 'z'))",
        "range columns (s) (partition a values less than ('y'), partition b values less than (maxvalue))",
    ],
)
def test_partitioned_tables(db: Playground, partitions: str) -> None:
    db.execute(f"create table t (id int not null, k int, s varchar(3)) partition by {partitions}")
    db.execute("insert into t values (1, 0, 'x'), (11, 1, 'y'), (25, 2, 'z')")
    assert sorted(r[0] for r in rows(db, "select id from t")) == [1, 11, 25]
    db.execute("update t set id = 2, k = 2, s = 'y' where id = 1; delete from t where id = 11")
    assert sorted(r[0] for r in rows(db, "select id from t")) == [2, 25]


def test_a_row_without_partition_is_refused(db: Playground) -> None:
    db.execute("create table t (id int primary key) partition by range (id) (partition p0 values less than (10))")
    with pytest.raises(SqlError, match="no partition"):
        db.execute("insert into t values (10)")


# DDL


def test_columns_change_under_rows(db: Playground) -> None:
    db.execute("create table t (id int primary key, v int); insert into t values (1, 65)")
    db.execute("alter table t add column a varchar(5) not null default 'dd' first, add column b int")
    db.execute("alter table t modify column v varchar(10); alter table t change column v w varchar(20) after b")
    db.execute("alter table t rename column b to c; alter table t drop column a")
    assert db.execute("select * from t") == db.execute("select id, c, w from t")
    assert rows(db, "select * from t") == [(1, None, "65")]


def test_rows_written_between_the_steps_of_a_ddl_survive(db: Playground) -> None:
    db.execute("""create table t (id int primary key, v int) partition by range (id)
        (partition p0 values less than (50), partition p1 values less than (100))""")
    session = db.database.session("d")
    expected = set()
    for sql in (
        "alter table t add column w int default 3",
        "alter table t reorganize partition p0 into (partition a values less than (20), partition b values less than (50))",
        "alter table t remove partitioning",
        "alter table t partition by hash (id) partitions 4",
        "alter table t add index (v)",
        "alter table t drop column w",
    ):
        for _ in session.steps(sql):
            handle = len(expected)
            db.execute(f"insert into t (id, v) values ({handle}, 0); update t set v = v + 1 where id <= {handle}")
            expected.add(handle)
    found = rows(db, "select id, v from t")
    assert {r[0] for r in found} == expected
    assert sorted((r[0], r[1]) for r in found) == [(h, len(expected) - h) for h in sorted(expected)]


@pytest.mark.parametrize(
    "sql",
    [
        "create table t (id int)", "create database d", "alter table t add column v int", "alter table t drop column id",
        "alter table t drop index nope", "alter table t add unique key (v), drop column v", "drop table nope", "rename table t to t",
        "alter table t truncate partition p", "create table x (a frob)", "alter table t modify column nope int", "drop database nope",
    ],
)  # fmt: skip
def test_ddl_that_does_not_fit_is_refused_without_a_job(db: Playground, sql: str) -> None:
    db.execute("create table t (id int primary key, v int)")
    version, jobs = db.database.catalog.schema_version, db.database.catalog.jobs_done
    with pytest.raises(SqlError):
        db.execute(sql)
    assert (db.database.catalog.schema_version, db.database.catalog.jobs_done) == (version, jobs)


def test_if_exists(db: Playground) -> None:
    db.execute("create database if not exists d; create table if not exists t (id int); create table if not exists t (id int)")
    db.execute("drop table if exists t, u; drop database if exists nope; drop database d")
    assert db.tables_at() == {}


def test_show_and_describe(db: Playground) -> None:
    db.execute("create table t (id bigint unsigned primary key auto_increment, v varchar(9) default 'x', u int unique, k int, key (k))")
    db.execute("create table g (a int not null, b int as (a + 1))")
    assert [name for (name,) in rows(db, "show databases") if name in ("d", "test")] == ["d", "test"]
    assert rows(db, "show tables") == rows(db, "SHOW TABLES FROM d") == [("g",), ("t",)]
    assert rows(db, "show tables in test") == []
    ((name, text),) = rows(db, "show create table t")
    assert (name, "AUTO_INCREMENT" in text, "`v` varchar(9)" in text.replace("VARCHAR", "varchar")) == ("t", True, True)
    assert rows(db, "describe t") == [
        ("id", "bigint unsigned", "NO", "PRI", None, "auto_increment"),
        ("v", "varchar(9)", "YES", "", "x", ""),
        ("u", "int", "YES", "UNI", None, ""),
        ("k", "int", "YES", "MUL", None, ""),
    ]
    assert (
        rows(db, "desc d.g")
        == rows(db, "show columns from g")
        == [
            ("a", "int", "NO", "", None, ""),
            ("b", "int", "YES", "", None, "VIRTUAL GENERATED"),
        ]
    )
    for wrong in ("show", "show create view x", "show tables from nope", "desc nope", "show columns t"):
        with pytest.raises(SqlError):
            db.execute(wrong)
