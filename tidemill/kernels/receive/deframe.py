"""The HTTP/2 side of one long gRPC stream: turns frames into concatenated messages."""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_i, bswap64, entry, ld8, ld64, ldu64, memcpy, st64
from tidemill.kernels.receive.layout import (
    D_CONTROLS,
    D_CTL,
    D_DATA,
    D_END,
    D_ERROR,
    D_HAVE,
    D_LEFT,
    D_MSG,
    D_MSGS,
    D_NEED,
    D_OUT,
    D_PAD,
    D_PREFIX,
    D_STREAM,
    DE_COMPRESSED,
    DE_PADDING,
    DE_STREAM,
)

MASK32 = 0xFFFFFFFF


@entry(8)
def deframe(st, buf, n, out, out_cap, ends, ends_cap, ctl):
    """Turn n received bytes into concatenated gRPC messages in `out` (ends: their ends) and control frames in `ctl` (4 words each: type,
    flags, stream, offset of the payload << 32 | length; room for 64). Returns the bytes consumed; the rest must be passed again with more
    bytes after it. Stops early when out (D_NEED: bytes it must hold in total), ends or ctl are full."""
    p = 0
    o = ld64(st + 8 * D_OUT)
    m = ld64(st + 8 * D_MSGS)
    c = ld64(st + 8 * D_CTL)
    st64(st + 8 * D_NEED, 0)
    while True:
        left = ld64(st + 8 * D_LEFT)
        if left > 0:
            if p >= n or m >= ends_cap:
                break
            k = left if left < n - p else n - p
            msg = ld64(st + 8 * D_MSG)
            if msg < 0:
                have = ld64(st + 8 * D_HAVE)
                x = ld64(st + 8 * D_PREFIX)
                used = 0
                while have < 5 and used < k:
                    x = x << 8 | ld8(buf + p + used)
                    used += 1
                    have += 1
                st64(st + 8 * D_HAVE, have)
                st64(st + 8 * D_PREFIX, x)
                p += used
                st64(st + 8 * D_LEFT, left - used)
                if have == 5:
                    if x >> 32 != 0:
                        st64(st + 8 * D_ERROR, DE_COMPRESSED)
                        break
                    st64(st + 8 * D_MSG, x & MASK32)
                    if x & MASK32 == 0:
                        st64(ends + 8 * m, o)
                        m += 1
                        st64(st + 8 * D_MSG, -1)
                    st64(st + 8 * D_HAVE, 0)
                    st64(st + 8 * D_PREFIX, 0)
                continue
            if o + msg > out_cap:
                st64(st + 8 * D_NEED, o + msg)
                break
            if k > msg:
                k = msg
            memcpy(out + o, buf + p, k)
            o += k
            p += k
            st64(st + 8 * D_LEFT, left - k)
            if k == msg:
                st64(ends + 8 * m, o)
                m += 1
                msg = -1
            else:
                msg -= k
            st64(st + 8 * D_MSG, msg)
            continue
        pad = ld64(st + 8 * D_PAD)
        if pad > 0:
            k = pad if pad < n - p else n - p
            p += k
            st64(st + 8 * D_PAD, pad - k)
            if pad > k:
                break
        if n - p < 9:
            break
        length = ld8(buf + p) << 16 | ld8(buf + p + 1) << 8 | ld8(buf + p + 2)
        kind = ld8(buf + p + 3)
        flags = ld8(buf + p + 4)
        stream = as_i(bswap64(ldu64(buf + p + 5)) >> np.uint64(32)) & 0x7FFFFFFF
        if kind == 0:
            if stream != ld64(st + 8 * D_STREAM):
                st64(st + 8 * D_ERROR, DE_STREAM)
                break
            pad = 0
            head = 9
            if flags & 8:
                if n - p < 10:
                    break
                pad = ld8(buf + p + 9)
                head = 10
                if pad + 1 > length:
                    st64(st + 8 * D_ERROR, DE_PADDING)
                    break
            st64(st + 8 * D_DATA, ld64(st + 8 * D_DATA) + length)
            st64(st + 8 * D_LEFT, length - pad - (head - 9))
            st64(st + 8 * D_PAD, pad)
            if flags & 1:
                st64(st + 8 * D_END, 1)
            p += head
            continue
        if n - p < 9 + length or c >= D_CONTROLS:
            break
        st64(ctl + 32 * c, kind)
        st64(ctl + 32 * c + 8, flags)
        st64(ctl + 32 * c + 16, stream)
        st64(ctl + 32 * c + 24, (p + 9) << 32 | length)
        c += 1
        p += 9 + length
    st64(st + 8 * D_OUT, o)
    st64(st + 8 * D_MSGS, m)
    st64(st + 8 * D_CTL, c)
    return p
