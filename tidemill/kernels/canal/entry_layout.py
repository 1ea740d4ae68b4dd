"""What the kernel of entries for Canal's clients has in memory: words of a table, of the state, and the records of what it wrote."""

from __future__ import annotations

import numpy as np

# Words (int64) of one table: for each kind (delete, update, insert) what its entries are made of, then what all share; X_COLUMNS, X_POOL,
# X_FIXED and X_ROOM of `layout` too.
K_IMAGES, K_BEFORE, K_AFTER, K_CHANGED, K_EVENT, K_CHANGE, K_CHANGE_LEN = range(7)
# K_CHANGED: offset of the columns for values that an update changed, -1: all are alike. K_CHANGE: the row change before its rows.
X_COUNT = 24  # columns of an image
X_NAMES, X_NAMES_LEN = 30, 31  # the header's schemaName and tableName

# Words (int64) of the state.
(
    ST_OUTCOME,
    ST_OUT,  # address of the entries' buffer
    ST_OUT_SIZE,
    ST_OUT_USED,
    ST_RECORDS,  # address of the ENTRY records
    ST_RECORD_COUNT,
    ST_READY,  # RowData made by the reference for the row at which the call begins: address and length, length -1: none
    ST_READY_LEN,
    ST_CLOSING,  # what is closed behind the last row: KEEP, CLOSE_ENTRY, CLOSE_TRANSACTION
    ST_HEAD,  # address of room for a header
    ST_SERVER_ID,
    ST_MAX_ROWS,  # of an entry
    ST_MAX_BYTES,
    ST_OPEN,  # 1: a transaction has begun; these outlive a chunk
    ST_COMMIT,
    ST_START,
    ST_PLACE,  # of the next entry
    ST_TABLE,  # of the entry that is being written; -1: none
    ST_KIND,
    ST_ROWS,
    ST_BODY,  # offset of its rows
    ST_AHEAD,  # bytes of tag and length of the row before
) = range(22)
STATE_WORDS = 24
KEEP, CLOSE_ENTRY, CLOSE_TRANSACTION = range(3)

ENTRY = np.dtype(
    [
        ("address", "u8"), ("size", "i8"), ("commit_ts", "u8"), ("start_ts", "u8"), ("table", "i4"), ("rows", "i4"), ("type", "i4"),
        ("event", "i4"),
    ]
)  # fmt: skip
"""An entry in the buffer. table: ROW.table, -1 for the ends of a transaction. type, event: numbers of `EntryType` and `EventType`."""
E_ADDRESS, E_SIZE, E_COMMIT, E_START, E_TABLE, E_ROWS, E_TYPE, E_EVENT = 0, 8, 16, 24, 32, 36, 40, 44
ENTRY_SIZE = ENTRY.itemsize

HEAD_ROOM = 320
"""Most bytes of an entry before its rows, apart from the names; most bytes of TRANSACTIONBEGIN or TRANSACTIONEND."""
