"""Decimals as doubles: the kernel's bits are those of Python's float, whatever the digits."""

from __future__ import annotations

import random

from tests.support.golden.text_rows import encode_all
from tests.support.schema.tables import column, table
from tests.support.thorough import FUZZ
from tidemill.kernels.debezium import DebeziumRowEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord
from tidemill.protocols.options import DebeziumOptions, EncodingOptions, MessageFormat
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.types.decimals import encode_decimal
from tidemill.tidb.types.floats import go_float

BARE = EncodingOptions(MessageFormat.DEBEZIUM, debezium=DebeziumOptions(disable_schema=True))


def random_decimal(rng: random.Random) -> str:
    """Short and long ones, with zeros inside, near the middle between two doubles, and exact powers."""
    digits = rng.choice((1, 5, 15, 16, 17, 18, 19, 20, 25, 38, 60))
    match rng.randrange(4):
        case 0:
            number = rng.randrange(10**digits)
        case 1:
            number = rng.randrange(1, 10) * 10 ** (digits - 1) + rng.randrange(100)
        case 2:
            number = ((rng.randrange(1 << 52, 1 << 53) << 1) + 1) * 5 ** rng.randrange(20)  # the middle
        case _:
            number = rng.choice((2, 5, 10)) ** rng.randrange(60)
    text = str(number + rng.choice((0, 0, 1)))[:60]
    scale = rng.randrange(min(30, len(text) + 5) + 1)
    text = text.rjust(scale + 1, "0")
    return rng.choice(("", "-")) + (f"{text[:-scale]}.{text[-scale:]}" if scale else text)


def test_the_nearest_double() -> None:
    rng = random.Random(11)
    info = table([column(MySQLType.LONG, name="id"), column(MySQLType.NEWDECIMAL, name="d", Flen=65, Decimal=30)], pk_is_handle=True)
    encoder = DebeziumRowEncoder([TableProgram("s", "t", info)], BARE, clock=lambda: 0)
    texts = [random_decimal(rng) for _ in range(4000 * FUZZ)]
    records = []
    for number, text in enumerate(texts):
        whole, _, fraction = text.lstrip("-").partition(".")
        data = encode_decimal(text, len(whole) + len(fraction), len(fraction))
        records.append(RawRecord(record_key(100, number), pack_row({2: data}), None, 1, 2, 0))
    messages = encode_all(encoder, records)
    found = [(m.value or b"").partition(b'"d":')[2].partition(b"}")[0].decode() for m in messages]
    assert found == [go_float(float(text)).replace("-0", "0") if float(text) == 0 else go_float(float(text)) for text in texts]
    assert encoder.slow_rows < len(texts) / 50
