"""Kernel and reference agree on random rows of random tables, whole and broken."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest

from tests.support.rows.random_rows import TYPES, broken, random_record, random_table
from tests.support.schema.tables import column, table
from tests.support.thorough import FUZZ, few_of
from tidemill.errors import MalformedBytes, MalformedRow
from tidemill.kernels.columns import CHANGES, ColumnBuilder, ColumnProgram, ObjectBuilder, ObjectProgram
from tidemill.kernels.columns import layout as C
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.tidb.columns.forms import TimeAs
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import pack_row, stored_bytes
from tidemill.tidb.schema.codes import MySQLType as T
from tidemill.tidb.types.jsonbin import encode_json
from tidemill.tidb.types.jsonstyle import JsonStyle

Image = tuple[str, int, tuple[Any, ...]]


def program_of(rng: random.Random, *, types: tuple[T, ...] = TYPES, strict: bool = False) -> ColumnProgram:
    program = TableProgram("s", "t", random_table(rng, types), UTC, rng.choice(list(JsonStyle)))
    columns = [one for one in program.columns if rng.random() < 0.9]
    return ColumnProgram(program, columns, time_as=rng.choice(list(TimeAs)), strict=strict)


def built(builder: ColumnBuilder, records: Sequence[RawRecord]) -> list[Image]:
    """What the builder makes of rows, as Python values."""
    rows, _keep = row_array(records)
    found: list[Image] = []
    for batch in builder.build(rows):
        for one in batch.columns:
            one.validate(full=True)
        values = zip(*(one.to_pylist() for one in batch.columns), strict=True) if batch.columns else [()] * len(batch)
        found += zip((C.IMAGES[c] for c in batch.changes), batch.commit_ts.tolist(), values, strict=True)
    return found


def wanted(program: ColumnProgram, records: Sequence[RawRecord]) -> list[Image]:
    """What the reference makes of them."""
    found: list[Image] = []
    for record in records:
        for image, name in (
            (record.old_value, "update_preimage" if record.value is not None else "delete"),
            (record.value, "update_postimage" if record.old_value is not None else "insert"),
        ):
            if image is not None:
                found.append((name, record.commit_ts, program.plain.read(record.key, image)))
    return found


def same(got: list[Image], want: list[Image], program: ColumnProgram) -> None:
    """Compare by Arrow, which knows what is the same value."""
    assert [one[:2] for one in got] == [one[:2] for one in want]
    for i, kind in enumerate(program.types):
        mine, theirs = [one[2][i] for one in got], [one[2][i] for one in want]
        if pa.types.is_string(kind.arrow):
            theirs = [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in theirs]
        if pa.types.is_list(kind.arrow):
            theirs = pa.array(theirs, kind.arrow).to_pylist()
        assert mine == theirs, (program.plain.columns[i].name, kind)


def whole(program: ColumnProgram, records: Sequence[RawRecord]) -> list[RawRecord]:
    """The records that the reference reads."""
    found = []
    for record in records:
        try:
            wanted(program, [record])
        except MalformedBytes:
            continue
        found.append(record)
    return found


@pytest.mark.parametrize("strict", [False, True], ids=["null", "strict"])
def test_random_rows(strict: bool) -> None:
    rng = random.Random(strict)
    for _ in range(4 * FUZZ):
        program = program_of(rng, strict=strict)
        records = whole(program, [random_record(rng, program.table.info) for _ in range(60)])
        same(built(ColumnBuilder([program]), records), wanted(program, records), program)


def test_every_type_is_in_the_kernel() -> None:
    """No whole row of any type is handed back, in no format."""
    rng = random.Random(99)
    for tp in TYPES:
        program = program_of(rng, types=(tp,))
        records = whole(program, [random_record(rng, program.table.info) for _ in range(80)])
        builder = ColumnBuilder([program])
        same(built(builder, records), wanted(program, records), program)
        assert builder.slow_rows == 0, tp.name


@pytest.mark.parametrize("seed", few_of(range(3), 1))
def test_broken_rows(seed: int) -> None:
    """Where the reference reads the row the kernel reads the same; where it refuses the row, so does the builder."""
    rng = random.Random(1000 + seed)
    for _ in range(4 * FUZZ):
        program = program_of(rng)
        builder = ColumnBuilder([program])
        for _ in range(40):
            record = broken(rng, random_record(rng, program.table.info))
            if whole(program, [record]):
                same(built(builder, [record]), wanted(program, [record]), program)
            else:
                with pytest.raises(MalformedBytes):
                    built(builder, [record])


def test_only_wanted_images_are_read() -> None:
    rng = random.Random(3)
    program = program_of(rng)
    records = whole(program, [random_record(rng, program.table.info) for _ in range(200)])
    for images in range(16):
        names = {name for i, name in enumerate(C.IMAGES) if images >> i & 1}
        got = built(ColumnBuilder([program], images), records)
        assert got == [one for one in built(ColumnBuilder([program]), records) if one[0] in names]


def test_columns_grow_and_a_batch_ends_when_one_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    info = table([column(T.LONG), column(T.LONG_BLOB), column(T.ENUM, Elems=["a"])], pk_is_handle=True)
    program = ColumnProgram(TableProgram("s", "t", info))
    records = [RawRecord(record_key(100, i), pack_row({2: bytes([i]) * (1 << 20), 3: b"\1"}), None, 1, i, 0) for i in range(9)]
    rows, _keep = row_array(records)
    assert [len(one) for one in ColumnBuilder([program]).build(rows)] == [9]
    monkeypatch.setattr(C, "LARGEST_COLUMN", 3 << 20)
    batches = list(ColumnBuilder([program]).build(rows))
    assert sum(len(one) for one in batches) == 9
    assert len(batches) > 1
    assert [v for one in batches for v in one.columns[0].to_pylist()] == list(range(9))
    assert all(len(v) == 1 << 20 for one in batches for v in one.columns[1].to_pylist())


def test_what_an_arrow_type_cannot_have_is_null_or_an_error() -> None:
    info = table(
        [column(T.LONG), column(T.DATE, name="d"), column(T.DATETIME, name="t"), column(T.NEWDECIMAL, name="n", Flen=4, Decimal=1)],
        pk_is_handle=True,
    )
    value = pack_row({2: b"\0", 3: b"\0", 4: stored_bytes(info.columns[3], "123.4")})
    wide = pack_row({4: stored_bytes(table([column(T.NEWDECIMAL, Flen=9, Decimal=1)]).columns[0], "12345678.9")})
    records = [RawRecord(record_key(100, 7), one, None, 1, 2, 0) for one in (value, wide)]
    program = TableProgram("s", "t", info)
    got = built(ColumnBuilder([ColumnProgram(program)]), records)
    assert [tuple(map(str, one[2])) for one in got] == [("7", "None", "None", "123.4"), ("7", "None", "None", "None")]
    strict = ColumnBuilder([ColumnProgram(program, strict=True)])
    with pytest.raises(MalformedRow, match=r"s\.t: table t, column d: 0000-00-00 is not in the calendar \(key 74.*commit_ts 2"):
        built(strict, records[:1])
    with pytest.raises(MalformedRow, match=r"column n: 12345678\.9 has more digits than decimal128\(4, 1\)"):
        built(strict, records[1:])


def test_text_that_is_not_utf8_is_made_readable() -> None:
    info = table([column(T.LONG), column(T.VARCHAR), column(T.VARCHAR, Charset="binary")], pk_is_handle=True)
    record = RawRecord(record_key(100, 7), pack_row({2: b"a\xff", 3: b"a\xff"}), None, 1, 2, 0)
    (got,) = built(ColumnBuilder([ColumnProgram(TableProgram("s", "t", info))]), [record])
    assert got[2] == (7, "a\ufffd", b"a\xff")


def test_a_builder_needs_programs_alike() -> None:
    tables = [table([column(tp)]) for tp in (T.LONG, T.VARCHAR)]
    with pytest.raises(ValueError, match="same types"):
        ColumnBuilder([ColumnProgram(TableProgram("s", "t", info)) for info in tables])


# JSON objects


def objects(builder: ObjectBuilder, records: Sequence[RawRecord]) -> list[tuple[str, str | None, str | None]]:
    """What the builder makes of rows."""
    rows, _keep = row_array(records)
    found = []
    for batch in builder.build(rows):
        for one in batch.columns:
            one.validate(full=True)
        found += zip((CHANGES[c] for c in batch.changes), *(one.to_pylist() for one in batch.columns), strict=True)
    return found


def wanted_objects(programs: Sequence[ObjectProgram], records: Sequence[RawRecord]) -> list[tuple[str, str | None, str | None]]:
    found = []
    for record in records:
        plain = programs[record.table].plain
        texts = [None if i is None else plain.read(record.key, i).decode("utf-8", "replace") for i in (record.old_value, record.value)]
        name = "delete" if record.value is None else "insert" if record.old_value is None else "update"
        found.append((name, *texts))
    return found


def readable(programs: Sequence[ObjectProgram], records: Sequence[RawRecord]) -> list[RawRecord]:
    found = []
    for record in records:
        try:
            wanted_objects(programs, [record])
        except MalformedBytes:
            continue
        found.append(record)
    return found


@pytest.mark.parametrize("seed", few_of(range(2), 1))
def test_objects_of_random_rows_of_several_tables(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3 * FUZZ):
        style = rng.choice(list(JsonStyle))
        programs = [ObjectProgram(TableProgram("s", f"t{i}", random_table(rng), UTC, style)) for i in range(3)]
        builder = ObjectBuilder(programs)
        at = [rng.randrange(3) for _ in range(60)]
        records = readable(programs, [random_record(rng, programs[i].table.info, i) for i in at])
        assert objects(builder, records) == wanted_objects(programs, records)
        assert builder.slow_rows == 0
        for one in records[:20]:
            record = broken(rng, one)
            if readable(programs, [record]):
                assert objects(builder, [record]) == wanted_objects(programs, [record])
            else:
                with pytest.raises(MalformedBytes):
                    objects(builder, [record])


def test_objects_are_json() -> None:
    info = table(
        [
            *(column(T.LONG, name="id"), column(T.VARCHAR, name='q"'), column(T.NEWDECIMAL, name="n", Flen=9, Decimal=2)),
            *(column(T.ENUM, name="e", Elems=['a"', "b"]), column(T.BLOB, name="b"), column(T.JSON, name="j")),
        ],
        pk_is_handle=True,
    )
    stored = {i: stored_bytes(info.columns[i - 1], p) for i, p in ((2, b"x\ny"), (3, "-1.50"), (4, 1), (5, b"\0\1"))}
    stored[6] = encode_json({"a": [1, None]})
    (got,) = objects(
        ObjectBuilder([ObjectProgram(TableProgram("s", "t", info))]), [RawRecord(record_key(100, 7), pack_row(stored), None, 1, 2, 0)]
    )
    assert got[:2] == ("insert", None)
    assert json.loads(got[2] or "") == {"id": 7, 'q"': "x\ny", "n": "-1.50", "e": 'a"', "b": "AAE=", "j": {"a": [1, None]}}
