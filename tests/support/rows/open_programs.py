"""Programs of the open-protocol encoder for random tables."""

from __future__ import annotations

import random
from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

from tests.support.rows.random_rows import random_table
from tidemill.kernels.rows.program import TableProgram
from tidemill.tidb.types.jsonstyle import JsonStyle

ZONES = (
    UTC,
    ZoneInfo("Asia/Shanghai"),
    ZoneInfo("America/Sao_Paulo"),
    ZoneInfo("Europe/Dublin"),
    timezone(timedelta(hours=-9, minutes=-30)),
)


def random_programs(rng: random.Random, count: int) -> list[TableProgram]:
    """Programs of one encoder: they print documents in one way."""
    tables = [(random_table(rng), rng.choice(ZONES)) for _ in range(count)]
    style = rng.choice(list(JsonStyle))
    return [TableProgram("s<é", f"t{i}", info, zone, style) for i, (info, zone) in enumerate(tables)]
