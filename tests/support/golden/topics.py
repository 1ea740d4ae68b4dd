"""TiCDC's messages of the golden session as a writer sends them, and the tables that they have to become."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.support.consumer.consumers import Write
from tests.support.golden.ticdc_topics import Sent, sent, upstream_rows, version_at
from tidemill.consumer.tables.sqlite import SqliteTables
from tidemill.demo.compare import compare
from tidemill.protocols.open import decode, resolved_message
from tidemill.protocols.open.codes import DdlType
from tidemill.protocols.open.events import RowEvent

LOST = {("pub", "onlinep")}  # see tests/consumer/tables/test_ticdc.py


def home(message: Sent, partitions: int) -> int:
    """A partition for each row, so that a transaction is spread over several."""
    [event] = decode(message.key, message.value)
    assert isinstance(event, RowEvent)
    return hash(tuple(c.value for c in event.after or event.before if c.handle)) % partitions


def until_last_drop() -> list[Sent]:
    """The golden session without its end, where everything is dropped."""
    everything = sent()
    last = max(i for i, m in enumerate(everything) if m.is_ddl and decode(m.key, m.value)[0].type == DdlType.DROP_SCHEMA)  # type: ignore[union-attr]
    return list(everything[:last])


def delivery(messages: Sequence[Sent], partitions: int, random: Random, *, again: float = 0.02) -> list[Write]:
    """As a writer sends it: DDLs and resolved ts to all partitions; now and then it begins again at its last checkpoint."""
    found: list[Write] = []
    at = checkpoint = 0
    while at < len(messages):
        message = messages[at]
        places = range(partitions) if message.is_ddl else [home(message, partitions)]
        found += [(partition, message.key, message.value) for partition in places]
        at += 1
        if at == len(messages) or messages[at].ts > message.ts:
            if at == len(messages) or random.random() < 0.05:
                checkpoint = at
                found += [(partition, *resolved_message(message.ts)) for partition in range(partitions)]
            elif random.random() < again:
                at = checkpoint
    return found


def golden_differences(file: Path, messages: Sequence[Sent]) -> list[str]:
    """The tables that are there at the end, against the upstream's."""
    tables = SqliteTables(file)
    end = messages[-1].ts
    ids = {(m.schema, m.table): m.table_id for m in messages if m.table_id}
    found: list[str] = []
    compared = 0
    for name, table_id in ids.items():
        version = version_at(table_id, end)
        if tables.catalog.find(name) is None or version is None or (version.schema, version.table) != name or name in LOST:
            continue
        found += [str(d) for d in compare(tables, {name: upstream_rows(version, end)}) if d.name == name]
        compared += 1
    assert compared > 60
    tables.close()
    return found
