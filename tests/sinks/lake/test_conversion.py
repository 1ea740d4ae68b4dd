"""Values are converted as TiDB converts them where MODIFY COLUMN leaves less room: rounded, not cut, not refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.lake.lakes import deliver, rows_at, version_of
from tidemill.errors import SinkError
from tidemill.sinks.base import no_fence_check
from tidemill.sinks.lake.base import Stamp
from tidemill.sinks.lake.conversion import convert
from tidemill.sinks.lake.delta import DeltaTables
from tidemill.sinks.lake.evolution import Step, evolution
from tidemill.sinks.lake.manifest import manifest_at
from tidemill.sinks.lake.shapes import FRACTION, field, lake_table
from tidemill.sinks.storage.store import LocalStore

TEXT, MOMENT = pa.string(), pa.timestamp("us")


def _field(kind: pa.DataType, digits: int | None = None) -> pa.Field:
    found = field("a", kind, 1)
    return found if digits is None else found.with_metadata({**found.metadata, FRACTION: str(digits).encode()})


def _at(second: int, micro: int) -> datetime:
    return datetime(2024, 2, 29, 23, 59, second, micro)


@pytest.mark.parametrize(
    ("have", "values", "want", "converted"),
    [
        (
            pa.decimal128(10, 4),
            [D("1.0050"), D("-1.0050"), D("1.0049"), None],
            _field(pa.decimal128(10, 2)),
            ["1.01", "-1.01", "1.00", None],
        ),
        (pa.decimal128(4, 1), [D("999.9"), D("-0.5")], _field(pa.decimal128(4, 0)), ["1000", "-1"]),
        (pa.decimal128(4, 2), [D("2.50"), D("-2.50"), D("0.49")], _field(pa.int8()), ["3", "-3", "0"]),
        (pa.decimal128(20, 0), [D(18446744073709551615)], _field(TEXT), ["18446744073709551615"]),
        (pa.float64(), [2.5, 3.5, -1.6], _field(pa.int32()), ["2", "4", "-2"]),
        (pa.float64(), [1.005, 1e-7, 123456.0], _field(pa.decimal128(10, 2)), ["1.01", "0.00", "123456.00"]),
        (pa.float32(), [0.1], _field(pa.decimal128(20, 16)), ["0.1000000014901161"]),
        (TEXT, ["1.6", " -2.5 ", "1e2", None], _field(pa.int64()), ["2", "-3", "100", None]),
        (TEXT, ["1.005", "7"], _field(pa.decimal128(5, 2)), ["1.01", "7.00"]),
        (TEXT, [" 1.5"], _field(pa.float64()), ["1.5"]),
        (pa.int32(), [5, -5], _field(pa.decimal128(6, 2)), ["5.00", "-5.00"]),
        (pa.int64(), [5, None], _field(pa.int8()), ["5", None]),
    ],
)
def test_numbers(have: pa.DataType, values: list[Any], want: pa.Field, converted: list[str | None]) -> None:
    found = convert(pa.array(values, have), want)
    assert found.type == want.type
    assert [None if one is None else str(one) for one in found.to_pylist()] == converted


def test_fractions_of_seconds() -> None:
    values = pa.array([_at(59, 900_000), _at(58, 499_999), datetime(1969, 12, 31, 23, 59, 59, 500_000), None], MOMENT)
    rounded = [datetime(2024, 3, 1), _at(58, 0), datetime(1970, 1, 1), None]
    assert convert(values, _field(MOMENT, 0)).to_pylist() == rounded
    assert convert(values.cast(pa.timestamp("us", "UTC")), _field(pa.timestamp("us", "UTC"), 0)).to_pylist() == [
        one and one.replace(tzinfo=UTC) for one in rounded
    ]
    assert convert(values, _field(MOMENT, 1))[1].as_py() == _at(58, 500_000)
    assert convert(values, _field(MOMENT, 6)) == values
    assert convert(values, _field(pa.date32())).to_pylist() == [date(2024, 2, 29), date(2024, 2, 29), date(1969, 12, 31), None]
    assert convert(pa.array(["2024-02-29 23:59:59.9"]), _field(MOMENT, 0)).to_pylist() == rounded[:1]


@pytest.mark.parametrize(
    ("text", "digits", "rounded"),
    [
        ("00:00:00.9999", 0, "00:00:01"),
        ("-838:59:58.5", 0, "-838:59:58"),
        ("-838:59:58.6", 0, "-838:59:59"),
        ("01:02:03.45", 1, "01:02:03.5"),
        ("-00:00:00.4", 0, "00:00:00"),
        ("09:59:59.995", 2, "10:00:00.00"),
    ],
)
def test_times(text: str, digits: int, rounded: str) -> None:
    assert convert(pa.array([text, None, text]), _field(TEXT, digits)).to_pylist() == [rounded, None, rounded]


def test_fewer_digits_of_a_second_rewrite_a_copy() -> None:
    old = version_of(SqlLog("CREATE TABLE t (id INT PRIMARY KEY, a DATETIME(3), b TIME(2), c TIMESTAMP(6))"), "t")
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, a DATETIME(3), b TIME(2), c TIMESTAMP(6))")
    sql.run("ALTER TABLE t MODIFY COLUMN a DATETIME, MODIFY COLUMN b TIME, MODIFY COLUMN c TIMESTAMP(3)")
    new = lake_table(version_of(sql, "t"))
    have = lake_table(old).fields
    found = evolution(have, _copied(have, new))
    assert (found.step, found.sources) == (Step.REWRITE, ("id", "a", "b", "c"))
    assert evolution(have, lake_table(old)).step is Step.NOTHING


def _copied(have: pa.Schema, new: Any) -> Any:
    ids = [int(one.metadata[b"tidemill.column_id"]) for one in have]
    now = [int(one.metadata[b"tidemill.column_id"]) for one in new.fields]
    return replace(new, origins=tuple((b, a) for a, b in zip(ids, now, strict=True) if a != b))


@pytest.mark.slow
@pytest.mark.parametrize("uri", ["delta://{lake}", "iceberg://c/cdc?warehouse=file://{lake}&catalog-uri=sqlite:///{lake}.db"])
def test_rows_in_a_lake_are_rounded_with_the_ddl(tmp_path: Path, uri: str) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    sql = SqlLog("CREATE TABLE t (k INT PRIMARY KEY, d DECIMAL(10,4), v VARCHAR(9), a DATETIME(3), t TIME(3))")
    sql.run("INSERT INTO t VALUES (1, 1.0050, '1.6', '2024-02-29 23:59:59.9', '-00:00:01.6')")
    sql.run("ALTER TABLE t MODIFY COLUMN d DECIMAL(10,2)", "ALTER TABLE t MODIFY COLUMN v INT")
    sql.run("ALTER TABLE t MODIFY COLUMN a DATETIME", "ALTER TABLE t MODIFY COLUMN t TIME")
    deliver(sql.write(tmp_path / "log", told=True), uri.format(lake=lake))
    (row,) = rows_at(lake, manifest_at(LocalStore(lake), None).tables["app", "t"])
    assert row == {"k": 1, "d": D("1.01"), "v": 2, "a": datetime(2024, 3, 1), "t": "-00:00:02"}


@pytest.mark.slow
def test_what_cannot_be_converted_is_named_with_a_cure(tmp_path: Path) -> None:
    """The library reads the rows while it writes, and hides the error."""
    old = lake_table(version_of(SqlLog("CREATE TABLE t (k INT PRIMARY KEY, e ENUM('x', 'y'))"), "t"))
    new = lake_table(version_of(SqlLog("CREATE TABLE t (k INT PRIMARY KEY, e INT)"), "t"))
    tables, stamp = DeltaTables(str(tmp_path), LocalStore(tmp_path), None, 1 << 27), Stamp("f", 1, 1, no_fence_check)
    tables.shape("app/t", old, stamp)
    tables.append("app/t", old, pa.table({"k": pa.array([1], pa.int32()), "e": ["y"]}), stamp)
    with pytest.raises(SinkError, match=r"app\.t: column e was .*string.*, and what is there cannot be int") as refused:
        tables.shape("app/t", new, stamp)
    assert "empty place" in refused.value.hint


def test_names_that_cannot_be_have_a_cure_that_a_lake_has(tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE `a/b` (k INT PRIMARY KEY)")
    sql.run("INSERT INTO `a/b` VALUES (1)")
    with pytest.raises(SinkError, match="cannot be a folder") as refused:
        deliver(sql.write(tmp_path / "log"), f"delta://{tmp_path}/lake")
    assert "table routing" in refused.value.hint
