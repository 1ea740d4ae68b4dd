"""A client of a playground on its gRPC services, without a capture."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from tidemill.playground.server import Playground
from tidemill.tidb import keys
from tidemill.tidb.codec import encode_bytes
from tidemill.wire import cdcpb_pb2 as cdcpb
from tidemill.wire import cdcpb_pb2_grpc, pdpb_pb2_grpc, tikvpb_pb2_grpc
from tidemill.wire import kvrpcpb_pb2 as kvrpcpb
from tidemill.wire import pdpb_pb2 as pdpb

MULTIPLEXING = (("features", "stream-multiplexing"),)


class Client:
    """Stubs of a playground's services."""

    def __init__(self, playground: Playground) -> None:
        self.playground = playground
        self.channels = {s.id: grpc.aio.insecure_channel(s.address) for s in playground.cluster.stores.values()}
        self.pd = pdpb_pb2_grpc.PDStub(self.channels[1])
        self.kv = tikvpb_pb2_grpc.TikvStub(self.channels[1])

    @property
    def header(self) -> pdpb.RequestHeader:
        return pdpb.RequestHeader(cluster_id=self.playground.cluster.cluster_id)

    def feed(self, store: int = 1, metadata: Any = MULTIPLEXING, version: str = "EventFeedV2") -> Any:
        return getattr(cdcpb_pb2_grpc.ChangeDataStub(self.channels[store]), version)(metadata=metadata)

    def context(self, key: bytes) -> kvrpcpb.Context:
        region = self.playground.cluster.regions.at(key)
        context = kvrpcpb.Context(region_id=region.id)
        context.region_epoch.version, context.region_epoch.conf_ver = region.version, region.conf_ver
        context.peer.id, context.peer.store_id = region.leader.id, region.leader.store_id
        return context

    def register(self, key: bytes, request_id: int = 1, checkpoint_ts: int = 1) -> cdcpb.ChangeDataRequest:
        region = self.playground.cluster.regions.at(key)
        start, end = keys.record_range(keys.physical_table_id(key))
        request = cdcpb.ChangeDataRequest(region_id=region.id, request_id=request_id, checkpoint_ts=checkpoint_ts)
        request.region_epoch.version = region.version
        request.start_key, request.end_key = encode_bytes(start), encode_bytes(end)
        request.header.cluster_id, request.header.ticdc_version = self.playground.cluster.cluster_id, "8.5.0"
        return request

    async def close(self) -> None:
        for channel in self.channels.values():
            await channel.close()


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[Client]:
    async with Playground(resolved_interval=0.02, **options) as playground:
        client = Client(playground)
        try:
            yield client
        finally:
            await client.close()


def serve(test: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with served(**options) as client:
            await test(client)

    asyncio.run(asyncio.wait_for(run(), 600))


def record(table: str, handle: int, client: Client) -> bytes:
    found = [t for t in client.playground.database.catalog.tables.values() if t.name == table]
    return keys.record_key(found[0].id, handle)


async def until_row(feed: Any, kind: int) -> list[cdcpb.Event.Row]:
    """Rows up to and with the first of a kind."""
    rows: list[cdcpb.Event.Row] = []
    while True:
        message = await feed.read()
        for event in message.events:
            assert not event.HasField("error"), event
            rows += event.entries.entries
        if any(r.type == kind for r in rows):
            return rows


async def next_error(feed: Any) -> cdcpb.Error:
    while True:
        for event in (await feed.read()).events:
            if event.HasField("error"):
                return event.error


async def ended(call: Any) -> tuple[grpc.StatusCode, str]:
    """How a stream ends, whatever comes before."""
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details()
    return await call.code(), await call.details()
