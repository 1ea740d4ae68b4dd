"""Two servers with TLS, a log on S3 and the lease in an etcd: what one is asked the other answers, and a cut wire moves the lead."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.soak.processes import Tls, Upstream
from tests.support.delivery.runs import await_that
from tests.support.faults.proxy import Proxy
from tests.support.server.servers import Server
from tests.support.servers.etcds import Etcd
from tests.support.servers.s3 import make_bucket, objects, s3_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

__all__ = ["s3_server"]


@pytest.mark.thorough("tests/server/shared has the etcd, TLS and who leads; test_servers.py two servers as processes")
def test_a_cut_wire_moves_the_lead(tmp_path: Path, s3_server: str) -> None:
    tls = Tls.of("mutual", tmp_path)
    ca, own_cert, own_key = tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key"
    context = ssl.create_default_context(cafile=str(ca))
    context.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
    make_bucket(s3_server, "apart")
    log = f"s3://test:test@apart/log?endpoint_override={s3_server.partition('://')[2]}&scheme=http&region=us-east-1"
    etcd, wire = Etcd(tmp_path, (own_cert, own_key, ca)), Proxy()
    etcd.start()
    wire.start(int(etcd.address.rpartition(":")[2]))
    flags = ("--ca", str(ca), "--cert", str(own_cert), "--key", str(own_key), "--mtls", "--no-standby", "--capture-session-ttl", "1.5")
    try:
        with Upstream(tmp_path, ("--workload", "none"), tls) as upstream:
            pd = f"https://{upstream.pd}"
            one = Server(tmp_path, pd, *flags, "--etcd", f"127.0.0.1:{wire.port}", name="1", log=log, tls=context)
            two = Server(tmp_path, pd, *flags, "--etcd", etcd.address, name="2", log=log, tls=context)
            with one:
                await_that(lambda: one.leads, "the first leads")
                with two:
                    await_that(lambda: len(two.call("GET", "captures")["items"]) == 2, "both are there")
                    found = {c["address"]: c["is_owner"] for c in two.call("GET", "captures")["items"]}
                    assert found == {one.address: True, two.address: False}
                    refused = two.call("POST", "changefeeds", {"changefeed_id": "f", "sink_uri": "nowhere://"})
                    assert refused["error_code"] == "CDC:ErrSinkURIInvalid", "the leader answers"

                    wire.hang()
                    await_that(lambda: two.leads and not one.leads, "the other one leads")
                    wire.forward()
                    await_that(lambda: one.follows, "the one that was cut off follows")
                    found = {c["address"]: c["is_owner"] for c in one.call("GET", "captures")["items"]}
                    assert found == {one.address: False, two.address: True}
                assert not any("lease" in name for name in objects(s3_server, "apart/log")), "the lease is in the etcd"
    finally:
        wire.close()
        etcd.kill()
