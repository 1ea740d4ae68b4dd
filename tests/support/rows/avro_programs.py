"""Avro encoders for random tables."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

from tests.support.rows.random_rows import TYPES, random_table
from tidemill.kernels.rows.program import TableProgram
from tidemill.protocols.options import AvroOptions, BigintUnsignedMode, DecimalMode, EncodingOptions, MessageFormat
from tidemill.tidb.schema.codes import ColumnFlag
from tidemill.tidb.schema.codes import MySQLType as T
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.types.jsonstyle import JsonStyle

ZONES = (UTC, ZoneInfo("Asia/Shanghai"), ZoneInfo("America/Sao_Paulo"), timezone(timedelta(hours=-9, minutes=-30)))


MODES = [
    EncodingOptions(MessageFormat.AVRO, enable_tidb_extension=extension, row_checksum=summed, avro=AvroOptions(decimal, bigint, marked))
    for decimal in DecimalMode
    for bigint in BigintUnsignedMode
    for extension, summed, marked in ((False, False, False), (True, False, decimal is DecimalMode.STRING), (True, True, False))
]


def avro_table(rng: random.Random, types: tuple[T, ...] = TYPES) -> TableInfo:
    """A random table, most of its columns nullable, with defaults."""
    info = random_table(rng, types)
    in_key = {part.offset for index in info.indices for part in index.columns if index.primary}
    columns = []
    for one in info.columns:
        flag = one.flag if one.offset in in_key or one is info.pk_column or rng.random() < 0.02 else one.flag & ~ColumnFlag.NOT_NULL
        columns.append(replace(one, flag=int(flag), default=one.origin_default))
    return replace(info, columns=tuple(columns))


def programs_of(rng: random.Random, count: int, types: tuple[T, ...] = TYPES) -> list[TableProgram]:
    style = rng.choice(list(JsonStyle))
    return [TableProgram("s<é", f"t{i}", avro_table(rng, types), rng.choice(ZONES), style) for i in range(count)]
