"""Messages of TiCDC itself: before every DDL the tables that it may change hold what they held upstream."""

from __future__ import annotations

from itertools import groupby

import pytest

from tests.support.golden.ticdc_topics import Sent, sent, upstream_rows, version_at
from tidemill.consumer.order.progress import Progress
from tidemill.consumer.reading import reader
from tidemill.consumer.tables.sqlite import MEMORY, SqliteTables
from tidemill.demo.compare import compare
from tidemill.protocols.open.codes import DdlType

LOST = {("pub", "onlinep"), ("pub", "large")}
"""Rows that were written while REORGANIZE PARTITION ran are in no message of TiCDC: it did not know their partition yet. The golden files
have no large rows in Canal-JSON."""

OTHERS = pytest.mark.thorough("the same tables by another protocol; tests/consumer/test_consume.py has one of Canal-JSON")
ENDS = (DdlType.DROP_TABLE, DdlType.DROP_SCHEMA)


def present(ids: dict[tuple[str, str], int], name: tuple[str, str], ts: int) -> bool:
    """Whether a table still has its name."""
    version = version_at(ids[name], ts)
    return version is not None and (version.schema, version.table) == name


@pytest.mark.slow
@pytest.mark.parametrize(("file", "config"), [("open", "default"), pytest.param("canal_json", "ext", marks=OTHERS)])
def test_tables_hold_what_they_held_upstream_at_every_ddl(file: str, config: str) -> None:
    read = reader()
    tables = SqliteTables(MEMORY)
    ids: dict[tuple[str, str], int] = {}
    compared = rows = 0
    found: list[str] = []
    for (ts, is_ddl), group in groupby(sent(file, config), key=lambda m: (m.ts, m.is_ddl)):
        messages: list[Sent] = list(group)
        events = [e for m in messages for e in read(m.key, m.value)]
        if not is_ddl:
            tables.rows(events)  # type: ignore[arg-type]
            ids |= {(m.schema, m.table): m.table_id for m in messages}
            continue
        tables.commit(Progress())
        for name in ids.keys() - LOST:
            if any(name[0] == m.schema and m.table in (name[1], "") for m in messages) and present(ids, name, ts - 1):
                truth = upstream_rows(version_at(ids[name], ts - 1), ts - 1)  # type: ignore[arg-type]
                found += [f"before {events[0]}: {d}" for d in compare(tables, {name: truth}) if d.name == name]
                compared, rows = compared + 1, rows + len(truth[1])
        for event in events:
            tables.ddl(event)  # type: ignore[arg-type]
        for message, event in zip(messages, events, strict=True):
            if event.type in ENDS:  # type: ignore[union-attr]
                ids = {name: i for name, i in ids.items() if name[0] != message.schema or message.table not in (name[1], "")}
            elif message.table_id:
                ids[message.schema, message.table] = message.table_id
    assert found[:20] == []
    assert compared > 200
    assert rows > 1000
