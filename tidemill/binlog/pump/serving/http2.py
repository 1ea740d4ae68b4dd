"""Sockets beside the machine of HTTP/2: what is received goes in, what comes out is sent; calls go to the service.

A connection is not read while the peer does not read, and none is while too much waits to be written.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from itertools import count
from typing import Any, cast

from google.protobuf.message import DecodeError

from tidemill.binlog.http2.connection import Call, Cancelled, Connection
from tidemill.binlog.http2.frames import Status
from tidemill.binlog.pump.faults import PumpFailed, PumpRefused
from tidemill.binlog.pump.port import Guest
from tidemill.binlog.pump.serving.service import PullRefused, PumpService
from tidemill.binlog.pump.store import Store
from tidemill.errors import MalformedMessage
from tidemill.kernels.pump import layout as L
from tidemill.wire import pump_pb2

HELD_BYTES = 64 << 20
"""Bytes of binlogs that may wait to be written before nothing more is read."""
HIGH_WATER = 4 << 20
"""Bytes that wait for a socket before nothing more is read from it, or pulled for it."""
PULL_AHEAD = 256 << 10
"""A stream of PullBinlogs reads on when less than this waits for the peer's windows."""
UNFINISHED_BYTES = 256 << 20
"""Bytes of requests that are not complete, of all connections; one connection may have more while no other has any."""
EXPIRY_S = 30.0
"""Seconds in which a request has to go on, and a peer to read."""
STRANGER_S = 60.0
"""Seconds for the first whole request of a connection."""
IDLE_S = 3600.0
"""Seconds without a call, after which a connection ends; clients of gRPC open another one by themselves."""

_log = logging.getLogger(__name__)


class Http2Server:
    """All connections. `largest`: bytes of a message at most."""

    def __init__(self, service: PumpService, store: Store, largest: int) -> None:
        self.service, self.store, self.largest = service, store, largest
        self._slots = count(1)
        self._connections: dict[int, _Http2] = {}
        self._held: list[_Http2] = []
        self._gone = asyncio.Event()
        self._unfinished = 0
        store.written = self._written

    def protocol(self, guest: Guest) -> asyncio.Protocol:
        """The protocol of a new connection."""
        slot = next(self._slots)
        made = _Http2(self, slot, guest)
        self._connections[slot] = self.store.answerers[slot] = made
        return made

    def forget(self, slot: int) -> None:
        """A connection is lost."""
        del self._connections[slot], self.store.answerers[slot]
        self._gone.set()

    def count(self, connection: _Http2, more: int) -> None:
        """A connection holds more bytes, or less, of requests that are not complete. Too many of all: one that has made no request ends,
        else the one that holds most."""
        self._unfinished += more
        while more > 0 and self._unfinished > UNFINISHED_BYTES:
            holders = [one for one in self._connections.values() if one.unfinished]
            if len(holders) < 2:
                return
            max(holders, key=lambda one: (one.is_stranger, one.unfinished)).give_up("requests that are not complete take too much memory")

    def hold(self, connection: _Http2) -> bool:
        """Whether too much waits to be written; then the connection is told when that is over."""
        if self.store.groups.held <= HELD_BYTES:
            return False
        self._held.append(connection)
        return True

    def _written(self) -> None:
        if self._held and self.store.groups.held <= HELD_BYTES // 2:
            held, self._held = self._held, []
            for connection in held:
                connection.go_on()

    async def close(self, seconds: float) -> None:
        """Take no more calls, and wait until those that have begun are over."""
        for connection in list(self._connections.values()):
            connection.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._connections:
                    self._gone.clear()
                    await self._gone.wait()


class _Http2(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: Http2Server, slot: int, guest: Guest) -> None:
        self._server, self._slot, self._guest = server, slot, guest
        self._machine = Connection(slot, server.store.groups, largest=server.largest)
        self._pulls: dict[int, asyncio.Task[None]] = {}
        self._room = asyncio.Event()
        self._full = self._held = False
        self._requests = self._requests_at = 0
        self._called_at = 0.0
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None
        self.unfinished = 0
        """Bytes that the server counts for this connection."""
        self._transport: asyncio.Transport

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HIGH_WATER)
        self._called_at = asyncio.get_running_loop().time()
        self._arm()
        self._send()

    def data_received(self, data: bytes) -> None:
        server, machine = self._server, self._machine
        if server.store.failure.done():
            self._transport.abort()
            return
        server.service.open_for(server.store.groups)
        before = machine.taken
        events = machine.receive(data)
        if machine.taken > before:
            server.service.wrote()
            server.store.wake()
        for event in events:
            if isinstance(event, Cancelled):
                if (task := self._pulls.pop(event.stream, None)) is not None:
                    task.cancel()
            elif event.path == L.WRITE:
                self._write(event)
            else:
                self._pulls[event.stream] = asyncio.ensure_future(self._pull(event))
        self._send()
        self._count()
        if machine.requests and not self._requests:
            self._guest.known()
        self._requests = machine.requests
        if self._pulls:
            self._room.set()
        if server.hold(self):
            self._held = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._full = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        self._room.set()
        self._read_on()

    def go_on(self) -> None:
        """Less waits to be written."""
        self._held = False
        self._read_on()

    def _read_on(self) -> None:
        if not self._full and not self._held and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        for task in self._pulls.values():
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._server.forget(self._slot)
        self._server.count(self, -self.unfinished)
        self._guest.lost()

    # what takes too much, or too long

    @property
    def is_stranger(self) -> bool:
        """Whether the client has made no whole request."""
        return not self._machine.requests

    def _count(self) -> None:
        more, self.unfinished = self._machine.unfinished - self.unfinished, self._machine.unfinished
        self._server.count(self, more)

    def give_up(self, message: str) -> None:
        """End the connection."""
        self._machine.give_up(message)
        self._count()
        self._send()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(EXPIRY_S, self._expire)

    def _expire(self) -> None:
        self._arm()
        transport, machine = self._transport, self._machine
        unsent, self._unsent = self._unsent, transport.get_write_buffer_size()
        if transport.is_closing() or (self._full and self._unsent >= unsent > 0):
            transport.abort()  # the peer does not read
            return
        if self._full or self._held:
            return
        machine.expire()
        now = asyncio.get_running_loop().time()
        if machine.open or machine.requests != self._requests_at:
            self._called_at, self._requests_at = now, machine.requests
        elif now - self._called_at >= (STRANGER_S if self.is_stranger else IDLE_S):
            machine.close()
        self._count()
        self._send()

    def _send(self) -> None:
        output = self._machine.sender.output
        if output and not self._transport.is_closing():
            if len(output) == 1:
                self._transport.write(output[0])
            else:
                self._transport.writelines(output)
            self._machine.sender.output = []
        if self._machine.over is not None:
            _log.warning("%s: %s", self._transport.get_extra_info("peername"), self._machine.over.message)
            self._transport.close()
        elif self._machine.idle:
            self._transport.close()

    def close(self) -> None:
        """Take no more calls. Streams of Drainers end: they come back when there is a Pump again."""
        self._machine.close()
        for stream, task in list(self._pulls.items()):
            task.cancel()
            self._machine.refuse(stream, Status.UNAVAILABLE, "this Pump ends")
        self._send()

    # what the store says

    def answer_marks(self, marks: Any) -> None:
        """Binlogs of this connection are on the disk."""
        self._machine.answer_marks(marks)
        self._send()

    def refuse_marks(self, marks: Any, text: str) -> None:
        """Binlogs of this connection could not be written."""
        self._machine.refuse_marks(marks, Status.UNKNOWN, text)
        self._send()

    # calls

    def _write(self, call: Call) -> None:
        """A WriteBinlog that no kernel took."""
        machine, store = self._machine, self._server.store
        try:
            request = pump_pb2.WriteBinlogReq.FromString(call.message)
            head = self._server.service.admit(request.clusterID, request.payload)
        except DecodeError as error:
            machine.refuse(call.stream, Status.INTERNAL, f"{len(call.message)} bytes are not a WriteBinlogReq: {error}")
        except (PumpRefused, PumpFailed, MalformedMessage) as error:
            machine.refuse(call.stream, Status.UNKNOWN, error.message)
        else:
            if head is None:
                machine.answer(call.stream, b"")
            else:
                waits = machine.entrust(call.stream)  # a call and its cancellation may come together
                store.groups.add(request.payload, head, *((self._slot, call.stream) if waits else (0, 0)))
                store.wake()

    async def _pull(self, call: Call) -> None:
        machine, stream = self._machine, call.stream
        try:
            request = pump_pb2.PullBinlogReq.FromString(call.message)
            machine.open_answer(stream)
            async with aclosing(self._server.service.pull(request)) as batches:
                async for batch in batches:
                    machine.send(stream, batch.messages)
                    self._send()
                    while self._full or machine.waiting(stream) > PULL_AHEAD:
                        self._room.clear()
                        await self._room.wait()
        except DecodeError as error:
            machine.refuse(stream, Status.INTERNAL, f"{len(call.message)} bytes are not a PullBinlogReq: {error}")
        except PullRefused as refused:
            machine.refuse(stream, refused.status, refused.message)
        finally:
            self._pulls.pop(stream, None)
        self._send()
