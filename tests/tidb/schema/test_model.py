"""Table descriptions of a real TiDB, and the rules that are derived from them."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.schema import schemas as s
from tests.support.thorough import FUZZ
from tidemill.errors import SchemaError, TidemillError
from tidemill.kernels.avro import AvroRowEncoder
from tidemill.kernels.canal_json import CanalJsonRowEncoder
from tidemill.kernels.csv import CsvRowEncoder
from tidemill.kernels.open.encoder import OpenRowEncoder
from tidemill.kernels.routing.identity import KeyHash, unique_change
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.simple import SimpleRowEncoder
from tidemill.protocols.avro import schemas_of
from tidemill.protocols.options import CsvOptions, EncodingOptions, MessageFormat
from tidemill.protocols.simple.schema import named_schema
from tidemill.tidb.schema.codes import HandleKind, MySQLType, PartitionType
from tidemill.tidb.schema.model import ColumnInfo, DBInfo, TableInfo


@pytest.fixture(scope="module")
def descriptions() -> dict[str, Any]:
    found: dict[str, Any] = s.read_json("tidb/tableinfos.json.gz")
    return found


@pytest.fixture(scope="module")
def infos() -> dict[str, TableInfo]:
    return {name: TableInfo.from_json(data) for name, data in s.read_json("tidb/tableinfos.json.gz").items()}


def columns(info: TableInfo, ids: tuple[int, ...]) -> list[str]:
    return [info.columns_by_id[i].name for i in ids]


def test_every_description_is_read(infos: dict[str, TableInfo]) -> None:
    assert len(infos) == 30
    for name, info in infos.items():
        assert info.name == name.rpartition(".")[2]
        assert info.is_replicated_kind
        assert info.has_rows
        assert [c.offset for c in info.columns] == list(range(len(info.columns)))


@pytest.mark.parametrize(
    ("name", "kind", "key"),
    [
        ("all_types", HandleKind.INT, ["id"]),
        ("upk", HandleKind.INT, ["id"]),
        ("no_pk", HandleKind.HIDDEN, []),
        ("nonclustered", HandleKind.HIDDEN, ["id"]),
        ("ch_multi", HandleKind.COMMON, ["a", "b", "c", "d"]),
        ("ch_gbk", HandleKind.COMMON, ["id"]),
        ("part_hash", HandleKind.HIDDEN, []),
    ],
)
def test_handles_and_keys(infos: dict[str, TableInfo], name: str, kind: HandleKind, key: list[str]) -> None:
    info = infos[name]
    assert info.handle_kind is kind
    assert columns(info, info.handle_key_ids) == key
    assert info.has_usable_key is bool(key)
    assert set(info.handle_key_ids) <= info.unique_key_ids


def test_column_properties(infos: dict[str, TableInfo]) -> None:
    own = {c.name: c for c in infos["all_types"].columns}
    assert own["c_utiny"].unsigned
    assert not own["c_tiny"].unsigned
    assert own["id"].not_null
    assert own["id"].is_binary  # numbers have the charset binary
    assert own["c_tiny"].tp is MySQLType.TINY
    assert not own["c_tiny"].is_generated


def test_virtual_columns_are_not_put_out(infos: dict[str, TableInfo]) -> None:
    info = infos["gen"]
    virtual = {c.name for c in info.columns if c.is_virtual}
    stored = {c.name for c in info.columns if c.is_generated and not c.is_virtual}
    assert virtual
    assert stored
    assert {c.name for c in info.output_columns} == {c.name for c in info.columns} - virtual


def test_partitions_are_where_rows_are(infos: dict[str, TableInfo]) -> None:
    info = infos["part_range"]
    assert info.partition is not None
    assert info.partition.type is PartitionType.RANGE
    assert info.physical_ids == tuple(d.id for d in info.partition.definitions)
    assert info.id not in info.physical_ids
    assert infos["upk"].physical_ids == (infos["upk"].id,)


def test_absent_members_take_zero_values() -> None:
    info = TableInfo.from_json({"id": 1, "name": {"O": "T", "L": "t"}})
    assert (info.name, info.columns, info.indices, info.partition, info.handle_key_ids) == ("T", (), (), None, ())
    bare = ColumnInfo.from_json({"id": 1, "name": {"O": "c"}, "type": {"Tp": 200}})
    assert (bare.tp, bare.flag, bare.elems, bare.default, bare.origin_default_bit) == (200, 0, (), None, None)
    assert DBInfo.from_json({"id": 3, "db_name": {"O": "D", "L": "d"}}).name == "D"


def test_bits_of_defaults_are_bytes() -> None:
    data = s.column(1, "b", 0, tp=16, default_bit="BQ==", origin_default_bit="AP8=")
    assert (ColumnInfo.from_json(data).default_bit, ColumnInfo.from_json(data).origin_default_bit) == (b"\x05", b"\x00\xff")


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"id": 1},
        {"id": 1, "name": {"O": "t"}, "cols": [{}]},
        {"id": 1, "name": {"O": "t"}, "cols": 5},
        {"id": 1, "name": {"O": "t"}, "index_info": [{"id": 1}]},
        {"id": 1, "name": {"O": "t"}, "index_info": [{"id": 1, "idx_name": {"O": "i"}, "idx_cols": [{"name": {"O": "c"}, "offset": 0}]}]},
        {"id": 1, "name": {"O": "t"}, "partition": {"enable": True, "definitions": [{}]}},
        {"id": 1, "name": {"O": "t"}, "cols": [{"id": 1, "name": {"O": "c"}, "type": {"Tp": 16}, "default_bit": "?"}]},
    ],
)
def test_a_broken_description_is_an_error_of_its_table(data: Any) -> None:
    with pytest.raises(SchemaError):
        TableInfo.from_json(data)


ENCODERS: tuple[Callable[[TableProgram], object], ...] = (
    lambda program: OpenRowEncoder([program], EncodingOptions(delete_only_handle_key_columns=True)),
    lambda program: CanalJsonRowEncoder([program], clock=lambda: 0),
    lambda program: CsvRowEncoder([program], EncodingOptions(MessageFormat.CSV, csv=CsvOptions(output_handle_key=True))),
    lambda program: SimpleRowEncoder([program], clock=lambda: 0),
    lambda program: named_schema("s", "t", program.info),
    lambda program: AvroRowEncoder([program], EncodingOptions(MessageFormat.AVRO), [(1, 2)]),
    lambda program: schemas_of("s", "t", program.info, EncodingOptions(MessageFormat.AVRO)),
    lambda program: KeyHash([program]),
    lambda program: unique_change([program]),
)
STRANGE = (None, True, 5, -5, 1 << 70, 1.5, "x", "", [], ["x"], [5], [None], {}, {"O": 5}, {"x": 1})


NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name == "wide")) for name in sorted(s.read_json("tidb/tableinfos.json.gz"))]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_members_of_other_types_are_an_error_or_nothing(name: str, descriptions: dict[str, Any]) -> None:
    """Each member of a description becomes something else: it is refused by name, or the table can be encoded all the same."""
    text = json.dumps(descriptions[name])
    rng = random.Random(name)
    refused = 0
    for _ in range(60 * FUZZ):
        broken = json.loads(text)  # a copy
        place = broken
        while True:
            at = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if not isinstance(place[at], dict | list) or not place[at] or rng.random() < 0.2:
                break
            place = place[at]
        place[at] = rng.choice(STRANGE)
        try:
            info = TableInfo.from_json(broken)
        except SchemaError:
            refused += 1
            continue
        with contextlib.suppress(TidemillError):
            program = TableProgram("s", "t", info)
            for make in ENCODERS:
                with contextlib.suppress(TidemillError):
                    make(program)
    assert refused > 8 * FUZZ


@pytest.mark.parametrize("data", [{}, {"id": 1}, []])
def test_a_broken_database_is_an_error(data: Any) -> None:
    with pytest.raises(SchemaError):
        DBInfo.from_json(data)


NOT_NULL = 1


def keyed(*indexes: s.Json, flags: tuple[int, ...] = (NOT_NULL, NOT_NULL, 0), **members: Any) -> TableInfo:
    cols = [s.column(i + 1, f"c{i}", i, flag=flag) for i, flag in enumerate(flags)]
    return TableInfo.from_json(s.table(1, "t", cols, index_info=list(indexes), **members))


def test_the_handle_key_is_the_primary_key_before_any_unique_index() -> None:
    info = keyed(s.index(1, "u", [0], unique=True), s.index(2, "PRIMARY", [1, 0], unique=True, primary=True))
    assert info.handle_key_ids == (1, 2)  # in table order


def test_the_handle_key_is_the_smallest_unique_index_without_nulls() -> None:
    pair, one, two = s.index(1, "p", [0, 1], unique=True), s.index(2, "q", [1], unique=True), s.index(3, "r", [0], unique=True)
    nullable = s.index(4, "n", [2], unique=True)
    assert keyed(pair, nullable).handle_key_ids == (1, 2)
    assert keyed(pair, one, two, nullable).handle_key_ids == (2,)
    assert keyed(nullable).handle_key_ids == ()
    assert keyed(nullable).unique_key_ids == {3}
    assert keyed(s.index(1, "p", [0], unique=True, state=3)).handle_key_ids == ()


def test_indexes_that_do_not_cover_every_row_are_no_key() -> None:
    partial = s.index(1, "u", [0], unique=True) | {"condition_expr_string": "`c1` > 1"}
    multi_valued = s.index(1, "u", [0], unique=True) | {"mv_index": True}
    assert keyed(partial).handle_key_ids == ()
    assert keyed(multi_valued).handle_key_ids == ()


def test_columns_in_between_are_hidden() -> None:
    cols = [s.column(1, "a", 0), s.column(2, "new", 1, state=3), s.column(3, "_V$_i_0", 2, hidden=True)]
    info = TableInfo.from_json(s.table(1, "t", cols))
    assert [c.name for c in info.output_columns] == ["a"]
    assert [c.name for c in info.public_columns] == ["a", "_V$_i_0"]


def test_kinds_without_rows() -> None:
    assert TableInfo.from_json(s.table(1, "v", view={"view_select": "select 1"})).physical_ids == ()
    sequence = TableInfo.from_json(s.table(1, "s", sequence={"sequence_start": 1}))
    assert (sequence.physical_ids, sequence.is_replicated_kind) == ((), False)
    temporary = TableInfo.from_json(s.table(1, "t", temp_table_type=1))
    assert (temporary.physical_ids, temporary.is_replicated_kind) == ((), False)


def test_a_plain_table_on_its_way_into_partitions_is_still_plain() -> None:
    waiting = s.partition([1], kind=0, adding=[5, 6], dropping=[1], new_table_id=7)
    info = TableInfo.from_json(s.table(1, "t", partition=waiting))
    assert info.partition is None
    assert info.physical_ids == (1,)
    assert info.transient_ids == (5, 6, 7)


def test_partitioning_that_is_not_enabled_does_not_count() -> None:
    info = TableInfo.from_json(s.table(1, "t", partition=s.partition([5, 6], enable=False)))
    assert (info.partition, info.physical_ids) == (None, (1,))


def test_descriptions_can_be_keys() -> None:
    assert len({TableInfo.from_json(s.table(1, "v", view={"a": 1})), TableInfo.from_json(s.table(1, "v", view={"a": 1}))}) == 1
