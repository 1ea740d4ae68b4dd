"""The memory layout of an Avro program: words of a table, added to those of `kernels.rows.layout`, and words of a field."""

from __future__ import annotations

import enum


class AvroOp(enum.IntEnum):
    """The form of a field's stored bytes, which decides how they are written."""

    INT = 1  # a varint
    UINT = 2  # a varint that wraps
    FLOAT = 3
    DOUBLE = 4
    BYTES = 5  # text and bytes as they are stored
    BIT = 6
    DECIMAL = 7
    ENUM = 8
    SET = 9
    PLAIN_TEXT = 10  # numbers and times as text; F_STORED has the type
    JSON = 11
    VECTOR = 12
    UNKNOWN = 13  # falls back to the reference


OP_WIDE_FLOAT = 60
"""A FLOAT that is written as a double. This and the times and bits of Kafka Connect, whose numbers are those of
`kernels.templates.layout.TextOp`, are ops of an envelope's fields."""
OP_INT, OP_UINT, OP_FLOAT, OP_DOUBLE, OP_BYTES, OP_BIT, OP_DECIMAL, OP_ENUM, OP_SET, OP_PLAIN_TEXT, OP_JSON, OP_VECTOR, OP_UNKNOWN = range(
    1, 14
)

# Words (int32) of one field: one cache line. Offsets point into the program's pool.
(
    F_SLOT,
    F_OP,
    F_STORED,  # the column's kernels.rows.layout.ValueOp
    F_DIGITS,  # digits after the point of a time's text or a decimal
    F_BRANCH,  # the byte of the union's branch
    F_BRANCH_LEN,  # 0: no union
    F_NULL,  # the byte of the null branch, -1: no union
    F_ABSENT,  # the value in a row that is older than the column
    F_ABSENT_LEN,  # -1: fall back to the reference
    F_MEMBERS,  # of ENUM (from index 0 on, the empty text) and SET: pairs of offset and length
    F_MEMBER_COUNT,
    F_ABSENT_SUM,  # the bytes that such a row adds to the row checksum
    F_ABSENT_SUM_LEN,
) = range(13)
FIELD_WORDS = 16
FIELD_BYTES = 64

# Words (int64) of one table.
(
    A_FIELDS,  # address of its fields: those of the key, then those of an image
    A_KEY_COUNT,
    A_COUNT,  # those of an image
    A_POOL,
    A_FIXED,  # most bytes of a row besides its values
    A_KEY_HEAD,  # magic byte and schema id as the low five bytes of a word
    A_VALUE_HEAD,
    A_FLAGS,
    A_ROOM,  # most bytes that a stored byte becomes
    A_SOURCE,  # of an envelope: offset and length of `source` before ts_ms, and then before commit_ts
    A_SOURCE_LEN,
    A_MIDDLE,
    A_MIDDLE_LEN,
) = range(13)
AVRO_WORDS = 16
AVRO_BYTES = 8 * AVRO_WORDS

FLAG_EXTENSION = 1  # the fields of enable-tidb-extension follow
FLAG_CHECKSUM = 2  # and those of the row checksum
FLAG_DELETED = 4  # a delete's value is its commit ts
FLAG_ENVELOPE = 8  # the value is Debezium's: both images, `source`, the operation
FLAG_OLD_VALUE = 16  # updates hold the row before them
FLAG_START_TS = 32  # `source` ends with start_ts
HEAD_BYTES = 5
