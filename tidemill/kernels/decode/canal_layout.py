"""Words of events and columns that `canal_parse` finds in Canal's messages. Each word is an int64; texts are an address and a length."""

from __future__ import annotations

E_MESSAGE = 0
"""The number of the message in its batch."""
E_KIND = 1
E_OP = 2
"""The event type of a row or a DDL."""
E_ES = 3
E_TS = 4
E_HAS_TS = 5
E_SCHEMA = 6
E_TABLE = 8
E_SQL = 10
E_CELLS = 12
"""The first column, the first one behind those of the image before, and the one behind the last."""
E_MIDDLE = 13
E_END = 14
E_WORDS = 15

ROW, DDL, BEGIN, END = range(4)
"""Kinds of events."""

C_NAME = 0
C_TYPE = 2
C_SQL_TYPE = 4
C_FLAGS = 5
C_VALUE = 6
C_VALUE_LEN = 7
"""-1 for NULL."""
C_WORDS = 8

KEY, UPDATED = 1, 2
"""Flags of a column."""

S_EVENTS = 0
"""How many events were found, and where they are written; 0: they are only counted."""
S_EVENTS_AT = 1
S_CELLS = 2
S_CELLS_AT = 3
S_MESSAGE = 4
S_HEAD = 5
"""Of the entry that is read: what its events have in the words from E_ES on."""
S_STARTED = 12
"""Whether the entry's start_ts has been seen."""
S_WORDS = 13

MOST_TYPES = 256
"""Different types of columns in a batch."""
