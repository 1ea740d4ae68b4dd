"""The option `pd` without Spark: a capture of the query's own, its end and its return; another's capture; faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.capture.captures import config
from tests.support.servers.certificates import Authority
from tests.support.spark.frames import Stream, read
from tests.support.spark.owners import captures_in, journal, next_batch, owners, until
from tidemill.capture.capture import Capture
from tidemill.errors import ClusterMismatch, ConfigError, StartTsBeforeGc, StartTsOutOfLog
from tidemill.playground.server import PlaygroundThread
from tidemill.playground.services.gate import ServerTls
from tidemill.spark.cluster.place import place_of

pytestmark = pytest.mark.slow

TABLE = "CREATE DATABASE app; CREATE TABLE app.t (id INT PRIMARY KEY, n INT)"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with captures_in(tmp_path / "captures") as found:
        yield found


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


@pytest.mark.thorough("test_object_store.py has TLS and an owner that is killed; test_in_spark.py has a restarted stream")
def test_a_stream_of_a_cluster_by_tls_outlives_its_capture(folder: Path, tmp_path: Path) -> None:
    authority = Authority()
    server, client = authority.sign("server"), authority.sign("client")
    cert, key = client.write(tmp_path, "client")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    tls = {"ca": str(tmp_path / "ca.pem"), "cert": str(cert), "key": str(key)}
    with PlaygroundThread(5, tls=ServerTls(server.certificate, server.key, authority.pem)) as cluster:
        cluster.execute(f"{TABLE}; CREATE TABLE app.other (id INT PRIMARY KEY)")
        given = {"pd": f"https://{cluster.pd_address}", "table": "APP.T", **tls}
        stream = Stream("", **given)
        cluster.execute("INSERT INTO app.other VALUES (1); INSERT INTO app.t VALUES (1, 1)")
        assert ids(next_batch(stream)) == [1]
        (owner,) = owners(folder)
        for process in (owner, *owner.children(recursive=True)):
            process.kill()
        cluster.execute("INSERT INTO app.t VALUES (2, 2)")
        assert ids(next_batch(stream)) == [2], "the stream starts the owner again"
        (again,) = owners(folder)
        assert again.pid != owner.pid
        again.terminate()
        again.wait(60)
        cluster.execute("INSERT INTO app.t VALUES (3, 3)")
        assert ids(read("", **given)) == [1, 2, 3], "a batch has all rows that the cluster has now"
        at = stream.at
        stream = Stream("", at, **given)
        assert ids(next_batch(stream)) == [3], "a restarted stream goes on where it was"
        assert len(owners(folder)) == 1
        assert "capturing 1 tables" in journal(folder)


def test_a_named_log_that_another_capture_writes(folder: Path, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    with PlaygroundThread(6) as cluster:
        cluster.execute(TABLE)
        capture, running = cluster.start(lambda: _begun(Capture(config(cluster.playground, log))))
        until(lambda: capture.status.state == "running")
        stream = Stream(log, pd=cluster.pd_address, tables="app.*")
        cluster.execute("INSERT INTO app.t VALUES (1, 1)")
        assert [row["after"] for row in next_batch(stream)] == ['{"id":1,"n":1}']
        until(lambda: "another capture writes" in journal(folder))
        cluster.call(capture.stop)
        running.result()
        cluster.execute("INSERT INTO app.t VALUES (2, 2)")
        assert [row["after"] for row in next_batch(stream)] == ['{"id":2,"n":2}'], "the query's own capture has taken over"
        cluster.execute("CREATE TABLE app.late (id INT PRIMARY KEY); INSERT INTO app.late VALUES (7)")
        assert ids(read(log, pd=cluster.pd_address, table="app.late")) == [7], "a named log is of the whole cluster"
    with PlaygroundThread(7) as other, pytest.raises(ClusterMismatch, match="Name the PD of the log's cluster"):
        Stream(log, pd=other.pd_address, tables="app.*")


def test_the_rows_of_the_table_come_first(folder: Path) -> None:
    with PlaygroundThread(9) as cluster:
        cluster.execute(f"{TABLE}; INSERT INTO app.t VALUES (1, 1), (2, 2)")
        given = {"pd": cluster.pd_address, "table": "app.t", "initialSnapshot": "true"}
        assert ids(read("", **given)) == [1, 2], "a batch waits for them"
        stream = Stream("", **given)
        assert ids(next_batch(stream)) == [1, 2]
        cluster.execute("DELETE FROM app.t WHERE id = 1")
        assert [(row["id"], row["_change_type"]) for row in next_batch(stream)] == [(1, "delete")]


def _begun(capture: Capture) -> tuple[Capture, Any]:
    return capture, capture.run()


def test_faults_say_what_to_do(folder: Path) -> None:
    with PlaygroundThread(8) as cluster:
        cluster.execute(TABLE)
        now = cluster.call(cluster.playground.cluster.oracle.next)
        with pytest.raises(ConfigError, match="begins in the cluster's future"):
            Stream("", pd=cluster.pd_address, table="app.t", startingTs=str(now + (1 << 40)))
        oracle = cluster.playground.cluster.oracle
        cluster.call(lambda: oracle.advance(oracle.next() + (3_600_000 << 18)))
        cluster.call(cluster.playground.cluster.collect_garbage, 1000)
        with pytest.raises(StartTsBeforeGc, match=r"(?s)the query's capture has ended: .*log lines are in .*capture\.log"):
            Stream("", pd=cluster.pd_address, table="app.t", startingTs=str(now))
        stream = Stream("", pd=cluster.pd_address, table="app.t")
        with pytest.raises(StartTsOutOfLog, match=r"(?s)earliest\. A log of another name"):
            Stream("", pd=cluster.pd_address, table="app.t", startingTs=str(now))
        with pytest.raises(StartTsOutOfLog, match="lies in the cluster's future"):
            read("", pd=cluster.pd_address, table="app.t", endingTs=str(stream.at["ts"] + (1 << 60)))


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_CAPTURES", str(tmp_path))
    own = place_of("", 7, ["`a`.`t`"], snapshot=False)
    assert own == place_of("", 7, ["`a`.`t`"], snapshot=False), "a query that is started again finds it"
    others = [
        place_of("", 8, ["`a`.`t`"], snapshot=False),
        place_of("", 7, ["a.*"], snapshot=False),
        place_of("", 7, ["`a`.`t`"], snapshot=True),
    ]
    assert len({own.log, *(one.log for one in others)}) == 4
    assert place_of("s3://b/log", 7, [], snapshot=False).log == "s3://b/log"
    assert place_of("/l", 7, ["a.*"], snapshot=False).folder == place_of("/l", 7, [], snapshot=True).folder
    monkeypatch.setenv("TIDEMILL_CAPTURES", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="TIDEMILL_CAPTURES"):
        place_of("", 7, [], snapshot=False)
