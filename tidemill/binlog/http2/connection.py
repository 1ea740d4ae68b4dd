"""One connection of a client: frames in, calls and binlogs out; answers in, frames out. A state machine without IO.

Calls of WriteBinlog that are as usual go into the group by the kernel `intake`, and are not events. All other frames are read here, and so
is everything where `plain` is set: that is the kernel's reference.

What a peer can make it hold is bounded: streams, bytes of a block of headers, bytes of requests that have begun. A stream's window is as
large as the rest of its request only while few do that. A peer that breaks the rules is told so by GOAWAY, and its connection is over.

Deadlines of calls (`grpc-timeout`) are the client's affair: it resets the stream.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tidemill.binlog.groups import Groups
from tidemill.binlog.http2 import frames as F
from tidemill.binlog.http2.frames import HEAD, PREFIX, Code, Frame, Setting, Status
from tidemill.binlog.http2.headers import SCRATCH, CallHeaders, Headers, KernelHeaders, PeerFault, PlainHeaders
from tidemill.binlog.http2.sending import Sender
from tidemill.kernels.address import address
from tidemill.kernels.pump import layout as L
from tidemill.kernels.pump.intake import intake

MOST_STREAMS = 1024
STREAM_WINDOW = F.FIRST_WINDOW
CONNECTION_WINDOW = 8 << 20
GRANTED = 64 << 20
"""Bytes of requests larger than STREAM_WINDOW that may be on their way at a time; one alone may be larger."""
MOST_CONTINUATIONS = 64
MOST_RESETS = 1000
"""Calls that a peer may reset beyond the number of its requests."""
LEAST_PROGRESS = 64 << 10
"""Bytes of a request that have to come between two calls of `expire`, unless it is complete then."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call whose request is complete. `path`: WRITE or PULL."""

    stream: int
    path: int
    message: bytes


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client does not want the answer of a call any more."""

    stream: int


Event = Call | Cancelled


@dataclass(slots=True)
class Stream:
    """A call that is not the kernel's. `window`: bytes that the client may still send on it; `granted`: how many were added to it."""

    id: int
    path: int
    encoding: int = 0
    window: int = STREAM_WINDOW
    granted: int = 0
    parts: bytearray = field(default_factory=bytearray)
    want: int = -1
    complete: bool = False
    """The client has sent everything."""
    at_expiry: int = -1
    """Bytes of the request that were there at the last `expire`; -1: it had not begun."""


class Connection:
    """`slot`: its number, in the marks of its binlogs. `largest`: bytes of a request at most."""

    def __init__(self, slot: int, groups: Groups, *, largest: int = F.LARGEST_WINDOW, plain: bool = False) -> None:
        self.slot, self._groups, self._largest, self._plain = slot, groups, largest, plain
        self._state: Any = np.zeros(L.C_WORDS, np.int64)
        self._state[L.C_MOST_OPEN] = MOST_STREAMS
        self._state_at = address(self._state)
        self._kernel_headers = KernelHeaders(self._state)
        self._headers: Headers = PlainHeaders() if plain else self._kernel_headers
        self.sender = Sender(plain=plain)
        self.over: PeerFault | None = None
        """What the peer did wrong, if that ended the connection."""
        self.taken = 0
        """Binlogs that went into groups."""
        self.requests = 0
        """Requests that were complete."""
        self.unfinished = 0
        """Bytes held of requests that have begun and are not complete."""
        self._left = b""
        self._greeted = self._settled = self._closing = False
        self._streams: dict[int, Stream] = {}
        self._block, self._block_stream, self._block_flags, self._continuations = b"", 0, 0, 0
        self._granted = 0
        self._ungranted: deque[int] = deque()
        self._resets = 0
        self._expired_to = -1
        self._block_at_expiry, self._left_at_expiry = 0, b""
        self._events: list[Event] = []
        self.sender.output.append(
            F.settings({
                Setting.MAX_CONCURRENT_STREAMS: MOST_STREAMS, Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                Setting.MAX_HEADER_LIST_SIZE: L.LIST_LIMIT,
            })
            + F.window_update(0, CONNECTION_WINDOW - F.FIRST_WINDOW)
        )  # fmt: skip

    @property
    def open(self) -> int:
        """Calls that are not over."""
        return int(self._state[L.C_OPEN])

    @property
    def idle(self) -> bool:
        """Whether it was closed, and all its calls are over."""
        return self._closing and self.open == 0

    # received bytes

    def receive(self, data: bytes) -> list[Event]:
        """Take received bytes. Return what is for the service. Look at `over` and at `sender.output` afterwards."""
        self._events = []
        if self.over is not None:
            return []
        if self._left:
            data = self._left + data
        at = 0
        try:
            if not self._greeted:
                at = self._greet(data)
            if self._greeted:
                at = self._frames(data, at)
                self._credit()
            for stream in self.sender.flush():
                self._gone(stream)
        except PeerFault as fault:
            self._end(fault)
        self._left = data[at:] if at else data
        return self._events

    def give_up(self, message: str) -> None:
        """End the connection of a peer that takes too much."""
        if self.over is None:
            self._end(PeerFault(Code.ENHANCE_YOUR_CALM, message))

    def _end(self, fault: PeerFault) -> None:
        self.over = fault
        for stream in self._streams.values():
            stream.parts = bytearray()
        self.unfinished = 0
        self.sender.output.append(F.goaway(int(self._state[L.C_LAST]), fault.why, fault.message))

    def _greet(self, data: bytes) -> int:
        if data[: len(F.PREFACE)] != F.PREFACE[: len(data)]:
            raise PeerFault(Code.PROTOCOL_ERROR, "the connection does not begin as HTTP/2 does")
        self._greeted = len(data) >= len(F.PREFACE)
        return len(F.PREFACE) if self._greeted else 0

    def _frames(self, data: bytes, at: int) -> int:
        """Take whole frames. Returns where the first one begins that is not whole. Raises PeerFault."""
        base, end = address(np.frombuffer(data, np.uint8)), len(data)
        while True:
            if self._settled and not self._plain and not self._block_stream:
                at, outcome = self._intake(base, at, end)
                if outcome == L.MORE:
                    return at
                if outcome != L.FRAME_FOR_PYTHON:
                    continue
            if end - at < HEAD:
                return at
            length, kind, flags = int.from_bytes(data[at : at + 3], "big"), data[at + 3], data[at + 4]
            if length > F.LEAST_FRAME:
                raise PeerFault(Code.FRAME_SIZE_ERROR, f"a frame of {length} bytes is larger than {F.LEAST_FRAME}")
            if end - at - HEAD < length:
                return at
            stream = int.from_bytes(data[at + 5 : at + HEAD], "big") & F.LARGEST_WINDOW
            at += HEAD + length
            self._frame(kind, flags, stream, data[at - length : at])

    def _intake(self, base: int, at: int, end: int) -> tuple[int, int]:
        """Let the kernel take frames. Returns how far it came, and why it ended there. Raises PeerFault."""
        groups, state = self._groups, self._state
        at += intake(
            L.TABLES, self._state_at, base + at, end - at, groups.open.address, groups.policy_at, self.slot, F.LEAST_FRAME, SCRATCH
        )
        taken, outcome = int(state[L.C_TAKEN]), int(state[L.C_OUTCOME])
        if taken:
            self._taken(taken)
        if outcome == L.NO_ROOM:
            groups.next(int(state[L.C_NEED]))
        elif outcome == L.OPENED:
            self._call(int(state[L.C_STREAM]), int(state[L.C_FLAGS]), self._kernel_headers.last())
        elif outcome == L.BAD_HEADERS:
            raise PeerFault(Code.COMPRESSION_ERROR, "a block of headers cannot be read")
        return at, outcome

    def _taken(self, count: int) -> None:
        self.taken += count
        self.requests += count
        self._resets = max(0, self._resets - count)

    def _credit(self) -> None:
        """Let the client send more. Raises PeerFault."""
        credit = int(self._state[L.C_CREDIT])
        if credit > CONNECTION_WINDOW:
            raise PeerFault(Code.FLOW_CONTROL_ERROR, "more was sent than the connection's window allows")
        if credit >= CONNECTION_WINDOW // 4:
            self._state[L.C_CREDIT] = 0
            self.sender.output.append(F.window_update(0, credit))

    # frames

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._block_stream and (kind != Frame.CONTINUATION or stream != self._block_stream):
            raise PeerFault(Code.PROTOCOL_ERROR, f"a frame of type {kind} stands inside a block of headers")
        if not self._settled and kind != Frame.SETTINGS:
            raise PeerFault(Code.PROTOCOL_ERROR, f"the first frame is of type {kind}, not SETTINGS")
        match kind:
            case Frame.DATA:
                self._data(flags, stream, payload)
            case Frame.HEADERS:
                self._open_block(flags, stream, payload)
            case Frame.CONTINUATION:
                self._continue_block(flags, payload)
            case Frame.SETTINGS:
                self._settings(flags, stream, payload)
            case Frame.PING:
                self._ping(flags, stream, payload)
            case Frame.WINDOW_UPDATE:
                self._window(stream, payload)
            case Frame.RST_STREAM:
                self._reset(stream, payload)
            case Frame.PRIORITY:
                _sized(payload, 5, "PRIORITY", stream != 0)
            case Frame.GOAWAY:
                if stream or len(payload) < 8:
                    raise PeerFault(Code.PROTOCOL_ERROR, "GOAWAY is broken")
            case Frame.PUSH_PROMISE:
                raise PeerFault(Code.PROTOCOL_ERROR, "a client must not send PUSH_PROMISE")

    def _settings(self, flags: int, stream: int, payload: bytes) -> None:
        if stream:
            raise PeerFault(Code.PROTOCOL_ERROR, "SETTINGS are of no stream")
        if len(payload) % 6 or (flags & F.ACK and payload):
            raise PeerFault(Code.FRAME_SIZE_ERROR, f"SETTINGS have {len(payload)} bytes")
        if flags & F.ACK:
            if not self._settled:
                raise PeerFault(Code.PROTOCOL_ERROR, "the first SETTINGS must not be an answer")
            return
        self._settled = True
        for key, value in struct.iter_unpack(">HI", payload):
            if key == Setting.INITIAL_WINDOW_SIZE:
                self.sender.initial_window(value)
            elif key == Setting.MAX_FRAME_SIZE:
                if not F.LEAST_FRAME <= value <= F.LARGEST_FRAME:
                    raise PeerFault(Code.PROTOCOL_ERROR, f"SETTINGS_MAX_FRAME_SIZE is {value}")
                self.sender.frame_size(value)
            elif key == Setting.HEADER_TABLE_SIZE:
                self.sender.table_size(value)
            elif key == Setting.ENABLE_PUSH and value > 1:
                raise PeerFault(Code.PROTOCOL_ERROR, f"SETTINGS_ENABLE_PUSH is {value}")
        self.sender.output.append(F.frame(Frame.SETTINGS, F.ACK, 0))

    def _ping(self, flags: int, stream: int, payload: bytes) -> None:
        _sized(payload, 8, "PING", stream == 0)
        if not flags & F.ACK:
            self.sender.output.append(F.frame(Frame.PING, F.ACK, 0, payload))

    def _window(self, stream: int, payload: bytes) -> None:
        _sized(payload, 4, "WINDOW_UPDATE", True)
        increment = int.from_bytes(payload, "big") & F.LARGEST_WINDOW
        self._not_idle(stream, "WINDOW_UPDATE")
        if increment and self.sender.window(stream, increment):
            return
        if stream == 0:
            raise PeerFault(Code.PROTOCOL_ERROR, "WINDOW_UPDATE adds nothing")
        self._reset_stream(stream, Code.PROTOCOL_ERROR if not increment else Code.FLOW_CONTROL_ERROR)

    def _not_idle(self, stream: int, what: str) -> None:
        if stream > int(self._state[L.C_LAST]) or (stream and stream % 2 == 0):
            raise PeerFault(Code.PROTOCOL_ERROR, f"{what} is of stream {stream}, which was never opened")

    def _reset(self, stream: int, payload: bytes) -> None:
        _sized(payload, 4, "RST_STREAM", stream != 0)
        self._not_idle(stream, "RST_STREAM")
        if self._stream(stream) is not None:
            self._gone(stream)
            self._events.append(Cancelled(stream))
        elif self._groups.cancel(self.slot, stream):
            self._state[L.C_OPEN] -= 1
        else:
            return  # its answer is on its way
        self._resets += 1
        if self._resets > MOST_RESETS:
            raise PeerFault(Code.ENHANCE_YOUR_CALM, "too many calls were reset")

    # blocks of headers

    def _open_block(self, flags: int, stream: int, payload: bytes) -> None:
        if stream % 2 == 0:
            raise PeerFault(Code.PROTOCOL_ERROR, f"a client must not open stream {stream}")
        payload = _unpadded(flags, payload)
        if flags & F.PRIORITY_FLAG:
            if len(payload) < 5:
                raise PeerFault(Code.FRAME_SIZE_ERROR, "HEADERS have no room for their priority")
            payload = payload[5:]
        self._block, self._block_stream, self._block_flags, self._continuations = payload, stream, flags, 0
        if flags & F.END_HEADERS:
            self._close_block()

    def _continue_block(self, flags: int, payload: bytes) -> None:
        if not self._block_stream:
            raise PeerFault(Code.PROTOCOL_ERROR, "CONTINUATION continues nothing")
        self._block += payload
        self._continuations += 1
        if len(self._block) > L.BLOCK_LIMIT or self._continuations > MOST_CONTINUATIONS:
            raise PeerFault(Code.ENHANCE_YOUR_CALM, "a block of headers is too large")
        if flags & F.END_HEADERS:
            self._close_block()

    def _close_block(self) -> None:
        block, stream, flags = self._block, self._block_stream, self._block_flags
        self._block, self._block_stream = b"", 0
        headers = self._headers.decode(block)
        if stream > int(self._state[L.C_LAST]):
            self._state[L.C_LAST] = stream
            self._call(stream, flags, headers)
            return
        known = self._stream(stream)
        if known is None:
            return  # it was over; the client does not know yet
        if known.complete or not flags & F.END_STREAM:
            self._reset_stream(stream, Code.PROTOCOL_ERROR)
        else:
            self._complete(known)

    def _call(self, stream: int, flags: int, headers: CallHeaders) -> None:
        """A call begins."""
        if self._closing:
            return  # GOAWAY said that it is not looked at
        if self.open >= MOST_STREAMS:
            self.sender.output.append(F.rst_stream(stream, Code.REFUSED_STREAM))
            return
        if not headers.method or not headers.path:
            self.sender.output.append(F.rst_stream(stream, Code.PROTOCOL_ERROR))
            return
        call = Stream(stream, headers.path, headers.encoding, complete=bool(flags & F.END_STREAM))
        self._streams[stream] = call
        self._state[L.C_OPEN] += 1
        if headers.size > L.LIST_LIMIT:
            self.refuse(stream, Status.RESOURCE_EXHAUSTED, f"the headers have {headers.size} bytes, and may have {L.LIST_LIMIT}", 431)
        elif headers.method != L.POST:
            self.refuse(stream, Status.INTERNAL, "the method is not POST", 405)
        elif headers.type != L.GRPC:
            self.refuse(stream, Status.UNKNOWN, "the content-type is not application/grpc", 415)
        elif headers.path == L.OTHER_PATH:
            self.refuse(stream, Status.UNIMPLEMENTED, "unknown method: a Pump has binlog.Pump's WriteBinlog and PullBinlogs")
        elif call.complete:
            self._complete(call)

    # requests

    def _stream(self, stream: int) -> Stream | None:
        """A call that is read here; one of which the kernel knows only that it has begun becomes one."""
        known = self._streams.get(stream)
        if known is None:
            count = int(self._state[L.C_FRESH])
            fresh = self._state[L.C_STREAMS : L.C_STREAMS + count]
            found = np.flatnonzero(fresh == stream)
            if len(found):
                fresh[found[0] : -1] = fresh[found[0] + 1 :].copy()
                self._state[L.C_FRESH] = count - 1
                known = self._streams[stream] = Stream(stream, L.WRITE, L.IDENTITY)
        return known

    def _data(self, flags: int, stream: int, payload: bytes) -> None:
        if stream == 0:
            raise PeerFault(Code.PROTOCOL_ERROR, "DATA are of no stream")
        self._not_idle(stream, "DATA")
        self._state[L.C_CREDIT] += len(payload)
        known = self._stream(stream)
        if known is None:
            return  # it was over; the client does not know yet
        if known.complete:
            self._reset_stream(stream, Code.STREAM_CLOSED)
            return
        known.window -= len(payload)
        if known.window < 0:
            self._reset_stream(stream, Code.FLOW_CONTROL_ERROR)
            return
        part = _unpadded(flags, payload)
        known.parts += part
        self.unfinished += len(part)
        known.complete = bool(flags & F.END_STREAM)
        if known.want < 0 and len(known.parts) >= PREFIX and not self._begin(known):
            return
        if known.want >= 0 and len(known.parts) > PREFIX + known.want:
            self.refuse(stream, Status.INTERNAL, "a request has one message")
        elif known.complete:
            self._complete(known)
        else:
            self._grant(known)

    def _begin(self, known: Stream) -> bool:
        """The prefix of a message is there. Return whether the call goes on."""
        compressed, size = known.parts[0], int.from_bytes(known.parts[1:PREFIX], "big")
        if compressed and known.encoding != L.OTHER_ENCODING:
            self.refuse(known.id, Status.INTERNAL, "a message is compressed, and the headers do not say how")
        elif compressed:
            self.refuse(known.id, Status.UNIMPLEMENTED, "compressed messages are not taken")
        elif size > self._largest:
            self.refuse(known.id, Status.RESOURCE_EXHAUSTED, f"a message of {size} bytes is larger than {self._largest}")
        else:
            known.want = size
            return True
        return False

    def _grant(self, known: Stream) -> None:
        """Let a client send the rest of a message that is larger than a stream's window, when it is its turn."""
        rest = PREFIX + known.want - len(known.parts) - known.window
        if known.want < 0 or rest <= 0 or known.id in self._ungranted:
            return
        if self._granted and (self._granted + rest > GRANTED or self._ungranted):
            self._ungranted.append(known.id)
            return
        known.window += rest
        known.granted += rest
        self._granted += rest
        self.sender.output.append(F.window_update(known.id, rest))

    def _returned(self, known: Stream) -> None:
        """A message is complete, or will never be: others have their turn."""
        self._granted -= known.granted
        self.unfinished -= len(known.parts)
        known.granted, known.parts = 0, bytearray()
        if known.id in self._ungranted:
            self._ungranted.remove(known.id)
        waiting, self._ungranted = self._ungranted, deque()
        for stream in waiting:
            self._grant(self._streams[stream])

    def _complete(self, known: Stream) -> None:
        """The client has sent everything."""
        known.complete = True
        if known.want < 0 or len(known.parts) != PREFIX + known.want:
            self.refuse(known.id, Status.INTERNAL, "the request ended before its message did")
            return
        message = bytes(memoryview(known.parts)[PREFIX:])
        self._returned(known)
        self.requests += 1
        self._resets = max(0, self._resets - 1)
        self._events.append(Call(known.id, known.path, message))

    def _gone(self, stream: int) -> None:
        """A call is over."""
        self.sender.drop(stream)
        known = self._streams.pop(stream, None)
        if known is None:
            return
        self._state[L.C_OPEN] -= 1
        self._returned(known)

    def _reset_stream(self, stream: int, code: Code) -> None:
        """End a call whose client breaks the rules."""
        if self._stream(stream) is not None:
            self._gone(stream)
            self._events.append(Cancelled(stream))
        self.sender.output.append(F.rst_stream(stream, code))

    # what never ends

    def expire(self) -> None:
        """End what has not gone on since the last call of this: requests, a block of headers, a frame, a connection without SETTINGS.
        The caller chooses the pace, and leaves this out while it reads nothing from the peer. Look at `over` and at `sender.output`
        afterwards."""
        before, self._expired_to = self._expired_to, int(self._state[L.C_LAST])
        block, self._block_at_expiry = self._block_at_expiry, self._block_stream
        left, self._left_at_expiry = self._left_at_expiry, self._left
        if self.over is not None:
            return
        if (not self._settled and before >= 0) or (block and block == self._block_stream) or (left and left is self._left):
            self.give_up("the peer does not end what it has begun")
            return
        for stream in self._state[L.C_STREAMS : L.C_STREAMS + int(self._state[L.C_FRESH])].tolist():
            if stream <= before:
                self._stream(stream)  # nothing came behind its headers
                self._expire(self._streams[stream])
        for known in list(self._streams.values()):
            if not known.complete and known.id not in self._ungranted:
                if known.at_expiry >= 0 and len(known.parts) - known.at_expiry < LEAST_PROGRESS:
                    self._expire(known)
                known.at_expiry = len(known.parts)

    def _expire(self, known: Stream) -> None:
        self.refuse(known.id, Status.DEADLINE_EXCEEDED, f"the request does not go on: {len(known.parts)} bytes of it have come")

    # answers

    def answer(self, stream: int, message: bytes) -> None:
        """Answer a call with one message."""
        if stream in self._streams:
            self.sender.open(stream)
            self.sender.data(stream, F.prefixed(message))
            self.finish(stream, Status.OK)

    def refuse(self, stream: int, status: Status, message: str, http: int = 200) -> None:
        """End a call that was not answered yet."""
        known = self._streams.get(stream)
        if known is None:
            return
        if self.sender.is_open(stream):
            self.finish(stream, status, message)
            return
        self.sender.headers(stream, F.refusal(http, status, message), last=True)
        if not known.complete:
            self.sender.output.append(F.rst_stream(stream, Code.NO_ERROR))
        self._gone(stream)

    def entrust(self, stream: int) -> bool:
        """The request of a call goes into a group: its answer comes with its mark. Return False if it was cancelled: nobody waits."""
        return self._streams.pop(stream, None) is not None

    def open_answer(self, stream: int) -> bool:
        """Begin an answer of many messages. Return False if nobody waits for it."""
        if stream in self._streams:
            self.sender.open(stream)
        return stream in self._streams

    def send(self, stream: int, data: bytes | memoryview) -> None:
        """Send messages, with their prefixes, of an answer that was begun. `waiting` says what the client has no room for."""
        if self.sender.is_open(stream):
            self.sender.data(stream, data)
            self._flush()

    def waiting(self, stream: int) -> int:
        """Bytes of an answer that the client has no room for yet."""
        return self.sender.waiting(stream)

    def finish(self, stream: int, status: Status, message: str = "") -> None:
        """End an answer that was begun; what waits is sent before."""
        if self.sender.is_open(stream):
            self.sender.finish(stream, status, message)
            self._flush()

    def _flush(self) -> None:
        for stream in self.sender.flush():
            self._gone(stream)

    def answer_marks(self, marks: Any) -> None:
        """Answer the calls of binlogs that were written: those whose marks have this connection's slot."""
        count = self.sender.empty_answers(marks, self.slot)
        if count is not None:
            self._state[L.C_OPEN] -= count
            return
        for stream in self._mine(marks):
            self._adopt(stream)
            self.answer(stream, b"")

    def refuse_marks(self, marks: Any, status: Status, message: str) -> None:
        """End the calls of binlogs that could not be written."""
        for stream in self._mine(marks):
            self._adopt(stream)
            self.refuse(stream, status, message)

    def _mine(self, marks: Any) -> list[int]:
        found: list[int] = marks[(marks[:, L.M_SLOT] == self.slot) & (marks[:, L.M_STREAM] != 0), L.M_STREAM].tolist()
        return found

    def _adopt(self, stream: int) -> None:
        self._streams.setdefault(stream, Stream(stream, L.WRITE, L.IDENTITY, complete=True))

    # the end

    def close(self) -> None:
        """Take no more calls; those that have begun go on. See `idle`."""
        if not self._closing and self.over is None:
            self._closing = True
            self._state[L.C_MOST_OPEN] = 0
            self.sender.output.append(F.goaway(int(self._state[L.C_LAST]), Code.NO_ERROR, "this Pump ends"))


def _sized(payload: bytes, size: int, what: str, right_stream: bool) -> None:
    if len(payload) != size:
        raise PeerFault(Code.FRAME_SIZE_ERROR, f"{what} has {len(payload)} bytes, not {size}")
    if not right_stream:
        raise PeerFault(Code.PROTOCOL_ERROR, f"{what} is of a stream that cannot have it")


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & F.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise PeerFault(Code.PROTOCOL_ERROR, "a frame is padded beyond its end")
    return payload[1 : len(payload) - payload[0]]
