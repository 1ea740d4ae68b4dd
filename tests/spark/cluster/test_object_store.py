"""The option `pd` by TLS, with a log on an object store: a capture of the query's own, killed and begun again; its journal has no keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.certificates import Authority
from tests.support.servers.s3 import make_bucket, s3_server  # noqa: F401
from tests.support.spark.frames import Stream, read
from tests.support.spark.owners import captures_in, journal, next_batch, owners
from tidemill.playground.server import PlaygroundThread
from tidemill.playground.services.gate import ServerTls

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("snapshot", ["false", pytest.param("true", marks=pytest.mark.thorough("test_captures.py has a table's rows"))])
def test_a_query_s_capture_writes_to_an_object_store(s3_server: str, tmp_path: Path, snapshot: str) -> None:  # noqa: F811
    make_bucket(s3_server, f"owned-{snapshot}")
    log = f"s3://test:test@owned-{snapshot}/logs/q?endpoint_override={s3_server.partition('://')[2]}&scheme=http&region=us-east-1"
    file = tmp_path / "log-file"
    file.write_text(log)
    authority = Authority()
    server, client = authority.sign("server"), authority.sign("client")
    cert, key = client.write(tmp_path, "client")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    tls = {"ca": str(tmp_path / "ca.pem"), "cert": str(cert), "key": str(key)}
    with (
        PlaygroundThread(11, tls=ServerTls(server.certificate, server.key, authority.pem)) as cluster,
        captures_in(tmp_path / "captures") as folder,
    ):
        cluster.execute("CREATE DATABASE app; CREATE TABLE app.t (id INT PRIMARY KEY)")
        given: dict[str, Any] = {
            "logFile": str(file),
            "pd": f"https://{cluster.pd_address}",
            "table": "app.t",
            **tls,
            "initialSnapshot": snapshot,
        }
        if snapshot == "true":
            cluster.execute("INSERT INTO app.t VALUES (1)")
            assert [row["id"] for row in read("", **given)] == [1]
            stream = Stream("", **given)
        else:
            stream = Stream("", **given)
            cluster.execute("INSERT INTO app.t VALUES (1)")
        assert [row["id"] for row in next_batch(stream)] == [1]
        (owner,) = owners(folder)
        for process in (owner, *owner.children(recursive=True)):
            process.kill()
        cluster.execute("INSERT INTO app.t VALUES (2)")
        assert [row["id"] for row in next_batch(stream)] == [2], "the stream starts the owner again"
        assert len(owners(folder)) == 1
        assert "test:test" not in journal(folder)
