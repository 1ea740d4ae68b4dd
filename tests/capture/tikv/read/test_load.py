"""How the load on TiKV is bounded: scans at once, and their priority."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemill.capture.config import CaptureConfig
from tidemill.capture.initial_load import loading_of
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.region_calls import RegionCalls
from tidemill.capture.tikv.model import Peer, Region
from tidemill.capture.tikv.read.resolving import resolving_scan
from tidemill.capture.tikv.read.snapshot import Snapshot
from tidemill.capture.tikv.read.tables import RowScan, tasks_at_once
from tidemill.changelog.storage.open import open_storage
from tidemill.errors import ConfigError
from tidemill.playground.server import Playground
from tidemill.wire import kvrpcpb_pb2 as kvrpcpb

REGION = Region(7, b"", b"", 1, 2, Peer(8, 1))


@pytest.mark.parametrize(
    ("parts", "parallelism", "most", "tasks"),
    [(1000, 8, 64, 1000), (1000, 64, 64, 1000), (1000, 65, 64, 64), (10, 100, 64, 10), (0, 8, 64, 1), (5, 8, 1, 1)],
)
def test_no_more_tasks_than_allowed_can_run_at_once(parts: int, parallelism: int, most: int, tasks: int) -> None:
    """Where Spark has no more cores than that, each part is a task of its own: they are spread better."""
    assert tasks_at_once(parts, parallelism, most) == tasks


@pytest.mark.parametrize("scan", [RowScan, resolving_scan])
def test_reads_of_tables_make_way_and_those_of_the_schema_do_not(scan: Callable[..., Snapshot]) -> None:
    given: Any = None
    request, _ = scan(given, 5)._request(REGION, b"a", b"b", 10)
    assert (request.context.priority, request.context.not_fill_cache) == (kvrpcpb.Low, True)
    assert (request.context.region_id, request.context.peer.store_id) == (7, 1)
    request, _ = Snapshot(given, 5)._request(REGION, b"a", b"b", 10)
    assert (request.context.priority, request.context.not_fill_cache) == (kvrpcpb.Normal, False)


@pytest.mark.parametrize(("name", "priority"), [("KvScanLock", kvrpcpb.Low), ("KvResolveLock", kvrpcpb.Normal)])
def test_searches_for_locks_make_way_and_what_ends_them_does_not(name: str, priority: int) -> None:
    """Over a connection, with what a store gets."""
    got: list[Any] = []

    async def main() -> None:
        async with Playground(1) as playground:
            pd = await PdClient.connect(playground.pd_address)
            try:
                kv = playground.kvs[1]
                locate = kv._locate
                kv._locate = lambda context: (got.append(context), locate(context))[1]  # type: ignore[method-assign]
                request = {"KvScanLock": kvrpcpb.ScanLockRequest(max_version=1), "KvResolveLock": kvrpcpb.ResolveLockRequest()}[name]
                await RegionCalls(pd).call(name, b"", lambda _: request)
            finally:
                await pd.close()

    asyncio.run(main())
    assert [context.priority for context in got] == [priority]


def test_one_number_goes_everywhere(tmp_path: Path) -> None:
    settings = CaptureConfig(pd=("h:1",), log=str(tmp_path / "log"), tikv_scans=8)
    assert loading_of(open_storage(str(tmp_path / "log")), settings).order.scans == 8
    assert settings.of_group(4)["tikv_scans"] == 2, "workers share it"
    assert settings.of_group(100)["tikv_scans"] == 1
    with pytest.raises(ConfigError, match="--tikv-scans 0"):
        CaptureConfig(pd=("h:1",), log="l", tikv_scans=0)
