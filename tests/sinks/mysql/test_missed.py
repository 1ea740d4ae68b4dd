"""Rows that were to be changed or deleted and are not downstream: counted and named, but not where they may have been written before."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.database_runs import FORCED, delivered, hurried
from tests.support.servers.mariadb import MariaDb
from tidemill.protocols.sql.missed import Answer, Meets, Missed, Statement

TABLES = (
    "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE c (a INT, b VARCHAR(9), v INT, PRIMARY KEY (a, b))",
    "CREATE TABLE n (a INT, f FLOAT)",
    "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
    "INSERT INTO c VALUES (1, 'x', 1), (2, 'y', 2)",
    "INSERT INTO n VALUES (1, 0.1), (2, 0.2)",
)


def missed(
    db: MariaDb, folder: Path, caplog: pytest.LogCaptureFixture, gone: tuple[str, ...], *statements: str, parameters: str = ""
) -> tuple[int, list[str]]:
    """Deliver what statements do into a database from which rows are gone. Returns how many rows the log says were not there, and what it
    names."""
    sql = SqlLog(*TABLES)
    sql.run(*statements)
    db.clear()
    db.run(
        "CREATE DATABASE app", "USE app", *(text.replace("TABLE ", "TABLE app.").replace("INTO ", "INTO app.") for text in TABLES), *gone
    )
    with caplog.at_level(logging.WARNING, "tidemill"):
        delivered(sql.write(folder / "log"), f"{db.uri}?{parameters}", FORCED)
    told = [record.getMessage() for record in caplog.records if "were not in the database" in record.getMessage()]
    return sum(int(text.split()[0]) for text in told), told


@pytest.mark.parametrize("parameters", ["", "batch-dml-enable=false", "multi-stmt-enable=false"])
@pytest.mark.parametrize(
    ("gone", "statements", "rows", "named"),
    [
        (("DELETE FROM app.t WHERE id = 2",), ("DELETE FROM t WHERE id = 2",), 1, "app.t: 1 of 1, key 2"),
        (("DELETE FROM app.t WHERE id = 2",), ("UPDATE t SET v = 9 WHERE id = 2",), 1, "app.t: 1 of 1, key 2"),
        (("DELETE FROM app.t WHERE id > 2",), ("UPDATE t SET v = 9",), 2, "app.t: "),
        (("DELETE FROM app.t WHERE id > 2",), ("DELETE FROM t",), 2, "app.t: "),
        (("DELETE FROM app.c WHERE a = 2",), ("UPDATE c SET v = 3",), 1, "`b`='y'"),
        (("DELETE FROM app.c",), ("DELETE FROM c WHERE a = 1",), 1, "app.c: 1 of 1, key `a`=1 AND `b`='x'"),
        (("UPDATE app.n SET f = 0.11 WHERE a = 1",), ("DELETE FROM n WHERE a = 1",), 1, "app.n: 1 of 1, key `a`<=>1"),
        ((), ("UPDATE t SET v = 9", "DELETE FROM t", "UPDATE c SET v = 3", "UPDATE n SET f = 7", "DELETE FROM n"), 0, ""),
        (
            ("UPDATE app.t SET v = 9",),
            ("UPDATE t SET v = 9", "UPDATE t SET v = 8 WHERE id = 1"),
            0,
            "",
        ),  # they are there, with these values
    ],
)
def test_rows_that_are_not_there_are_counted_and_named(
    mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    gone: tuple[str, ...], statements: tuple[str, ...], rows: int, named: str, parameters: str,
) -> None:  # fmt: skip
    hurried(monkeypatch)
    count, told = missed(mariadb, tmp_path, caplog, gone, *statements, parameters=parameters)
    assert (count, named in "".join(told)) == (rows, True), told


@pytest.mark.parametrize("parameters", ["safe-mode=true", ""])
def test_rows_that_may_have_been_written_before_are_not_counted(
    mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, parameters: str
) -> None:
    """A replay counts all rows as such."""
    hurried(monkeypatch, plain=parameters != "")
    gone = ("DELETE FROM app.t WHERE id > 1", "DELETE FROM app.n")
    assert missed(mariadb, tmp_path, caplog, gone, "UPDATE t SET v = 9", "DELETE FROM t", "DELETE FROM n", parameters=parameters)[0] == 0


def test_a_server_that_does_not_tell_counts_as_if_all_were_there() -> None:
    found = Missed()
    statement = Statement(b"", Meets.DUPLICATES, 3, "s.t", (b"1", b"2", b"3", b"4"))
    for answer in (Answer((), 3, ""), Answer((), 5, "Records: 3  Duplicates: 2  Warnings: 0"), Answer((), 6, "Duplicates: 3")):
        found.look(statement, answer)
    assert (found.rows, found.names) == (1, ["s.t: 1 of 3, key 1, 2, 3, …"])
    assert (found.take(), found.rows) == (Missed(1, ["s.t: 1 of 3, key 1, 2, 3, …"]), 0)


def test_few_statements_are_named_and_long_keys_are_cut() -> None:
    found = Missed()
    for _ in range(20):
        found.look(Statement(b"", Meets.AFFECTED, 1, "s.t", (b"'" + b"x" * 4000,)), Answer((), 0, ""))
    assert (found.rows, len(found.names), max(map(len, found.names)) < 200) == (20, 5, True)
