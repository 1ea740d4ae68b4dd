"""Our PD client against real PD servers: leaders that die, resign and hang, regions, stores, garbage collection, TLS.

Needs a `pd-server` (on PATH, or named by TIDEMILL_PD_SERVER), which no package manager here brings: `make realpd` runs these.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest

from tests.support.capture.loops import run
from tests.support.capture.pd_servers import PdServers, Tls, pd_server, region, store
from tests.support.servers.certificates import Authority
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.tls import Security
from tidemill.capture.tikv.gc import GcGuard, service_id
from tidemill.errors import ClusterMismatch, StartTsBeforeGc, UpstreamError, UpstreamUnavailable, VersionTooOld
from tidemill.tidb.keys import to_encoded

pytestmark = pytest.mark.skipif(pd_server() is None, reason="no pd-server on PATH and none named by TIDEMILL_PD_SERVER")


@asynccontextmanager
async def cluster(folder: Path, n: int = 1, tls: Tls | None = None) -> AsyncIterator[PdServers]:
    """Bootstrapped: one store, one region of everything."""
    async with PdServers(folder, n, tls) as servers:
        await servers.bootstrap(store(1), region(2, b"", b"")[0])
        await servers.put_store(store(1))
        yield servers


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await look():
            await asyncio.sleep(0.1)


ENDLESS = (1 << 63) - 1
KEYS = [to_encoded(b"t%d" % i) for i in range(6)]


def test_one_pd(tmp_path: Path) -> None:
    async def main() -> None:
        async with PdServers(tmp_path / "pd") as servers:
            early = await PdClient.connect(servers.urls, retry_s=1.0)
            with pytest.raises(UpstreamUnavailable, match="NOT_BOOTSTRAPPED: cluster is not bootstrapped"):
                await early.stores()
            await early.close()
            await servers.bootstrap(store(1), region(2, b"", b"")[0])
            pd = await PdClient.connect(f" http://{servers.addresses[0]}/ ,127.0.0.1:1")
            try:
                await timestamps(pd)
                await versions_and_stores(servers, pd)
                await regions(servers, pd)
                await collection(servers, pd)
                with pytest.raises(ClusterMismatch, match=f"serves cluster {pd.cluster_id}, not cluster 7"):
                    await PdClient.connect(servers.urls, cluster_id=7)
                right, pd.cluster_id = pd.cluster_id, 7
                with pytest.raises(ClusterMismatch, match=f"mismatch cluster id, need {right} but got 7"):
                    await pd.stores()
                pd._drop_tso()
                with pytest.raises(ClusterMismatch, match=f"mismatch cluster id, need {right} but got 7"):
                    await pd.tso()
            finally:
                await pd.close()

    run(main())


async def timestamps(pd: PdClient) -> None:
    stamps = [await pd.tso() for _ in range(100)]
    assert stamps == sorted(set(stamps))
    assert abs((stamps[-1] >> 18) / 1000 - time.time()) < 5
    many = await asyncio.gather(*(pd.tso() for _ in range(50)))
    assert len(set(many)) == 50
    assert min(many) > stamps[-1]


async def versions_and_stores(servers: PdServers, pd: PdClient) -> None:
    await servers.put_store(store(1))
    await servers.put_store(store(3, version="8.5.1-fips", labels=[("engine", "tiflash")]))
    await servers.put_store(store(4))
    await pd.check_versions()
    assert [(s.id, s.address, s.tiflash, s.tombstone) for s in sorted(await pd.stores(), key=lambda s: s.id)] == [
        (1, "127.0.0.1:20161", False, False), (3, "127.0.0.1:20163", True, False), (4, "127.0.0.1:20164", False, False),
    ]  # fmt: skip
    assert await pd.store(99) is None
    await servers.http("DELETE", "/pd/api/v1/store/4?force=true")

    async def buried() -> bool:
        found = await pd.store(4)
        return found is not None and found.tombstone

    await until(buried)
    assert {s.id for s in await pd.stores() if s.tombstone} == {4}


async def regions(servers: PdServers, pd: PdClient) -> None:
    pieces = [
        region(2, KEYS[4], b"", 5), region(10, b"", KEYS[1], 5), region(11, KEYS[1], KEYS[2], 5), region(12, KEYS[2], KEYS[4], 5),
    ]  # fmt: skip
    await servers.heartbeats(pieces)

    async def all_there() -> bool:
        return len(await pd.scan_regions(b"", b"")) == 4

    await until(all_there)
    found = await pd.scan_regions(b"", b"")
    assert [(r.id, r.start, r.end, r.version) for r in found] == [
        (10, b"", KEYS[1], 5), (11, KEYS[1], KEYS[2], 5), (12, KEYS[2], KEYS[4], 5), (2, KEYS[4], b"", 5),
    ]  # fmt: skip
    assert all(r.leader is not None and r.leader.store_id == 1 for r in found)
    assert [r.id for r in await pd.scan_regions(KEYS[1] + b"\0", KEYS[3])] == [11, 12], "begins with the region of the start"
    assert [r.id for r in await pd.scan_regions(KEYS[1], KEYS[4])] == [11, 12], "the end is not included"
    assert [r.id for r in await pd.scan_regions(b"", b"", 2)] == [10, 11]
    one = await pd.region(KEYS[3])
    assert one is not None
    assert one.id == 12
    await servers.heartbeats([region(12, KEYS[3], KEYS[4], 6)])  # a split of which one half has not been heard yet: a hole

    async def hole() -> bool:
        return (await pd.region(KEYS[2])) is None

    await until(hole)
    assert [r.id for r in await pd.scan_regions(KEYS[1], KEYS[4])] == [11, 12]
    await servers.heartbeats([region(11, KEYS[1], KEYS[4], 8)])  # a merge

    async def merged() -> bool:
        return [r.id for r in await pd.scan_regions(b"", b"")] == [10, 11, 2]

    await until(merged)
    await servers.heartbeats([region(11, KEYS[1], KEYS[2], 5)])  # late news of the past changes nothing
    assert [r.id for r in await pd.scan_regions(b"", b"")] == [10, 11, 2]


async def collection(servers: PdServers, pd: PdClient) -> None:
    now = await pd.tso()
    guard = GcGuard(pd, service_id(pd.cluster_id, "a"), 60)
    await guard.protect(now)
    assert guard.safe_point == now - 1
    assert await pd.update_service_safe_point("gc_worker", ENDLESS, now - 1000) == ("gc_worker", now - 1000)
    later = now + 1000
    assert await pd.update_service_safe_point("gc_worker", ENDLESS, later) == (guard.service_id, now - 1), "we hold it"
    await guard.protect(later)
    behind = GcGuard(pd, service_id(pd.cluster_id, "b"), 60)
    with pytest.raises(StartTsBeforeGc, match=f"{now} .* below {later - 1} "):
        await behind.protect(now)
    await guard.remove()
    await behind.protect(later)
    assert behind.safe_point == later, "just at the safe point nothing is missing"
    with pytest.raises(StartTsBeforeGc):
        await behind.protect(later - 1)
    await servers.update_gc_safe_point(later + 7)
    assert await pd.gc_safe_point() == later + 7
    with pytest.raises(StartTsBeforeGc, match=rf"{later + 7} .*PD's GC safe point"):
        await behind.protect(later)
    await behind.protect(later + 7)
    with pytest.raises(UpstreamError, match="gc_worker"):
        await pd.update_service_safe_point("gc_worker", 0, 0)
    short = GcGuard(pd, service_id(pd.cluster_id, "short"), 1)
    await short.protect(later + 8)
    await behind.remove()
    await asyncio.sleep(2)
    assert await pd.update_service_safe_point("gc_worker", ENDLESS, later + 100) == ("gc_worker", later + 100), "its TTL is over"
    with pytest.raises(StartTsBeforeGc, match=f"{later + 8} .* below {later + 100} "):
        await short.protect(later + 8)


def test_an_old_tikv_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with PdServers(tmp_path / "pd") as servers:
            await servers.bootstrap(store(1, version="7.1.5"), region(2, b"", b"")[0])
            pd = await PdClient.connect(servers.urls)
            with pytest.raises(VersionTooOld, match=r"TiKV 127\.0\.0\.1:20161 has version 7\.1\.5"):
                await pd.check_versions()
            await pd.close()

    run(main())


@pytest.mark.parametrize("trouble", ["killed", "frozen", "resigned"])
def test_timestamps_and_lookups_go_on_when_the_leader_is(tmp_path: Path, trouble: str) -> None:
    async def main() -> None:
        async with cluster(tmp_path / "pd", 3) as servers:
            pd = await PdClient.connect(servers.addresses)
            stamps: list[int] = []
            lookups = 0
            over = asyncio.Event()

            async def tell_time() -> None:
                while not over.is_set():
                    stamps.append(await pd.tso())
                    await asyncio.sleep(0.01)

            async def look_up() -> None:
                nonlocal lookups
                while not over.is_set():
                    assert [s.id for s in await pd.stores()] == [1]
                    found = await pd.scan_regions(b"", b"")  # a new leader knows no region until it has heard of it
                    assert [r.id for r in found] in ([], [2])
                    lookups += bool(found)
                    await asyncio.sleep(0.01)

            async def tell_of_regions() -> None:
                while not over.is_set():
                    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
                        async with asyncio.timeout(2):
                            await servers.heartbeats([region(2, b"", b"")])
                    await servers.forget_heart()
                    await asyncio.sleep(0.2)

            async with asyncio.TaskGroup() as group:
                group.create_task(tell_time())
                group.create_task(look_up())
                group.create_task(tell_of_regions())
                await asyncio.sleep(1)
                first = await servers.leader()
                assert pd.leader == servers.addresses[first]
                begin, before = time.monotonic(), (len(stamps), lookups)
                {"killed": servers.kill, "frozen": servers.freeze}.get(trouble, lambda _: None)(first)
                if trouble == "resigned":
                    await servers.resign(first)
                while pd.leader == servers.addresses[first] or len(stamps) < before[0] + 100 or lookups < before[1] + 10:
                    await asyncio.sleep(0.05)
                print(f"{trouble}: {time.monotonic() - begin:.1f} s")
                over.set()
            assert stamps == sorted(set(stamps))
            if trouble == "frozen":
                servers.thaw(first)
                await asyncio.sleep(1)
                assert await pd.tso() > stamps[-1]
            await pd.close()

    run(main())


def test_an_idle_connection_is_not_taken_for_an_attack(tmp_path: Path) -> None:
    """PD closes connections whose PINGs come too often (too_many_pings): the stream of timestamps outlives a long silence."""

    async def main() -> None:
        async with cluster(tmp_path / "pd", 2) as servers:
            pd = await PdClient.connect(servers.addresses)
            await pd.tso()
            stream = pd._tso_call
            await asyncio.sleep(50)
            await pd.tso()
            assert pd._tso_call is stream
            await pd.close()

    run(main())


def test_dead_and_frozen_addresses_cost_little(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path / "pd", 3) as servers:
            leader = await servers.leader()
            follower = (leader + 1) % 3
            servers.freeze(follower)
            begin = time.monotonic()
            listed = [servers.addresses[follower], "127.0.0.1:1", "no-such-host.invalid:2379", servers.addresses[leader]]
            pd = await PdClient.connect(listed)
            assert time.monotonic() - begin < 3
            assert await pd.tso()
            await pd.close()
            servers.thaw(follower)

    run(main())


@pytest.mark.parametrize("names", [(), ("member",)], ids=["any name", "one name"])
def test_tls(tmp_path: Path, names: tuple[str, ...]) -> None:
    async def main() -> None:
        authority = Authority()
        ca = tmp_path / "ca.pem"
        ca.write_bytes(authority.pem)
        server = authority.sign("member").write(tmp_path, "server")
        client = authority.sign("member").write(tmp_path, "client")
        async with cluster(tmp_path / "pd", 1, Tls(ca, *server, names)) as servers:
            pd = await PdClient.connect(servers.urls, security=Security(ca, *client))
            assert await pd.tso()
            assert [s.id for s in await pd.stores()] == [1]
            await pd.close()
            another = tmp_path / "another.pem"
            another.write_bytes(Authority("another").pem)
            wrong = {"certificates do not fit": Security(another, *client), "want TLS": Security(ca), "does it want TLS": None}
            for text, security in wrong.items():
                with pytest.raises(UpstreamUnavailable, match=text):
                    await PdClient.connect(servers.addresses, retry_s=0.5, security=security)

    run(main())
