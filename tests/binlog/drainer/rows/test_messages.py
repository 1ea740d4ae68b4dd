"""Messages that the kernel writes are, byte for byte, those of the reference."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

import pytest

from tests.support.binlog.blocks import block
from tests.support.binlog.drained import RecordedSchemas, history, recorded, with_fillers
from tests.support.binlog.in_batches import as_binlog
from tests.support.binlog.random_transactions import random_tables, random_transactions
from tests.support.binlog.read_logs import GivenSchemas
from tests.support.binlog.sample_rows import EXAMPLE_A, TEST
from tidemill.binlog.drainer import entries
from tidemill.binlog.drainer.destination import Forms
from tidemill.binlog.drainer.entries import Reading
from tidemill.binlog.drainer.rows import batching
from tidemill.binlog.drainer.rows.batching import Pieces
from tidemill.binlog.drainer.rows.messages import Form, MessageEncoding, is_written_whole
from tidemill.binlog.drainer.rows.reading import Rows
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.drainer.settings import DrainerSettings
from tidemill.binlog.filters import IGNORED_SCHEMAS, Filter
from tidemill.binlog.messages import Binlog, BinlogType, MutationType, Prewritten, read_prewritten
from tidemill.binlog.outputs import pb, slave
from tidemill.binlog.outputs.transactions import TableChanges, Transaction
from tidemill.binlog.rows import RowChange
from tidemill.tidb.datums import Datum, DatumFlag
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

ENCODERS = {Form.FILE: pb.encode, Form.KAFKA: slave.encode}
SHANGHAI = ZoneInfo("Asia/Shanghai")
OTHERWISE = pytest.mark.thorough("each form and each time zone is in another test")
NAMES = {Form.FILE: "file", Form.KAFKA: "kafka"}


async def batched(schemas: Schemas, binlogs: list[Binlog], form: Form, zone: tzinfo) -> tuple[list[bytes], MessageEncoding, int]:
    """The messages as a Drainer makes them, what made those of batches, and how many transactions came so."""
    reading, encoding = Forms(DrainerSettings(db_type=NAMES[form])).reading(schemas), MessageEncoding(form, zone)
    found: list[bytes] = []
    fast, rest = 0, block(*binlogs)
    while len(rest):
        read = await reading.read(rest)
        for entry in read.entries:
            if isinstance(entry, Rows) and isinstance(entry.batches, Pieces):
                size, parts = encoding.in_parts(entry, entry.batches)
                made = [b"".join(map(bytes, parts))]
                assert size == len(made[0])
            else:
                made = list(encoding.payloads(entry)) if isinstance(entry, Rows) else [ENCODERS[form](entry, zone)]
            fast += len(made) if isinstance(entry, Rows) else 0
            found += made
        rest = rest.part(read.count)
    return found, encoding, fast


async def one_by_one(schemas: Schemas, binlogs: list[Binlog], form: Form, zone: tzinfo) -> list[bytes]:
    reading = Reading(schemas, Filter(IGNORED_SCHEMAS, (), (), ()), frozenset())
    found = [await reading.entry(binlog) for binlog in binlogs]
    return [ENCODERS[form](entry, zone) for entry in found if entry is not None]


@pytest.mark.parametrize(
    ("form", "zone"),
    [
        (Form.FILE, SHANGHAI),
        (Form.KAFKA, UTC),
        pytest.param(Form.FILE, UTC, marks=OTHERWISE),
        pytest.param(Form.KAFKA, SHANGHAI, marks=OTHERWISE),
    ],
    ids=str,
)
def test_of_all_recorded_transactions(form: Form, zone: tzinfo) -> None:
    jobs = history()
    binlogs = with_fillers([binlog for case in recorded() for binlog in case.binlogs], jobs)
    found, encoding, fast = asyncio.run(batched(RecordedSchemas(jobs), binlogs, form, zone))
    assert found == asyncio.run(one_by_one(RecordedSchemas(jobs), binlogs, form, zone))
    assert encoding.slow_rows == 0
    assert fast > 150


def test_a_large_transaction_for_a_file_is_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for constant, size in (("LARGE_BYTES", 0), ("PIECE_ROWS", 3)):
        monkeypatch.setattr(batching, constant, size)
    rng = random.Random(8)
    tables = [with_wide_bits(table) for table in random_tables(rng, 6)]
    fast = 0
    for binlog in (one for one in random_transactions(rng, tables, 60) if has_each_table_once(one)):
        found, _, count = asyncio.run(batched(GivenSchemas(tables), [binlog], Form.FILE, UTC))
        assert found == asyncio.run(one_by_one(GivenSchemas(tables), [binlog], Form.FILE, UTC))
        fast += count
    assert fast > 20


@pytest.mark.parametrize("form", Form)
def test_of_random_transactions(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "SLICE_S", 0)  # of what follows a transaction that is read row by row none is read so with it
    rng = random.Random(7)
    tables = [with_wide_bits(table) for table in random_tables(rng, 12)]
    binlogs = [one for one in random_transactions(rng, tables, 300) if has_each_table_once(one)]
    found, encoding, fast = asyncio.run(batched(GivenSchemas(tables), binlogs, form, UTC))
    assert found == asyncio.run(one_by_one(GivenSchemas(tables), binlogs, form, UTC))
    assert fast > 100
    assert encoding.slow_rows > 20  # those with an unsigned key, which these tables write as a signed one


def with_wide_bits(info: TableInfo) -> TableInfo:
    """The table with bits that take all random numbers."""
    return replace(info, columns=tuple(replace(one, flen=64) if one.tp == MySQLType.BIT else one for one in info.columns))


def has_each_table_once(binlog: Binlog) -> bool:
    """As in all that TiDB writes."""
    ids = [mutation.table_id for mutation in read_prewritten(binlog.prewrite_value).mutations]
    return len(ids) == len(set(ids))


@pytest.mark.parametrize("form", Form)
def test_statements_keep_their_order_and_each_change_is_told(form: Form) -> None:
    """Example (a) of the article: one transaction that changes two rows several times."""
    binlog = Binlog(BinlogType.COMMIT, 4, 5, b"k", Prewritten(1, (EXAMPLE_A,)).encode())
    found, _, fast = asyncio.run(batched(GivenSchemas([TEST]), [binlog], form, UTC))
    assert fast == 1
    assert found == asyncio.run(one_by_one(GivenSchemas([TEST]), [binlog], form, UTC))


def inserted(ts: int, text: bytes) -> Binlog:
    row = RowChange(MutationType.INSERT, None, {1: Datum(DatumFlag.VARINT, ts), 2: Datum(DatumFlag.COMPACT_BYTES, text)})
    return as_binlog(Transaction(ts - 1, ts, (TableChanges(TableVersion("d", 2, TEST, (50,), 0), (row,)),)))


@pytest.mark.parametrize("form", Form)
def test_lengths_of_any_size_and_a_buffer_that_grows(form: Form) -> None:
    sizes = (0, 1, 62, 63, 64, 65, 100, 126, 127, 128, 129, 8190, 8192, 16380, 16383, 16384, 3_000_000, 5)
    binlogs = [inserted(10 * n + 10, b"x" * size) for n, size in enumerate(sizes)]
    found, encoding, fast = asyncio.run(batched(GivenSchemas([TEST]), binlogs, form, UTC))
    assert found == asyncio.run(one_by_one(GivenSchemas([TEST]), binlogs, form, UTC))
    assert (fast, encoding.slow_rows) == (len(sizes), 0)


@pytest.mark.parametrize("form", Form)
def test_a_document_that_is_a_literal(form: Form) -> None:
    strange = replace(TEST, columns=(TEST.columns[0], replace(TEST.columns[1], tp=MySQLType.JSON)))
    row = RowChange(MutationType.INSERT, None, {1: Datum(DatumFlag.VARINT, 3), 2: Datum(DatumFlag.JSON, b"\x04\x02")})
    binlog = as_binlog(Transaction(4, 5, (TableChanges(TableVersion("d", 2, strange, (50,), 0), (row,)),)))
    found, _, _ = asyncio.run(batched(GivenSchemas([strange]), [binlog], form, UTC))
    assert found == asyncio.run(one_by_one(GivenSchemas([strange]), [binlog], form, UTC))


def test_of_which_tables_batches_have_all() -> None:
    assert is_written_whole(TEST)
    computed = replace(TEST.columns[1], generated_expr="`id`", generated_stored=True)
    assert not is_written_whole(replace(TEST, columns=(TEST.columns[0], computed)))
