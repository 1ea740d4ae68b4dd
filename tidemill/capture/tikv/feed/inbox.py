"""The queue of messages from the event loop to the ingest thread, bounded in bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import sleep

from tidemill.capture.tikv.receive.decode import MAX_BATCH, Packed
from tidemill.capture.tikv.receive.memory import KEEP_BUFFERS, Buffers


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """Marks the end of a stream, after its last message."""

    reason: str

    def __len__(self) -> int:
        return 0


Message = bytes | Packed


class Inbox:
    """One thread puts, one takes."""

    def __init__(self, high: int = 64 << 20, keep: int = KEEP_BUFFERS) -> None:
        """`high`: bytes that are enough for now. `keep`: bytes of free buffers to be kept for reuse."""
        self.high, self.low = high, high // 2
        self.bytes = 0
        self.buffers = Buffers(keep)
        """Memory of the messages; all streams share it."""
        self._queue: deque[tuple[int, Message | EndOfStream]] = deque()
        self._some = threading.Event()
        self._woken = False
        self._on_room: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def put(self, stream: int, message: Message | EndOfStream) -> bool:
        """Add a message. Called on the event loop. False: the inbox is full; stop reading this stream until `when_room` calls back."""
        self._queue.append((stream, message))
        with self._lock:
            self.bytes += len(message)
        if not self._some.is_set():
            self._some.set()
        return self.bytes < self.high

    def wake(self) -> None:
        """End the wait of `take`, also without a message. If none waits now, the next one returns at once."""
        self._woken = True
        self._some.set()

    def when_room(self, call: Callable[[], object]) -> None:
        """Call `call` (on the taking thread, or at once) when half of the inbox is free again."""
        with self._lock:
            if self.bytes >= self.low:
                self._on_room.append(call)
                return
        call()

    def take(self, max_bytes: int, wait: float, linger: float) -> tuple[list[int], list[Message] | EndOfStream]:
        """Return messages in order: (streams, messages), or the end of one stream. Waits at most `wait` s, then a short `linger` to let
        small messages gather."""
        if not self._queue:
            self._some.clear()
            is_due = bool(self._queue) or self._woken or self._some.wait(wait)
            self._woken = False
            if not is_due:
                return [], []
        if linger and 0 < self.bytes < max_bytes:
            sleep(linger)
        streams: list[int] = []
        messages: list[Message] = []
        size = 0
        while self._queue and size < max_bytes:
            stream, message = self._queue.popleft()
            if messages and (size + len(message) > MAX_BATCH or isinstance(message, EndOfStream)):
                self._queue.appendleft((stream, message))
                break
            if isinstance(message, EndOfStream):
                return [stream], message
            streams.append(stream)
            messages.append(message)
            size += len(message)
        with self._lock:
            self.bytes -= size
            calls = self._on_room if self.bytes < self.low else []
            if calls:
                self._on_room = []
        for call in calls:
            call()
        return streams, messages
