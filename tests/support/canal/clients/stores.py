"""Change logs of what a workload of the playground writes, and entry stores of them, as a changefeed makes them."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

from tests.support.changelog.sqllogs import SqlLog
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.playground.workload.mixed import Options
from tidemill.sinks.canal.store.position import Position
from tidemill.sinks.canal.store.reader import EntryStoreReader

WHOLE = 1 << 40


def made_log(folder: Path, transactions: int = 100) -> str:
    """A change log of a workload with all types and DDLs in `folder`/log."""
    sql = SqlLog(seed=1)
    sql.work("mixed", transactions, Options(ddl_every=12))
    return sql.write(folder / "log")


def deliver(log: str, sink: str) -> None:
    """Replay a log, tables without a key too."""
    config = parse_config("force-replicate = true")
    replay(log, Settings("replay", config.sink_uri(sink), config, UTC))


def made(folder: Path) -> list[bytes]:
    """Fill `folder`/store; its entries."""
    deliver(made_log(folder), f"canal://{folder}/store?server-id=7")
    reader = EntryStoreReader(str(folder / "store"))
    return [bytes(one.data) for one in reader.read(Position(reader.begins(), WHOLE), WHOLE, WHOLE)]
