"""Finds subscriptions by their ids, and the frontier of each partition."""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_i, as_u, entry, jit, ld32s, ld64, mum, st32, st64
from tidemill.kernels.receive.layout import (
    FREE,
    S_PARTITION,
    S_REGION,
    S_REQUEST,
    S_RESOLVED,
    S_STATE,
    S_STREAM,
    X_LOOKUP,
    X_LOOKUP_MASK,
    X_NSUBS,
    X_SUBS,
)
from tidemill.kernels.receive.text import M1, M2

U1 = np.uint64(1)
NEVER = 0x7FFFFFFFFFFFFFFF


@jit
def word(ctx, index):
    return ld64(ctx + 8 * index)


@jit
def set_word(ctx, index, value):
    st64(ctx + 8 * index, value)


@jit
def id_hash(stream, region, request):
    return as_i(mum(as_u(region) ^ M1, (as_u(request) * M2) ^ as_u(stream)) >> U1)


@jit
def find_sub(ctx, stream, region, request):
    """Return the index of the subscription, or -1."""
    subs = word(ctx, X_SUBS)
    table = word(ctx, X_LOOKUP)
    mask = word(ctx, X_LOOKUP_MASK)
    i = id_hash(stream, region, request) & mask
    while True:
        place = ld32s(table + 4 * i)
        if place == 0:
            return -1
        if place > 0:
            at = subs + 128 * (place - 1)
            if ld64(at + S_REGION) == region and ld64(at + S_REQUEST) == request and ld32s(at + S_STREAM) == stream:
                return place - 1
        i = (i + 1) & mask


@entry(2)
def bind(ctx, sub):
    """Add subscription `sub` to the lookup table; 1: there is one with these ids already."""
    at = word(ctx, X_SUBS) + 128 * sub
    stream, region, request = ld32s(at + S_STREAM), ld64(at + S_REGION), ld64(at + S_REQUEST)
    if find_sub(ctx, stream, region, request) >= 0:
        return 1
    table = word(ctx, X_LOOKUP)
    mask = word(ctx, X_LOOKUP_MASK)
    i = id_hash(stream, region, request) & mask
    while ld32s(table + 4 * i) > 0:
        i = (i + 1) & mask
    st32(table + 4 * i, sub + 1)
    return 0


@entry(2)
def unbind(ctx, sub):
    """Remove `sub` from the lookup table (its place becomes a tombstone, -1), so late messages no longer find it. 1: it was not there."""
    at = word(ctx, X_SUBS) + 128 * sub
    table = word(ctx, X_LOOKUP)
    mask = word(ctx, X_LOOKUP_MASK)
    i = id_hash(ld32s(at + S_STREAM), ld64(at + S_REGION), ld64(at + S_REQUEST)) & mask
    while True:
        place = ld32s(table + 4 * i)
        if place == 0:
            return 1
        if place == sub + 1:
            st32(table + 4 * i, -1)
            return 0
        i = (i + 1) & mask


@entry(3)
def frontiers(ctx, out, n_parts):
    """out[p] = the smallest resolved ts among partition p's subscriptions, NEVER without any."""
    for p in range(n_parts):
        st64(out + 8 * p, NEVER)
    at = word(ctx, X_SUBS)
    for _ in range(word(ctx, X_NSUBS)):
        if ld32s(at + S_STATE) != FREE:
            least = out + 8 * ld32s(at + S_PARTITION)
            resolved = ld64(at + S_RESOLVED)
            if resolved < ld64(least):
                st64(least, resolved)
        at += 128
    return 0
