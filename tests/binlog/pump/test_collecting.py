"""Garbage collection: what may go, what goes, and what a Drainer hears that asks for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tests.support.binlog.binlogs import commit, prewrite, pulled, settled, until
from tests.support.binlog.pumps import running_pump
from tidemill import tso
from tidemill.binlog.nodes import Node, NodeState
from tidemill.binlog.pump.collecting import Collector, Cut, cut_of
from tidemill.binlog.pump.store import Store
from tidemill.playground.server import Playground

HOUR = tso.compose(3_600_000)


def test_a_cut_waits_for_drainers_unless_told_otherwise() -> None:
    drainers = [Node("d1", "h", NodeState.PAUSED, max_commit_ts=5 * HOUR), Node("d2", "h", NodeState.OFFLINE, max_commit_ts=1)]
    assert cut_of(100 * HOUR, 3600.0, 98 * HOUR, drainers, waits=True) == Cut(5 * HOUR, ("d1",))
    assert cut_of(100 * HOUR, 3600.0, 98 * HOUR, drainers, waits=False) == Cut(98 * HOUR)
    assert cut_of(100 * HOUR, 7 * 3600.0, 98 * HOUR, drainers[1:], waits=True) == Cut(93 * HOUR)
    assert cut_of(1 * HOUR, 7 * 3600.0, 98 * HOUR, [], waits=True) == Cut(0)


def test_files_and_keys_go_and_the_prewrite_of_a_long_transaction_stays(tmp_path: Path) -> None:
    async def run() -> None:
        store = Store(tmp_path, sync=False, file_bytes=100)
        store.start()
        for hour in range(1, 20):
            await store.write(prewrite(hour * HOUR))
            await store.write(commit(hour * HOUR, hour * HOUR + 1))
        await store.write(prewrite(9 * HOUR + 7))  # ran for eleven hours
        await store.write(commit(9 * HOUR + 7, 20 * HOUR))
        await settled(store)
        await until(lambda: store.index.begin() == store.order.passed)  # files behind the last note in the index stay
        before = len(store.log.files())
        await Collector(store).collect(Cut(15 * HOUR))
        assert len(store.log.files()) < before
        assert store.index.gc_ts() == 15 * HOUR
        assert store.index.get(8 * HOUR) is None
        assert list(pulled(store, tmp_path, 15 * HOUR)) == [*(h * HOUR + 1 for h in range(15, 20)), 20 * HOUR]
        await store.close()
        store = Store(tmp_path, sync=False, file_bytes=100)
        store.start()
        await settled(store)
        assert store.order.max_commit_ts == 20 * HOUR
        await store.close()

    asyncio.run(run())


def test_a_drainer_that_asks_for_what_is_gone_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground) as running:
            newest = (await running.pull(2))[-1].meta.commitTs
            await running.pump.collector.collect(Cut(newest))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await running.pull(1, newest - 1)
            assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
            assert str(newest) in str(caught.value.details())
            assert await running.pull(1, newest)
            assert await running.pull(1)  # from the oldest that is there

    asyncio.run(run())
