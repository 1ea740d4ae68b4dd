"""Whole captures whose PD is real, three members of it, and whose stores, the playground's, tell it of their regions as TiKV does."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest

from tests.support.capture.captures import caught_up, compare, running, until
from tests.support.capture.pd_servers import PdServers, Tls, pd_server, store
from tests.support.servers.certificates import Authority
from tidemill.capture.config import CaptureConfig
from tidemill.playground.server import Playground
from tidemill.playground.services.gate import ServerTls
from tidemill.playground.store.feed import region_message
from tidemill.tidb.keys import record_key
from tidemill.wire import metapb_pb2 as metapb

pytestmark = pytest.mark.skipif(pd_server() is None, reason="no pd-server on PATH and none named by TIDEMILL_PD_SERVER")


async def tell_of_regions(servers: PdServers, playground: Playground) -> None:
    """Report regions forever, as a store does: once a second, to the present leader."""
    while True:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
            async with asyncio.timeout(3):
                for one in playground.cluster.stores.values():
                    await servers.put_store(store(one.id, one.address))
                regions = list(playground.cluster.regions)
                await servers.heartbeats((region_message(r), metapb.Peer(id=r.leader.id, store_id=r.leader.store_id)) for r in regions)
        await asyncio.sleep(0.5)
        await servers.forget_heart()


@asynccontextmanager
async def upstream(servers: PdServers, tls: ServerTls | None = None) -> AsyncIterator[Playground]:
    async with Playground(21, stores=2, cluster_id=servers.cluster_id, resolved_interval=0.2, tls=tls) as playground:
        first = next(iter(playground.cluster.regions))
        whole = metapb.Region(id=first.id, region_epoch={"conf_ver": 1, "version": 1}, peers=region_message(first).peers)
        whole.peers[0].store_id = 1
        del whole.peers[1:]
        await servers.bootstrap(store(1, playground.cluster.stores[1].address), whole)
        telling = asyncio.ensure_future(tell_of_regions(servers, playground))
        try:
            yield playground
        finally:
            telling.cancel()


def split(playground: Playground, handle: int) -> None:
    (table,) = [t for t in playground.database.catalog.tables.values() if t.name == "t"]
    playground.cluster.split([record_key(table.model.id, handle)])


def test_a_capture_lives_through_what_befalls_its_pds(tmp_path: Path) -> None:
    async def main() -> None:
        async with PdServers(tmp_path / "pd", 3) as servers, upstream(servers) as playground:
            playground.execute("create table t (id int primary key, v varchar(20)); insert into t values (1, 'a'), (2, 'b')")
            settings = CaptureConfig(pd=tuple(servers.urls), log=str(tmp_path / "log"))
            rows = 2
            async with running(settings) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                for trouble in ("killed", "frozen", "resigned"):
                    leader = await servers.leader()
                    if trouble == "killed":
                        servers.kill(leader)
                    elif trouble == "frozen":
                        servers.freeze(leader)
                    else:
                        await servers.resign(leader)
                    for _ in range(5):
                        rows += 1
                        playground.execute(f"insert into t values ({rows}, '{trouble}')")
                        split(playground, rows)
                    playground.execute(f"create table {trouble} (id int primary key); insert into {trouble} values (1)")
                    playground.feeds[1].break_streams()
                    await caught_up(capture, playground.cluster.oracle.next())
                    assert capture.status.state == "running", capture.status.error
                    if trouble == "killed":
                        servers.restart(leader)
                    elif trouble == "frozen":
                        servers.thaw(leader)
                orphan = playground.cluster.prewrite([(record_key(999_999, 1), b"x")], ttl_ms=1)
                await caught_up(capture, playground.cluster.oracle.next())
                assert orphan.start_ts < capture.resolved_ts
                await capture.safe_point.protect(capture.resolved_ts)
                service = capture.safe_point.service_id
                assert service in (await options(servers))
                await until(lambda: capture.status.gc_seconds_left > 80_000)
            assert compare(playground.cluster, tmp_path / "log")[0] > 10
            assert service in (await options(servers)), "a capture that is down still needs its history"
            dropping = [sys.executable, "-m", "tidemill.cli.main", "log", "drop", str(tmp_path / "log"), "--pd", servers.addresses[0]]
            done = await asyncio.to_thread(subprocess.run, dropping, capture_output=True, text=True, timeout=60, check=False)
            assert "PD no longer keeps history for it" in done.stdout, done.stderr
            assert service not in (await options(servers))

    asyncio.run(asyncio.wait_for(main(), 400))


async def options(servers: PdServers) -> dict[str, int]:
    """What PD lists of service safe points."""
    told = json.loads(await servers.http("GET", "/pd/api/v1/gc/safepoint", await servers.leader()))
    return {one["service_id"]: one["safe_point"] for one in told["service_gc_safe_points"]}


def test_a_capture_over_mutual_tls(tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority()
        ca = tmp_path / "ca.pem"
        ca.write_bytes(authority.pem)
        pair = authority.sign("member")
        files = Tls(ca, *pair.write(tmp_path, "server"), ("member",))
        cert, key = authority.sign("member").write(tmp_path, "client")
        tls = ServerTls(pair.certificate, pair.key, authority.pem)
        async with PdServers(tmp_path / "pd", 1, files) as servers, upstream(servers, tls) as playground:
            playground.execute("create table t (id int primary key, v varchar(20)); insert into t values (1, 'a')")
            settings = CaptureConfig(pd=tuple(servers.urls), log=str(tmp_path / "log"), ca=ca, cert=cert, key=key)
            async with running(settings) as capture:
                playground.execute("insert into t values (2, 'b')")
                await caught_up(capture, playground.cluster.oracle.next())
            assert compare(playground.cluster, tmp_path / "log")[0] == 1

    asyncio.run(asyncio.wait_for(main(), 200))
