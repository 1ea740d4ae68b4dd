"""SQL, records of files, filters and settings of a Drainer, without IO but for a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.binlog.drainer.database.merging import plain_statements
from tidemill.binlog.drainer.records.files import RecordFiles
from tidemill.binlog.drainer.savepoint import Position, Savepoint
from tidemill.binlog.filters import IGNORED_SCHEMAS, Filter, TableName
from tidemill.binlog.messages import MutationType
from tidemill.binlog.outputs.frames import frame, payloads
from tidemill.binlog.outputs.transactions import TableChanges, Transaction
from tidemill.binlog.outputs.writes import Writers
from tidemill.binlog.rows import RowChange
from tidemill.errors import ConfigError, MalformedMessage
from tidemill.tidb.datums import Datum, DatumFlag
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

_COLUMNS = [
    {"id": 1, "name": {"O": "id", "L": "id"}, "offset": 0, "state": 5, "type": {"Tp": 3, "Flag": 4099, "Flen": 11, "Charset": "binary"}},
    {"id": 2, "name": {"O": "v", "L": "v"}, "offset": 1, "state": 5, "type": {"Tp": 15, "Flag": 0, "Flen": 24, "Charset": "utf8mb4"}},
]
INFO = TableInfo.from_json({"id": 50, "name": {"O": "t", "L": "t"}, "state": 5, "pk_is_handle": True, "cols": _COLUMNS})


def image(key: int, text: str | None) -> dict[int, Datum]:
    value = Datum(DatumFlag.NULL, None) if text is None else Datum(DatumFlag.COMPACT_BYTES, text.encode())
    return {1: Datum(DatumFlag.VARINT, key), 2: value}


def transaction(*rows: RowChange) -> Transaction:
    return Transaction(1, 2, (TableChanges(TableVersion("d", 2, INFO, (50,), 0), rows),))


def statements(one: Transaction, *, safe: bool) -> list[str]:
    return [text.text.decode() for text in plain_statements(Writers(hashed=False).work(one).rows(), safe=safe)]


INSERT, UPDATE, DELETE = MutationType.INSERT, MutationType.UPDATE, MutationType.DELETE_ROW
A = "_utf8mb4 x'61'"


def test_example_d_a_row_that_is_deleted_and_replaced_is_there_at_the_end() -> None:
    rows = (RowChange(DELETE, image(1, None), None), RowChange(INSERT, None, image(1, "a")))
    assert statements(transaction(*rows), safe=True) == [
        "DELETE FROM `d`.`t` WHERE `id`=1 LIMIT 1",
        f"REPLACE INTO `d`.`t` (`id`,`v`) VALUES (1,{A})",
    ]


def test_example_c_statements_keep_the_order_of_those_that_share_a_key() -> None:
    rows = (
        RowChange(UPDATE, image(3, "a"), image(4, "a")),
        RowChange(UPDATE, image(2, "a"), image(5, "a")),
        RowChange(DELETE, image(3, "a"), None),
    )
    assert statements(transaction(*rows), safe=False) == [
        f"UPDATE `d`.`t` SET `id`=4,`v`={A} WHERE `id`=3 LIMIT 1",
        f"UPDATE `d`.`t` SET `id`=5,`v`={A} WHERE `id`=2 LIMIT 1",
        "DELETE FROM `d`.`t` WHERE `id`=3 LIMIT 1",
    ]


def test_in_safe_mode_an_update_may_be_run_again() -> None:
    row = RowChange(UPDATE, image(3, "a"), image(4, None))
    assert statements(transaction(row), safe=True) == [
        "DELETE FROM `d`.`t` WHERE `id`=3 LIMIT 1",
        "REPLACE INTO `d`.`t` (`id`,`v`) VALUES (4,NULL)",
    ]


def test_files_are_full_at_a_size_and_a_torn_record_is_cut_off(tmp_path: Path) -> None:
    files = RecordFiles(tmp_path, full=40)
    for text in (b"first", b"second", b"third"):
        files.append(text)
    files.close()
    paths = sorted(tmp_path.iterdir())
    assert [path.name[:23] for path in paths] == ["binlog-0000000000000000", "binlog-0000000000000001"]
    with paths[-1].open("ab") as file:
        file.write(frame(b"torn by a crash")[:-3])
    files = RecordFiles(tmp_path, full=4096)
    files.append(b"fourth")
    files.close()
    found = [text for path in sorted(tmp_path.iterdir()) for text in payloads(path.read_bytes(), path.name)]
    assert found == [b"first", b"second", b"third", b"fourth"]


def test_a_record_that_does_not_fit_its_checksum_is_told_with_its_place() -> None:
    data = bytearray(frame(b"one") + frame(b"two"))
    data[-5] ^= 1
    with pytest.raises(MalformedMessage, match="file: the record at byte 19"):
        list(payloads(bytes(data), "file"))


def test_the_savepoint_of_generate_meta_with_a_time_zone_is_read(tmp_path: Path) -> None:
    (tmp_path / "savepoint").write_text("commitTS = 470615313\n2026-11-21 10:00:00 +0000 UTC\n2026-11-21 18:00:00 +0800 CST\n")
    saved = Savepoint(tmp_path)
    assert saved.load() == Position(470615313)
    saved.save(Position(470615314, 7, consistent=True))
    assert (tmp_path / "savepoint").read_text() == "consistent = true\ncommitTS = 470615314\nschema-version = 7\n"


@pytest.mark.parametrize("text", ["", "commitTS = 'x'", "commitTS = -1", "nothing"])
def test_a_savepoint_without_a_position_is_refused_and_not_begun_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "savepoint").write_text(text)
    with pytest.raises(ConfigError, match="commitTS"):
        Savepoint(tmp_path).load()


def test_filters_take_first_and_leave_out_then_without_regard_to_case() -> None:
    plain = Filter(IGNORED_SCHEMAS, (), (), ())
    assert plain.takes("Test", "t")
    assert not plain.takes("MYSQL", "user")
    chosen = Filter("", (TableName("a", "~^tmp_"),), ("~^a",), (TableName("b", "only"),))
    assert [chosen.takes(*name) for name in (("A1", "t"), ("b", "ONLY"), ("b", "other"), ("a", "tmp_1"), ("c", "t"), ("b", ""))] == [
        *(True, True, False, False, False, False)
    ]
    with pytest.raises(ConfigError, match=r"~\("):
        Filter("~(", (), (), ())


def test_a_record_in_parts_is_that_of_its_payload_and_leaves_nothing_where_a_part_fails(tmp_path: Path) -> None:
    files = RecordFiles(tmp_path)
    files.append(b"one")

    def broken() -> Iterator[bytes]:
        yield b"some of it"
        raise MalformedMessage("a row cannot be read")

    with pytest.raises(MalformedMessage, match="a row"):
        files.append_in_parts(1000, broken())
    files.append_in_parts(12, (b"in ", memoryview(b"three "), b"..."))
    files.append(b"two")
    files.close()
    (path,) = files.paths
    assert path.read_bytes() == frame(b"one") + frame(b"in three ...") + frame(b"two")
