"""Which transactions come in batches and which row by row."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.support.binlog.drained import RecordedSchemas, history, recorded, with_fillers
from tests.support.binlog.in_batches import as_binlog, delivered
from tests.support.binlog.read_logs import GivenSchemas
from tests.support.binlog.sample_rows import TEST
from tidemill.binlog.drainer.destination import takes_batches
from tidemill.binlog.drainer.picking.picking import MARK_SCHEMA
from tidemill.binlog.drainer.picking.rules import Rule
from tidemill.binlog.drainer.rows.reading import Delivered, Rows, is_told_apart
from tidemill.binlog.drainer.settings import Downstream, DrainerSettings
from tidemill.binlog.messages import Binlog, MutationType
from tidemill.binlog.outputs.transactions import DdlBinlog, TableChanges, Transaction
from tidemill.binlog.rows import RowChange
from tidemill.tidb.datums import Datum, DatumFlag
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

OTHER = replace(TEST, id=51, name="other")


def inserted(ts: int, *infos: TableInfo) -> Binlog:
    row = RowChange(MutationType.INSERT, None, {1: Datum(DatumFlag.VARINT, ts), 2: Datum(DatumFlag.COMPACT_BYTES, b"a")})
    return as_binlog(Transaction(ts - 1, ts, tuple(TableChanges(TableVersion("d", 2, info, (info.id,), 0), (row,)) for info in infos)))


def ways(found: list[Delivered]) -> list[tuple[str, list[int]]]:
    """What was delivered, by its kind and the commit ts of its rows."""
    made = []
    for one in found:
        if isinstance(one, Rows):
            made.append(("batches", [ts for batch in one.batches for ts in batch.column("commit_ts").to_pylist()]))
        else:
            made.append((type(one).__name__, [one.commit_ts]))
    return made


def read(binlogs: list[Binlog], **settings: Any) -> list[tuple[str, list[int]]]:
    return ways(asyncio.run(delivered(GivenSchemas([TEST, OTHER]), binlogs, **settings)))


def test_all_recorded_transactions_but_few_come_in_batches_and_ddls_between_them() -> None:
    jobs = history()
    binlogs = with_fillers([binlog for case in recorded() for binlog in case.binlogs], jobs)
    found = asyncio.run(delivered(RecordedSchemas(jobs), binlogs))
    kinds = [type(one) for one in found]
    assert kinds.count(Transaction) < 15
    assert sum(batch.num_rows for one in found if isinstance(one, Rows) for batch in one.batches) > 250
    assert kinds.count(DdlBinlog) > 100
    stamps = [one.commit_ts for one in found]
    assert stamps == sorted(stamps)


def test_transactions_that_follow_each_other_come_together() -> None:
    assert read([inserted(ts, TEST, OTHER) for ts in (5, 7, 9)]) == [("batches", [5, 5, 7, 7, 9, 9])]


def test_a_table_that_an_event_rule_is_about_is_read_row_by_row() -> None:
    rules = (Rule("d", "other", frozenset({"delete"}), ()),)
    found = read([inserted(5, TEST), inserted(7, OTHER), inserted(9, TEST, OTHER)], rules=rules)
    assert found == [("batches", [5]), ("Transaction", [7]), ("Transaction", [9])]
    assert read([inserted(5, OTHER)], rules=(Rule("d", "other", frozenset({"create table"}), ()),)) == [("batches", [5])]


def test_marks_of_loopback_control_are_read_row_by_row() -> None:
    mark = TableInfo.from_json({**_MARK, "id": 52})
    schemas = GivenSchemas([TEST, mark])
    schemas._given[52] = TableVersion(MARK_SCHEMA, 3, mark, (52,), 0)
    binlogs = [inserted(5, TEST), inserted(7, mark, TEST), inserted(9, TEST)]
    found = ways(asyncio.run(delivered(schemas, binlogs, loopback_control=True, channel_id=5)))
    assert found[:2] == [("batches", [5]), ("Transaction", [7])]
    assert [ts for _, stamps in found for ts in stamps] == [5, 7, 9]


_MARK = {
    "name": {"O": "_drainer_repl_mark", "L": "_drainer_repl_mark"}, "state": 5, "pk_is_handle": True,
    "cols": [
        {"id": n, "name": {"O": name, "L": name}, "offset": n - 1, "state": 5, "type": {"Tp": tp, "Flag": 3 if n == 1 else 0, "Flen": 20}}
        for n, name, tp in ((1, "id", 8), (2, "channel_info", 15))
    ],
}  # fmt: skip


def test_what_is_left_out_by_its_commit_ts_or_filtered_does_not_come() -> None:
    binlogs = [inserted(ts, TEST) for ts in (5, 7, 9)]
    assert read(binlogs, ignore_txn_commit_ts=(7,)) == [("batches", [5]), ("batches", [9])]
    assert read(binlogs, ignore_schemas="d") == []


def column(info: TableInfo, **changes: Any) -> TableInfo:
    """A table whose second column is another one."""
    return replace(info, columns=(info.columns[0], replace(info.columns[1], **changes)))


def test_tables_whose_rows_a_batch_does_not_tell_apart() -> None:
    keyless = replace(TEST, pk_is_handle=False)
    assert is_told_apart(TEST)
    assert is_told_apart(keyless)
    assert not is_told_apart(column(keyless, tp=MySQLType.DOUBLE))
    assert not is_told_apart(column(keyless, tp=MySQLType.JSON))
    assert is_told_apart(column(TEST, tp=MySQLType.JSON))


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({}, True),
        ({"db_type": "tidb"}, True),
        ({"db_type": "kafka", "sql_mode": "no_backslash_escapes"}, True),
        ({"relay_dir": "/relay"}, False),
        ({"sql_mode": "ANSI_QUOTES"}, True),
        ({"sql_mode": "no_backslash_escapes"}, False),
        ({"to": Downstream(params=(("character_set_client", "latin1"),))}, False),
    ],
)
def test_where_batches_are_taken(settings: dict[str, Any], taken: bool) -> None:
    assert takes_batches(DrainerSettings(**settings)) is taken
