"""What errors of rows advise is there in the program that prints them; passwords of any letters; values that cannot be sent."""

from __future__ import annotations

import math
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.database_runs import delivered, hurried
from tests.support.servers.mariadb import MariaDb
from tidemill.binlog.drainer.database.applying import Manner
from tidemill.binlog.drainer.database.database import Database, Session
from tidemill.config.database import MysqlOptions
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import SinkError
from tidemill.protocols.sql.hints import COMMON, Program, hint_of
from tidemill.secret import Secret
from tidemill.sinks.mysql.codes import HINTS, Fate
from tidemill.sinks.mysql.connection import Connection, ServerFault

CHANGEFEEDS_OWN = ("changefeed", "resync", "transaction-atomicity", "max-txn-row", "create-tables")


@pytest.mark.parametrize("program", [program for program in Program if program is not Program.CHANGEFEED])
@pytest.mark.parametrize("code", COMMON)
def test_other_programs_are_not_advised_what_a_changefeed_has(program: Program, code: int) -> None:
    allowed = ("max-txn-row",) if program is Program.CONSUMER else ()
    assert not [word for word in CHANGEFEEDS_OWN if word in hint_of(code, program) and word not in allowed]
    assert "{" not in hint_of(code, program)
    assert hint_of(code) == HINTS[code]


def test_pages_that_are_named_are_there() -> None:
    for program in Program:
        page = hint_of(1142, program).partition("docs/")[2].removesuffix(".")
        assert (Path(__file__).parents[3] / "docs" / page).is_file()


def test_a_drainer_that_finds_no_table_names_what_a_drainer_has(mariadb: MariaDb) -> None:
    mariadb.clear()
    database = Database(MysqlOptions("127.0.0.1", mariadb.port, "root", Secret("password")), Session(), Manner())
    with pytest.raises(SinkError, match=r"1146|1049") as refused:
        database.retrying("rows", lambda: database.open().run("DELETE FROM missing.t"))
    database.close()
    assert refused.value.hint.endswith("start the Drainer again.")


def test_a_table_that_is_missing_is_there_after_what_the_hint_says(
    mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    mariadb.clear()
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    sql.run("INSERT INTO t VALUES (1, 1)", "UPDATE t SET v = 2")
    log = sql.write(tmp_path / "log")
    with pytest.raises(SinkError, match=r"1146|1049") as refused:
        delivered(log, mariadb.uri)
    assert "create-tables" not in str(refused.value)  # it is of no use behind the start
    mariadb.run("CREATE DATABASE IF NOT EXISTS app", str(refused.value).partition("Upstream it is as of: ")[2].partition("(batch ")[0])
    delivered(log, mariadb.uri)
    assert mariadb.rows("SELECT id, v FROM app.t") == [(1, 2)]


@pytest.mark.parametrize("password", ["пароль", "é", "密码\u20ac", "p:@/%"])
def test_a_password_may_have_any_letters(mariadb: MariaDb, password: str) -> None:
    mariadb.clear()
    mariadb.run("DROP USER IF EXISTS odd@'%'", f"CREATE USER odd@'%' IDENTIFIED BY '{password}'")
    uri = f"mysql://odd:{quote(password, safe='')}@127.0.0.1:{mariadb.port}/?get-server-public-key=true"
    connection = Connection(parse_sink_uri(uri).database)
    assert connection.rows("SELECT 1") == [(1,)]
    connection.close()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_cannot_be_sent_is_no_lost_connection(mariadb: MariaDb, value: float) -> None:
    connection = Connection(MysqlOptions("127.0.0.1", mariadb.port, "root", Secret("password")))
    with pytest.raises(ServerFault, match="can not be used") as refused:
        connection.run("SELECT %s", value)
    assert refused.value.fate is Fate.FAIL
    assert connection.rows("SELECT 1") == [(1,)]
    connection.close()
