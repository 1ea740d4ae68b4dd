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
# NEWER_SCHEMA, its id; the last mark in `seen`; the schema version of the transaction; 1: every change in the order of
# the statements, 0: what a transaction left of each record, by its key.
(W_HEAD, W_STEPS, W_KEYS, W_ORDER, W_TABLE, W_MARK, W_VERSION, W_IN_ORDER) = range(8)
W_WORDS = 8

DONE, GROW, UNKNOWN_TABLE, TWIN, NEWER_SCHEMA = range(5)
"""What `records` returns: all heads are read; there is no room for the steps of the next one; it has a table that is not in the array; it
is for the reference; its schema version is above that of one of its tables."""

# Words (int32) of a column in the Drainer's messages. (offset, length) pairs point into the table's pool. C_HOW: HOW_…; C_STORED: its
# `ValueOp`; C_WIDTH: bytes of a BIT; C_TAG: of its bytes in a Kafka message; C_PREFIX: what stands before its value in a file; C_NULL and
# C_ABSENT: the whole value where it is NULL, or older than the column (length -1: for the reference).
C_SLOT, C_HOW, C_STORED, C_FSP, C_WIDTH, C_TAG, C_PREFIX, C_PREFIX_LEN, C_NULL, C_NULL_LEN, C_ABSENT, C_ABSENT_LEN = range(12)
COLUMN_WORDS = 16
COLUMN_BYTES = 4 * COLUMN_WORDS
HOW_SIGNED, HOW_UNSIGNED, HOW_FLOAT, HOW_BYTES, HOW_TEXT, HOW_BIT, HOW_YEAR = range(7)

# Words (int64) of a table in the Drainer's messages. X_HEADS: (offset, length) of what a row begins with, of an insert, an update, a
# delete; X_FIXED, X_ROOM: most bytes of a row apart from its values, and most that a stored byte becomes.
X_COLUMNS, X_COUNT, X_POOL, X_FIXED, X_ROOM = range(5)
X_HEADS = 5
X_WORDS = 12
X_BYTES = 8 * X_WORDS

# Words (int64) of `messages`: its buffer; where each row ends in it; READY: what the reference made of the row at which the call begins,
# length -1: nothing; FORM: FILE or KAFKA.
M_OUTCOME, M_OUT, M_OUT_SIZE, M_OUT_USED, M_ENDS, M_READY, M_READY_LEN, M_FORM = range(8)
M_WORDS = 8
FILE, KAFKA = range(2)

SEEN = 4096
"""Column ids from -1 to SEEN - 2 are read here; rows with others are for the reference."""
