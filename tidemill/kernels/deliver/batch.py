"""The numpy code around the delivery kernels: order messages by target, compute sizes, call the kernel, cut its output by target.

References: `frame` and `json_line` below, one message at a time in plain Python.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemill.kernels.deliver import kernels
from tidemill.kernels.rows.program import PAD
from tidemill.kernels.write.tables import TABLES_AT
from tidemill.protocols.common.messages import Messages

Ints = npt.NDArray[np.int64]

_MIDDLE = np.frombuffer(b',"value":', np.uint8)


def frame(key: bytes | None, value: bytes | None) -> bytes:
    """Return one message of a messages file: both lengths (-1: null) and bytes."""
    parts = [struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part for part in (key, value)]
    return b"".join(parts)


def line_prefix(topic: str, partition: int) -> bytes:
    """Return the beginning of this target's JSON lines."""
    return f'{{"topic":{json.dumps(topic)},"partition":{partition},"key":'.encode()


def json_line(topic: str, partition: int, key: bytes | None, value: bytes | None) -> bytes:
    """Return one message as a JSON line."""
    shown = [b"null" if part is None else b'"' + base64.b64encode(part) + b'"' for part in (key, value)]
    return line_prefix(topic, partition) + shown[0] + b',"value":' + shown[1] + b"}\n"


def by_group(group_of_message: Ints) -> tuple[Ints, Ints]:
    """Return the indexes of the messages ordered by group, stable within a group, and the groups in that order."""
    if len(group_of_message) < 2 or bool((np.diff(group_of_message) >= 0).all()):
        return np.arange(len(group_of_message), dtype=np.int64), group_of_message
    order = np.argsort(group_of_message, kind="stable").astype(np.int64)
    return order, group_of_message[order]


def runs(groups: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield (group, from, to) of each run of equal neighbours."""
    if not len(groups):
        return
    cuts = np.flatnonzero(np.diff(groups)) + 1
    starts = [0, *cuts.tolist()]
    for start, end in zip(starts, [*starts[1:], len(groups)], strict=True):
        yield int(groups[start]), start, end


@dataclass(frozen=True, slots=True)
class Run:
    """Values of one target's messages. `ends` has the end of each in `data`, `commit_ts` that of each; `first` is the first MESSAGE."""

    target: int
    data: memoryview
    ends: Ints
    commit_ts: npt.NDArray[np.uint64]
    first: np.void


class Writer:
    """Turns the messages of a chunk into bytes by target. The buffer is reused: use what a method yields before the next call."""

    def __init__(self) -> None:
        self._buffer = np.empty(1 << 20, np.uint8)

    def frames(self, messages: Messages) -> Iterator[tuple[int, memoryview]]:
        """Yield (target, frames) of each target that has messages."""
        table = messages.table
        sizes = 8 + _present(table["key_len"]) + _present(table["value_len"])
        return self._split(messages, sizes, lambda n, t, order, at, out: kernels.frames(n, t, order, at, out))

    def json_lines(self, messages: Messages, prefixes: Sequence[bytes]) -> Iterator[tuple[int, memoryview]]:
        """Yield (target, lines) of each target that has messages. `prefixes` has the `line_prefix` of each target."""
        table = messages.table
        lengths = np.array([len(p) for p in prefixes], np.int64)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        text = np.frombuffer(b"".join(prefixes) + b"\0", np.uint8)
        sizes = lengths[table["target"]] + len(_MIDDLE) + 2 + _quoted(table["key_len"]) + _quoted(table["value_len"])

        def fill(n: int, t: int, order: int, at: int, out: int) -> None:
            kernels.json_lines(n, t, order, at, text.ctypes.data, ends.ctypes.data, _MIDDLE.ctypes.data, TABLES_AT, out)

        return self._split(messages, sizes, fill)

    def values(self, messages: Messages, tail: bytes = b"") -> Iterator[Run]:
        """Yield the values of each target that has messages. `tail` follows each value; a null value is empty."""
        table = messages.table
        sizes = _present(table["value_len"]) + len(tail)
        text = np.frombuffer(tail + b"\0", np.uint8)

        def fill(n: int, t: int, order: int, at: int, out: int) -> None:
            kernels.values(n, t, order, at, text.ctypes.data, len(tail), out)

        order, targets, ends, at = self._fill(messages, sizes, fill)
        times = np.ascontiguousarray(table["commit_ts"][order])
        for target, start, end in runs(targets):
            begin = int(at[start])
            data = self._buffer.data[begin : int(ends[end - 1])]
            yield Run(target, data, ends[start:end] - begin, times[start:end], table[order[start]])

    def _split(
        self, messages: Messages, sizes: Ints, fill: Callable[[int, int, int, int, int], object]
    ) -> Iterator[tuple[int, memoryview]]:
        _, targets, ends, at = self._fill(messages, sizes, fill)
        view = self._buffer.data
        for target, start, end in runs(targets):
            yield target, view[int(at[start]) : int(ends[end - 1])]

    def _fill(self, messages: Messages, sizes: Ints, fill: Callable[[int, int, int, int, int], object]) -> tuple[Ints, Ints, Ints, Ints]:
        """Write all messages, ordered by target. Returns their order, and target, end and begin of each in the buffer."""
        order, targets = by_group(messages.table["target"])
        ends = np.cumsum(sizes[order])
        at = ends - sizes[order]
        total = int(ends[-1]) if len(ends) else 0
        if total + PAD > len(self._buffer):  # kernels may write PAD bytes past the end
            self._buffer = np.empty(max(total + PAD, 2 * len(self._buffer)), np.uint8)
        table = np.ascontiguousarray(messages.table)
        fill(len(order), table.ctypes.data, order.ctypes.data, at.ctypes.data, self._buffer.ctypes.data)
        return order, targets, ends, at


def _present(lengths: Ints) -> Ints:
    return np.maximum(lengths, 0)


def _quoted(lengths: Ints) -> Ints:
    return np.where(lengths < 0, 4, 2 + 4 * ((lengths + 2) // 3))
