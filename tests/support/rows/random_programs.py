"""Programs of random tables, for the kernels of rows."""

from __future__ import annotations

import random
from zoneinfo import ZoneInfo

from tests.support.rows.random_rows import random_table
from tidemill.kernels.rows.program import TableProgram
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.types.jsonstyle import JsonStyle

ZONES = (ZoneInfo("UTC"), ZoneInfo("America/Sao_Paulo"), ZoneInfo("Asia/Shanghai"))


def random_programs(rng: random.Random, count: int, *types: MySQLType) -> list[TableProgram]:
    """Return `count` tables of `types` (all where none is given) in one random style of JSON and random zones."""
    tables = [random_table(rng, types) if types else random_table(rng) for _ in range(count)]
    style = rng.choice(list(JsonStyle))
    return [TableProgram("s<é", f"t{i}'1;,", table, rng.choice(ZONES), style) for i, table in enumerate(tables)]
