"""Structs and words that the kernels of binlogs share with Python. Addresses are int64."""

from __future__ import annotations

import numpy as np

HEAD = np.dtype(
    {
        "names": ["commit_ts", "start_ts", "message", "rows", "message_len", "rows_len", "type", "flags", "pump"],
        "formats": ["i8", "i8", "i8", "i8", "i4", "i4", "u1", "u1", "i4"],
        "offsets": [0, 8, 16, 24, 32, 36, 40, 41, 44],
        "itemsize": 48,
    }
)
"""A binlog. message, message_len: its bytes; rows, rows_len: its prewrite value; type: BinlogType; flags: H_FAKE, H_DDL;
pump: the number of the Pump that sent it, which the merge sets."""

H_COMMIT, H_START, H_MESSAGE, H_ROWS, H_MESSAGE_LEN, H_ROWS_LEN, H_TYPE, H_FLAGS = 0, 8, 16, 24, 32, 36, 40, 41
H_SIZE = HEAD.itemsize
H_FAKE, H_DDL = 1, 2

TABLE = np.dtype(
    {
        "names": ["id", "physical", "column", "kind", "parts", "first", "version"],
        "formats": ["i8", "i8", "i8", "i4", "i4", "i8", "i8"],
        "itemsize": 48,
    }
)
"""A table, by its logical id. physical: the id in its keys; column: of T_NUMBER, the column of the handle in updates and deletes; first,
parts: of T_COMMON, where its columns are in the array of PART; version: transactions up to this schema version may be read with it."""

T_ID, T_PHYSICAL, T_COLUMN, T_KIND, T_PARTS, T_FIRST, T_VERSION = 0, 8, 16, 24, 28, 32, 40
T_SIZE = TABLE.itemsize
T_LEFT_OUT, T_NUMBER, T_COMMON, T_TWIN = range(4)
"""TABLE.kind: its rows are left out; the handle is a number; a common handle; only the reference reads its rows."""

PART = np.dtype([("column", "i8"), ("is_duration", "i8")])
"""A column of a common handle."""
PART_SIZE = PART.itemsize
MOST_PARTS = 64

STEP = np.dtype(
    {
        "names": ["commit_ts", "start_ts", "physical", "key", "new", "old", "key_len", "new_len", "old_len", "table"],
        "formats": ["i8", "i8", "i8", "i8", "i8", "i8", "i4", "i4", "i4", "i4"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 52, 56, 60],
        "itemsize": 64,
    }
)
"""A change of one record. new_len, old_len -1: there is none; table: its place in the array of TABLE."""

S_COMMIT, S_START, S_PHYSICAL, S_KEY, S_NEW, S_OLD, S_KEY_LEN, S_NEW_LEN, S_OLD_LEN, S_TABLE = 0, 8, 16, 24, 32, 40, 48, 52, 56, 60
S_SIZE = STEP.itemsize

# Words of `records`: the next head; steps so far; bytes of keys so far; records so far (places of steps in `order`); of UNKNOWN_TABLE and
# NEWER_SCHEMA, its id; the last mark in `seen`; the schema version of the transaction.
(W_HEAD, W_STEPS, W_KEYS, W_ORDER, W_TABLE, W_MARK, W_VERSION) = range(7)
W_WORDS = 8

DONE, GROW, UNKNOWN_TABLE, TWIN, NEWER_SCHEMA = range(5)
"""What `records` returns: all heads are read; there is no room for the steps of the next one; it has a table that is not in the array; it
is for the reference; its schema version is above that of one of its tables."""

SEEN = 4096
"""Column ids from -1 to SEEN - 2 are read here; rows with others are for the reference."""
