"""Holding garbage collection back."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.capture.fake_cluster import FakeCluster, with_cluster
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.gc import GcGuard, service_id
from tidemill.errors import StartTsBeforeGc
from tidemill.playground.server import Playground


def test_service_safe_point() -> None:
    cluster = FakeCluster()
    ts = 470_000_000_000_000_000

    async def use(pd: PdClient) -> None:
        safe_point = GcGuard(pd, "tidemill-x", 60)
        await safe_point.protect(ts)
        assert safe_point.safe_point == ts - 1
        cluster.least_wish = ts
        await safe_point.protect(ts)
        assert safe_point.safe_point == ts, "a safe point keeps what can be read at it"
        cluster.least_wish = ts + 1
        with pytest.raises(StartTsBeforeGc, match=rf"history from {ts} \(.*UTC\) on .* below {ts + 1} .*gc_worker"):
            await safe_point.protect(ts)
        cluster.least_wish, cluster.collected = 0, ts + 1
        with pytest.raises(StartTsBeforeGc, match=r"PD's GC safe point"):
            await safe_point.protect(ts)

    with_cluster(cluster, use)


@pytest.mark.parametrize("barriers", [False, True])
def test_a_guard_holds_garbage_collection_back_until_it_is_removed(barriers: bool) -> None:
    async def main() -> None:
        async with Playground(1, gc_barriers=barriers) as playground:
            points = playground.cluster.safe_points
            pd = await PdClient.connect(playground.pd_address)
            try:
                assert (await pd.gc_state() is not None) == barriers
                ts = playground.cluster.oracle.next()
                guard = GcGuard(pd, service_id(pd.cluster_id, "x"), 60)
                await guard.protect(ts)
                assert 58 < guard.seconds_left <= 60
                assert points.advance_gc(ts + 10) == ts - 1
                await guard.protect(ts + 5)
                assert points.advance_gc(ts + 10) == ts + 4
                await guard.remove()
                assert guard.seconds_left == 0
                assert points.advance_gc(ts + 10) == ts + 10
                with pytest.raises(StartTsBeforeGc, match=rf"history from {ts + 9} \(.*UTC\) on .* below {ts + 10} "):
                    await guard.protect(ts + 9)
                await guard.protect(ts + 10)
                assert (guard.safe_point, points.advance_gc(ts + 20)) == (ts + 10, ts + 10), "just where the log begins"
                await guard.protect(ts + 15)
                assert (guard.safe_point, points.advance_gc(ts + 20)) == (ts + 14, ts + 14)
            finally:
                await pd.close()

    asyncio.run(main())


def test_service_ids_are_of_the_cluster_and_the_log() -> None:
    assert service_id(7, "abc") == "tidemill-7-abc"
