"""Blocks of headers -> what a call is. One decoder a connection: HPACK's table goes on from block to block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import hpack
import numpy as np

from tidemill.binlog.http2.frames import Code
from tidemill.errors import TidemillError
from tidemill.kernels.address import address
from tidemill.kernels.pump import layout as L
from tidemill.kernels.pump.headers import decode_headers

_SCRATCH = np.empty(2 * L.BLOCK_LIMIT, np.uint8)
SCRATCH = address(_SCRATCH)
"""Where kernels unpack strings. Event loops run in one thread."""


class PeerFault(TidemillError):
    """A peer broke the rules of HTTP/2: its connection ends."""

    code = "TM:ErrPeerFault"

    def __init__(self, why: Code, message: str) -> None:
        super().__init__(message)
        self.why = why


@dataclass(frozen=True, slots=True)
class CallHeaders:
    """The codes of `tidemill/kernels/pump/layout.py`: POST …, WRITE …, GRPC …, IDENTITY …; 0 is what was not there. `size`: bytes of the
    list."""

    method: int = 0
    path: int = 0
    type: int = 0
    encoding: int = 0
    size: int = 0


class Headers(Protocol):
    """A decoder."""

    def decode(self, block: bytes) -> CallHeaders:
        """Read a block. Raises PeerFault."""


class KernelHeaders:
    """The kernel, with the table of a connection's state."""

    def __init__(self, state: Any) -> None:
        self._state, self._at = state, address(state)
        state[L.T_MOST] = L.TABLE_BYTES

    def decode(self, block: bytes) -> CallHeaders:
        data = np.frombuffer(block or b"\0", np.uint8)
        if decode_headers(L.TABLES, self._at, address(data), len(block), SCRATCH) < 0:
            raise PeerFault(Code.COMPRESSION_ERROR, "a block of headers cannot be read")
        return self.last()

    def last(self) -> CallHeaders:
        """What the last block said."""
        return CallHeaders(*self._state[L.H_METHOD : L.H_LIST + 1].tolist())


class PlainHeaders:
    """The library: the reference of the kernel."""

    def __init__(self) -> None:
        self._decoder = hpack.Decoder(max_header_list_size=1 << 30)

    def decode(self, block: bytes) -> CallHeaders:
        try:
            fields = self._decoder.decode(block, raw=True)
        except (hpack.HPACKError, IndexError) as error:
            raise PeerFault(Code.COMPRESSION_ERROR, f"a block of headers cannot be read: {error}") from None
        found = dict.fromkeys(range(L.H_METHOD, L.H_LIST), 0)
        size = 0
        for name, value in fields:
            word = L.NAMES.get(name, 0)
            if word:
                found[word] = L.value_code(word, value)
            size += len(name) + len(value) + L.FIELD_BYTES
        return CallHeaders(found[L.H_METHOD], found[L.H_PATH], found[L.H_TYPE], found[L.H_ENCODING], size)
