"""Chunks: the memory of the keys and values that records point to, with hold counts.

A chunk is a buffer of received messages, a slab to which small messages were copied, or a mapped scratch file. Kernels count the records
that point into a chunk; a chunk without any is reused. Memory is recycled because fresh memory costs more (page faults) than copying into
warm memory.
"""

from __future__ import annotations

import mmap
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

SLAB = 16 << 20
KEEP = 2  # free slabs kept for reuse
BUFFER = 1 << 20
POPULATE_WRITE = 23  # of madvise(2), since Linux 5.14; Python has no name for it
KEEP_BUFFERS = 64 << 20  # bytes of free buffers kept for reuse, where nothing else is said
Array = np.ndarray[Any, Any]


def fresh(size: int) -> Array:
    """Return memory that is taken page by page as it is written. NumPy's own arrays of this size ask for huge pages: each is zeroed as a
    whole, and a virtual machine often has to get it from its host first, which cost as much as all other work on a row."""
    return np.frombuffer(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


def populate(buffer: Array) -> None:
    """Get all pages of memory from `fresh` at once, which costs a fifth less than one by one. A system that cannot gets them later."""
    with suppress(OSError):
        buffer.base.obj.madvise(POPULATE_WRITE)  # type: ignore[union-attr]


def records(count: int, kind: np.dtype[Any]) -> Array:
    """Return an array of records, not initialised, that `extend` can make longer."""
    return np.frombuffer(mmap.mmap(-1, count * kind.itemsize, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), kind)


def extend(arrays: list[Array], at: int, count: int) -> None:
    """Make `arrays[at]`, from `records`, `count` records long. Its pages get another address, without a copy; views of it, which would then
    point to nothing, make it a copy instead."""
    kind, n, mapping = arrays[at].dtype, len(arrays[at]), arrays[at].base.obj  # type: ignore[union-attr]
    arrays[at] = np.empty(0, kind)
    try:
        mapping.resize(count * kind.itemsize)
        arrays[at] = np.frombuffer(mapping, kind)
    except BufferError:
        arrays[at] = records(count, kind)
        arrays[at][:n] = np.frombuffer(mapping, kind)


class Buffers:
    """Memory for received messages: the event loop takes it, and any thread gives it back when no record points into it."""

    def __init__(self, most: int = KEEP_BUFFERS) -> None:
        """`most`: bytes kept for reuse."""
        self._most = most
        self._free: dict[int, deque[Array]] = {}
        self._unused: dict[int, int] = {}  # of each size: how many were free all the time since the last `trim`
        self._bytes = 0  # of those that are free
        self._lock = threading.Lock()

    def take(self, size: int, *, fills: bool = False) -> Array:
        """Return at least `size` bytes: a whole number of MiB. `fills`: all of them will be used, probably."""
        size = -(-size // BUFFER) * BUFFER
        with self._lock:
            if free := self._free.get(size):
                self._bytes -= size
                buffer = free.pop()  # the last one that was used: the likeliest to be in a cache
                self._unused[size] = min(self._unused.get(size, 0), len(free))
                return buffer
        buffer = fresh(size)
        if fills:
            populate(buffer)
        return buffer

    @property
    def free_bytes(self) -> int:
        """Bytes that are kept for reuse."""
        return self._bytes

    def trim(self) -> None:
        """Return memory to the system: of each size, as many as were free all the time since the last call."""
        with self._lock:
            for size, free in self._free.items():
                for _ in range(self._unused.get(size, 0)):
                    free.popleft()
                    self._bytes -= size
            self._free = {size: free for size, free in self._free.items() if free}
            self._unused = {size: len(free) for size, free in self._free.items()}

    def give(self, buffer: Array) -> None:
        """Take back what `take` returned."""
        size = len(buffer)
        with self._lock:
            if self._bytes + size <= self._most:
                self._bytes += size
                self._free.setdefault(size, deque()).append(buffer)


class Chunks:
    """Owns all chunks. Used by one thread. Ids are reused; kernels change `refs[id]`."""

    def __init__(self) -> None:
        self.refs: Array = np.zeros(1024, np.int64)
        self.bytes = 0  # of slabs in use (mapped files do not count)
        self._owner: list[Any] = [None] * 1024
        self._size: Array = np.zeros(1024, np.int64)
        self._close: dict[int, Callable[[], None]] = {}
        self._free = list(range(1023, -1, -1))
        self._used: set[int] = set()
        self._slabs: list[Array] = []
        self._current = -1
        self._at = 0

    def add(self, owner: object, size: int = 0, close: Callable[[], None] | None = None) -> int:
        """Keep `owner` (and so its bytes) alive until no record points into it; then call `close`."""
        if not self._free:
            self._grow()
        chunk = self._free.pop()
        self._owner[chunk] = owner
        self._size[chunk] = size
        self.bytes += size
        self._used.add(chunk)
        if close:
            self._close[chunk] = close
        return chunk

    def reserve(self) -> int:
        """Reserve a chunk whose bytes are still being written to a file; then `fill` it."""
        chunk = self.add(None)
        self.refs[chunk] = 1
        return chunk

    def fill(self, chunk: int, owner: object, holds: int) -> None:
        """Set the owner of a reserved chunk, and the number of records that point into it."""
        self._owner[chunk] = owner
        self.refs[chunk] = holds

    def _grow(self) -> None:
        n = len(self.refs)
        self.refs = np.concatenate([self.refs, np.zeros(n, np.int64)])
        self._size = np.concatenate([self._size, np.zeros(n, np.int64)])
        self._owner += [None] * n
        self._free = list(range(2 * n - 1, n - 1, -1))

    def room(self, n: int) -> tuple[int, Array]:
        """Return (chunk, n bytes of it). They may be the slab's last: who reads past the end of a field requests that too. Small requests
        share a slab. Valid until the next call unless records hold it."""
        if n > SLAB:
            buffer = fresh(n)
            return self.add(buffer, n), buffer
        chunk = self._current
        if chunk >= 0 and self.refs[chunk] == 0:
            self._at = 0
        if chunk < 0 or self._at + n > SLAB:
            slab = self._slabs.pop() if self._slabs else fresh(SLAB)
            self._current, self._at = self.add(slab, SLAB), 0
            if chunk >= 0:
                self.let_go(chunk)
            chunk = self._current
        at = self._at
        self._at = (at + n + 63) & ~63
        return chunk, self._owner[chunk][at : at + n]

    def let_go(self, chunk: int) -> None:
        """Drop the chunk if no record points into it."""
        if self.refs[chunk] != 0 or chunk == self._current:
            return
        owner, self._owner[chunk] = self._owner[chunk], None
        self.bytes -= int(self._size[chunk])
        self._used.discard(chunk)
        self._free.append(chunk)
        if close := self._close.pop(chunk, None):
            close()
        elif self._size[chunk] == SLAB and len(self._slabs) < KEEP:
            self._slabs.append(owner)

    def collect(self) -> None:
        """Drop every chunk that no record points into."""
        used = np.fromiter(self._used, np.int64, len(self._used))
        for chunk in used[self.refs[used] == 0].tolist():
            self.let_go(chunk)

    def sparse(self, living: Array) -> Array:
        """Return which chunks are slabs or buffers of which less than a quarter is in use. `living`: bytes in use, by chunk."""
        found: Array = (self.refs > 0) & (4 * living < self._size)
        if self._current >= 0:
            found[self._current] = False
        return found

    def held(self) -> int:
        """Return the number of chunks that records point into."""
        return sum(1 for chunk in self._used if self.refs[chunk])
