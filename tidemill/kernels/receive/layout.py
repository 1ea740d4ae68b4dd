"""Records that the kernels and Python share: C structs of 64 (or 128) bytes as numpy dtypes, and words of the matcher's context.

A record is one cache line. Bytes of keys and values are never in a record: it holds their address (in a chunk of received bytes
or a mapped file, see capture/tikv/receive/memory.py) and their length.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

# LogType of cdcpb, and three values of Tidemill's own; NEWER stands for every LogType that this version does not know.
UNKNOWN, PREWRITE, COMMIT, ROLLBACK, COMMITTED, INITIALIZED, RESOLVED, ERROR, NEWER = range(9)
PUT, DELETE = 1, 2
AS_PREWRITTEN = 3  # op of a COMMIT without an op, while its PREWRITE is on disk

ENTRY = np.dtype(
    {
        "names": [
            "start_ts", "commit_ts", "key", "key_len", "value", "value_len", "old", "old_len", "generation", "kind", "op",
            "stream", "region_id", "request_id",
        ],
        "formats": ["i8", "i8", "i4", "i4", "i4", "i4", "i4", "i4", "i4", "u1", "u1", "u2", "i8", "i8"],
        "offsets": [0, 8, 16, 20, 24, 28, 32, 36, 40, 44, 45, 46, 48, 56],
        "itemsize": 64,
    }
)  # fmt: skip
"""The scanner's output: one entry per row, per region of a resolved ts (in start_ts), and per error (value: its bytes). key, value, old:
offsets in the batch."""

E_START, E_COMMIT, E_KEY, E_KEYLEN, E_VALUE, E_VALLEN, E_OLD, E_OLDLEN = 0, 8, 16, 20, 24, 28, 32, 36
E_RESOLVED = E_START
"""A resolved entry has its resolved ts where others have their start_ts."""
E_GENERATION, E_KIND, E_OP, E_STREAM, E_REGION, E_REQUEST = 40, 44, 45, 46, 48, 56

ROW = np.dtype(
    {
        "names": [
            "commit_ts", "start_ts", "key", "value_d", "old_d", "key_len", "value_len", "old_len", "chunk", "sub", "op", "flags",
            "generation", "next",
        ],
        "formats": ["i8", "i8", "i8", "i4", "i4", "i4", "i4", "i4", "i4", "i4", "u1", "u1", "i4", "i4"],
        "offsets": [0, 8, 16, 24, 28, 32, 36, 40, 44, 48, 52, 53, 56, 60],
        "itemsize": 64,
    }
)  # fmt: skip
"""A committed row that waits to be sealed, or a pending transaction entry of the matcher. key: address; value_d, old_d: distances from the
key's address; chunk: keeps the bytes alive; next: link of the matcher's lists."""

R_COMMIT, R_START, R_KEY, R_VALUE_D, R_OLD_D, R_KEYLEN, R_VALLEN, R_OLDLEN = 0, 8, 16, 24, 28, 32, 36, 40
R_CHUNK, R_SUB, R_OP, R_FLAGS, R_GENERATION, R_NEXT = 44, 48, 52, 53, 56, 60

SUB = np.dtype(
    {
        "names": [
            "region_id", "request_id", "resolved", "partition", "state", "initialized", "touched", "stream",
            "lo_len", "hi_len", "lo", "hi", "seen", "sub_range", "since",
        ],
        "formats": ["i8", "i8", "i8", "i4", "i4", "i4", "i4", "i4", "i4", "i4", "i8", "i8", "i8", "i8", "i8"],
        "offsets": [0, 8, 16, 32, 36, 40, 44, 48, 52, 56, 64, 72, 80, 88, 96],
        "itemsize": 128,
    }
)  # fmt: skip
"""One region subscription. touched: head of the list of entries that INITIALIZED has to settle; lo, hi: addresses of its range; seen: the
clock (X_CLOCK) when the store last sent something for it; sub_range: the id of its sub-range in the region state machine; since: rows at or
below it are not wanted."""

S_REGION, S_REQUEST, S_RESOLVED, S_PARTITION, S_STATE, S_INIT, S_TOUCHED = 0, 8, 16, 32, 36, 40, 44
S_STREAM, S_LOLEN, S_HILEN, S_LO, S_HI, S_SEEN, S_SINCE = 48, 52, 56, 64, 72, 80, 96

IMPORTED = 0x80
"""Set in ENTRY.op by the scanner only: the row was written by a physical import (bit 16 of txn_source). The other bits are ignored here:
0-7 mark a change data capture, 8-15 the reorganisation of a lossy column change."""
IMPORT_BIT = 1 << 16

FREE, ACTIVE, DEAD = 0, 1, 2  # SUB.state; DEAD: ended, but its range still counts for the frontier

CONTROL = np.dtype(
    {
        "names": ["code", "sub", "entry", "cause", "commit_ts", "start_ts", "key", "key_len"],
        "formats": ["i4", "i4", "i8", "i8", "i8", "i8", "i8", "i8"],
        "itemsize": 64,
    }
)
"""What the matcher reports to the region state machine. The fields from cause on are for a violation and the row that shows it (key: its
address, valid until the next batch)."""

C_INITIALIZED, C_ERROR, C_VIOLATION, C_SKIPPED = 1, 2, 3, 4
V_UNMATCHED, V_LATE, V_EMPTY_PUT, V_FAKE_ONLY, V_NO_OP, V_UNKNOWN_TYPE = 1, 2, 3, 4, 5, 6  # CONTROL.cause of a violation

HANDLE, END = 0, 255
"""Verdicts on a row by its kind (`ROWS` in capture/tikv/receive/kinds.py): take it; end the subscription. Any other verdict leaves the row
out, and is the word of the context that counts it. Byte VERDICTS_OF_KIND * kind + 2 * (subscription is live) + (row has a key)."""
VERDICTS_OF_KIND = 4
KINDS = NEWER + 1

# The matcher's context: int64 words, mostly addresses. The upper half is scratch space of `match`.
(X_SUBS, X_NSUBS, X_LOOKUP, X_LOOKUP_MASK, X_SLOTS, X_SLOT_MASK, X_POOL, X_POOL_CAP, X_POOL_TOP, X_POOL_FREE, X_COUNT,
 X_PARTS, X_CONTROL, X_NCONTROL, X_CONTROL_CAP, X_REFS, X_PENDING_BYTES, X_SPILLED, X_NSPILLED, X_LATE, X_NLATE, X_LATE_CAP,
 X_MUX, X_UNKNOWN, X_STALE, X_RANGE, X_DUP, X_ROWS, X_CLOCK, X_KINDS, X_LOCK_ONLY, X_SKIPPED, X_AGAIN) = range(33)  # fmt: skip
X_RING = 40  # 32 words
X_WORDS = 72

# Rows of one partition that wait to be sealed: address, count, capacity, bytes of keys and values.
P_ADDR, P_COUNT, P_CAP, P_BYTES = range(4)
P_WORDS = 4

OK, GROW_POOL, GROW_PART, GROW_CONTROL, GROW_LATE = 0, 1, 2, 3, 4  # return codes of `match`

# Flags of a pending transaction entry: it has prewrite data; its COMMIT was seen; it was delivered; it was rolled back; its data is a
# prewrite without its value.
F_DATA, F_WAIT, F_DONE, F_ROLLED, F_FAKE = 1, 2, 4, 8, 16

SCAN_GROW = 100


class WireFault(enum.IntEnum):
    """How a message is malformed."""

    VARINT = 1
    LENGTH = 2
    WIRE = 3
    TAG = 4
    TS = 5


E_VARINT, E_LENGTH, E_WIRE, E_TAG, E_TS = 1, 2, 3, 4, 5

FAULTS = {
    WireFault.VARINT: "varint is cut short or longer than ten bytes",
    WireFault.LENGTH: "field reaches beyond its message",
    WireFault.WIRE: "wire type is not one of 0, 1, 2, 5",
    WireFault.TAG: "field number is zero or too large",
    WireFault.TS: "timestamp is above 2^63 - 1",
}

# State words of `deframe`: rest of the DATA frame's payload, of its padding, END_STREAM was set, rest of the gRPC message (-1: its prefix
# is being read), prefix bytes read, prefix value. Then results: bytes in `out`, messages, control frames, DATA bytes with padding (flow
# control), error, expected stream id, bytes that `out` must hold.
(D_LEFT, D_PAD, D_END, D_MSG, D_HAVE, D_PREFIX, D_OUT, D_MSGS, D_CTL, D_DATA, D_ERROR, D_STREAM, D_NEED) = range(13)
D_WORDS = 16
DE_STREAM, DE_COMPRESSED, DE_PADDING = 1, 2, 3
D_CONTROLS = 64  # control frames reported by one call, at most


def joined(first: Any, second: Any) -> Any:
    """Concatenate two arrays of records. (np.concatenate would drop the holes of a dtype, which changes the record size.)"""
    out = np.empty(len(first) + len(second), first.dtype)
    out[: len(first)] = first
    out[len(first) :] = second
    return out
