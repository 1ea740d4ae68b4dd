"""Logs delivered into lakes in this process, and what their tables have to hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import Any

from tidemill.changefeed.replay import Delivered, replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.playground.store.truth import TruthTable
from tidemill.sinks.lake.shapes import ROW_ID
from tidemill.tidb.columns.forms import column_type
from tidemill.tidb.columns.values import Unfit, typed_value

FORCED = "force-replicate = true\n"


def deliver(log: str, uri: str, target_ts: int | None = None, toml: str = FORCED) -> Delivered:
    """Deliver a log."""
    config = parse_config(toml)
    return replay(log, Settings("test", config.sink_uri(uri), config, UTC), target_ts=target_ts)


def expected(table: TruthTable) -> list[str]:
    """The rows of an upstream's table as the lake has them, in an order of their own."""
    kinds = {column.name: (column, column_type(column)) for column in table.info.output_columns}

    def value(name: str, cell: Any) -> Any:
        try:
            found = typed_value(*kinds[name], cell)
            return found.decode() if isinstance(found, bytes) and not kinds[name][0].is_binary else found
        except Unfit:
            return None

    return shown({name: value(name, cell) for name, cell in row.items() if name in kinds} for row in table.rows)


def shown(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows that can be compared: without the hidden handle, columns by name, in order."""
    return sorted(str(sorted((name, _plain(value)) for name, value in row.items() if name != ROW_ID)) for row in rows)


def _plain(value: Any) -> str:
    return value.astimezone(UTC).isoformat() if getattr(value, "tzinfo", None) is not None else repr(value)
