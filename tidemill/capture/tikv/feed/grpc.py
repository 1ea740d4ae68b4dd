"""An EventFeed stream through grpc.aio."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import grpc

from tidemill.capture.tikv.feed.base import CANCELLED, FeedEnd, Method
from tidemill.capture.tikv.feed.inbox import Inbox


class GrpcFeed:
    """A stream through grpc.aio, on its own channel, so that it survives replaced certificates. A full inbox stops the reading, so HTTP/2
    flow control stops the store."""

    def __init__(self, channel: Any, slot: int, inbox: Inbox, method: Method) -> None:
        self.slot, self.inbox = slot, inbox
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[FeedEnd] = loop.create_future()
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        call = channel.stream_stream(str(method), request_serializer=None, response_deserializer=None)
        self._call = call(metadata=tuple(method.metadata) or None)
        self._tasks = [loop.create_task(self._write()), loop.create_task(self._read())]
        self._closing = loop.create_task(self._close(channel))

    def send(self, request: bytes) -> None:
        """Queue a request."""
        self._requests.put_nowait(request)

    def cancel(self) -> None:
        """End the stream."""
        self._end(FeedEnd(CANCELLED, "cancelled"))

    def _end(self, end: FeedEnd) -> None:
        if not self.ended.done():
            self.ended.set_result(end)
            self._call.cancel()
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()

    async def _close(self, channel: Any) -> None:
        await asyncio.wait([self.ended])
        await channel.close()

    async def _write(self) -> None:
        try:
            while True:
                await self._call.write(await self._requests.get())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the reader gets the reason

    async def _read(self) -> None:
        loop, read, put, slot = asyncio.get_running_loop(), self._call.read, self.inbox.put, self.slot
        try:
            while (message := await read()) is not grpc.aio.EOF:
                if not put(slot, message):
                    room = asyncio.Event()
                    self.inbox.when_room(partial(loop.call_soon_threadsafe, room.set))
                    await room.wait()
            status, details = await self._call.code(), await self._call.details()
        except grpc.aio.AioRpcError as e:
            status, details = e.code(), e.details()
        self._end(FeedEnd(status.value[0], f"{status.name} {details or ''}".rstrip()))
