"""SQL literals: the kernel and its reference agree on golden and random rows, whole and broken; which rows share a hash."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.support.golden import ticdc
from tests.support.golden.text_rows import encode_all, golden_records, outcome
from tests.support.rows.open_programs import random_programs
from tests.support.rows.random_rows import broken, random_record
from tests.support.schema.tables import column, table
from tidemill.errors import TidemillError
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.kernels.sql import SqlRowEncoder
from tidemill.protocols.options import EncodingOptions
from tidemill.protocols.sql.literals import literal
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo

OPTIONS = EncodingOptions(None)


def by_reference(encoder: SqlRowEncoder, record: RawRecord) -> tuple[bytes, bytes]:
    table = encoder.tables[record.table]
    key = table.key_text(record.key, record.value or None, record.old_value or None, record.commit_ts)
    return key, table.row_text(record.key, record.value or None, record.commit_ts)


def one_image(record: RawRecord) -> RawRecord:
    """Updates come whole only where the key stays the same."""
    return record if record.value else record._replace(value=None)


def test_golden_rows() -> None:
    ids = [line["id"] for line in ticdc.lines("csv") if line["kind"] == "row" and line["config"] == "default"]
    programs, records = golden_records(ids)
    encoder = SqlRowEncoder(programs, OPTIONS)
    found = [(m.key, m.value) for m in encode_all(encoder, records)]
    assert found == [by_reference(encoder, record) for record in records]


@pytest.mark.parametrize("seed", range(12))
def test_random_rows(seed: int) -> None:
    rng = random.Random(f"sql {seed}")
    programs = random_programs(rng, 4)
    encoder = SqlRowEncoder(programs, OPTIONS)
    records = [one_image(random_record(rng, programs[i].info, i)) for i in (rng.randrange(4) for _ in range(80))]
    records = [record for record in records if record.value or record.old_value]
    found = [(m.key, m.value) for m in encode_all(encoder, records)]
    assert found == [by_reference(encoder, record) for record in records]


@pytest.mark.parametrize("seed", range(6))
def test_broken_rows(seed: int) -> None:
    rng = random.Random(f"broken sql {seed}")
    programs = random_programs(rng, 3)
    encoder = SqlRowEncoder(programs, OPTIONS)
    for index in (rng.randrange(3) for _ in range(150)):
        record = broken(rng, random_record(rng, programs[index].info, index))
        expected = outcome(lambda record=record: by_reference(encoder, record), TidemillError)  # type: ignore[misc]
        got = outcome(lambda record=record: encode_all(encoder, [record]), TidemillError)  # type: ignore[misc]
        if isinstance(expected, TidemillError) or isinstance(got, TidemillError):
            assert isinstance(expected, TidemillError)
            assert isinstance(got, TidemillError)
        else:
            assert [(m.key, m.value) for m in got] == [expected]


@pytest.mark.parametrize(
    ("tp", "parts", "cell", "text"),
    [
        (MySQLType.LONGLONG, {}, -(2**63), b"-9223372036854775808"),
        (MySQLType.BIT, {"Flen": 64}, 2**64 - 1, b"18446744073709551615"),
        (MySQLType.ENUM, {"Elems": ["a", "b"]}, 2, b"2"),
        (MySQLType.ENUM, {"Elems": ["a"]}, 0, b"0/*0*/"),
        (MySQLType.SET, {"Elems": ["a"]}, 0, b"0"),
        (MySQLType.DOUBLE, {}, 1e300, b"1e+300"),
        (MySQLType.DOUBLE, {}, 0.1, b"0.1"),
        (MySQLType.FLOAT, {}, 16777216.0, b"1.6777216e+07"),
        (MySQLType.FLOAT, {}, 3.3, b"3.299999952316284"),
        (MySQLType.FLOAT, {}, -3.4028235e38, b"-3.4028234663852886e+38"),
        (MySQLType.NEWDECIMAL, {}, "-0.50", b"-0.50"),
        (MySQLType.DURATION, {"Decimal": 6}, "-838:59:59.000000", b"'-838:59:59.000000'"),
        (MySQLType.DATETIME, {}, "0000-00-00 00:00:00", b"'0000-00-00 00:00:00'"),
        (MySQLType.YEAR, {}, 0, b"0"),
        (MySQLType.JSON, {}, '{"a": "it\'s\\n"}', b'\'{"a": "it\\\'s\\\\n"}\''),
        (MySQLType.VARCHAR, {}, b"\\'\r\n\0\x1a", b"'\\\\\\'\\r\\n\0\x1a'"),
        (MySQLType.VARCHAR, {"Charset": "binary"}, b"\xff\0'", b"x'ff0027'"),
        (MySQLType.BLOB, {"Charset": "binary"}, b"", b"x''"),
        (MySQLType.VARCHAR, {}, None, b"NULL"),
    ],
)
def test_literals(tp: MySQLType, parts: dict[str, object], cell: object, text: bytes) -> None:
    info = table([column(tp, **parts)])
    assert literal(info.columns[0], cell) == text  # type: ignore[arg-type]


def info_of(*columns: dict[str, object]) -> ColumnInfo:
    return table(columns).columns[0]  # type: ignore[arg-type]


def test_rows_that_share_a_value_of_a_unique_key_share_a_hash() -> None:
    info = table([column(MySQLType.LONGLONG), column(MySQLType.LONGLONG)], pk_is_handle=True)
    programs = [TableProgram("s", "t", info)]
    rng = random.Random(1)
    records = [random_record(rng, info) for _ in range(30)]
    records = [record for record in records if record.value]
    records = [*records, *records]
    encoder = SqlRowEncoder(programs, OPTIONS)
    rows, _keep = row_array(records)
    conflicts = encoder.encode(rows, np.array([0, len(rows)], np.int32)).conflicts
    half = len(records) // 2
    assert conflicts[:half].tolist() == conflicts[half:].tolist()
    assert len({record.key for record in records}) == len({tuple(words) for words in conflicts.tolist()})
