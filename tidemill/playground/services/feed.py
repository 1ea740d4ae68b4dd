"""The change feed over gRPC: one service object a store. Requests are parsed, events are written as the bytes that the feed made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio

from tidemill.playground.store.feed import MESSAGE_EVENTS, FeedHub, FeedStream, Scan
from tidemill.wire import cdcpb_pb2 as cdcpb

MULTIPLEXING = "stream-multiplexing"
CONCURRENT_SCANS = 6
OUTBOX_EVENTS = 128
"""A scan waits while this many events are queued on its stream."""


class FeedService:
    """EventFeed and EventFeedV2 of one store. Without `multiplexing` only the first, as in stores before 7.5."""

    def __init__(self, hub: FeedHub, store_id: int, *, multiplexing: bool = True) -> None:
        self._hub, self._store_id, self._multiplexing = hub, store_id, multiplexing
        self._scans = asyncio.Semaphore(CONCURRENT_SCANS)
        self._calls: set[asyncio.Task[None]] = set()
        self.max_events = MESSAGE_EVENTS
        """Events in a message at most. With 1 messages are those of an idle store."""

    def handler(self) -> grpc.GenericRpcHandler:
        """The gRPC handler of `cdcpb.ChangeData`."""
        calls = {"EventFeed": grpc.stream_stream_rpc_method_handler(self._event_feed, cdcpb.ChangeDataRequest.FromString)}
        if self._multiplexing:
            calls["EventFeedV2"] = grpc.stream_stream_rpc_method_handler(self._event_feed_v2, cdcpb.ChangeDataRequest.FromString)
        return grpc.method_handlers_generic_handler("cdcpb.ChangeData", calls)

    def break_streams(self) -> int:
        """End all streams as a killed store does; returns their number."""
        calls = list(self._calls)
        for task in calls:
            task.cancel()
        return len(calls)

    async def _event_feed(self, requests: AsyncIterator[cdcpb.ChangeDataRequest], context: grpc.aio.ServicerContext) -> None:
        await self._serve(requests, context, False)

    async def _event_feed_v2(self, requests: AsyncIterator[cdcpb.ChangeDataRequest], context: grpc.aio.ServicerContext) -> None:
        features = [value for key, value in context.invocation_metadata() or () if key == "features"]
        asked = [f for text in features for f in str(text).split(",")]
        unknown = [f for f in asked if f != MULTIPLEXING]
        if unknown:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, ",".join(unknown))
        await self._serve(requests, context, MULTIPLEXING in asked)

    async def _serve(self, requests: AsyncIterator[cdcpb.ChangeDataRequest], context: grpc.aio.ServicerContext, multiplexing: bool) -> None:
        call = _Call(self._hub, FeedStream(self._store_id, multiplexing, lambda: None), self._scans, self.max_events)
        task = asyncio.ensure_future(call.run(requests, context))
        self._calls.add(task)
        try:
            await task
        except asyncio.CancelledError:
            if not context.cancelled() and task.cancelled():
                await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            raise
        finally:
            self._calls.discard(task)


class _Call:
    """One running stream: a reader of requests, its scans, and a writer."""

    def __init__(self, hub: FeedHub, stream: FeedStream, scans: asyncio.Semaphore, max_events: int) -> None:
        self._hub, self._stream, self._scans, self._max_events = hub, stream, scans, max_events
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stream.wake = self._something.set

    async def run(self, requests: AsyncIterator[cdcpb.ChangeDataRequest], context: grpc.aio.ServicerContext) -> None:
        """Serve until the client half-closes or goes away, or the stream cannot be written any more."""
        self._hub.open(self._stream)
        reader = asyncio.ensure_future(self._read(requests))
        writer = asyncio.ensure_future(self._write(context))
        try:
            await asyncio.wait({reader, writer, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
        finally:
            self._hub.close(self._stream)
            tasks = [reader, writer, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, requests: AsyncIterator[cdcpb.ChangeDataRequest]) -> None:
        async for request in requests:
            scan = self._hub.request(self._stream, request)
            if scan is not None:
                task = asyncio.ensure_future(self._scan(scan))
                self._tasks.add(task)
                task.add_done_callback(self._scanned)

    def _scanned(self, task: asyncio.Task[None]) -> None:
        """End the stream if a scan has failed: its client would wait for it forever."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self._failed.done():
            self._failed.set_exception(task.exception() or RuntimeError("the scan failed"))

    async def _scan(self, scan: Scan) -> None:
        batches = scan.batches()
        try:
            async with self._scans:
                for events in batches:
                    for event in events:
                        self._stream.send_event(event)
                    while len(self._stream.outbox) > OUTBOX_EVENTS:
                        self._room.clear()
                        await self._room.wait()
                    await asyncio.sleep(0)
        finally:
            batches.close()
            scan.close()

    async def _write(self, context: grpc.aio.ServicerContext) -> None:
        while True:
            message = self._stream.take_message(self._max_events)
            if message is None:
                self._something.clear()
                await self._something.wait()
                continue
            if len(self._stream.outbox) <= OUTBOX_EVENTS:
                self._room.set()
            await context.write(message)
