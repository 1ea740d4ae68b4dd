"""Decodes ChangeDataEvent bytes into ENTRY records. No IO. Records hold offsets into a chunk: the buffer that the messages were received
into, or a slab to which they were copied because they fill too little of theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tidemill.capture.tikv.receive.memory import Array, Buffers, Chunks
from tidemill.errors import MalformedBytes
from tidemill.kernels.address import address
from tidemill.kernels.receive.layout import ENTRY, FAULTS, IMPORTED, SCAN_GROW, WireFault
from tidemill.kernels.receive.scan import scan

PAD = 64  # kernels may read this many bytes past a field
MAX_BATCH = 1 << 30  # offsets are 32 bits
TABLE_PREFIX = 9  # bytes of a record key up to the table id's end


class WireError(MalformedBytes):
    """A message is malformed. Its stream cannot be trusted any more."""

    def __init__(self, fault: WireFault, message: int, offset: int) -> None:
        super().__init__(f"ChangeDataEvent {message}, byte {offset}: {FAULTS[fault]}")
        self.fault, self.index, self.offset = fault, message, offset


@dataclass(slots=True)
class Batch:
    """The entries of some messages, in order, and the chunk they point into."""

    chunk: int
    data: Array  # the messages, concatenated
    entries: Array  # of ENTRY; valid until the next batch
    count: int
    error: WireError | None  # entries of the messages before it are valid
    ends: Array
    streams: Array  # of each message
    imports: tuple[tuple[int, int], ...] = ()  # (commit_ts, physical table id) of rows written by a physical import, each once


@dataclass(slots=True)
class Packed:
    """Several messages of one stream, concatenated; message m ends at ends[m]. `data` is longer, by PAD at least."""

    data: Array
    ends: Array  # int64
    buffers: Buffers | None = None  # gets `data` back when nobody needs the messages any more

    def __len__(self) -> int:
        return int(self.ends[-1])

    @property
    def fills_its_buffer(self) -> bool:
        """Whether most of the memory is messages, so that it can be kept as it is."""
        return 2 * len(self) >= len(self.data)

    def give_back(self) -> None:
        """The messages are not needed any more."""
        if self.buffers is not None:
            self.buffers.give(self.data)


def lots(streams: Sequence[int], messages: Sequence[bytes | Packed]) -> Iterator[tuple[Sequence[int], Sequence[bytes | Packed]]]:
    """Divide messages into those that are scanned together, in their order: each that stays in its buffer alone, others with their
    neighbours."""
    first = 0
    for i, message in enumerate(messages):
        if isinstance(message, Packed) and message.fills_its_buffer:
            if first < i:
                yield streams[first:i], messages[first:i]
            yield streams[i : i + 1], messages[i : i + 1]
            first = i + 1
    if first < len(messages):
        yield streams[first:], messages[first:]


class Scanner:
    """Turns messages into batches. It reuses its entry buffer, so only one batch is valid at a time."""

    def __init__(self, chunks: Chunks | None = None) -> None:
        self.chunks = Chunks() if chunks is None else chunks
        self._entries: Array = np.empty(8192, ENTRY)

    def scan(self, messages: Sequence[bytes | Packed], streams: Sequence[int] | int = 0) -> Batch:
        """Decode messages. `streams`: the stream slot of each message, or one for all. One that fills its buffer and comes alone stays
        there; the others are copied."""
        if len(messages) == 1 and isinstance(only := messages[0], Packed) and only.fills_its_buffer:
            chunk = self.chunks.add(only.data, len(only.data), only.give_back)
            slot = streams if isinstance(streams, int) else streams[0]
            return self._scan(chunk, only.data, only.ends, np.full(len(only.ends), slot, np.int64), 0)
        total = sum(map(len, messages))
        if total > MAX_BATCH:
            raise ValueError(f"{total} bytes in one batch")
        chunk, room = self.chunks.room(total + PAD)
        view = room.data
        at = 0
        ends: list[int] = []
        slots: list[int] = []
        for i, message in enumerate(messages):
            end = at + len(message)
            if isinstance(message, bytes):
                view[at:end] = message
                ends.append(end)
                new = 1
            else:
                room[at:end] = message.data[: end - at]  # data may be longer
                ends += (message.ends + at).tolist()
                new = len(message.ends)
                message.give_back()
            slots += [streams if isinstance(streams, int) else streams[i]] * new
            at = end
        return self._scan(chunk, room, np.array(ends, np.int64), np.array(slots, np.int64), 0)

    def after_error(self, batch: Batch) -> Batch:
        """Decode the messages after the malformed one of a batch."""
        assert batch.error is not None
        return self._scan(batch.chunk, batch.data, batch.ends, batch.streams, batch.error.index + 1)

    def _scan(self, chunk: int, data: Array, ends: Array, streams: Array, first: int) -> Batch:
        state = np.zeros(6, np.int64)
        while True:
            out = self._entries
            count = scan(address(data), address(ends), address(streams), first, len(ends), address(out), len(out), address(state))
            code = int(state[0])
            if code != SCAN_GROW:
                break
            grown = np.empty(2 * len(out), ENTRY)
            grown[:count] = out[:count]
            self._entries = grown
            first = int(state[2])
        error = WireError(WireFault(code), int(state[2]), int(state[1])) if code else None
        imports = imported(data, self._entries[:count]) if state[4] else ()
        return Batch(chunk, data, self._entries, count, error, ends, streams, imports)


def imported(data: Array, entries: Array) -> tuple[tuple[int, int], ...]:
    """Return (commit_ts, physical table id) of the committed rows marked IMPORTED, and clear the marks. Keys are in `data`."""
    marked = (entries["op"] & IMPORTED) != 0
    rows = entries[marked]
    entries["op"] &= 0xFF ^ IMPORTED
    rows = rows[(rows["commit_ts"] > 0) & (rows["key_len"] >= TABLE_PREFIX)]
    rows = rows[data[rows["key"]] == ord("t")]
    keys = data[rows["key"][:, None] + np.arange(1, TABLE_PREFIX)]
    tables = np.ascontiguousarray(keys).view(">i8").reshape(-1).astype(np.int64) ^ np.int64(-(1 << 63))
    pairs = np.unique(np.stack([rows["commit_ts"], tables], axis=1), axis=0)
    return tuple((int(ts), int(table_id)) for ts, table_id in pairs)
