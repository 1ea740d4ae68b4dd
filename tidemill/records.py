"""The record in which encoders get the rows of a chunk: one cache line per row; the bytes stay where they are.

A reader of segments fills it with addresses inside mapped files. `route` adds kind and target. An encoder reads it. Rows are never moved or
copied before they are encoded. A length of -1 means null. Each half of a split update has one image; the other is null.
"""

from __future__ import annotations

import numpy as np

ROW = np.dtype(
    {
        "names": [
            "key", "value", "old_value", "start_ts", "commit_ts", "key_len", "value_len", "old_len", "table", "target", "kind", "split",
        ],
        "formats": ["u8", "u8", "u8", "u8", "u8", "i4", "i4", "i4", "i4", "i4", "u1", "u1"],
        "offsets": [0, 8, 16, 24, 32, 40, 44, 48, 52, 56, 60, 61],
        "itemsize": 64,
    }
)  # fmt: skip
"""key, value, old_value: addresses. table: index into the pack's tables. target: index into the pack's (topic, partition)s."""

ROW_BYTES = ROW.itemsize
R_KEY, R_VALUE, R_OLD, R_START, R_COMMIT = 0, 8, 16, 24, 32
R_KEYLEN, R_VALLEN, R_OLDLEN, R_TABLE, R_TARGET, R_KIND, R_SPLIT = 40, 44, 48, 52, 56, 60, 61

# In the order in which the changes of one transaction and table are delivered.
KIND_DELETE, KIND_UPDATE, KIND_INSERT = 1, 2, 3
SPLIT_NONE, SPLIT_DELETE, SPLIT_INSERT = 0, 1, 2

MESSAGE = np.dtype(
    [("target", "i8"), ("key", "u8"), ("key_len", "i8"), ("value", "u8"), ("value_len", "i8"), ("rows", "i8"), ("commit_ts", "u8")]
)
"""One message of a chunk: addresses inside the encoder's buffers; value_len -1 means null. commit_ts is that of its last row."""

MESSAGE_BYTES = MESSAGE.itemsize
M_TARGET, M_KEY, M_KEYLEN, M_VALUE, M_VALLEN, M_ROWS, M_COMMIT = range(0, 56, 8)

RECORD_OVERHEAD = 36
"""Bytes that TiCDC counts for a Kafka record besides key and value: 5 * 5 + 10 + 1."""
