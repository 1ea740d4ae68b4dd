"""Calls to TiKV's key-value service that go to the region of a key: finds the leader, makes the call, and interprets errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc

from tidemill.capture.tikv.client.channels import Backoff
from tidemill.capture.tikv.client.pd import REFUSALS, PdClient, refused, region_of
from tidemill.capture.tikv.model import Region
from tidemill.errors import UpstreamError, UpstreamUnavailable
from tidemill.tidb.codec import decode_bytes, encode_bytes
from tidemill.wire import errorpb_pb2, kvrpcpb_pb2, metapb_pb2, tikvpb_pb2_grpc

CALL_TIMEOUT = 10.0
"""Timeout of a single call in seconds: to list a region's locks, TiKV may have to read past many versions."""


class Unanswered(UpstreamUnavailable):
    """No answer came: the call may have been carried out, or still be running."""


class RegionCalls:
    """Makes calls by key. Keys are raw. `retry_s`: seconds that one call may take with all its retries, `timeout_s`: one attempt.
    `repeats`: whether an attempt is repeated to which no answer came, so that the store may still be at work on it."""

    def __init__(self, pd: PdClient, retry_s: float = 20.0, timeout_s: float = CALL_TIMEOUT, *, repeats: bool = True) -> None:
        self.pd, self.retry_s, self.timeout_s, self.repeats = pd, retry_s, timeout_s, repeats
        self._addresses: dict[int, str] = {}

    async def call(self, name: str, key: bytes, request: Callable[[Region], Any]) -> tuple[Region, Any]:
        """Send `request(region)` to the region that holds `key`; return the region and its answer. Region errors lead to another try.

        Raises UpstreamUnavailable after `retry_s`, UpstreamError if a retry would not help.
        """
        until = time.monotonic() + self.retry_s
        backoff = Backoff()
        while True:
            try:
                region = await self._locate(key)
                return region, await self._ask(name, region, request(region))
            except UpstreamUnavailable as e:
                wait = backoff.next()
                if time.monotonic() + wait > until or (isinstance(e, Unanswered) and not self.repeats):
                    raise UpstreamUnavailable(f"{name} for key {key.hex()} failed: {e.message}") from None
            await asyncio.sleep(wait)

    async def _locate(self, key: bytes) -> Region:
        """Ask PD for the region each time: these calls are few, and follow a change."""
        encoded = encode_bytes(key) if key else b""
        found = await self.pd.region(encoded)
        if found is None or found.leader is None:
            raise UpstreamUnavailable(f"PD knows no region with a leader for key {key.hex()}")
        return found

    async def _ask(self, name: str, region: Region, request: Any) -> Any:
        assert region.leader is not None
        request.context.CopyFrom(context(region, yields=name == "KvScanLock"))
        address = await self._address(region.leader.store_id)
        stub = tikvpb_pb2_grpc.TikvStub(self.pd.channels.get(address))
        try:
            answer = await getattr(stub, name)(request, timeout=self.timeout_s)
        except grpc.aio.AioRpcError as e:
            self._addresses.pop(region.leader.store_id, None)
            if e.code() == grpc.StatusCode.UNIMPLEMENTED:
                raise UpstreamError(f"TiKV {address} does not know {name}") from None
            if e.code() in REFUSALS:
                raise refused(f"TiKV {address}", f"{e.code().name} {e.details()}") from None
            raise Unanswered(f"TiKV {address}: {e.code().name} {e.details()}") from None
        if answer.HasField("region_error"):
            raise UpstreamUnavailable(f"region {region.id}: {region_error(answer.region_error)}")
        return answer

    async def _address(self, store_id: int) -> str:
        if store_id not in self._addresses:
            store = await self.pd.store(store_id)
            if store is None or store.tombstone:
                raise UpstreamUnavailable(f"store {store_id} is gone")
            self._addresses[store_id] = store.address
        return self._addresses[store_id]


def context(region: Region, *, yields: bool = False) -> kvrpcpb_pb2.Context:
    """Return the context of a request to a region. `yields`: of low priority, and nothing that it reads stays in TiKV's cache."""
    assert region.leader is not None
    return kvrpcpb_pb2.Context(
        priority=kvrpcpb_pb2.Low if yields else kvrpcpb_pb2.Normal,
        not_fill_cache=yields,
        region_id=region.id,
        region_epoch=metapb_pb2.RegionEpoch(conf_ver=region.conf_ver, version=region.version),
        peer=metapb_pb2.Peer(id=region.leader.id, store_id=region.leader.store_id),
    )


def region_error(error: errorpb_pb2.Error) -> str:
    """Return the kind and message of a region error."""
    kind = next((f.name for f, _ in error.ListFields() if f.name != "message"), "region error")
    told = ", ".join(str(region_of(r).id) for r in error.epoch_not_match.current_regions)
    return f"{kind} {error.message}".rstrip() + (f" (now {told})" if told else "")


def raw_range(region: Region) -> tuple[bytes, bytes]:
    """Return a region's range in raw keys; an empty end is open."""
    return decode_bytes(region.start)[0] if region.start else b"", decode_bytes(region.end)[0] if region.end else b""
