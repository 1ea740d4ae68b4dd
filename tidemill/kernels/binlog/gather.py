"""STEP records → the buffers of a RAW_CHANGE batch."""

from __future__ import annotations

from tidemill.kernels.binlog.layout import (
    S_COMMIT,
    S_KEY,
    S_KEY_LEN,
    S_NEW,
    S_NEW_LEN,
    S_OLD,
    S_OLD_LEN,
    S_PHYSICAL,
    S_SIZE,
    S_START,
)
from tidemill.kernels.intrinsics import entry, jit, ld8, ld32s, ld64, memcpy, st8, st32, st64

PUT, DELETE = 1, 2

# Words of `gather`: addresses of the columns' buffers. Of keys and values: offsets (int32) and data, of values also the bits of those that
# are there, which are zero before.
(G_TABLE, G_OP, G_START, G_COMMIT, G_KEY_AT, G_KEY, G_NEW_AT, G_NEW, G_NEW_BITS, G_OLD_AT, G_OLD, G_OLD_BITS) = range(12)
G_WORDS = 12


@jit
def there(bits, i):
    """Set bit i."""
    at = bits + (i >> 3)
    st8(at, ld8(at) | 1 << (i & 7))


@entry(4)
def gather(steps, order, count, words):
    """Copy the steps at the `count` places of `order`. Returns 0."""
    table = ld64(words + 8 * G_TABLE)
    op = ld64(words + 8 * G_OP)
    start = ld64(words + 8 * G_START)
    commit = ld64(words + 8 * G_COMMIT)
    key_at = ld64(words + 8 * G_KEY_AT)
    key = ld64(words + 8 * G_KEY)
    new_at = ld64(words + 8 * G_NEW_AT)
    new = ld64(words + 8 * G_NEW)
    old_at = ld64(words + 8 * G_OLD_AT)
    old = ld64(words + 8 * G_OLD)
    keys = news = olds = 0
    for i in range(count):
        step = steps + S_SIZE * ld64(order + 8 * i)
        st64(table + 8 * i, ld64(step + S_PHYSICAL))
        st64(start + 8 * i, ld64(step + S_START))
        st64(commit + 8 * i, ld64(step + S_COMMIT))
        size = ld32s(step + S_KEY_LEN)
        memcpy(key + keys, ld64(step + S_KEY), size)
        keys += size
        size = ld32s(step + S_NEW_LEN)
        st8(op + i, PUT if size >= 0 else DELETE)
        if size >= 0:
            memcpy(new + news, ld64(step + S_NEW), size)
            news += size
            there(ld64(words + 8 * G_NEW_BITS), i)
        size = ld32s(step + S_OLD_LEN)
        if size >= 0:
            memcpy(old + olds, ld64(step + S_OLD), size)
            olds += size
            there(ld64(words + 8 * G_OLD_BITS), i)
        st32(key_at + 4 * i + 4, keys)
        st32(new_at + 4 * i + 4, news)
        st32(old_at + 4 * i + 4, olds)
    return 0
