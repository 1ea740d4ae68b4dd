"""Which entries of a store's block go into a client's batch, and the batch's bytes, in compiled code.

Reference: `tidemill.canal.conversation.cutting.Cutter`, an entry after the other. `cut_block` chooses entries, `write_entries` writes them
as the items of `Messages.messages`.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.canal.block_kernel import INDEX_SIZE
from tidemill.kernels.intrinsics import entry, jit, ld8, ld32, ld64, memcpy, st8, st32, st64
from tidemill.protocols.canal.codes import EntryType

# Where the fields of an entry's record are.
_SIZE, _ROWS, _KIND, _DDL = 8, 12, 22, 23
_BEGIN, _END = int(EntryType.TRANSACTIONBEGIN), int(EntryType.TRANSACTIONEND)

STATE = np.dtype(
    [
        ("entries", "<i8"),  # in the batch so far
        ("bytes", "<i8"),
        ("rows", "<i8"),
        ("most_entries", "<i8"),
        ("most_bytes", "<i8"),
        ("alone", "<i8"),  # a DDL is alone in its batch
        ("boundaries", "<i8"),  # the ends of transactions are delivered
        ("held", "<i8"),  # the TRANSACTIONBEGIN that waits for a row: its number in the block, EARLIER, or NONE
        ("held_size", "<i8"),
        ("inside", "<i8"),  # a transaction has begun for the client
        ("end", "<i8"),  # the batch ends behind this entry of the block, or behind EARLIER; NONE: where it did
        ("end_inside", "<i8"),
        ("closed", "<i8"),  # nothing more goes in
        ("chosen", "<i8"),  # how many entries `out` has
    ]
)
"""Of one batch. `cut_block` reads and writes it."""
NONE, EARLIER = -2, -1
_WORDS = {name: i for i, name in enumerate(STATE.names or ())}
ENTRIES, BYTES, ROWS, HELD = (_WORDS[name] for name in ("entries", "bytes", "rows", "held"))
END, END_INSIDE, CLOSED, CHOSEN = (_WORDS[name] for name in ("end", "end_inside", "closed", "chosen"))
"""Numbers of its words."""
_AT = {name: 8 * i for name, i in _WORDS.items()}
_ENTRIES, _BYTES, _BATCH_ROWS, _MOST_ENTRIES, _MOST_BYTES = (_AT[n] for n in ("entries", "bytes", "rows", "most_entries", "most_bytes"))
_ALONE, _BOUNDARIES, _HELD, _HELD_SIZE, _INSIDE = (_AT[n] for n in ("alone", "boundaries", "held", "held_size", "inside"))
_PLACE, _PLACE_INSIDE, _CLOSED, _CHOSEN = (_AT[n] for n in ("end", "end_inside", "closed", "chosen"))

ITEM = 0x12
"""Tag of an item of `Messages.messages`."""
MOST_HEAD = 6
"""Bytes that an item has before its entry, at most."""


@jit
def _over(state):
    full = ld64(state + _ENTRIES) >= ld64(state + _MOST_ENTRIES) or ld64(state + _BYTES) > ld64(state + _MOST_BYTES)
    return full or ld64(state + _CLOSED) != 0


@jit
def _add(state, out, number, size, rows):
    chosen = ld64(state + _CHOSEN)
    st32(out + 4 * chosen, number)
    st64(state + _CHOSEN, chosen + 1)
    st64(state + _ENTRIES, ld64(state + _ENTRIES) + 1)
    st64(state + _BYTES, ld64(state + _BYTES) + size)
    st64(state + _BATCH_ROWS, ld64(state + _BATCH_ROWS) + rows)


@jit
def _place(state, number, inside):
    st64(state + _PLACE, number)
    st64(state + _PLACE_INSIDE, inside)


@entry(6)
def cut_block(first, n, index, passes, state, out):
    """Take entries first … n - 1 of a block until the batch is over. `passes`: a byte an entry, 1 for rows and DDLs that the client gets.
    Numbers of those taken go to `out`. Return the number of the first entry that was not looked at."""
    for number in range(first, n):
        if _over(state):
            return number
        record = index + INDEX_SIZE * number
        kind = ld8(record + _KIND)
        if kind == _BEGIN:
            st64(state + _HELD, number)
            st64(state + _HELD_SIZE, ld32(record + _SIZE))
            st64(state + _INSIDE, 0)
        elif kind == _END:
            if ld64(state + _INSIDE) != 0 and ld64(state + _BOUNDARIES) != 0:
                _add(state, out, number, ld32(record + _SIZE), 0)
            st64(state + _HELD, NONE)
            st64(state + _INSIDE, 0)
            _place(state, number, 0)
        elif ld8(passes + number) == 0:
            if ld64(state + _HELD) == NONE:
                _place(state, number, ld64(state + _INSIDE))
        else:
            if ld8(record + _DDL) != 0:
                if ld64(state + _ALONE) != 0:
                    st64(state + _CLOSED, 1)
                    if ld64(state + _ENTRIES) > 0:
                        return number
            else:
                held = ld64(state + _HELD)
                st64(state + _INSIDE, 1)
                if held != NONE:
                    st64(state + _HELD, NONE)
                    if ld64(state + _BOUNDARIES) != 0:
                        _add(state, out, held, ld64(state + _HELD_SIZE), 0)
                        _place(state, held, 1)
                        if _over(state):
                            return number
            _add(state, out, number, ld32(record + _SIZE), ld32(record + _ROWS))
            _place(state, number, ld64(state + _INSIDE))
    return n


@entry(5)
def write_entries(n, numbers, offsets, data, out):
    """Write n entries of a block, in order, each with its tag and length. Return the end."""
    for i in range(n):
        number = ld32(numbers + 4 * i)
        begin = ld64(offsets + 8 * number)
        size = ld64(offsets + 8 * number + 8) - begin
        st8(out, ITEM)
        out += 1
        rest = size
        while rest > 0x7F:
            st8(out, (rest & 0x7F) | 0x80)
            out += 1
            rest >>= 7
        st8(out, rest)
        memcpy(out + 1, data + begin, size)
        out += 1 + size
    return out
