"""The kernels of `deliver`. Arguments are addresses. `batch.py` computes every size before the call, so buffers never grow here.

Messages are MESSAGE records (`tidemill.records`). `order` holds int64 indexes of messages; `at` holds the int64 offset in `out` of each
message in that order.
"""

from __future__ import annotations

from tidemill.kernels.intrinsics import callback, entry, jit, ld8, ld32s, ld64, memcpy, st8, st16, st32, st64
from tidemill.kernels.write.base64 import w_base64
from tidemill.records import M_KEY, M_KEYLEN, M_TARGET, M_VALLEN, M_VALUE, MESSAGE_BYTES

KAFKA_MESSAGE = 72
"""sizeof(rd_kafka_message_t): err i4, topic ptr, partition i4, payload, len, key, key_len, offset i8, opaque."""

# Counters that the callbacks of a producer write: int64 words, then the last error text of the client (NUL-terminated).
C_ACKED, C_ACKED_BYTES, C_FAILED, C_ERROR, C_TOPIC, C_PARTITION, C_CLIENT_ERROR, C_TEXT = 0, 8, 16, 24, 32, 40, 48, 56
TEXT_BYTES = 512
ALL_BROKERS_DOWN = -187
PURGED, PURGED_QUEUED = -151, -152
"""A producer that died reports these for the messages that waited behind the one that it died of."""


@callback(3)
def on_delivery(producer, message, counters):
    """Count acknowledged messages and keep the first failure that is one of its own. This is librdkafka's dr_msg_cb."""
    error = ld32s(message)
    if error == 0:
        st64(counters + C_ACKED, ld64(counters + C_ACKED) + 1)
    else:
        kept = ld64(counters + C_ERROR)
        if kept == 0 or ((kept == PURGED or kept == PURGED_QUEUED) and error != PURGED and error != PURGED_QUEUED):
            st64(counters + C_ERROR, error)
            st64(counters + C_TOPIC, ld64(message + 8))
            st64(counters + C_PARTITION, ld32s(message + 16))
        st64(counters + C_FAILED, ld64(counters + C_FAILED) + 1)
    st64(counters + C_ACKED_BYTES, ld64(counters + C_ACKED_BYTES) + ld64(message + 32) + ld64(message + 48))


@callback(4)
def on_error(producer, error, reason, counters):
    """Keep the last error text, such as `127.0.0.1:9092/1: Connect … failed: Connection refused`. This is librdkafka's error_cb."""
    error = error << 32 >> 32  # librdkafka passes an int of 32 bits
    if error == ALL_BROKERS_DOWN and ld8(counters + C_TEXT) != 0:
        return  # the text before it says why
    st64(counters + C_CLIENT_ERROR, error)
    i = 0
    while i < TEXT_BYTES - 1:
        byte = ld8(reason + i)
        if byte == 0:
            break
        st8(counters + C_TEXT + i, byte)
        i += 1
    st8(counters + C_TEXT + i, 0)


@entry(5)
def kafka_messages(n, table, order, partition_of, out):
    """Write n messages of `table` in `order` as rd_kafka_message_t. A length of -1 becomes a null pointer."""
    for i in range(n):
        message = table + MESSAGE_BYTES * ld64(order + 8 * i)
        o = out + KAFKA_MESSAGE * i
        key, key_len = ld64(message + M_KEY), ld64(message + M_KEYLEN)
        value, value_len = ld64(message + M_VALUE), ld64(message + M_VALLEN)
        if key_len < 0:
            key, key_len = 0, 0
        if value_len < 0:
            value, value_len = 0, 0
        st64(o, 0)
        st64(o + 8, 0)
        st64(o + 16, ld64(partition_of + 8 * ld64(message + M_TARGET)))
        st64(o + 24, value)
        st64(o + 32, value_len)
        st64(o + 40, key)
        st64(o + 48, key_len)
        st64(o + 56, 0)
        st64(o + 64, 0)
    return n


@jit
def _be32(out, value):
    st8(out, value >> 24)
    st8(out + 1, value >> 16)
    st8(out + 2, value >> 8)
    st8(out + 3, value)


@entry(5)
def frames(n, table, order, at, out):
    """Write key and value of each message, each after its length (4 bytes, big-endian, -1 for null)."""
    for i in range(n):
        message = table + MESSAGE_BYTES * ld64(order + 8 * i)
        o = out + ld64(at + 8 * i)
        key_len, value_len = ld64(message + M_KEYLEN), ld64(message + M_VALLEN)
        _be32(o, key_len)
        o += 4
        if key_len > 0:
            memcpy(o, ld64(message + M_KEY), key_len)
            o += key_len
        _be32(o, value_len)
        o += 4
        if value_len > 0:
            memcpy(o, ld64(message + M_VALUE), value_len)
    return n


@entry(7)
def values(n, table, order, at, tail, tail_len, out):
    """Write the value of each message, followed by the tail_len bytes at `tail`. A null value is empty."""
    for i in range(n):
        message = table + MESSAGE_BYTES * ld64(order + 8 * i)
        o = out + ld64(at + 8 * i)
        value_len = ld64(message + M_VALLEN)
        if value_len > 0:
            memcpy(o, ld64(message + M_VALUE), value_len)
            o += value_len
        if tail_len > 0:
            memcpy(o, tail, tail_len)
    return n


@jit
def _text_or_null(T, out, data, size):
    if size < 0:
        st32(out, 0x6C6C756E)  # null
        return out + 4
    st8(out, 0x22)
    out = w_base64(T, out + 1, data, size)
    st8(out, 0x22)
    return out + 1


@entry(9)
def json_lines(n, table, order, at, prefixes, prefix_at, middle, T, out):
    """Write a line for each message: its target's prefix up to `"key":`, the key, `middle` (`,"value":`), the value, `}`, newline.

    `prefix_at`: int64 offsets into `prefixes`, one more than targets. T: the constant tables. `at` ascends, because a line may write up to
    31 bytes past its end.
    """
    for i in range(n):
        message = table + MESSAGE_BYTES * ld64(order + 8 * i)
        o = out + ld64(at + 8 * i)
        target = prefix_at + 8 * ld64(message + M_TARGET)
        start = ld64(target)
        size = ld64(target + 8) - start
        memcpy(o, prefixes + start, size)
        o = _text_or_null(T, o + size, ld64(message + M_KEY), ld64(message + M_KEYLEN))
        memcpy(o, middle, 9)
        o = _text_or_null(T, o + 9, ld64(message + M_VALUE), ld64(message + M_VALLEN))
        st16(o, 0x0A7D)
    return n
