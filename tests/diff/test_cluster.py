"""Tables of a cluster, read through PD and TiKV, against a real MariaDB: regions, ranges of keys, and the ts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.delivery.runs import tidemill
from tests.support.servers.mariadb import MariaDb
from tidemill.playground.server import PlaygroundThread
from tidemill.sinks.mysql.bookkeeping import CREATE

pytestmark = pytest.mark.slow

Capsys = pytest.CaptureFixture[str]

ROWS = 30


@pytest.fixture(scope="module")
def upstream() -> Iterator[PlaygroundThread]:
    with PlaygroundThread(seed=3) as playground:
        playground.execute("CREATE DATABASE app")
        playground.execute("CREATE TABLE app.t (id BIGINT PRIMARY KEY, v INT, w VARCHAR(20))")
        playground.execute("CREATE TABLE app.c (a VARCHAR(10), b INT, v INT, PRIMARY KEY (a, b) CLUSTERED)")
        playground.execute("CREATE TABLE app.n (id INT PRIMARY KEY NONCLUSTERED, v INT)")
        playground.execute("CREATE TABLE app.keyless (v INT)")
        for n in range(-ROWS, ROWS):
            playground.execute(f"INSERT INTO app.t VALUES ({n * 1000}, {n}, 'w{n}')")
            playground.execute(f"INSERT INTO app.c VALUES ('a{n % 7}', {n}, {n})")
            playground.execute(f"INSERT INTO app.n VALUES ({n}, {n})")
        playground.execute("INSERT INTO app.keyless VALUES (1)")
        yield playground


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with MariaDb() as server:
        yield server


@pytest.fixture
def db(server: MariaDb, upstream: PlaygroundThread, tmp_path: Path, capsys: Capsys) -> MariaDb:
    """Equal to the upstream."""
    server.clear()
    fix = tmp_path / "fix.sql"
    assert tidemill(capsys, "diff", "--pd", upstream.pd_address, "--sink-uri", server.uri, "--fix-sql", fix)[0] == 1
    server.run(*[line for line in fix.read_text().split(";\n") if line.strip()])
    return server


def test_tables_of_regions_are_equal_and_single_rows_are_found(
    db: MariaDb, upstream: PlaygroundThread, tmp_path: Path, capsys: Capsys
) -> None:
    given = ("diff", "--pd", upstream.pd_address, "--sink-uri", db.uri, "--chunk-size", 7)
    code, out, err = tidemill(capsys, *given)
    assert code == 0, out + err
    assert out.splitlines() == [
        "Not compared, because without force-replicate they are not replicated: app.keyless",
        out.splitlines()[-1],
    ]
    assert "3 tables at " in out
    db.run("UPDATE app.t SET v = 0 WHERE id = -29000", "DELETE FROM app.t WHERE id = 29000", "INSERT INTO app.t VALUES (1, 1, NULL)")
    db.run("UPDATE app.c SET v = 9 WHERE b = -3", "INSERT INTO app.n VALUES (777, 7)")
    code, out, _ = tidemill(capsys, *given)
    assert code == 1
    assert out.splitlines()[:8] == [
        "app.c: 1 rows differ",
        "app.n: 1 rows are too many",
        "app.t: 1 rows are missing, 1 rows are too many, 1 rows differ",
        "  app.c: row `a`='a4' AND `b`=-3 differs in v: upstream -3, downstream 9",
        "  app.n: row `id`=777 is too many",
        "  app.t: row `id`=-29000 differs in v: upstream -29, downstream 0",
        "  app.t: row `id`=1 is too many",
        "  app.t: row `id`=29000 is not there",
    ]


def test_the_upstream_may_go_on(db: MariaDb, upstream: PlaygroundThread, capsys: Capsys) -> None:
    """It is read as of a ts: what comes later does not count."""
    ts = upstream.call(upstream.playground.cluster.oracle.next)
    upstream.execute("UPDATE app.n SET v = v + 1 WHERE id = 3")
    given = ("diff", "--pd", upstream.pd_address, "--sink-uri", db.uri)
    assert tidemill(capsys, *given, "--ts", ts)[0] == 0
    assert tidemill(capsys, *given)[0] == 1
    code, _, err = tidemill(capsys, *given, "--ts", "checkpoint")
    assert (code, "no checkpoint of any changefeed" in err) == (2, True)


def test_the_checkpoint_in_the_database_says_which_state_it_has(db: MariaDb, upstream: PlaygroundThread, capsys: Capsys) -> None:
    """As a changefeed leaves it, between two batches and in the middle of one."""
    ts = upstream.call(upstream.playground.cluster.oracle.next)
    upstream.execute("UPDATE app.n SET v = v + 1 WHERE id = 5")
    db.run(*CREATE, f"INSERT INTO tidb_cdc.tidemill_feed_v1 VALUES ('f', 1, 1, {ts - 9}, {ts}, 2, 0, {ts}, 0, {ts}, DEFAULT)")
    given = ("diff", "--pd", upstream.pd_address, "--sink-uri", db.uri)
    assert tidemill(capsys, *given)[0] == 0
    db.run(f"UPDATE tidb_cdc.tidemill_feed_v1 SET from_ts = {ts}, to_ts = {ts + 9}", "UPDATE app.n SET v = v + 1 WHERE id = 5")
    code, out, err = tidemill(capsys, *given)
    assert (code, "has written above that ts" in out, "has begun to write what is above its checkpoint" in err) == (1, True, True)
    db.run(f"INSERT INTO tidb_cdc.tidemill_feed_v1 VALUES ('g', 1, 1, {ts - 9}, {ts}, 2, 0, {ts}, 0, {ts}, DEFAULT)")
    code, _, err = tidemill(capsys, *given)
    assert (code, "has the changefeeds f, g" in err) == (2, True)
    assert tidemill(capsys, *given, "-c", "g")[0] == 1
