"""The rows of transactions → changes of TiKV's records. Reference: `tidemill.binlog.records`.

A table's mutation has its rows in three lists, and a sequence that says from which list the next one comes: one cursor walks over each.
Whatever is unusual or broken is left to the reference, which says what is wrong with it.
"""

from __future__ import annotations

from tidemill.kernels.binlog.heads import tagged
from tidemill.kernels.binlog.layout import (
    DONE,
    GROW,
    H_COMMIT,
    H_ROWS,
    H_ROWS_LEN,
    H_SIZE,
    H_START,
    MOST_PARTS,
    NEWER_SCHEMA,
    PART_SIZE,
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
    S_TABLE,
    SEEN,
    T_COLUMN,
    T_FIRST,
    T_ID,
    T_KIND,
    T_LEFT_OUT,
    T_NUMBER,
    T_PARTS,
    T_PHYSICAL,
    T_SIZE,
    T_TWIN,
    T_VERSION,
    TWIN,
    UNKNOWN_TABLE,
    W_HEAD,
    W_IN_ORDER,
    W_KEYS,
    W_MARK,
    W_ORDER,
    W_STEPS,
    W_TABLE,
    W_VERSION,
)
from tidemill.kernels.intrinsics import as_i, as_u, bswap64, entry, jit, ld8, ld32s, ld64, ldu64, memcpy, st8, st16, st32, st64
from tidemill.kernels.rows.locate import (
    FLAG_COMPACT,
    FLAG_DECIMAL,
    FLAG_DURATION,
    FLAG_FLOAT,
    FLAG_INT,
    FLAG_JSON,
    FLAG_NULL,
    FLAG_UINT,
    FLAG_UVARINT,
    FLAG_VARINT,
    FLAG_VECTOR,
    json_end,
)
from tidemill.kernels.wire import unzigzag, varint
from tidemill.kernels.write.numbers import SIGN64, decimal_size

FLAG_BYTES = 1
INSERTED, UPDATED, DELETED, SEQUENCE = 18, 26, 50, 56  # tags of TableMutation
INSERT, UPDATE, DELETE_ROW = 0, 1, 4
PREFIX = 11  # bytes of a key before its handle
MASK32 = 0xFFFFFFFF


@jit
def datum_end(a, end):
    """Return the address after a datum, as rows have them; -1: it is broken, or of a kind that only keys have."""
    if a >= end:
        return -1
    flag = ld8(a)
    a += 1
    if flag == FLAG_NULL:
        return a
    if flag == FLAG_VARINT or flag == FLAG_UVARINT:
        _, a = varint(a, end)
        return a
    if flag == FLAG_COMPACT:
        u, a = varint(a, end)
        size = unzigzag(u)
        if a < 0 or size < 0 or size > end - a:
            return -1
        return a + size
    if flag == FLAG_INT or flag == FLAG_UINT or flag == FLAG_FLOAT or flag == FLAG_DURATION:
        return a + 8 if end - a >= 8 else -1
    if flag == FLAG_DECIMAL:
        size = decimal_size(a, end - a)
        return a + size if size >= 0 else -1
    if flag == FLAG_JSON:
        return json_end(a, end)
    if flag == FLAG_VECTOR and end - a >= 4 and 4 * ld32u(a) <= end - a - 4:
        return a + 4 + 4 * ld32u(a)
    return -1


@jit
def ld32u(a):
    """Return four bytes as a number that is not negative."""
    return ld32s(a) & MASK32


@jit
def pair(a, end):
    """Return (column id, address of the value, address after it) of the pair at a; address after it -1: for the reference."""
    if a >= end or ld8(a) != FLAG_VARINT:
        return 0, -1, -1
    u, value = varint(a + 1, end)
    column = unzigzag(u)
    if value < 0 or column < -1 or column > SEEN - 2:
        return 0, -1, -1
    return column, value, datum_end(value, end)


@jit
def image(a, end, seen, mark, places):
    """Walk over the pairs of one image, note each value's place in `places` by column, and mark its columns. Returns (address of the pair
    where a column comes again, or the end; number of columns); -1: for the reference."""
    count = 0
    while a < end:
        column, value, after = pair(a, end)
        if after < 0:
            return -1, 0
        if ld64(seen + 8 * (column + 1)) == mark:
            return a, count
        st64(seen + 8 * (column + 1), mark)
        st64(places + 8 * (column + 1), value)
        count += 1
        a = after
    return a, count


@jit
def value_of(column, seen, mark, places):
    """Return the place of a column's value in the image of that mark; -1: it has none."""
    if column < -1 or column > SEEN - 2 or ld64(seen + 8 * (column + 1)) != mark:
        return -1
    return ld64(places + 8 * (column + 1))


@jit
def number_at(a, end):
    """Return (the number of the datum at a, address after it); address -1: for the reference."""
    if a < 0 or a >= end or (ld8(a) != FLAG_VARINT and ld8(a) != FLAG_UVARINT):
        return 0, -1
    u, after = varint(a + 1, end)
    return (unzigzag(u) if ld8(a) == FLAG_VARINT else as_i(u)), after


@jit
def put_big(a, word):
    """Write an int64 in the order of its bytes' values, its sign turned: as keys have it."""
    st64(a, bswap64(as_u(word) ^ SIGN64))
    return a + 8


@jit
def put_prefix(out, physical):
    """Write the beginning of a key: t, table id, _r."""
    st8(out, 0x74)
    st16(put_big(out + 1, physical), 0x725F)
    return out + PREFIX


@jit
def put_groups(out, a, size):
    """Write bytes as keys have them: groups of eight, each followed by a marker."""
    while size >= 8:
        st64(out, ldu64(a))
        st8(out + 8, 0xFF)
        out += 9
        a += 8
        size -= 8
    st64(out, 0)
    memcpy(out, a, size)
    st8(out + 8, 0xF7 + size)
    return out + 9


@jit
def put_part(out, cap, a, end, is_duration):
    """Write the datum at a, as a row has it, in the form of keys. Returns the address after it; -1: for the reference, -2: no room."""
    after = datum_end(a, end)
    if after < 0:
        return -1
    if cap - out < 10 + 2 * (after - a):
        return -2
    flag = ld8(a)
    if flag == FLAG_VARINT:
        u, _ = varint(a + 1, after)
        st8(out, FLAG_DURATION if is_duration != 0 else FLAG_INT)
        return put_big(out + 1, unzigzag(u))
    if flag == FLAG_UVARINT:
        u, _ = varint(a + 1, after)
        st8(out, FLAG_UINT)
        st64(out + 1, bswap64(u))
        return out + 9
    if flag == FLAG_COMPACT:
        _, text = varint(a + 1, after)
        st8(out, FLAG_BYTES)
        return put_groups(out + 1, text, after - text)
    memcpy(out, a, after - a)
    return out + after - a


@jit
def key_of(table, parts, end, seen, mark, places, given, out, cap):
    """Write the key of a row. given: the datums of an inserted row's handle, in case its pairs lack them; 0: there are none. Returns its
    length; -1: for the reference, -2: no room."""
    if cap - out < PREFIX + 8:
        return -2
    at = put_prefix(out, ld64(table + T_PHYSICAL))
    if ld32s(table + T_KIND) == T_NUMBER:
        handle, after = number_at(given if given != 0 else value_of(ld64(table + T_COLUMN), seen, mark, places), end)
        if after < 0:
            return -1
        return put_big(at, handle) - out
    part = parts + PART_SIZE * ld64(table + T_FIRST)
    for _ in range(ld32s(table + T_PARTS)):
        value = value_of(ld64(part), seen, mark, places)
        if value < 0:
            value = given
        if value <= 0:
            return -1
        at = put_part(at, cap, value, end, ld64(part + 8))
        if at < 0:
            return at
        if given != 0:
            given = datum_end(given, end)
        part += PART_SIZE
    return at - out


@jit
def handle_end(table, a, end):
    """Return the address after the handle of an inserted row; -1: for the reference."""
    count = 1 if ld32s(table + T_KIND) == T_NUMBER else ld32s(table + T_PARTS)
    if count > MOST_PARTS:
        return -1
    for _ in range(count):
        a = datum_end(a, end)
        if a < 0:
            return -1
    return a


@jit
def put_step(step, key, key_len, old, old_len, new, new_len):
    """Write the bytes of a step."""
    st64(step + S_KEY, key)
    st32(step + S_KEY_LEN, key_len)
    st64(step + S_OLD, old)
    st32(step + S_OLD_LEN, old_len)
    st64(step + S_NEW, new)
    st32(step + S_NEW_LEN, new_len)


@jit
def inserted(table, parts, a, end, seen, places, words, step, keys, keys_end):
    """Write the step of an inserted row. Returns (steps, bytes of keys); steps -1: for the reference, -2: no room."""
    row = handle_end(table, a, end)
    if row < 0 or row >= end:
        return -1, 0
    mark = ld64(words + 8 * W_MARK) + 1
    st64(words + 8 * W_MARK, mark)
    if end - row != 1 or ld8(row) != FLAG_NULL:  # else a row without pairs
        stop, _ = image(row, end, seen, mark, places)
        if stop != end:
            return -1, 0
    size = key_of(table, parts, end, seen, mark, places, a, keys, keys_end)
    if size < 0:
        return size, 0
    put_step(step, keys, size, 0, -1, row, end - row)
    return 1, size


@jit
def deleted(table, parts, a, end, seen, places, words, step, keys, keys_end):
    """Write the step of a deleted row, as `inserted` does."""
    mark = ld64(words + 8 * W_MARK) + 1
    st64(words + 8 * W_MARK, mark)
    stop, _ = image(a, end, seen, mark, places)
    if stop != end:
        return -1, 0
    size = key_of(table, parts, end, seen, mark, places, 0, keys, keys_end)
    if size < 0:
        return size, 0
    put_step(step, keys, size, a, end - a, 0, -1)
    return 1, size


@jit
def same_key(left, left_len, right, right_len):
    """Whether two keys are equal."""
    return left_len == right_len and compare_bytes(left, left_len, right, right_len) == 0


@jit
def updated(table, parts, a, end, seen, places, words, step, keys, keys_end):
    """Write the step or, if its key changes, the two steps of an updated row, as `inserted` does. Both images have the same columns."""
    mark = ld64(words + 8 * W_MARK) + 1
    st64(words + 8 * W_MARK, mark + 1)
    middle, columns = image(a, end, seen, mark, places)
    if middle < 0 or middle >= end:
        return -1, 0
    old_len = key_of(table, parts, end, seen, mark, places, 0, keys, keys_end)
    if old_len < 0:
        return old_len, 0
    at = middle
    new_columns = 0
    while at < end:
        column, value, after = pair(at, end)
        if after < 0 or ld64(seen + 8 * (column + 1)) != mark:  # a column that the old image lacks, or that comes again
            return -1, 0
        st64(seen + 8 * (column + 1), mark + 1)
        st64(places + 8 * (column + 1), value)
        new_columns += 1
        at = after
    if new_columns != columns:
        return -1, 0
    new_key = keys + old_len
    new_len = key_of(table, parts, end, seen, mark + 1, places, 0, new_key, keys_end)
    if new_len < 0:
        return new_len, 0
    if same_key(keys, old_len, new_key, new_len):
        put_step(step, keys, old_len, a, middle - a, middle, end - middle)
        return 1, old_len
    if ld64(words + 8 * W_IN_ORDER):  # two records, but one change
        return -1, 0
    put_step(step, keys, old_len, a, middle - a, 0, -1)
    put_step(step + S_SIZE, new_key, new_len, 0, -1, middle, end - middle)
    return 2, old_len + new_len


@jit
def next_field(p, end, wanted):
    """Return (address of the content, address after it) of the next field `wanted` from p on; -1: there is none. The fields are whole."""
    while p < end:
        tag, q, p = tagged(p, end)
        if tag == wanted:
            return q, p
    return -1, end


@jit
def table_of(tables, count, wanted):
    """Return the place of a table; -1: it is not there."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if ld64(tables + T_SIZE * middle + T_ID) < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < count and ld64(tables + T_SIZE * low + T_ID) == wanted else -1


@jit
def mutation(p, end, tables, count, parts, seen, places, words, steps, steps_cap, key_room, keys_cap, commit, start):
    """Write the steps of one table's rows. Returns DONE, or why not."""
    table_id = 0
    a = p
    while a < end:
        tag, q, a = tagged(a, end)
        if a < 0 or tag == 58:  # a packed sequence
            return TWIN
        if tag == 8:
            u, _ = varint(q, a)
            table_id = as_i(u)
    place = table_of(tables, count, table_id)
    if place < 0:
        st64(words + 8 * W_TABLE, table_id)
        return UNKNOWN_TABLE
    table = tables + T_SIZE * place
    kind = ld32s(table + T_KIND)
    if kind == T_LEFT_OUT:
        return DONE
    if ld64(words + 8 * W_VERSION) > ld64(table + T_VERSION):
        st64(words + 8 * W_TABLE, table_id)
        return NEWER_SCHEMA
    if kind == T_TWIN:
        return TWIN
    inserts = updates = deletes = a = p
    while True:
        q, a = next_field(a, end, SEQUENCE)
        if q < 0:
            break
        at = ld64(words + 8 * W_STEPS)
        used = ld64(words + 8 * W_KEYS)
        if at + 2 > steps_cap:
            return GROW
        u, _ = varint(q, a)
        what = as_i(u)
        step = steps + S_SIZE * at
        keys = key_room + used
        keys_end = key_room + keys_cap
        if what == INSERT:
            row, inserts = next_field(inserts, end, INSERTED)
            if row < 0:
                return TWIN
            made, size = inserted(table, parts, row, inserts, seen, places, words, step, keys, keys_end)
        elif what == UPDATE:
            row, updates = next_field(updates, end, UPDATED)
            if row < 0:
                return TWIN
            made, size = updated(table, parts, row, updates, seen, places, words, step, keys, keys_end)
        elif what == DELETE_ROW:
            row, deletes = next_field(deletes, end, DELETED)
            if row < 0:
                return TWIN
            made, size = deleted(table, parts, row, deletes, seen, places, words, step, keys, keys_end)
        else:
            return TWIN
        if made < 0:
            return TWIN if made == -1 else GROW
        for i in range(made):
            st64(step + S_SIZE * i + S_COMMIT, commit)
            st64(step + S_SIZE * i + S_START, start)
            st64(step + S_SIZE * i + S_PHYSICAL, ld64(table + T_PHYSICAL))
            st32(step + S_SIZE * i + S_TABLE, place)
        st64(words + 8 * W_STEPS, at + made)
        st64(words + 8 * W_KEYS, used + size)
    left, _ = next_field(inserts, end, INSERTED)
    also, _ = next_field(updates, end, UPDATED)
    more, _ = next_field(deletes, end, DELETED)
    return DONE if left < 0 and also < 0 and more < 0 else TWIN


@jit
def compare_bytes(left, left_len, right, right_len):
    """Return a number below, at or above 0, as left comes before, at or after right."""
    size = left_len if left_len < right_len else right_len
    i = 0
    while i + 8 <= size:
        if ld64(left + i) != ld64(right + i):
            return 1 if bswap64(ldu64(left + i)) > bswap64(ldu64(right + i)) else -1
        i += 8
    while i < size:
        if ld8(left + i) != ld8(right + i):
            return ld8(left + i) - ld8(right + i)
        i += 1
    return left_len - right_len


@jit
def compare(steps, i, j):
    """Compare two steps by table and key."""
    left = steps + S_SIZE * i
    right = steps + S_SIZE * j
    a = ld64(left + S_PHYSICAL)
    b = ld64(right + S_PHYSICAL)
    if a != b:
        return -1 if a < b else 1
    return compare_bytes(ld64(left + S_KEY), ld32s(left + S_KEY_LEN), ld64(right + S_KEY), ld32s(right + S_KEY_LEN))


@jit
def merge_runs(steps, source, target, low, middle, high):
    """Merge two sorted runs of places; of equal keys those of the first run come first."""
    i, j = low, middle
    for at in range(low, high):
        first = i < middle and (j >= high or compare(steps, ld64(source + 8 * i), ld64(source + 8 * j)) <= 0)
        if first:
            st64(target + 8 * at, ld64(source + 8 * i))
            i += 1
        else:
            st64(target + 8 * at, ld64(source + 8 * j))
            j += 1


@jit
def sort(steps, order, spare, count):
    """Sort `count` places of steps, stably."""
    width = 1
    source, target = order, spare
    while width < count:
        low = 0
        while low < count:
            middle = low + width if low + width < count else count
            high = low + 2 * width if low + 2 * width < count else count
            merge_runs(steps, source, target, low, middle, high)
            low += 2 * width
        source, target = target, source
        width *= 2
    if source != order:
        memcpy(order, source, 8 * count)


@jit
def join(steps, order, count):
    """Of each key keep one step: what was before the first and what is after the last. Returns how many are left."""
    kept = 0
    i = 0
    while i < count:
        first = ld64(order + 8 * i)
        last = first
        i += 1
        while i < count and compare(steps, first, ld64(order + 8 * i)) == 0:
            last = ld64(order + 8 * i)
            i += 1
        step = steps + S_SIZE * first
        if last != first:
            st64(step + S_NEW, ld64(steps + S_SIZE * last + S_NEW))
            st32(step + S_NEW_LEN, ld32s(steps + S_SIZE * last + S_NEW_LEN))
        if ld32s(step + S_NEW_LEN) >= 0 or ld32s(step + S_OLD_LEN) >= 0:
            st64(order + 8 * kept, first)
            kept += 1
    return kept


@jit
def settle(steps, first, count, order, spare):
    """Put the steps of one transaction in the order of the log. Returns how many are left of them."""
    ascending = True
    for i in range(count):
        st64(order + 8 * i, first + i)
        if i > 0 and ascending and compare(steps, first + i - 1, first + i) >= 0:
            ascending = False
    if ascending:
        return count
    sort(steps, order, spare, count)
    return join(steps, order, count)


@entry(12)
def records(heads, count, tables, tables_count, parts, seen, steps, steps_cap, keys, keys_cap, order, words):
    """Read the rows of transactions from words[W_HEAD] on. Returns DONE, GROW, UNKNOWN_TABLE, TWIN or NEWER_SCHEMA; then words tell how
    far it came, and nothing is left of the transaction that it stopped at. seen: 2 * SEEN words; order: 2 * steps_cap words."""
    places = seen + 8 * SEEN
    for at in range(ld64(words + 8 * W_HEAD), count):
        head = heads + H_SIZE * at
        first = ld64(words + 8 * W_STEPS)
        used = ld64(words + 8 * W_KEYS)
        code = DONE
        p = ld64(head + H_ROWS)
        end = p + ld32s(head + H_ROWS_LEN)
        st64(words + 8 * W_VERSION, 0)
        while p < end and code == DONE:
            tag, q, p = tagged(p, end)
            if p < 0:
                code = TWIN
            elif tag == 8:  # stands before the mutations
                u, _ = varint(q, p)
                st64(words + 8 * W_VERSION, as_i(u))
            elif tag == 18:
                code = mutation(
                    q, p, tables, tables_count, parts, seen, places, words, steps, steps_cap, keys, keys_cap,
                    ld64(head + H_COMMIT), ld64(head + H_START),
                )  # fmt: skip
        if code != DONE:
            st64(words + 8 * W_STEPS, first)
            st64(words + 8 * W_KEYS, used)
            return code
        kept = ld64(words + 8 * W_ORDER)
        added = ld64(words + 8 * W_STEPS) - first
        if ld64(words + 8 * W_IN_ORDER):
            for i in range(added):
                st64(order + 8 * (kept + i), first + i)
        else:
            added = settle(steps, first, added, order + 8 * kept, order + 8 * steps_cap)
        st64(words + 8 * W_ORDER, kept + added)
        st64(words + 8 * W_HEAD, at + 1)
    return DONE
