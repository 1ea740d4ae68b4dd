"""Records, words and constants of Pump's kernels. All words are int64."""

from __future__ import annotations

from typing import Any

import numpy as np
from hpack.huffman_table import HUFFMAN_TABLE
from hpack.table import HeaderTable

from tidemill.kernels.address import address
from tidemill.kernels.crc import CASTAGNOLI, crc_tables

# A binlog of a group: its type, start_ts, commit_ts, where its record begins in the group, the bytes of its payload, and who is to be
# answered (connection, stream). Slot 0: nobody by a kernel. Stream 0: nobody any more.
M_TP, M_START, M_COMMIT, M_AT, M_SIZE, M_SLOT, M_STREAM, M_SPARE = range(8)
MARK_WORDS = 8
MARK_BYTES = 8 * MARK_WORDS

# A group: address and room of its records, and of its marks; then what is in it.
G_DATA, G_CAP, G_MARKS, G_MOST, G_SIZE, G_COUNT = range(6)
G_WORDS = 8

# What the owner of a server says: its cluster's id (uint64), whether Prewrites are taken.
P_CLUSTER, P_PREWRITES = range(2)
P_WORDS = 2

RECORD_HEAD = 16
"""Bytes of a record before its payload: magic, length, checksum. See `tidemill/binlog/valuelog.py`."""
RECORD_MAGIC = 0x823A56E8

# A connection. First what the headers of a call were, one word a name (see NAMES): the code of its value, 0 if it was not there.
H_METHOD, H_PATH, H_TYPE, H_ENCODING, H_LIST = 1, 2, 3, 4, 5  # H_LIST: bytes of the list, as HTTP/2 counts them
# HPACK's table: entries, the newest one's place in the ring, bytes, the most bytes that the peer chose.
T_COUNT, T_NEWEST, T_SIZE, T_MOST = 8, 9, 10, 11
# Streams: the greatest id; how many are open, and may be; the bytes of DATA since the last WINDOW_UPDATE; how many are fresh (below).
C_LAST, C_OPEN, C_MOST_OPEN, C_CREDIT, C_FRESH = 16, 17, 18, 19, 20
# Of one call: why it ended, the stream and the flags of the HEADERS frame that it ended at, bytes that the group has no room for.
C_OUTCOME, C_STREAM, C_FLAGS, C_NEED, C_TAKEN = 24, 25, 26, 27, 28
C_RING = 32  # HPACK's table: two words an entry: its bytes, its class
RING = 128
C_STREAMS = C_RING + 2 * RING  # ids of fresh streams: calls of WriteBinlog whose request has not begun
FRESH = 1024
C_WORDS = C_STREAMS + FRESH

MORE, FRAME_FOR_PYTHON, OPENED, NO_ROOM, BAD_HEADERS = range(5)
"""Why `intake` ended: no whole frame is left; the next frame is not for it; a call began that is not for it; the group is full; HPACK is
broken."""

POST, OTHER_METHOD = 1, 2
WRITE, PULL, OTHER_PATH = 1, 2, 3
GRPC, OTHER_TYPE = 1, 2
IDENTITY, OTHER_ENCODING = 1, 2

SERVICE = b"/binlog.Pump/"
WRITE_PATH, PULL_PATH = SERVICE + b"WriteBinlog", SERVICE + b"PullBinlogs"
CONTENT_TYPE = b"application/grpc"

NAMES = {b":method": H_METHOD, b":path": H_PATH, b"content-type": H_TYPE, b"grpc-encoding": H_ENCODING}
TABLE_BYTES = 4096
"""Bytes of HPACK's table that a peer may use: HTTP/2's own value."""
FIELD_BYTES = 32
"""What HPACK counts for a field beside its name and value."""
LIST_LIMIT = 64 << 10
"""Bytes of a list of headers, as HTTP/2 counts them."""
BLOCK_LIMIT = 32 << 10
"""Bytes of an encoded block of headers."""


def value_code(name: int, value: bytes) -> int:
    """The code of a header's value; reference of the kernel's."""
    if name == H_METHOD:
        return POST if value == b"POST" else OTHER_METHOD
    if name == H_PATH:
        return {WRITE_PATH: WRITE, PULL_PATH: PULL}.get(value, OTHER_PATH)
    if name == H_TYPE:
        rest = value[len(CONTENT_TYPE) :]
        return GRPC if value.startswith(CONTENT_TYPE) and rest[:1] in (b"", b"+", b";") else OTHER_TYPE
    if name == H_ENCODING:
        return IDENTITY if value == b"identity" else OTHER_ENCODING
    return 0


def class_of(name: bytes, value: bytes) -> int:
    """A header's class: the length of its name << 32 | the code of its value << 16 | the word of its name, 0 if it does not matter."""
    word = NAMES.get(name, 0)
    return len(name) << 32 | value_code(word, value) << 16 | word


# Constants for kernels, one array of bytes.
#   K_HUFFMAN  4096 int64: next state, flags << 8, symbol << 16
#   K_STATIC   62 pairs of int64: bytes of the entry, its class
#   K_CRC      8 x 256 uint32 of CRC-32C, for eight bytes at a time
#   K_TEXTS    names and values that are compared
K_HUFFMAN, K_STATIC, K_CRC, K_TEXTS = 0, 32768, 33792, 41984
STATIC = 61
HUFFMAN_COMPLETE, HUFFMAN_SYMBOL, HUFFMAN_FAIL = 1, 2, 4

TEXTS = (b":method", b":path", b"content-type", b"grpc-encoding", b"POST", WRITE_PATH, PULL_PATH, CONTENT_TYPE, b"identity")
(X_METHOD, X_PATH, X_TYPE, X_ENCODING, X_POST, X_WRITE, X_PULL, X_GRPC, X_IDENTITY) = (K_TEXTS + 32 * i for i in range(len(TEXTS)))


def _constants() -> Any:
    huffman = np.array([state | flags << 8 | symbol << 16 for state, flags, symbol in HUFFMAN_TABLE], np.int64)
    static = np.zeros((64, 2), np.int64)
    for i, (name, value) in enumerate(HeaderTable.STATIC_TABLE, 1):
        static[i] = len(name) + len(value) + FIELD_BYTES, class_of(name, value)
    texts = b"".join(text.ljust(32, b"\0") for text in TEXTS)
    return np.frombuffer(huffman.tobytes() + static.tobytes() + crc_tables(CASTAGNOLI).tobytes() + texts + bytes(64), np.uint8)


CONSTANTS = _constants()


TABLES = address(CONSTANTS)

# Reading for one stream of PullBinlogs. The window: bytes of a file from an offset on. What is kept of Prewrites: a table of KEPT_SLOTS
# slots (start_ts, place, bytes), and room for the end of each answer. The output. Then why `pull` ended, and the bytes it needs.
W_DATA, W_FILE, W_START, W_SIZE, K_TABLE, K_ROOM, K_CAP, K_SIZE, K_COUNT, O_DATA, O_CAP, O_SIZE, O_COUNT, U_OUTCOME, U_NEED = range(15)
U_WORDS = 16
KEPT_SLOTS = 1 << 15
KEPT_MOST = KEPT_SLOTS * 3 // 4
POINTER_BYTES = 12

DONE, NO_WINDOW, BY_REFERENCE, OUT_FULL = range(4)
"""Why `pull` ended: no pointer is left; the record is not in the window; it is not for the kernel; the output has no room."""
