"""What a Canal program looks like in memory: parts of an entry, columns of an image. See `program.py` for how it is made.

The words of a column agree with those of `templates.layout` up to C_STORED, so that images are compared by the same code.
"""

from __future__ import annotations

import enum

from tidemill.kernels.templates.layout import (
    C_ABSENT,
    C_ABSENT_LEN,
    C_FSP,
    C_MEMBER_COUNT,
    C_MEMBERS,
    C_NULL,
    C_NULL_LEN,
    C_OP,
    C_PREFIX,
    C_PREFIX_LEN,
    C_SLOT,
    C_STORED,
    C_SUFFIX,
    C_SUFFIX_LEN,
    COLUMN_BYTES,
    COLUMN_WORDS,
    NEW,
    OLD,
    ON_DELETE,
    ON_INSERT,
    ON_UPDATE,
    OP_ENUM,
    OP_SET,
)

__all__ = [
    "COLUMN_BYTES",
    "COLUMN_WORDS",
    "C_ABSENT",
    "C_ABSENT_LEN",
    "C_EMPTY",
    "C_FSP",
    "C_HIGHER",
    "C_HIGHER_LEN",
    "C_MEMBERS",
    "C_MEMBER_COUNT",
    "C_NULL",
    "C_NULL_LEN",
    "C_OP",
    "C_POWER",
    "C_PREFIX",
    "C_PREFIX_LEN",
    "C_SLOT",
    "C_STORED",
    "C_SUFFIX",
    "C_SUFFIX_LEN",
    "NEW",
    "OLD",
    "ON_DELETE",
    "ON_INSERT",
    "ON_UPDATE",
    "OP_ENUM",
    "OP_LATIN",
    "OP_SET",
    "OP_UTF8",
    "OP_YEAR4",
    "TextOp",
]


class TextOp(enum.IntEnum):
    """How a value is written; below 32: as numbers, times and documents of `kernels.rows.layout.ValueOp`, floats without exponent."""

    UTF8 = 32  # text; each byte that is not UTF-8 becomes U+FFFD
    LATIN = 33  # each byte as the character of its number
    YEAR4 = 34  # a year, the zero year with its four digits
    ENUM = OP_ENUM  # the text of an element
    SET = OP_SET  # the texts of elements, joined by commas


OP_UTF8, OP_LATIN, OP_YEAR4 = range(32, 35)

# Words (int32) of a column, behind those of `templates.layout`. Prefix: the fields before the value, and its tag. Suffix: those behind it.
# NULL and absent: all behind the column's tag, length included.
C_HIGHER, C_HIGHER_LEN = 12, 13  # the prefix for numbers that do not fit the signed Java type; of ENUM and SET C_MEMBERS, C_MEMBER_COUNT
C_POWER = 14  # from 2 to this power on; 0: no number has another prefix
C_EMPTY = 15  # 1: an empty value is written

# Tags that the kernels write.
TAG_BEFORE, TAG_AFTER = 0x0A, 0x12  # RowData.beforeColumns, afterColumns
TAG_VALUE = 0x42
TAG_MESSAGE = 0x12  # Messages.messages
TAG_HEADER, TAG_EXECUTE_TIME, TAG_STORE_VALUE, TAG_ROW = 0x0A, 0x30, 0x1A, 0x62

# Words (int64) of one table: for each kind (delete, update, insert) what its entries are made of, then what all share.
K_IMAGES, K_BEFORE, K_AFTER, K_COUNT, K_TAIL, K_TAIL_LEN, K_CHANGE, K_CHANGE_LEN = range(8)
# K_IMAGES: bit 1 << image for each that is read. K_BEFORE, K_AFTER: offsets of their columns' words. K_TAIL: the header behind its
# executeTime. K_CHANGE: the row change before its row.
KIND_BYTES = 64
X_HEAD, X_HEAD_LEN = 24, 25  # the header before its executeTime
X_COLUMNS, X_POOL = 26, 27
X_FIXED, X_ROOM = 28, 29  # most bytes that a row takes apart from its values; most bytes that a stored byte becomes
TEXT_WORDS = 32
TEXT_BYTES = 8 * TEXT_WORDS

# Words (int64) of the state: it outlives the calls for one chunk.
(
    ST_OUTCOME,
    ST_VALUES,  # address of the values' buffer
    ST_VALUES_SIZE,
    ST_VALUES_USED,
    ST_MESSAGES,  # address of the MESSAGE records, as many as there are rows; value is an offset here: the buffer may still grow
    ST_MESSAGE_COUNT,
    ST_GROUP,  # the group of the row that is next
    ST_GROUPS,  # address of the groups' first rows (int32)
    ST_READY,  # an entry made by the reference for the row at which the call begins: address and length, length -1: none
    ST_READY_LEN,
    ST_MAX_BYTES,  # of a message, record overhead included
    ST_MAX_ROWS,  # of a packet
    ST_BODY,  # offset of the open packet's body
    ST_AHEAD,  # bytes before the row's columns in the entry before: mostly the same again
) = range(14)
STATE_WORDS = 16

PACKET_ROOM = 16
"""Bytes that are kept free before a packet's body, for its version, type, tag and length."""
