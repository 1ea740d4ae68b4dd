"""The fields of a located row, one after the other, each with the branch of its union. -1 for an end: fall back to the reference."""

from __future__ import annotations

from tidemill.kernels.avro import layout as A
from tidemill.kernels.avro.connect import w_branch, w_connect_field
from tidemill.kernels.avro.values import w_avro_value
from tidemill.kernels.intrinsics import jit, ld32s, ld64, put, st8
from tidemill.kernels.rows import layout as L
from tidemill.kernels.rows.locate import find, place_map, place_of
from tidemill.kernels.templates.layout import FIRST_CONNECT


@jit
def w_fields(T, p, fields, count, pool, table, S):
    """Write fields of the row that is located in the table's place map."""
    zone = ld64(table + 8 * L.T_ZONE)
    cache = ld64(table + 8 * L.T_CACHE)
    offsets, data, large, last = place_map(cache)
    for i in range(count):
        field = fields + A.FIELD_BYTES * i
        place = place_of(cache, ld32s(field + 4 * A.F_SLOT))
        if place == L.PLACE_NULL:
            branch = ld32s(field + 4 * A.F_NULL)
            if branch < 0:
                return -1
            st8(p, branch)
            p += 1
        elif place == L.PLACE_ABSENT:
            size = ld32s(field + 4 * A.F_ABSENT_LEN)
            if size < 0:
                return -1
            p = put(p, pool + ld32s(field + 4 * A.F_ABSENT), size)
        else:
            a, n = find(place, offsets, data, large, last, S)
            if n < 0:
                return -1
            op = ld32s(field + 4 * A.F_OP)
            if op >= FIRST_CONNECT:
                p = w_connect_field(T, p, op, field, a, n)
            else:
                p = w_avro_value(T, w_branch(p, field), op, field, pool, a, n, zone, S)
            if p < 0:
                return -1
    return p
