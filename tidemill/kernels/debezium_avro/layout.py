"""The memory layout of a program: words of a table, added to those of `kernels.rows.layout`.

Words of a field are those of `kernels.avro.layout`. Its op may also be WIDE_FLOAT, or one of `kernels.templates.layout.TextOp`: the times
and bits of Kafka Connect.
"""

from __future__ import annotations

OP_WIDE_FLOAT = 60
"""A FLOAT that is written as a double."""

# Words (int64) of one table.
(
    E_FIELDS,  # address of the fields: those of the key, then those of a row
    E_KEY_COUNT,
    E_COUNT,  # those of a row
    E_POOL,
    E_FIXED,  # most bytes of a row's message besides its values
    E_KEY_HEAD,  # magic byte and schema id as the low five bytes of a word
    E_VALUE_HEAD,
    E_FLAGS,
    E_SOURCE,  # offset and length of `source` before ts_ms, and then before commit_ts
    E_SOURCE_LEN,
    E_MIDDLE,
    E_MIDDLE_LEN,
) = range(12)
ENVELOPE_WORDS = 12
ENVELOPE_BYTES = 8 * ENVELOPE_WORDS

FLAG_OLD_VALUE = 1  # updates hold the row before them
FLAG_START_TS = 2  # `source` ends with start_ts
