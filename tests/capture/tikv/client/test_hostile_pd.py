"""A PD that answers anything: calls end with an answer or with one of our errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any

import grpc
import pytest

from tests.support.capture.hostile import fill
from tests.support.thorough import FUZZ
from tidemill.capture.tikv.client.channels import Channels, is_address
from tidemill.capture.tikv.client.pd import PdClient, parse_version
from tidemill.capture.tikv.client.region_calls import RegionCalls
from tidemill.errors import TidemillError, UpstreamUnavailable
from tidemill.tidb.types.jsonstyle import JsonStyle, style_of
from tidemill.tso import MAX_TS
from tidemill.wire import keyspacepb_pb2, kvrpcpb_pb2, pdpb_pb2

ROUNDS = 30 * FUZZ


class Hostile(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers all calls of PD, and those of TiKV at the same address."""

    def __init__(self) -> None:
        self.random, self.address = Random(), ""

    def service(self, details: Any) -> Any:
        name = details.method.rpartition("/")[2]

        async def one(request: bytes, context: Any) -> bytes:
            return self._answer(name)

        async def each(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            async for _ in requests:
                yield self._answer(name)

        return grpc.stream_stream_rpc_method_handler(each) if name == "Tso" else grpc.unary_unary_rpc_method_handler(one)

    def _answer(self, name: str) -> bytes:
        if self.random.random() < 0.1:
            return self.random.randbytes(30)
        places = (pdpb_pb2, f"{name}Response"), (keyspacepb_pb2, f"{name}Response"), (kvrpcpb_pb2, f"{name.removeprefix('Kv')}Response")
        answer = fill(next(getattr(place, kind) for place, kind in places if hasattr(place, kind))(), self.random)
        if hasattr(answer, "header"):
            answer.header.cluster_id = self.random.choice((7, 7, 7, 7, 7, 0, 9))
            if self.random.random() < 0.6:
                answer.header.ClearField("error")
        if name == "GetMembers" and self.random.random() < 0.8:
            answer.leader.client_urls.insert(0, self.address)
        if name == "GetStore" and self.random.random() < 0.8:
            answer.store.address = self.address
        return bytes(answer.SerializeToString())


async def use(pd: PdClient) -> None:
    calls: tuple[Callable[[], Awaitable[Any]], ...] = (
        pd.tso, pd.stores, pd.gc_safe_point, pd.gc_state, pd.check_versions, pd.keyspaces, pd.refresh, lambda: pd.store(3),
        lambda: pd.scan_ranges([(b"a", b"c"), (b"d", b"e")], 10), lambda: pd.region(b"a"), lambda: pd.update_service_safe_point("a", 1, 2),
        lambda: pd.set_gc_barrier("a", 1, 2),
        lambda: RegionCalls(pd, 0.05).call("KvScanLock", b"a", lambda region: kvrpcpb_pb2.ScanLockRequest()),
    )  # fmt: skip
    for call in calls:
        with suppress(TidemillError):
            found = await call()
            assert call is not pd.tso or 0 < found <= MAX_TS
        assert all(map(is_address, (pd.leader, *pd.addresses)))


def test_a_pd_that_answers_anything() -> None:
    async def run() -> None:
        hostile, server = Hostile(), grpc.aio.server()
        server.add_generic_rpc_handlers((hostile,))
        hostile.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        connected = 0
        for number in range(ROUNDS):
            hostile.random.seed(number)
            with suppress(TidemillError):
                pd = await PdClient.connect(hostile.address, retry_s=0.05)
                connected += 1
                try:
                    await use(pd)
                finally:
                    await pd.close()
        assert connected > ROUNDS // 3
        await server.stop(0)

    asyncio.run(run())


@pytest.mark.parametrize(
    "address", ["unix:///run/x.sock", "unix:x", "dns:///a", "a b:1", "", "host", "host:0", "host:99999", "h:" + "9" * 5000]
)
def test_no_channel_is_opened_to_what_is_no_address(address: str) -> None:
    async def run() -> None:
        with pytest.raises(UpstreamUnavailable, match="not a HOST:PORT"):
            Channels().get(address)

    asyncio.run(run())


def test_versions_of_thousands_of_digits_are_none() -> None:
    assert parse_version("v" + "9" * 5000 + ".1.1") is None
    assert style_of("v" + "9" * 5000 + ".1.1") is JsonStyle.GO
