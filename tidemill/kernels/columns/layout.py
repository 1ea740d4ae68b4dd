"""The memory layout of a column program and of the columns that it fills."""

from __future__ import annotations

from tidemill.tidb.columns.forms import ALL_IMAGES, IMAGES, Form

__all__ = ["ALL_IMAGES", "IMAGES"]

F_INTEGER, F_UNSIGNED, F_FLOAT, F_DOUBLE, F_DECIMAL, F_DATE, F_MOMENT, F_BYTES = (int(f) for f in list(Form)[:8])
F_PLAIN_TEXT, F_ENUM, F_SET, F_JSON, F_VECTOR, F_INTERVAL = (int(f) for f in list(Form)[8:])

# Words (int32) of a column in a program: one cache line. Offsets point into the program's pool.
(
    C_SLOT,
    C_FORM,
    C_WIDTH,  # bytes of a value, 0: they differ
    C_STORED,  # the column's kernels.rows.layout.ValueOp
    C_FSP,  # digits after the point of a time's text
    C_STEP,  # microseconds of the last such digit
    C_SCALE,
    C_DIGITS,  # of a decimal
    C_ABSENT,  # the value in a row that is older than the column
    C_ABSENT_LEN,  # ABSENT_NULL, ABSENT_SLOW or its size
    C_MEMBERS,  # of ENUM (from index 0 on, the empty text) and SET: pairs of offset and length
    C_MEMBER_COUNT,
    C_MEMBER_ROOM,  # most bytes of a value of such a column
) = range(13)
COLUMN_WORDS = 16
COLUMN_BYTES = 64
ABSENT_NULL = -1
ABSENT_SLOW = -2  # falls back to the reference

# Words (int32) of a column in a program of JSON objects: one cache line, too.
(
    J_SLOT,
    J_FORM,
    J_STORED,
    J_FSP,
    J_HEAD,  # what stands before the value: `,"name":`
    J_HEAD_LEN,
    J_QUOTE,  # 1: the value has quotation marks
    J_ABSENT,  # the whole value in a row that is older than the column
    J_ABSENT_LEN,
    J_MEMBERS,
    J_MEMBER_COUNT,
) = range(11)
J_PLAIN, J_TEXT, J_BASE64, J_ENUM, J_SET = range(5)
"""Forms of such a value. J_PLAIN: by its ValueOp."""

# Words (int64) of a program. P_FIXED: most bytes of an object besides its values.
(P_COLUMNS, P_COUNT, P_POOL, P_FIXED) = range(4)
PROGRAM_WORDS = 4
PROGRAM_BYTES = 8 * PROGRAM_WORDS

# Words (int64) of a column that is filled.
(
    O_VALID,  # address of the validity bitmap
    O_DATA,  # address of the values
    O_ROOM,  # bytes there, of a column whose values differ in size
    O_OFFSETS,  # address of int32 offsets in bytes, 0 where all values have one size
) = range(4)
OUT_WORDS = 4
OUT_BYTES = 8 * OUT_WORDS

# Words (int64) of the state.
(
    ST_OUTCOME,
    ST_ROWS,  # rows that are filled
    ST_CAPACITY,  # rows that there is room for
    ST_COLUMNS,  # address of the columns that are filled
    ST_CHANGES,  # address: one byte a row, its Image
    ST_COMMITS,  # address: uint64
    ST_STARTS,  # address: uint64
    ST_IMAGES,  # bit 1 << Image: such rows are wanted
    ST_STRICT,  # 1: a value that its type cannot have falls back to the reference, which refuses it
    ST_COLUMN,  # of outcome GROW: which column needs room
    ST_NEED,  # ... and how many bytes in all
    ST_TABLES,  # address: int32, the number of the table; of objects only
) = range(12)
STATE_WORDS = 16

DONE, GROW, SLOW, FULL = range(4)
"""Outcomes. GROW: a column needs room. SLOW: a row falls back to the reference. FULL: there is no room for more rows."""

INSERT, PREIMAGE, POSTIMAGE, DELETE = range(4)
"""What a row of the output is; `IMAGES` has their names."""

LARGEST_COLUMN = 64 << 20
"""A batch ends when a column has this many bytes: offsets are 32 bits, and Spark takes batches as a whole."""
SLACK = 128
"""Bytes that writers may write past what they return."""
