"""The memory layout of a table program: words of a column and of a table, the place map, the scratch. See `program.py`.

Programs are data, so a new table or a DDL needs no compilation.
"""

from __future__ import annotations

import enum


class ValueOp(enum.IntEnum):
    """The form of a column's stored bytes, which decides how they are written."""

    INT = 1
    UINT = 2
    FLOAT = 3
    DOUBLE = 4
    DECIMAL = 5
    TEXT = 6  # CHAR, VARCHAR
    QUOTED = 7  # BINARY, VARBINARY
    BLOB = 8  # TEXT and BLOB types: base64
    DATE = 9
    DATETIME = 10
    TIMESTAMP = 11
    DURATION = 12
    JSON = 13
    YEAR = 14
    VECTOR = 15
    UNKNOWN = 16  # falls back to the reference


OP_INT, OP_UINT, OP_FLOAT, OP_DOUBLE, OP_DECIMAL, OP_TEXT, OP_QUOTED, OP_BLOB = range(1, 9)
OP_DATE, OP_DATETIME, OP_TIMESTAMP, OP_DURATION, OP_JSON, OP_YEAR, OP_VECTOR, OP_UNKNOWN = range(9, 17)

# Words (int32) of one output column: one cache line. (offset, length) pairs point into the program's pool.
P_SLOT, P_OP, P_FSP, P_PREFIX, P_PREFIX_LEN, P_SUFFIX, P_SUFFIX_LEN, P_NULL, P_NULL_LEN, P_ABSENT, P_ABSENT_LEN = range(11)
COLUMN_WORDS = 16
COLUMN_BYTES = 64

# Words (int64) of one table.
(
    T_FLAGS,
    T_COLUMNS,  # address of the program
    T_COLUMN_COUNT,
    T_POOL,  # address of the constants
    T_SLOT_OF,  # address: uint16 slot of each column id, T_SLOTS: none
    T_MAX_ID,  # last column id in T_SLOT_OF, at least 255
    T_SLOTS,  # number of slots
    T_TEMPLATE,  # address: int32 per slot and one more, the place of a value that the row lacks (PLACE_…)
    T_KIND,  # address: one byte per slot, its ValueOp
    T_CACHE,  # address of the table's place map (below)
    T_KEY_HEAD,  # address of the constant part of the message key
    T_KEY_HEAD_LEN,
    T_FIXED,  # most bytes of a row besides its values
    T_ZONE,  # address of the time zone's table, 0: UTC
    T_HANDLE,  # address: one byte per column of a common handle, its ValueOp
    T_HANDLE_COUNT,
    T_EXTRA,  # address of words of another kernel (identity, open)
) = range(17)
TABLE_WORDS = 20
TABLE_BYTES = 8 * TABLE_WORDS

FLAG_SLOW = 1  # every row goes to the reference
FLAG_COMMON = 2  # the handle is not an integer
FLAG_PARTITION = 4  # message keys name the physical table

# The place of a slot's value: >= 0 the index in a row of format 2, else
PLACE_NULL = -1
PLACE_ABSENT = -2  # the row is older than the column
PLACE_FOUND = -3  # and below: entry (PLACE_FOUND - place) in the table of found values, which are (address, length) pairs

# The place map of a table: words (int64), then int32 places, then the row header that they were made from.
C_HEADER_LEN, C_OFFSETS, C_DATA, C_LARGE, C_LAST = range(5)
CACHE_PLACES = 64
HEADER_CACHED = 512  # the longest header that is kept, in bytes

# Scratch of a kernel: 64 bytes of text and the stack of the JSON writer, then found values and the room for unpacking them.
SCRATCH_STACK_END = 8192
TEXT_AT = SCRATCH_STACK_END  # two texts of numbers or times
FOUND_PAIRS = 4096  # entries (16 bytes each)
FOUND_AT = TEXT_AT + 2048
UNPACKED_AT = FOUND_AT + 16 * FOUND_PAIRS
MAX_KEY = 16384  # a longer key goes to the reference
UNPACKED_BYTES = MAX_KEY + 64 * FOUND_PAIRS
SCRATCH_BYTES = UNPACKED_AT + UNPACKED_BYTES + 128


class Outcome(enum.IntEnum):
    """Why an entry point returned."""

    DONE = 0
    GROW = 1  # the output is full
    UNKNOWN = 2  # the row falls back to the reference
    TOO_LARGE = 3  # the event alone is larger than a message may be


DONE, GROW, UNKNOWN, TOO_LARGE = range(4)
