"""Reading at a ts: what a scan passes over, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.capture.fake_cluster import FakeCluster, with_cluster
from tidemill.capture.tikv.client.channels import Backoff
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.read.snapshot import Snapshot
from tidemill.errors import StartTsBeforeGc, UpstreamError, UpstreamUnavailable
from tidemill.wire import errorpb_pb2 as errorpb
from tidemill.wire import kvrpcpb_pb2 as kvrpcpb


def region_error(**kind: Any) -> kvrpcpb.ScanResponse:
    return kvrpcpb.ScanResponse(region_error=errorpb.Error(**kind))


LOCK = {"primary_lock": b"p", "lock_version": 470_000_000_000_000_000, "key": b"k3", "lock_ttl": 3000}


PASSING = {
    "not leader": region_error(not_leader={"region_id": 1}),
    "epoch": region_error(epoch_not_match={"current_regions": [{"id": 1}]}),
    "not found": region_error(region_not_found={"region_id": 1}),
    "busy": region_error(server_is_busy={"reason": "x"}),
    "stale": region_error(stale_command={}),
    "store": region_error(store_not_match={}),
    "outside": region_error(key_not_in_region={"key": b"k"}),
    "max ts": region_error(max_timestamp_not_synced={}),
    "text": region_error(message="something else"),
    "lock": kvrpcpb.ScanResponse(error=kvrpcpb.KeyError(locked=LOCK)),
    "lock in a pair": kvrpcpb.ScanResponse(pairs=[{"key": b"k1", "value": b"v"}, {"error": {"locked": LOCK}, "key": b"k3"}]),
    "retry": kvrpcpb.ScanResponse(error=kvrpcpb.KeyError(retryable="again")),
}


@pytest.mark.parametrize("name", PASSING)
def test_a_scan_goes_on_after_what_passes(name: str) -> None:
    cluster = FakeCluster()
    cluster.data = {b"k%d" % i: b"v%d" % i for i in range(10)}
    cluster.problems = [PASSING[name]] * 2

    async def use(pd: PdClient) -> None:
        found = [pair async for pair in Snapshot(pd, 9).scan(b"k1", b"k8", page=3)]
        assert found == [(b"k%d" % i, b"v%d" % i) for i in range(1, 8)]
        assert {r.version for r in cluster.scans} == {9}

    with_cluster(cluster, use)


def test_a_scan_crosses_regions_and_pages_and_open_ends() -> None:
    cluster = FakeCluster()
    cluster.data = {bytes([65 + i // 10, i % 10]): b"%d" % i for i in range(100)}
    cluster.borders = [b"", b"B", b"C\x05", b"F"]

    async def use(pd: PdClient) -> None:
        snapshot = Snapshot(pd, 9)
        assert [pair async for pair in snapshot.scan(b"", b"", page=7)] == sorted(cluster.data.items())
        assert await snapshot.get(b"C\x05") == b"25"
        assert await snapshot.get(b"C\x05\x00") is None
        cluster.borders, cluster.version = [b"", b"E"], 2
        cluster.problems = [region_error(epoch_not_match={"current_regions": [{"id": 1}, {"id": 2}]})]
        assert len([pair async for pair in snapshot.scan(b"A", b"G", page=1000)]) == 60

    with_cluster(cluster, use)


def test_what_does_not_pass_ends_a_scan_with_its_reason() -> None:
    cluster = FakeCluster()

    async def use(pd: PdClient) -> None:
        async def scan() -> None:
            assert [pair async for pair in Snapshot(pd, 9, retry_s=0.3).scan(b"a", b"b")] == []

        cluster.problems = [kvrpcpb.ScanResponse(error=kvrpcpb.KeyError(locked=LOCK))] * 50
        with pytest.raises(UpstreamUnavailable, match=r"key 6b33 is locked by the transaction with start_ts 4700.*primary key 70"):
            await scan()
        cluster.problems = [kvrpcpb.ScanResponse(error=kvrpcpb.KeyError(abort="GC life time is shorter than transaction duration"))]
        with pytest.raises(StartTsBeforeGc):
            await scan()
        cluster.problems = [kvrpcpb.ScanResponse(pairs=[{"error": {"abort": "InvalidReqRange"}}])]
        with pytest.raises(UpstreamError, match="InvalidReqRange"):
            await scan()

    with_cluster(cluster, use)


def test_backoff_grows_to_its_cap() -> None:
    backoff = Backoff(0.1, 1.0)
    waits = [backoff.next() for _ in range(8)]
    assert 0.05 <= waits[0] <= 0.1
    assert all(0.5 <= w <= 1.0 for w in waits[4:])
    backoff.reset()
    assert backoff.next() <= 0.1
