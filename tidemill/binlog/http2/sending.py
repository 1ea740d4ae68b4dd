"""What a connection has to send on its streams, within the windows of the peer. Whole answers at once where there is room; else as the
peer's WINDOW_UPDATEs come, in turns."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tidemill.binlog.http2.frames import (
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    HEAD,
    LARGEST_WINDOW,
    LEAST_FRAME,
    OPENING,
    PREFIX,
    Code,
    Frame,
    Status,
    data_frames,
    frame,
    prefixed,
    trailers,
)
from tidemill.binlog.http2.headers import PeerFault
from tidemill.kernels.address import address
from tidemill.kernels.pump import answers as kernels
from tidemill.kernels.pump import layout as L

TURN = 64 << 10
"""Bytes that a stream sends before the next one has its turn."""

_TABLE_TO_ZERO = b"\x20"
"""How a block says that the table of sent headers has no room; it never had entries."""


@dataclass(slots=True)
class Outgoing:
    """What a stream has still to send: bytes for DATA frames, then its trailers."""

    stream: int
    window: int
    data: deque[memoryview] = field(default_factory=deque)
    left: int = 0
    end: bytes | None = None
    """The block of trailers, once the answer is complete."""


def _empty_answer() -> tuple[Any, int, int]:
    first = frame(Frame.HEADERS, END_HEADERS, 0, OPENING)
    second = frame(Frame.DATA, 0, 0, prefixed(b""))
    model = first + second + frame(Frame.HEADERS, END_HEADERS | END_STREAM, 0, trailers(Status.OK))
    return np.frombuffer(model, np.uint8), len(first), len(first) + len(second)


_EMPTY, _SECOND, _THIRD = _empty_answer()


class Sender:
    """`output` holds what is to be sent; whoever sends it clears it. `plain`: without kernels."""

    def __init__(self, *, plain: bool = False) -> None:
        self.output: list[bytes | memoryview] = []
        self._plain = plain
        self._window = FIRST_WINDOW
        self._initial = FIRST_WINDOW
        self._frame = LEAST_FRAME
        self._prefix = b""
        self._streams: dict[int, Outgoing] = {}

    # what the peer says

    def initial_window(self, size: int) -> None:
        """SETTINGS_INITIAL_WINDOW_SIZE, which changes the windows of open streams too. Raises PeerFault."""
        if size > LARGEST_WINDOW or any(one.window + size - self._initial > LARGEST_WINDOW for one in self._streams.values()):
            raise PeerFault(Code.FLOW_CONTROL_ERROR, f"SETTINGS_INITIAL_WINDOW_SIZE is {size}")
        for one in self._streams.values():
            one.window += size - self._initial
        self._initial = size

    def frame_size(self, size: int) -> None:
        """SETTINGS_MAX_FRAME_SIZE."""
        self._frame = size

    def table_size(self, size: int) -> None:
        """SETTINGS_HEADER_TABLE_SIZE."""
        if size < L.TABLE_BYTES:
            self._prefix = _TABLE_TO_ZERO

    def window(self, stream: int, increment: int) -> bool:
        """WINDOW_UPDATE. Return False where a stream's window gets too large. Raises PeerFault."""
        if stream == 0:
            self._window += increment
            if self._window > LARGEST_WINDOW:
                raise PeerFault(Code.FLOW_CONTROL_ERROR, "the connection's window is larger than 2^31-1")
            return True
        one = self._streams.get(stream)
        if one is not None:
            one.window += increment
            return one.window <= LARGEST_WINDOW
        return True

    # what is to be sent

    def headers(self, stream: int, block: bytes, *, last: bool = False) -> None:
        """Send a HEADERS frame at once, ahead of data that waits."""
        self.output.append(frame(Frame.HEADERS, END_HEADERS | (END_STREAM if last else 0), stream, self._prefix + block))
        self._prefix = b""

    def open(self, stream: int) -> None:
        """A stream whose answers will come."""
        self._streams[stream] = Outgoing(stream, self._initial)
        self.headers(stream, OPENING)

    def is_open(self, stream: int) -> bool:
        """Whether a stream was opened, and has something to send or may get it."""
        return stream in self._streams

    def data(self, stream: int, data: bytes | memoryview) -> None:
        """Send messages with their prefixes, as far as the windows go; the rest waits."""
        one = self._streams[stream]
        if len(data):
            one.data.append(memoryview(data))
            one.left += len(data)

    def finish(self, stream: int, status: Status, message: str = "") -> None:
        """Note that a stream has no more data than what waits."""
        self._streams[stream].end = trailers(status, message)

    def drop(self, stream: int) -> None:
        """Send nothing more on a stream."""
        self._streams.pop(stream, None)

    def waiting(self, stream: int) -> int:
        """Bytes of a stream that wait for its windows."""
        one = self._streams.get(stream)
        return one.left if one is not None else 0

    def flush(self) -> list[int]:
        """Put out what the windows have room for. Return the streams that are done."""
        done = []
        busy = list(self._streams.values())
        while busy:
            again = []
            for one in busy:
                sent = self._some(one)
                if one.left == 0 and one.end is not None:
                    self.headers(one.stream, one.end, last=True)
                    del self._streams[one.stream]
                    done.append(one.stream)
                elif sent and one.left:
                    again.append(one)
            busy = again
        return done

    def _some(self, one: Outgoing) -> int:
        """Put out a turn's bytes of a stream; returns how many."""
        sent = 0
        while one.data and sent < TURN:
            first = one.data[0]
            size = min(len(first), TURN - sent, self._window, one.window)
            if size <= 0:
                break
            self.output.append(self._frames(first[:size], one.stream))
            if size == len(first):
                one.data.popleft()
            else:
                one.data[0] = first[size:]
            one.left -= size
            one.window -= size
            self._window -= size
            sent += size
        return sent

    def _frames(self, data: memoryview, stream: int) -> bytes | memoryview:
        if self._plain:
            return data_frames(bytes(data), self._frame, stream)
        frames = -(-len(data) // self._frame)
        out: Any = np.empty(len(data) + HEAD * frames, np.uint8)
        kernels.data_frames(address(np.frombuffer(data, np.uint8)), len(data), self._frame, stream, address(out))
        return memoryview(out)

    def empty_answers(self, marks: Any, slot: int) -> int | None:
        """Answer, with an empty message, the calls whose marks are of a connection. Return how many these were; None: the windows have no
        room, and nothing was done."""
        n = len(marks)
        if self._plain or self._prefix or self._initial < PREFIX or self._window < PREFIX * n:
            return None
        out: Any = np.empty(n * len(_EMPTY), np.uint8)
        count = kernels.answers(
            address(marks), n, slot, address(_EMPTY), len(_EMPTY), _SECOND, _THIRD, address(out)
        )  # fmt: skip
        if count:
            self.output.append(memoryview(out)[: count * len(_EMPTY)])
            self._window -= PREFIX * count
        return int(count)
