"""Scans ChangeDataEvent bytes into ENTRY records. Every field is bounds-checked; unknown fields are skipped; ids may follow the rows."""

from __future__ import annotations

from tidemill.kernels.intrinsics import entry, jit, ld64, prefetch, st8, st16, st32, st64
from tidemill.kernels.receive.layout import (
    DELETE,
    E_COMMIT,
    E_GENERATION,
    E_KEY,
    E_KEYLEN,
    E_KIND,
    E_LENGTH,
    E_OLD,
    E_OLDLEN,
    E_OP,
    E_REGION,
    E_REQUEST,
    E_RESOLVED,
    E_START,
    E_STREAM,
    E_TAG,
    E_TS,
    E_VALLEN,
    E_VALUE,
    E_VARINT,
    E_WIRE,
    ERROR,
    IMPORT_BIT,
    IMPORTED,
    INITIALIZED,
    NEWER,
    RESOLVED,
    SCAN_GROW,
)
from tidemill.kernels.wire import wide_varint

AHEAD = 640  # bytes to prefetch at most


@jit
def skip(wire, p, end):
    """Return the position after a field of that wire type, or -error."""
    if wire == 0:
        _, q = wide_varint(p, end)
        return q if q != 0 else -E_VARINT
    if wire == 2:
        n, q = wide_varint(p, end)
        if q == 0:
            return -E_VARINT
        if n < 0 or n > end - q:
            return -E_LENGTH
        return q + n
    if wire == 1:
        return p + 8 if end - p >= 8 else -E_LENGTH
    if wire == 5:
        return p + 4 if end - p >= 4 else -E_LENGTH
    return -E_WIRE


@jit
def fail(err, code, at):
    st64(err, code)
    st64(err + 8, at)
    return code


@jit
def scan_row(base, p, end, out, region, request, stream, err):
    start = commit = kind = op = gen = 0
    key = klen = val = vlen = old = olen = 0
    imported = 0
    while p < end:
        at = p
        tag, p = wide_varint(p, end)
        if p == 0:
            return fail(err, E_VARINT, at)
        if tag < 8 or tag > 0xFFFFFFFF:
            return fail(err, E_TAG, at)
        wire = tag & 7
        if wire == 2:
            n, p = wide_varint(p, end)
            if p == 0:
                return fail(err, E_VARINT, at)
            if n < 0 or n > end - p:
                return fail(err, E_LENGTH, at)
            if tag == 42:
                key = p - base
                klen = n
            elif tag == 50:
                val = p - base
                vlen = n
            elif tag == 58:
                old = p - base
                olen = n
            p += n
        elif wire == 0:
            v, p = wide_varint(p, end)
            if p == 0:
                return fail(err, E_VARINT, at)
            if tag == 8:
                if v < 0:
                    return fail(err, E_TS, at)
                start = v
            elif tag == 16:
                if v < 0:
                    return fail(err, E_TS, at)
                commit = v
            elif tag == 24:
                kind = v if 0 <= v <= INITIALIZED else NEWER
            elif tag == 32:
                op = v if 0 < v <= DELETE else 0
            elif tag == 80:
                gen = v if 0 <= v < 0x7FFFFFFF else 0x7FFFFFFF
            elif tag == 72 and v & IMPORT_BIT != 0:
                imported = IMPORTED
        else:
            p = skip(wire, p, end)
            if p < 0:
                return fail(err, -p, at)
    st64(out + E_START, start)
    st64(out + E_COMMIT, commit)
    st32(out + E_KEY, key)
    st32(out + E_KEYLEN, klen)
    st32(out + E_VALUE, val)
    st32(out + E_VALLEN, vlen)
    st32(out + E_OLD, old)
    st32(out + E_OLDLEN, olen)
    st32(out + E_GENERATION, gen)
    st8(out + E_KIND, kind)
    st8(out + E_OP, op | imported)
    if imported != 0:
        st64(err + 32, ld64(err + 32) + 1)
    st16(out + E_STREAM, stream)
    st64(out + E_REGION, region)
    st64(out + E_REQUEST, request)
    return 0


@jit
def put_entry(out, kind, ts, at, n, region, request, stream):
    for i in range(8):
        st64(out + 8 * i, 0)
    st64(out + E_RESOLVED, ts)
    st32(out + E_VALUE, at)
    st32(out + E_VALLEN, n)
    st8(out + E_KIND, kind)
    st16(out + E_STREAM, stream)
    st64(out + E_REGION, region)
    st64(out + E_REQUEST, request)


@jit
def scan_event(base, p, end, out, n, cap, stream, err):
    """Scan one Event. The ids may come after the rows, so they are searched for first. Returns n, or -code."""
    region = request = 0
    q = p
    while q < end:
        at = q
        tag, q = wide_varint(q, end)
        if q == 0:
            return -fail(err, E_VARINT, at)
        if tag < 8 or tag > 0xFFFFFFFF:
            return -fail(err, E_TAG, at)
        if tag == 8 or tag == 56:
            v, q = wide_varint(q, end)
            if q == 0:
                return -fail(err, E_VARINT, at)
            if tag == 8:
                region = v
            else:
                request = v
        else:
            q = skip(tag & 7, q, end)
            if q < 0:
                return -fail(err, -q, at)
    while p < end:
        tag, p = wide_varint(p, end)
        if tag == 26:
            m, p = wide_varint(p, end)
            stop = p + m
            while p < stop:
                at = p
                t, p = wide_varint(p, stop)
                if p == 0:
                    return -fail(err, E_VARINT, at)
                if t < 8 or t > 0xFFFFFFFF:
                    return -fail(err, E_TAG, at)
                if t == 10:
                    m, p = wide_varint(p, stop)
                    if p == 0:
                        return -fail(err, E_VARINT, at)
                    if m < 0 or m > stop - p:
                        return -fail(err, E_LENGTH, at)
                    if n == cap:
                        return -SCAN_GROW
                    ahead = m if m < AHEAD else AHEAD
                    while ahead > 0:  # the next row, which may be as long: its fields are far from each other
                        ahead -= 64
                        prefetch(p + m + ahead)
                    code = scan_row(base, p, p + m, out + 64 * n, region, request, stream, err)
                    if code != 0:
                        return -code
                    n += 1
                    p += m
                else:
                    p = skip(t & 7, p, stop)
                    if p < 0:
                        return -fail(err, -p, at)
        elif tag == 42:
            m, p = wide_varint(p, end)
            if n == cap:
                return -SCAN_GROW
            put_entry(out + 64 * n, ERROR, 0, p - base, m, region, request, stream)
            n += 1
            p += m
        elif tag == 48:
            v, p = wide_varint(p, end)
            if v < 0:
                return -fail(err, E_TS, p)
            if n == cap:
                return -SCAN_GROW
            put_entry(out + 64 * n, RESOLVED, v, 0, 0, region, request, stream)
            n += 1
        else:
            p = skip(tag & 7, p, end)
    return n


@jit
def scan_resolved(base, p, end, out, n, cap, stream, err):
    ts = request = 0
    q = p
    while q < end:
        at = q
        tag, q = wide_varint(q, end)
        if q == 0:
            return -fail(err, E_VARINT, at)
        if tag < 8 or tag > 0xFFFFFFFF:
            return -fail(err, E_TAG, at)
        if tag == 16 or tag == 24:
            v, q = wide_varint(q, end)
            if q == 0:
                return -fail(err, E_VARINT, at)
            if tag == 16:
                if v < 0:
                    return -fail(err, E_TS, at)
                ts = v
            else:
                request = v
        else:
            q = skip(tag & 7, q, end)
            if q < 0:
                return -fail(err, -q, at)
    while p < end:
        at = p
        tag, p = wide_varint(p, end)
        if tag == 10 or tag == 8:  # packed, or one value per field
            stop = p
            if tag == 10:
                m, p = wide_varint(p, end)
                stop = p + m
            more = True
            while more:
                if tag == 10 and p >= stop:
                    break
                v, p = wide_varint(p, stop if tag == 10 else end)
                if p == 0:
                    return -fail(err, E_VARINT, at)
                if n == cap:
                    return -SCAN_GROW
                put_entry(out + 64 * n, RESOLVED, ts, 0, 0, v, request, stream)
                n += 1
                more = tag == 10
        else:
            p = skip(tag & 7, p, end)
    return n


@jit
def scan_message(base, p, end, out, n, cap, stream, err):
    while p < end:
        at = p
        tag, p = wide_varint(p, end)
        if p == 0:
            return -fail(err, E_VARINT, at)
        if tag < 8 or tag > 0xFFFFFFFF:
            return -fail(err, E_TAG, at)
        if tag == 10 or tag == 18:
            m, p = wide_varint(p, end)
            if p == 0:
                return -fail(err, E_VARINT, at)
            if m < 0 or m > end - p:
                return -fail(err, E_LENGTH, at)
            if tag == 10:
                n = scan_event(base, p, p + m, out, n, cap, stream, err)
            else:
                n = scan_resolved(base, p, p + m, out, n, cap, stream, err)
            if n < 0:
                return n
            p += m
        else:
            p = skip(tag & 7, p, end)
            if p < 0:
                return -fail(err, -p, at)
    return n


@entry(8)
def scan(base, ends, streams, first, n_msgs, out, cap, st):
    """Scan messages first..n_msgs. Message m ends at base + ends[m] and came on stream streams[m].

    Returns the number of entries. st (6 words): [code, position, message, entries so far, rows marked IMPORTED]. Code 0: all done.
    SCAN_GROW: call again from that message with a larger `out` that keeps the entries. Else the message is malformed at that position, and
    none of its entries is counted."""
    n = ld64(st + 24)
    for m in range(first, n_msgs):
        p = base + (ld64(ends + 8 * (m - 1)) if m > 0 else 0)
        got = scan_message(base, p, base + ld64(ends + 8 * m), out, n, cap, ld64(streams + 8 * m), st)
        if got < 0:
            st64(st, -got)
            st64(st + 8, ld64(st + 8) - p)
            st64(st + 16, m)
            st64(st + 24, n)
            return n
        n = got
    st64(st, 0)
    st64(st + 24, n)
    return n
