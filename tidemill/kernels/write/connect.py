"""Values of Kafka Connect's types, as Debezium names them: days, epochs, ISO times, doubles, bits. -1: fall back to the reference.

Reference: `tidemill.protocols.debezium.values`.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_i, as_u, clz, f64_bits, jit, ld8, ldu64, mulhi, st8, st32, st64
from tidemill.kernels.templates import layout as X
from tidemill.kernels.write.base64 import w_base64
from tidemill.kernels.write.numbers import SIGN64, bad_width, int_of, uint_of, w_decimal, w_float, w_i64
from tidemill.kernels.write.tables import FLOAT_JSON, O_POW10, O_POWER, POW10_MIN
from tidemill.kernels.write.times import MAX_DURATION, U13, bad_time, no_day, w_datetime

NO_DAYS = -(1 << 40)
EPOCH_DAYS = 719468  # from 0000-03-01 to 1970-01-01
EPOCH = ((1970 * 13 + 1) << 5 | 1) << 41  # packed
LEAST_TIMESTAMP = EPOCH | 1 << 24
NULL_WORD = int.from_bytes(b"null", "little")
TRUE_WORD = int.from_bytes(b"true", "little")
FALSE_WORD = int.from_bytes(b"fals", "little")
U0, U1, U2, U10, U52, U53, U63 = (np.uint64(i) for i in (0, 1, 2, 10, 52, 53, 63))
NEARLY = np.uint64((1 << 64) - 2)
FRACTION = np.uint64((1 << 52) - 1)
EXACT = np.uint64(1 << 53)  # one division of such a number by a power of ten gives the nearest double
MOST_SCALE = 18  # a power that fits a signed integer
MOST = np.uint64(10**18)  # with a further digit, a number from here on could exceed 64 bits


@jit
def days_of(u):
    """Return the days since 1970 of a packed time; NO_DAYS if its date is not in the calendar. Years below 70 are 20xx, below 100 19xx."""
    ymd = u >> 41
    day = ymd & 31
    months = ymd >> 5
    year = as_i(as_u(months) // U13)
    month = months - year * 13
    if day < 1 or month < 1:
        return NO_DAYS
    if day > 28:
        if month == 2:
            if day > 29 or year % 4 != 0 or (year % 100 == 0 and year % 400 != 0):
                return NO_DAYS
        elif day == 31 and (month == 4 or month == 6 or month == 9 or month == 11):
            return NO_DAYS
    if year < 100:
        year += 2000 if year < 70 else 1900
    y = year - (1 if month <= 2 else 0)
    era = y // 400
    of_era = y - era * 400
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + day_of_year - EPOCH_DAYS


@jit
def since_epoch(op, u, days):
    """Return a packed date or time as a number since 1970, of which `days` are its days."""
    if op == X.OP_CONNECT_DAYS:
        return days
    v = u >> 24
    second = days * 86400 + ((v >> 12) & 31) * 3600 + ((v >> 6) & 63) * 60 + (v & 63)
    microsecond = u & 0xFFFFFF
    if op == X.OP_CONNECT_MILLISECONDS:
        return second * 1000 + microsecond // 1000
    return second * 1000000 + microsecond


@jit
def whole_microseconds(nanoseconds):
    """Return a TIME in microseconds, without what is less than one."""
    return -(-nanoseconds // 1000) if nanoseconds < 0 else nanoseconds // 1000


@jit
def w_moment(p, op, u, no_date):
    """Write a packed date or time as a number since 1970."""
    if bad_time(u):
        return -1
    days = days_of(u)
    if days == NO_DAYS:
        if no_date == X.NULL_FOR_NO_DATE:
            st32(p, NULL_WORD)
            return p + 4
        return w_i64(p, 0)
    return w_i64(p, since_epoch(op, u, days))


@jit
def w_iso(T, p, u, fsp):
    """Write a packed TIMESTAMP in UTC. Below the least one that MySQL has it is 1970."""
    if bad_time(u) or (u and no_day(u)):
        return -1
    if u < LEAST_TIMESTAMP:
        u = EPOCH
        fsp = 0
    end = w_datetime(T, p, u, fsp)
    st8(p + 10, 84)  # T
    st8(end, 90)  # Z
    return end + 1


@jit
def nearest_bits(T, w, zeros, exponent):
    """Return the bits of the double nearest to w·2^-zeros·10^exponent; 0 where it lies too near the middle between two.

    w has its highest bit. The product with a power of ten of 128 bits has an error below one of the 128 bits that are looked at.
    """
    power = T + O_POW10 + 16 * (exponent - POW10_MIN)
    upper = ldu64(power)
    low = w * upper
    carried = low + mulhi(w, ldu64(power + 8))
    high = mulhi(w, upper)
    if carried < low:
        high += U1
    spare = 10 + as_i(high >> U63)
    rest = as_i(high & ((U1 << as_u(spare)) - U1))
    half = 1 << (spare - 1)
    if (rest == half and carried <= U1) or (rest == half - 1 and carried >= NEARLY):
        return U0
    mantissa = high >> as_u(spare)
    if rest >= half:
        mantissa += U1
    binary = spare + 1 + (exponent * 217706 >> 16) - zeros + 1075
    if mantissa >> U53:
        mantissa = mantissa >> U1
        binary += 1
    return as_u(binary) << U52 | mantissa & FRACTION


@jit
def w_nearest(T, p, a, n, S):
    """Write a decimal as the nearest double; -1: its digits do not tell which one that is."""
    end = w_decimal(T, p, a, n)
    if end < 0:
        return -1
    at = p
    negative = ld8(at) == 45
    if negative:
        at += 1
    number = U0
    exponent = 0
    fraction = False
    cut = False
    more = 0  # the next two digits
    taken = 0
    while at < end:
        c = ld8(at)
        at += 1
        if c == 46:
            fraction = True
        elif number < MOST:
            number = number * U10 + as_u(c - 48)
            exponent -= fraction
        else:
            exponent += not fraction
            cut |= c != 48
            if taken < 2:
                more = more * 10 + c - 48
                taken += 1
    while not cut and number != U0 and number % U10 == U0 and exponent < 0:
        number = number // U10
        exponent += 1
    if number == U0:
        bits = U0
    elif not cut and number <= EXACT and -MOST_SCALE <= exponent <= 0:
        bits = f64_bits(float(as_i(number)) / float(as_i(ldu64(T + O_POWER - 8 * exponent))))
    else:
        zeros = clz(number)
        w = number << as_u(zeros)
        if cut:  # the digits that are left out lie between w and w + 2, w has at most four bits for them
            w |= as_u(((more if taken == 2 else 10 * more) << zeros) // 100)
        bits = nearest_bits(T, w, zeros, exponent)
        if bits == U0 or (cut and (w >= NEARLY or bits != nearest_bits(T, w + U2, zeros, exponent))):
            return -1
    return w_float(T, p, bits | SIGN64 if negative else bits, False, FLOAT_JSON, S)


@jit
def w_connect(T, p, op, parameter, a, n, S):
    """Write a number or time. `parameter`: see the op."""
    if op == X.OP_CONNECT_DECIMAL:
        return w_nearest(T, p, a, n, S)
    if bad_width(n):
        return -1
    if op == X.OP_CONNECT_SIGNED:
        return w_i64(p, as_i(uint_of(a, n)))
    if op == X.OP_CONNECT_DURATION:
        nanoseconds = int_of(a, n)
        if nanoseconds > MAX_DURATION or nanoseconds < -MAX_DURATION:
            return -1
        return w_i64(p, whole_microseconds(nanoseconds))
    if op == X.OP_CONNECT_BOOLEAN:
        if uint_of(a, n) != U0:
            st32(p, TRUE_WORD)
            return p + 4
        st32(p, FALSE_WORD)
        st8(p + 4, 101)
        return p + 5
    if op == X.OP_CONNECT_BITS:
        st64(S, as_i(uint_of(a, n)))
        return w_base64(T, p, S, parameter)
    u = as_i(uint_of(a, n))
    if op == X.OP_CONNECT_TIMESTAMP:
        return w_iso(T, p, u, parameter)
    return w_moment(p, op, u, parameter)
