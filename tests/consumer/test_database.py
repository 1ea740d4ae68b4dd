"""A database as the consumer's target: what an upstream delivers, applied once and in order, wherever the process ends."""

from __future__ import annotations

from itertools import groupby
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.consumer.fed_tables import BEFORE
from tests.support.consumer.streams import ddl, row
from tests.support.consumer.upstreams import events, playground_with, truth
from tests.support.delivery.frozen import at
from tests.support.delivery.mysql_tables import differences, rows_in
from tests.support.golden.ticdc_topics import sent
from tests.support.servers.databases import mariadb
from tests.support.servers.mariadb import MariaDb
from tidemill.config.uri import parse_sink_uri
from tidemill.consumer.database import DatabaseTables
from tidemill.consumer.order.progress import PartitionProgress, Progress
from tidemill.consumer.tables.sqlite import MEMORY, SqliteTables
from tidemill.demo.compare import rows_of
from tidemill.errors import Fenced, SchemaError, SinkError, SinkUnavailable
from tidemill.protocols.open import decode
from tidemill.protocols.open.events import DdlMessage, RowEvent
from tidemill.sinks.mysql.connection import Connection, ServerFault

__all__ = ["mariadb"]

pytestmark = pytest.mark.slow

THEN = """
create table d.keyless (a int, b varchar(20));
insert into d.keyless values (1, 'x'), (1, 'x'), (null, null);
alter table d.t add column n int not null default 8;
insert into d.t values (50, 5, 'fifty', 0.5, 1);
delete from d.keyless where a = 1;
insert into d.keyless values (1, 'x'), (2, 'y'), (2, 'y');
alter table d.t drop column c;
update d.t set n = 9 where id = 50;
truncate table d.plain;
insert into d.plain values (12, 1);
rename table d.plain to d.renamed;
update d.renamed set v = 2;
update d.u set n = n + 100;
update d.u set id = id + 10;
alter table d.u modify column e varchar(30);
drop table d.h;
create table d.g (id int primary key, v int, w int generated always as (v + 1) stored, unique key by_w (w));
insert into d.g (id, v) values (1, 1), (2, 2);
update d.g set v = v + 10 where id = 1;
update d.g set v = 1 where id = 2;
insert into d.keyless values (3, 'z');
"""


@pytest.fixture
def db(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    return mariadb


def opened(db: MariaDb, consumer: str = "c") -> DatabaseTables:
    return DatabaseTables(parse_sink_uri(db.uri), consumer)


def feed(tables: DatabaseTables, happened: list[RowEvent | DdlMessage], rng: Random) -> None:
    """Do as the consumer does, from the stored progress on, with a commit now and then."""
    done = tables.progress().flushed_ts
    last = done
    for (ts, is_ddl), group in groupby(happened, key=lambda e: (e.ts, isinstance(e, DdlMessage))):
        if ts <= done:
            continue
        if rng.random() < 0.2 and ts > last:
            tables.commit(Progress(last))
        if is_ddl:
            tables.commit(Progress(max(ts - 1, done)))
            for one in group:
                tables.ddl(one)  # type: ignore[arg-type]
        else:
            tables.rows(list(group))  # type: ignore[arg-type]
        last = ts
    tables.commit(Progress(last))


@pytest.mark.parametrize("crash_every", [0, 30, 10])
def test_tables_are_those_of_the_upstream_wherever_it_ends(db: MariaDb, monkeypatch: pytest.MonkeyPatch, crash_every: int) -> None:
    """The connection is lost at random moments, before a statement or after it was run."""
    playground = playground_with(BEFORE + THEN)
    happened, rng = events(playground, keyless=True), Random(crash_every)
    run, commit, armed = Connection.run, Connection.commit, False
    crashes = 0

    def lost(do: Any, *arguments: Any) -> Any:
        nonlocal crashes
        before, after = (armed and crash_every > 0 and rng.random() < 1 / (2 * crash_every) for _ in range(2))
        crashes += before or after
        if before:
            raise ServerFault(2013, "Lost connection")
        found = do(*arguments)
        if after:
            raise ServerFault(2013, "Lost connection")
        return found

    monkeypatch.setattr(Connection, "run", lambda *given: lost(run, *given))
    monkeypatch.setattr(Connection, "commit", lambda *given: lost(commit, *given))
    for _ in range(1000):
        armed = False
        tables = opened(db)
        armed = True
        try:
            feed(tables, happened, rng)
            break
        except SinkUnavailable:
            continue
        finally:
            tables.close()
    else:
        pytest.fail("it never came to an end")
    assert (crashes > 3) == (crash_every > 0)
    found = differences(db, truth(playground.tables_at(), keyless=True))  # type: ignore[arg-type]
    assert [str(one) for one in found] == []


def test_progress_is_that_of_the_rows(db: MariaDb) -> None:
    db.run("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
    tables = opened(db)
    progress = Progress(9, {("t", 0): PartitionProgress(4, 9)}, "c")
    tables.rows([row(5, 1, None, 1)])
    tables.commit(progress)
    tables.rows([row(11, 1, 1, 2)])
    tables.close()
    again = opened(db)
    assert again.progress() == progress
    assert db.rows("SELECT * FROM d.t") == [(1, 1)]
    assert opened(db, "another").progress() == Progress()
    again.close()


def test_one_consumer_of_a_name_writes(db: MariaDb) -> None:
    db.run("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
    first = opened(db)
    second = opened(db)
    first.rows([row(5, 1, None, 1)])
    with pytest.raises(Fenced, match="another consumer"):
        first.commit(Progress(9))
    second.rows([row(5, 2, None, 2)])
    second.commit(Progress(9))
    assert db.rows("SELECT * FROM d.t") == [(2, 2)]
    first.close()
    second.close()


def test_rows_that_swap_unique_values_in_one_commit(db: MariaDb) -> None:
    db.run("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT UNIQUE)", "INSERT INTO d.t VALUES (1, 1), (2, 2), (3, 3)")
    tables = opened(db)
    tables.rows([row(5, 1, 1, 9), row(5, 2, 2, 1)])
    tables.rows([row(6, 1, 9, 2), row(6, 3, 3, None)])
    tables.rows([row(7, 4, None, 3)])
    tables.commit(Progress(9))
    assert sorted(db.rows("SELECT * FROM d.t")) == [(1, 2), (2, 1), (4, 3)]
    tables.close()


def test_what_cannot_be_applied_is_said(db: MariaDb) -> None:
    tables = opened(db)
    with pytest.raises(SinkError, match=r"no table d\.t"):
        tables.rows([row(5, 1, None, 1)])
    with pytest.raises(SchemaError, match="refuses a DDL") as caught:
        tables.ddl(ddl(6, "ALTER TABLE `d`.`t` ADD COLUMN `w` INT"))
    assert "--skip-ddl 6" in caught.value.hint
    tables.close()


def test_a_topic_of_ticdc(db: MariaDb) -> None:
    """What TiCDC itself wrote into a topic, into a database and into SQLite: the rows are the same."""
    wanted = {
        *("ints", "floats", "decs", "strs", "charsets", "lobs", "enums", "bits", "vecs", "uk_nn", "prange", "pexch", "shapes", "pk_comp"),
        "cols",
    }
    tables, other = opened(db), SqliteTables(MEMORY)
    for (_, is_ddl), group in groupby([m for m in sent() if m.table in wanted], key=lambda m: (m.ts, m.is_ddl)):
        found: list[Any] = [event for m in group for event in decode(m.key, m.value)]
        for target in (tables, other):
            if is_ddl:
                for event in found:
                    target.ddl(event)
            else:
                target.rows(found)
    for target in (tables, other):
        target.commit(Progress(1))
    names = [table.name for table in other.catalog]
    assert len(names) >= 12
    for table in other.catalog:
        info: Any = SimpleNamespace(output_columns=table.value_columns)
        there = rows_in(db, info, table.name)
        assert there is not None
        one, two = (sorted(repr(_plain(row)) for row in rows) for rows in (rows_of(other, table.name), there))
        assert one == two, table.name
    tables.close()


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Floats to the digits that FLOAT has."""
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}


# DDLs of a consumer that sleeps, or loses an answer


EXCHANGE = "ALTER TABLE `d`.`p` EXCHANGE PARTITION `p0` WITH TABLE `d`.`n`"
PARTITIONED = (
    "CREATE DATABASE d",
    "CREATE TABLE d.p (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))",
    "CREATE TABLE d.n (id INT PRIMARY KEY)",
    "INSERT INTO d.p VALUES (1)",
    "INSERT INTO d.n VALUES (2)",
)


def test_a_consumer_that_wakes_up_behind_another_runs_no_ddl(db: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    db.run("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
    old, truncate = opened(db), ddl(6, "TRUNCATE TABLE `d`.`t`")

    def meanwhile() -> None:
        new = opened(db)
        new.ddl(truncate)
        new.rows([row(8, 7, None, 7)])
        new.commit(Progress(9))
        new.close()

    with at(monkeypatch, "GET_LOCK", meanwhile), pytest.raises(Fenced, match="another consumer"):
        old.ddl(truncate)
    assert db.rows("SELECT id FROM d.t") == [(7,)]
    old.close()


@pytest.mark.parametrize("behind", [False, True])
def test_an_exchange_whose_answer_is_lost_runs_once(db: MariaDb, monkeypatch: pytest.MonkeyPatch, behind: bool) -> None:
    db.run(*PARTITIONED)
    first = opened(db)
    with at(monkeypatch, "^ALTER", lose, behind=behind), pytest.raises(SinkUnavailable):
        first.ddl(ddl(6, EXCHANGE))
    again = opened(db)
    for _ in range(2):  # messages come again as well
        again.ddl(ddl(6, EXCHANGE))
    assert db.rows("SELECT id FROM d.p UNION ALL SELECT id FROM d.n") == [(2,), (1,)]
    again.close()


def lose() -> None:
    raise ServerFault(2013, "lost connection")


RINGS = {
    "swap": ["a TO b", "b TO a"],
    "ring of three": ["a TO b", "b TO c", "c TO a"],
    "the other way round": ["c TO b", "b TO a", "a TO c"],
    "a chain from its begin": ["a TO b", "b TO c", "c TO e"],
}


@pytest.mark.parametrize("crash", ["", "^RENAME", "^RENAME behind"])
@pytest.mark.parametrize("renames", RINGS.values(), ids=RINGS.keys())
def test_renames_of_one_statement_come_one_by_one(db: MariaDb, monkeypatch: pytest.MonkeyPatch, renames: list[str], crash: str) -> None:
    db.run("CREATE DATABASE d", *(f"CREATE TABLE d.{table} (id CHAR(1) PRIMARY KEY)" for table in "abc"))
    db.run(*(f"INSERT INTO d.{table} VALUES ('{table}')" for table in "abc"))
    tables = opened(db)
    for pair in renames:
        old, _, new = pair.partition(" TO ")
        event = ddl(6, f"RENAME TABLE `d`.`{old}` TO `d`.`{new}`")
        if crash:
            pattern, _, place = crash.partition(" ")
            with at(monkeypatch, pattern, lose, behind=bool(place)), pytest.raises(SinkUnavailable):
                tables.ddl(event)
            tables = opened(db)
        tables.ddl(event)
    names = dict(pair.split(" TO ") for pair in renames)
    found = db.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = 'd' ORDER BY 1")
    assert {name: db.rows(f"SELECT id FROM d.`{name}`")[0][0] for (name,) in found} == {names.get(table, table): table for table in "abc"}
    tables.close()


def test_a_name_that_was_taken_and_not_given_back_stops(db: MariaDb) -> None:
    db.run("CREATE DATABASE d", "CREATE TABLE d.a (id INT)", "CREATE TABLE d.b (id INT)")
    tables = opened(db)
    tables.ddl(ddl(6, "RENAME TABLE `d`.`a` TO `d`.`b`"))
    with pytest.raises(SchemaError, match="this one was not renamed"):
        tables.ddl(ddl(7, "CREATE TABLE `d`.`c` (`id` INT)"))
    tables.close()
