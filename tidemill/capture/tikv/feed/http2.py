"""The subset of HTTP/2 that one long gRPC stream needs, on asyncio.

One connection carries one stream, of EventFeed or another call. Received bytes go through the `deframe` kernel, which concatenates the
messages; Python handles only control frames. It is made for many small messages: a read of 256 KiB costs the same for one message as for
a thousand. While the inbox is full, no WINDOW_UPDATE is sent, so at most the inbox and one window are buffered. PINGs are still answered.
"""

from __future__ import annotations

import asyncio
import enum
import ssl
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast
from urllib.parse import unquote

import hpack
import numpy as np

from tidemill.capture.tikv.client.dns import addresses_of
from tidemill.capture.tikv.client.tls import HTTP2, Security
from tidemill.capture.tikv.feed.base import CANCELLED, UNAVAILABLE, UNKNOWN, Call, FeedEnd, Method
from tidemill.capture.tikv.receive.decode import PAD, Packed
from tidemill.capture.tikv.receive.memory import BUFFER, Array, Buffers
from tidemill.errors import TidemillError
from tidemill.kernels.address import address
from tidemill.kernels.receive import layout as L
from tidemill.kernels.receive.deframe import deframe

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WINDOW = 16 << 20  # flow-control window in bytes, by default: these bytes must be taken even after the inbox is full
FRAME = 1 << 20  # largest DATA frame
READ = 256 << 10
LARGEST = 512 << 20  # of a message: one row is 2 x 120 MiB at most
OUT = BUFFER  # bytes in which messages are gathered
FLUSH = 0.01  # seconds to wait for more small messages: handing over a few costs as much as many, and the loop would do nothing else
GATHER = 0.05  # the same while there are rows alone: until a resolved ts comes they only wait
MUCH = 128 << 10  # bytes that came since the last time: more follow at once, so that it is not worth a look at each message
SMALL = 256  # bytes of a message: below it may be the end of a scan or an error
RESOLVED = 2 << 3 | 2  # how a message begins that brings resolved ts alone
CONNECT_TIMEOUT = 5.0
KEEPALIVE, KEEPALIVE_TIMEOUT = 10.0, 3.0
FIRST_WINDOW, FIRST_FRAME = 65535, 16384  # of the peer, until it sends its settings
ENDS = 16384  # messages of one read at most, before they are handed over


class Frame(enum.IntEnum):
    """HTTP/2 frame types."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


FRAME_HEAD = 9  # bytes
TLS_ALERT = b"\x15\x03"  # how a server that wants TLS begins its answer
END_STREAM = ACK = 1
END_HEADERS, PADDED, PRIORITY = 4, 8, 32


class Setting(enum.IntEnum):
    """HTTP/2 settings that matter here."""

    ENABLE_PUSH = 2
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """An HTTP/2 frame."""
    return struct.pack(">I", len(payload) << 8 | kind) + struct.pack(">BI", flags, stream) + payload


class Receiver(Protocol):
    """Takes the messages of streams; `tidemill.capture.tikv.feed.inbox` is one."""

    def put(self, stream: int, message: Packed, /) -> bool:
        """Take messages, on the event loop. False: that is enough for now; the stream stops reading until `when_room` calls back."""

    def when_room(self, call: Callable[[], object], /) -> None:
        """Call `call`, in any thread, when there is room again."""


class H2Feed(asyncio.BufferedProtocol):
    """A stream over HTTP/2. Made by `connect`. `buffers`: where the memory of messages comes from. `largest`: bytes of a message. `memory`:
    returns so many bytes for a large one, instead of `buffers`; an OSError or TidemillError that it raises ends the stream."""

    def __init__(
        self,
        slot: int,
        inbox: Receiver,
        authority: str,
        method: Call,
        secure: bool = False,
        window: int = WINDOW,
        largest: int = LARGEST,
        buffers: Buffers | None = None,
        memory: Callable[[int], Array] | None = None,
    ) -> None:
        self.slot, self.inbox = slot, inbox
        self._our_window, self._largest, self._memory = window, largest, memory
        self._buffers = buffers or Buffers()
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[FeedEnd] = self._loop.create_future()
        self._headers = [
            (":method", "POST"), (":scheme", "https" if secure else "http"), (":path", str(method)), (":authority", authority),
            ("te", "trailers"), ("content-type", "application/grpc"), ("user-agent", "tidemill"), *method.metadata,
        ]  # fmt: skip
        self._hpack = hpack.Decoder()
        self._received = bytearray(READ + PAD)
        self._view = memoryview(self._received)[:READ]
        self._base = address(np.frombuffer(self._received, np.uint8))
        self._have = 0
        self._state: Array = np.zeros(L.D_WORDS, np.int64)
        self._state[L.D_MSG], self._state[L.D_STREAM] = -1, 1
        self._frames: Array = np.zeros((L.D_CONTROLS, 4), np.int64)
        self._ends: Array = np.empty(ENDS, np.int64)
        self._out = self._buffers.take(OUT)
        self._is_borrowed = True  # `_out` is of `_buffers`
        self._timer: asyncio.TimerHandle | None = None
        self._keepalive: asyncio.TimerHandle | None = None
        self._examined, self._hurries = 0, False  # messages since the last flush, and whether one of them does not wait for long
        self._credit = 0  # DATA bytes for which no WINDOW_UPDATE has been sent
        self._held = False  # the inbox is full
        self._to_send: deque[bytes] = deque()
        self._no_more = False  # nothing is sent after what is queued
        self._window = {0: FIRST_WINDOW, 1: FIRST_WINDOW}
        self._peer_window, self._peer_frame = FIRST_WINDOW, FIRST_FRAME
        self._block = b""
        self._status: dict[str, str] = {}
        self._last_block = False  # the header block being read ends the stream
        self._heard = True  # something was received since the last PING
        self._greeted = False
        self._began = 0  # where the current kernel call began in the read buffer
        self._transport: asyncio.Transport

    # ------------------------------------------------------------------ asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        asked = Setting.ENABLE_PUSH, 0, Setting.INITIAL_WINDOW_SIZE, self._our_window, Setting.MAX_FRAME_SIZE, FRAME
        settings = struct.pack(">HIHIHI", *asked)
        block = hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(k, v) for k, v in self._headers])
        self._transport.write(
            PREFACE
            + frame(Frame.SETTINGS, 0, 0, settings)
            + frame(Frame.WINDOW_UPDATE, 0, 0, struct.pack(">I", self._our_window - FIRST_WINDOW))
            + frame(Frame.HEADERS, END_HEADERS, 1, block)
        )
        self._keepalive = self._loop.call_later(KEEPALIVE, self._ping)

    def _ping(self) -> None:
        self._heard = False
        self._transport.write(frame(Frame.PING, 0, 0, b"tidemill"))
        self._keepalive = self._loop.call_later(KEEPALIVE_TIMEOUT, self._expect_pong)

    def _expect_pong(self) -> None:
        if self._heard:
            self._keepalive = self._loop.call_later(KEEPALIVE - KEEPALIVE_TIMEOUT, self._ping)
        else:
            self._end(FeedEnd(UNAVAILABLE, "the server is silent and does not answer PING"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        state = self._state
        self._heard = True  # the answer to a PING may be queued behind megabytes of rows
        if not self._greeted and not self._greeting(self._have + nbytes):
            self._have += nbytes
            return
        at = self._deframe(self._have + nbytes)
        if at is None:
            return
        have = self._have + nbytes
        if at:
            self._received[: have - at] = self._received[at:have]
        self._have = have - at
        if self._have == READ:
            self._end(FeedEnd(UNKNOWN, "a control frame is larger than the receive buffer"))
            return
        self._credit += int(state[L.D_DATA])
        state[L.D_DATA] = 0
        self._give_credit()
        if state[L.D_OUT] >= OUT - READ:
            self.flush()
        elif state[L.D_MSGS]:
            self._flush_soon(int(state[L.D_MSGS]))
        if state[L.D_END] and not state[L.D_LEFT]:
            self._end(FeedEnd(UNKNOWN, "the stream ended without trailers"))

    def _flush_soon(self, messages: int) -> None:
        """Hand the messages over in a moment, or a little later as long as all are rows."""
        if not self._hurries and (self._state[L.D_OUT] > MUCH or self._hurry(self._examined, messages)):
            self._hurries = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        self._examined = messages
        if self._timer is None:
            self._timer = self._loop.call_later(FLUSH if self._hurries else GATHER, self.flush)

    @property
    def waiting(self) -> int:
        """How many whole messages are not handed over yet."""
        return int(self._state[L.D_MSGS])

    def _hurry(self, first: int, last: int) -> bool:
        """Whether a message from the first up to the last one brings something other than rows."""
        begins: Array = np.zeros(last - first, np.int64)
        begins[int(first == 0) :] = self._ends[max(first - 1, 0) : last - 1]
        return bool(((self._out[begins] == RESOLVED) | (self._ends[first:last] - begins < SMALL)).any())

    def _greeting(self, have: int) -> bool:
        """Return whether the peer speaks HTTP/2: its first frame must be SETTINGS. If not, the end names what it speaks instead."""
        first = bytes(self._received[: min(have, 60)])
        wants_tls = first[:2] == TLS_ALERT
        if have < FRAME_HEAD and not wants_tls:
            return False
        self._greeted = first[3:4] == bytes([Frame.SETTINGS]) and not any(first[5:9])
        if not self._greeted:
            text = "it wants TLS" if wants_tls else f"its answer begins with {first!r}"
            self._end(FeedEnd(UNAVAILABLE, f"the server does not speak HTTP/2: {text}"))
        return self._greeted

    def _deframe(self, have: int) -> int | None:
        """Process `have` received bytes. Return how many are done; None: the stream has ended."""
        state = self._state
        at = 0
        while True:
            self._began = at
            at += deframe(
                address(state), self._base + at, have - at, address(self._out), len(self._out) - PAD, address(self._ends), ENDS,
                address(self._frames),
            )  # fmt: skip
            controls = int(state[L.D_CTL])
            if controls:
                self._controls()
                if self.ended.done():
                    return None
            if state[L.D_ERROR]:
                self._end(FeedEnd(UNKNOWN, f"protocol error {state[L.D_ERROR]} in DATA frames"))
                return None
            if state[L.D_NEED] or state[L.D_MSGS] == ENDS:
                self.flush()
                if self.ended.done():
                    return None
            elif controls < L.D_CONTROLS:
                return int(at)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(FeedEnd(UNAVAILABLE, str(exc or "connection closed")))

    # ------------------------------------------------------------------ messages

    def flush(self) -> None:
        """Hand over the complete messages. Begin a new buffer with the part of an incomplete one."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._examined, self._hurries = 0, False
        state = self._state
        n, end = int(state[L.D_MSGS]), int(state[L.D_OUT])
        done = int(self._ends[n - 1]) if n else 0
        full = False
        if n:
            buffers = self._buffers if self._is_borrowed else None
            full = not self.inbox.put(self.slot, Packed(self._out, self._ends[:n].copy(), buffers))
        need = max(OUT, int(state[L.D_NEED]) - done + PAD)
        if need > self._largest and not self.ended.done():
            state[L.D_OUT], state[L.D_MSGS], state[L.D_NEED] = 0, 0, 0
            self._end(FeedEnd(UNKNOWN, f"a message of {need} bytes is announced; no server sends more than {self._largest}"))
            return
        if n or need > len(self._out):
            was_borrowed = self._is_borrowed
            try:
                fresh = self._room(need, fills=2 * end >= len(self._out))
            except (OSError, TidemillError) as e:
                state[L.D_OUT], state[L.D_MSGS], state[L.D_NEED] = 0, 0, 0
                self._end(FeedEnd(UNAVAILABLE, f"a message of {need} bytes is announced: {e}"))
                return
            fresh[: end - done] = self._out[done:end]  # nobody has written there: only this thread takes buffers
            if not n and was_borrowed:
                self._buffers.give(self._out)
            self._out = fresh
        state[L.D_OUT], state[L.D_MSGS] = end - done, 0
        if full and not self._held:
            self._held = True
            self.inbox.when_room(lambda: self._loop.call_soon_threadsafe(self._go_on))

    def _room(self, size: int, *, fills: bool) -> Array:
        if self._memory is not None and size > OUT:
            self._is_borrowed = False
            return self._memory(size)
        self._is_borrowed = True
        return self._buffers.take(size, fills=fills)

    def _go_on(self) -> None:
        self._held = False
        self._give_credit()

    def _give_credit(self) -> None:
        if self._credit >= self._our_window // 4 and not self._held and not self.ended.done():
            credit = struct.pack(">I", self._credit)
            self._transport.write(frame(Frame.WINDOW_UPDATE, 0, 0, credit) + frame(Frame.WINDOW_UPDATE, 0, 1, credit))
            self._credit = 0

    # ------------------------------------------------------------------ control frames

    def _controls(self) -> None:
        frames = self._frames[: self._state[L.D_CTL]].tolist()
        self._state[L.D_CTL] = 0
        for kind, flags, stream, where in frames:
            offset, n = (where >> 32) + self._began, where & 0xFFFFFFFF  # offsets count from where that kernel call began
            try:
                self._control(kind, flags, stream, bytes(self._received[offset : offset + n]))
            except (struct.error, ValueError, IndexError) as e:
                self._end(FeedEnd(UNKNOWN, f"an HTTP/2 frame of type {kind} cannot be read: {e}"))
            if self.ended.done():
                return

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == Frame.SETTINGS:
            if not flags & ACK:
                self._settings(payload)
        elif kind == Frame.PING:
            if not flags & ACK:
                self._transport.write(frame(Frame.PING, ACK, 0, payload))
        elif kind == Frame.WINDOW_UPDATE:
            self._window[stream] = self._window.get(stream, 0) + int.from_bytes(payload, "big")
            self._pump()
        elif kind in (Frame.HEADERS, Frame.CONTINUATION):
            self._header_block(kind, flags, payload)
        elif kind == Frame.RST_STREAM:
            self._end(FeedEnd(UNAVAILABLE, f"the server reset the stream with HTTP/2 code {int.from_bytes(payload, 'big')}"))
        elif kind == Frame.GOAWAY:
            code, text = int.from_bytes(payload[4:8], "big"), payload[8:].decode(errors="replace")
            self._end(FeedEnd(UNAVAILABLE, f"the server closes the connection with HTTP/2 code {code} {text}".rstrip()))

    def _settings(self, payload: bytes) -> None:
        for key, value in struct.iter_unpack(">HI", payload):
            if key == Setting.INITIAL_WINDOW_SIZE:
                self._window[1] += value - self._peer_window
                self._peer_window = value
            elif key == Setting.MAX_FRAME_SIZE:
                self._peer_frame = value
        self._transport.write(frame(Frame.SETTINGS, ACK, 0))
        self._pump()

    def _header_block(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == Frame.HEADERS:
            if flags & PADDED:
                payload = payload[1 : len(payload) - payload[0]]
            if flags & PRIORITY:
                payload = payload[5:]
            self._last_block = bool(flags & END_STREAM)
        self._block += payload
        if not flags & END_HEADERS:
            return
        try:
            self._status.update((str(k), str(v)) for k, v in self._hpack.decode(self._block))
        except hpack.HPACKError as e:
            self._end(FeedEnd(UNKNOWN, f"headers cannot be read: {e}"))
            return
        self._block = b""
        http = self._status.get(":status", "200")
        if http != "200":
            self._end(FeedEnd(UNAVAILABLE, f"HTTP status {http}"))
        elif self._last_block:
            self._end(FeedEnd(int(self._status.get("grpc-status", UNKNOWN)), unquote(self._status.get("grpc-message", ""))))

    # ------------------------------------------------------------------ requests

    def send(self, request: bytes, *, last: bool = False) -> None:
        """Queue a request. It waits for the peer's flow control. `last`: none comes after it."""
        self._no_more = last
        self._to_send.append(struct.pack(">BI", 0, len(request)) + request)
        self._pump()

    def _pump(self) -> None:
        while self._to_send and not self.ended.done():
            message = self._to_send[0]
            k = min(len(message), self._peer_frame, self._window[0], self._window[1])
            if k <= 0:
                return
            ends = END_STREAM if self._no_more and len(self._to_send) == 1 and k == len(message) else 0
            self._transport.write(frame(Frame.DATA, ends, 1, message[:k]))
            self._window[0] -= k
            self._window[1] -= k
            if k == len(message):
                self._to_send.popleft()
            else:
                self._to_send[0] = message[k:]

    def _end(self, end: FeedEnd) -> None:
        if self.ended.done():
            return
        state = self._state
        complete = int(state[L.D_MSGS])
        state[L.D_OUT], state[L.D_NEED] = int(self._ends[complete - 1]) if complete else 0, 0  # the rest of a message does not come
        self.flush()
        if not self.ended.done():  # without memory, `flush` has ended the stream
            self.ended.set_result(end)
        for timer in (self._timer, self._keepalive):
            if timer:
                timer.cancel()
        self._transport.close()

    def cancel(self) -> None:
        """End the stream."""
        if not self.ended.done():
            self._transport.write(frame(Frame.RST_STREAM, 0, 1, struct.pack(">I", 8)))
            self._end(FeedEnd(CANCELLED, "cancelled"))


async def connect(
    address: str,
    slot: int,
    inbox: Receiver,
    method: Call = Method.V2,
    security: Security | None = None,
    window: int = WINDOW,
    largest: int = LARGEST,
    buffers: Buffers | None = None,
    memory: Callable[[int], Array] | None = None,
) -> H2Feed:
    """Open a stream to the server at `host:port`. Raises ConfigError, OSError (including TimeoutError; ssl.SSLError if TLS fails)."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    loop = asyncio.get_running_loop()
    context = security.context() if security is not None else None

    def make() -> H2Feed:
        secure = context is not None
        return H2Feed(slot, inbox, address, method, secure=secure, window=window, largest=largest, buffers=buffers, memory=memory)

    tls: dict[str, Any] = {} if context is None else {"ssl": context, "server_hostname": host}
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            made = await _first(loop, make, await addresses_of(host, int(port)), int(port), tls)
    except TimeoutError:
        raise TimeoutError(f"no connection to {address} within {CONNECT_TIMEOUT:.0f} s") from None
    transport, feed = made
    if context is not None and transport.get_extra_info("ssl_object").selected_alpn_protocol() != HTTP2:
        feed.cancel()
        raise ConnectionError(f"{address} does not speak HTTP/2 over TLS")
    return feed


async def _first(
    loop: asyncio.AbstractEventLoop, make: Callable[[], H2Feed], addresses: Sequence[str], port: int, tls: Mapping[str, Any]
) -> tuple[Any, H2Feed]:
    """Connect to the first of these addresses that accepts. Raises OSError."""
    failure = OSError("the name has no address")
    for ip in addresses:
        try:
            return await loop.create_connection(make, ip, port, **tls)
        except ssl.SSLError:
            raise
        except OSError as e:
            failure = e
    raise failure
