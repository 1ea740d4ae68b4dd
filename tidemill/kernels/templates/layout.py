"""The memory layout of a text program: steps of a message, columns of an image. `program.py` builds it.

The steps of a row's kind write its message one after the other. Programs are data, so a new table or a DDL needs no compilation.
"""

from __future__ import annotations

import enum

from tidemill.kernels.write.tables import SIZE


class Step(enum.IntEnum):
    """What a step writes. Its words (int64): step, then a, b and c."""

    CONSTANT = 1  # b bytes at a of the pool
    COMMIT_TS = 2
    COMMIT_MS = 3  # milliseconds since 1970 of the commit ts
    NOW = 4  # the wall clock's milliseconds when the chunk was begun
    COLUMNS = 5  # a: image; b: offset of the columns' words, c: how many
    CHANGED = 6  # the same, but only columns whose value the other image does not have
    PROMOTED = 7  # a: image; b: offset of a column's words; c: numbers from it on are written as the column's prefix, others as its suffix
    KEY_NUMBER = 8  # the number at byte a of the record key
    HANDLE = 9  # the handle as the inside of a CSV field; a: image; b: address of its columns' kinds, c: how many, 0: an integer
    START_TS = 10
    KEY_END = 11  # nothing: what was written so far is the message's key


STEP_CONSTANT, STEP_COMMIT_TS, STEP_COMMIT_MS, STEP_NOW, STEP_COLUMNS, STEP_CHANGED, STEP_PROMOTED, STEP_KEY_NUMBER = range(1, 9)
STEP_HANDLE, STEP_START_TS, STEP_KEY_END = range(9, 12)
STEP_WORDS = 4
STEP_BYTES = 32

NEW, OLD = 0, 1
"""Images of a row."""

HANDLE_AT = 11  # byte of a record key at which the handle begins

# Words (int64) of one table: for each kind (delete, update, insert) its steps, then what all share.
X_STEPS, X_STEP_COUNT, X_IMAGES = range(3)  # X_IMAGES: bit 1 << image for each that is read
X_KIND_WORDS = 3
X_KIND_BYTES = 24
X_COLUMNS, X_POOL = 9, 10
X_FIXED, X_ROOM = 11, 12  # most bytes of a row besides its values; most bytes of text for a stored byte
TEXT_WORDS = 13
TEXT_BYTES = 8 * TEXT_WORDS
ON_DELETE, ON_UPDATE, ON_INSERT = range(3)


class TextOp(enum.IntEnum):
    """How a value is written. Ops below 32 are numbers and times of `kernels.rows.layout.ValueOp`, floats without exponent."""

    JSON_TEXT = 32  # the inside of a JSON string
    JSON_LATIN = 33  # each byte as the character with its number, as the inside of a JSON string
    JSON_DOCUMENT = 34  # binary JSON as text, as the inside of a JSON string
    BASE64 = 35
    HEX = 36
    CSV_TEXT = 37
    CSV_DOCUMENT = 38  # binary JSON
    GO_FLOAT = 39  # as Go's %v: with an exponent below 1e-4 and from 1e6 on
    ENUM = 40  # a ready-made text for each element
    SET = 41
    # Values of Kafka Connect: `kernels.write.connect`.
    CONNECT_TEXT = 42  # the inside of a JSON string with few escapes
    CONNECT_DOCUMENT = 43  # binary JSON as text, as the inside of such a string
    CONNECT_FLOAT = 44  # as Go's encoding/json
    CONNECT_SIGNED = 45  # an unsigned integer of 64 bits as a signed one
    CONNECT_BOOLEAN = 46
    CONNECT_BITS = 47  # base64 of as many bytes as C_FSP says, lowest first
    CONNECT_DECIMAL = 48  # a decimal as the nearest double
    CONNECT_DAYS = 49  # since 1970; C_FSP: see ZERO_FOR_NO_DATE
    CONNECT_MILLISECONDS = 50  # since 1970; the same
    CONNECT_MICROSECONDS = 51
    CONNECT_DURATION = 52  # microseconds
    CONNECT_TIMESTAMP = 53  # 2021-02-28T11:22:33.123Z
    CONNECT_ENUM = 54  # as ENUM, but empty where there is no such element
    CONNECT_SET = 55


FIRST_CONNECT = 42
SINGLE_AS_DOUBLE = -1
"""C_STORED of a FLOAT whose GO_FLOAT is that of the double that it is."""
ZERO_FOR_NO_DATE, NULL_FOR_NO_DATE = range(2)
"""C_FSP of a date in CONNECT_…: what is written for one that is not in the calendar."""

OP_JSON_TEXT, OP_JSON_LATIN, OP_JSON_DOCUMENT, OP_BASE64, OP_HEX, OP_CSV_TEXT, OP_CSV_DOCUMENT, OP_GO_FLOAT, OP_ENUM, OP_SET = range(32, 42)
(
    OP_CONNECT_TEXT,
    OP_CONNECT_DOCUMENT,
    OP_CONNECT_FLOAT,
    OP_CONNECT_SIGNED,
    OP_CONNECT_BOOLEAN,
    OP_CONNECT_BITS,
    OP_CONNECT_DECIMAL,
    OP_CONNECT_DAYS,
    OP_CONNECT_MILLISECONDS,
    OP_CONNECT_MICROSECONDS,
    OP_CONNECT_DURATION,
    OP_CONNECT_TIMESTAMP,
    OP_CONNECT_ENUM,
    OP_CONNECT_SET,
) = range(42, 56)
OP_VECTOR_TEXT = 15  # kernels.rows.layout.OP_VECTOR

# Words (int32) of a column of a list: one cache line. (offset, length) pairs point into the program's pool; each text but the first
# column's begins with the separator.
(
    C_SLOT,
    C_OP,
    C_FSP,  # digits of a time's fraction, or what the op needs
    C_PREFIX,
    C_PREFIX_LEN,
    C_SUFFIX,
    C_SUFFIX_LEN,
    C_NULL,
    C_NULL_LEN,
    C_ABSENT,
    C_ABSENT_LEN,  # -1: fall back to the reference
    C_STORED,  # kernels.rows.layout.ValueOp of the column, or SINGLE_AS_DOUBLE
    C_MEMBERS,  # offset of the elements' (offset, length) pairs in the pool, int32
    C_MEMBER_COUNT,
    C_ESCAPE,  # 1: the written text has to be escaped for CSV
    C_SEPARATOR,  # bytes of the separator that all texts begin with, skipped for the first
) = range(16)
COLUMN_WORDS = 16
COLUMN_BYTES = 64

# Words (int64) of the state: it outlives the calls for one chunk.
(
    ST_OUTCOME,
    ST_VALUES,  # address of the values' buffer
    ST_VALUES_SIZE,
    ST_VALUES_USED,
    ST_MESSAGES,  # address of the MESSAGE records, as many as there are rows; value is an offset here: the buffer may still grow
    ST_READY,  # a message made by the reference for the row at which the call begins: address and length, length -1: none
    ST_READY_LEN,
    ST_MAX_BYTES,  # of a message, record overhead included
    ST_NOW,
    ST_TEXT_TABLES,  # address of the constant tables that hold the escapes of JSON_TEXT
    ST_QUOTE,  # CSV's quote, -1: none
    ST_DELIMITER,  # address of CSV's delimiter, and its escaped form behind 32 bytes
    ST_DELIMITER_LEN,
    ST_ESCAPED_LEN,
    ST_COMPRESSION,  # of each value: UNCOMPRESSED, AS_SNAPPY, AS_LZ4
    ST_HASHES,  # address of the compressors' table
    ST_KEY_END,  # of the message that is being written: address of the end of its key, 0: it has none
    ST_READY_KEY_LEN,  # bytes of the ready-made message that are its key, -1: it has none
) = range(18)
STATE_WORDS = 18
UNCOMPRESSED, AS_SNAPPY, AS_LZ4 = range(3)

O_LATIN = SIZE
"""Offset in Canal-JSON's tables of a word for each byte: its text as ISO-8859-1, and in the top byte its length."""
