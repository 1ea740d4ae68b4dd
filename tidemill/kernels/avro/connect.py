"""Times and bits of Kafka Connect in Avro, with the branch of their union. All writers return the end, or -1: fall back to the reference,
`tidemill.protocols.debezium_avro.values`.

`p` has room for 64 bytes more than the value takes; `a` and `n` are the stored bytes.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.avro import layout as A
from tidemill.kernels.avro.values import DOUBLE_SPECIAL, sized_behind, w_varint, zigzag
from tidemill.kernels.intrinsics import as_i, f64_bits, jit, ld32s, st8, st64
from tidemill.kernels.templates import layout as X
from tidemill.kernels.write.connect import NO_DAYS, days_of, since_epoch, w_iso, whole_microseconds
from tidemill.kernels.write.numbers import bad_width, float_of, int_of, uint_of
from tidemill.kernels.write.times import MAX_DURATION, bad_time

U0 = np.uint64(0)


@jit
def w_branch(p, field):
    """Write the branch of a value that is not null, if the field is a union."""
    st8(p, ld32s(field + 4 * A.F_BRANCH))
    return p + ld32s(field + 4 * A.F_BRANCH_LEN)


@jit
def w_moment(p, op, field, u):
    """Write a packed date or time as a number since 1970. One that is not in the calendar is null, or 0 where null is not allowed."""
    if bad_time(u):
        return -1
    days = days_of(u)
    if days != NO_DAYS:
        return w_varint(w_branch(p, field), zigzag(since_epoch(op, u, days)))
    null = ld32s(field + 4 * A.F_NULL)
    st8(p, max(null, 0))  # the branch of null, or the number 0
    return p + 1


@jit
def w_wide_float(p, a, n):
    """Write a FLOAT as a double; NaN and infinities are 0."""
    if n != 8:
        return -1
    bits = f64_bits(np.float64(np.float32(float_of(a))))
    st64(p, U0 if bits & DOUBLE_SPECIAL == DOUBLE_SPECIAL else bits)
    return p + 8


@jit
def w_connect_field(T, p, op, field, a, n):
    """Write a field whose op is not plain Avro's."""
    if op == A.OP_WIDE_FLOAT:
        return w_wide_float(w_branch(p, field), a, n)
    if bad_width(n):
        return -1
    if op == X.OP_CONNECT_DURATION:
        nanoseconds = int_of(a, n)
        if nanoseconds > MAX_DURATION or nanoseconds < -MAX_DURATION:
            return -1
        return w_varint(w_branch(p, field), zigzag(whole_microseconds(nanoseconds)))
    u = uint_of(a, n)
    if op == X.OP_CONNECT_BOOLEAN:
        p = w_branch(p, field)
        st8(p, u != U0)
        return p + 1
    digits = ld32s(field + 4 * A.F_DIGITS)
    if op == X.OP_CONNECT_BITS:
        p = w_branch(p, field)
        st8(p, digits << 1)
        st64(p + 1, u)
        return p + 1 + digits
    if op == X.OP_CONNECT_TIMESTAMP:
        p = w_branch(p, field)
        end = w_iso(T, p + 1, as_i(u), digits)
        return sized_behind(p, end) if end >= 0 else -1
    return w_moment(p, op, field, as_i(u))
