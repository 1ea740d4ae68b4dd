"""`tidemill decode`: what people see of keys, rows and messages."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest

from tidemill.cli.main import main
from tidemill.tidb import keys
from tidemill.tidb.codec import encode_uint_desc

GOLDEN = Path(__file__).parents[2] / "golden" / "tidb"
RECORD = keys.record_key(45, -1)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    """The output's lines as words."""
    with pytest.raises(SystemExit) as end:
        main(["decode", *arguments])
    assert end.value.code == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(["decode", *arguments])
    assert end.value.code == 1
    return capsys.readouterr().err


def test_a_record_key_in_every_spelling(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for key, spelling in ((RECORD, "raw"), (keys.to_encoded(RECORD), "encoded")):
        (tmp_path / "key").write_bytes(key)
        for text in (key.hex(), key.hex().upper(), "0x" + key.hex(), base64.b64encode(key).decode(), f"@{tmp_path}/key"):
            lines = run(capsys, "key", text)
            assert ["spelling", spelling] in lines
            assert ["table", "id", "45"] in lines
            assert ["handle", "-1", "(unsigned", "18446744073709551615)"] in lines
            assert ["raw", RECORD.hex()] in lines


def test_versions_and_keyspaces(capsys: pytest.CaptureFixture[str]) -> None:
    ts = 470616264291647490
    lines = run(capsys, "key", (keys.to_encoded(keys.keyspace_prefix(7) + RECORD) + encode_uint_desc(ts)).hex())
    assert lines[0] == ["spelling", "encoded,", "with", "a", "version"]
    assert lines[1][:2] == ["version", str(ts)]
    assert lines[2:4] == [["keyspace", "7"], ["kind", "record"]]


def test_the_datums_of_a_common_handle(capsys: pytest.CaptureFixture[str]) -> None:
    handle = "060a028000000c22016b00000000000000f8041997e97eba000000078000253f1d047a00"
    lines = run(capsys, "key", keys.record_prefix(100).hex() + handle)
    assert ["datum", "1", "DECIMAL", "12.34"] in lines
    assert ["datum", "2", "BYTES", "'k'"] in lines
    assert ["datum", "3", "UINT", "1844199302927220736", "(as", "a", "time:", "2015-12-20", "23:58:58.000000)"] in lines
    assert ["datum", "4", "DURATION", "40953000000000", "(11:22:33.000000)"] in lines
    padded = run(capsys, "key", keys.record_key(100, bytes.fromhex("060a028000000c22")).hex())
    assert [line for line in padded if line[0] == "datum"] == [["datum", "1", "DECIMAL", "12.34"]]
    broken = run(capsys, "key", keys.record_key(100, b"\x03" + bytes(8) + b"\x0b").hex())
    assert ["rest", "0b", "(the", "datum", "at", "byte", "9", "has", "the", "unknown", "flag", "0x0b)"] in broken


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (keys.table_key(2, 45), ["kind meta hash field", "name 'DB:2'", "field 'Table:45'"]),
        (keys.SCHEMA_VERSION_KEY, ["kind meta string", "name 'SchemaVersionKey'"]),
        (keys.meta_hash_field(keys.DDL_JOB_HISTORY, (7).to_bytes(8, "big")), ["kind meta hash field", "field job 7"]),
        (bytes(keys.MetaKey(keys.MetaKind.LIST_ITEM, b"DDLJobList", index=3)), ["kind meta list item", "index 3"]),
        (keys.index_prefix(45, 2) + b"\x03" + bytes(8), ["kind index", "index id 2", "datum 1 INT -9223372036854775808"]),
        (keys.record_key(keys.DDL_JOB_TABLE_ID, 1), ["table id 281474976710654 (mysql.tidb_ddl_job)"]),
        (keys.table_prefix(45) + b"_s", ["kind part of a table's range", "rest 5f73"]),
        (keys.table_prefix(45), ["rest nothing"]),
    ],
)
def test_other_keys(capsys: pytest.CaptureFixture[str], key: bytes, expected: list[str]) -> None:
    lines = [" ".join(line) for line in run(capsys, "key", key.hex())]
    assert set(expected) <= set(lines)


def test_a_row_without_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "row", "8000020001000203040100030001" + "6162")
    assert lines == [
        ["format", "2"],
        ["size", "16", "bytes"],
        ["columns", "2", "and", "1", "NULL"],
        ["id", "stored", "as", "text"],
        ["2", "01"],
        ["3", "6162", "ab"],
        ["4", "NULL"],
    ]
    lines = run(capsys, "row", "08040802080602046162080800")
    assert lines[-3:] == [["2", "VARINT", "1"], ["3", "COMPACT_BYTES", "'ab'"], ["4", "NULL"]]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of table descriptions."""
    folder = tmp_path_factory.mktemp("tables")
    with gzip.open(GOLDEN / "tableinfos.json.gz") as file:
        for name, data in json.load(file).items():
            (folder / f"{name}.json").write_text(json.dumps(data))
    return folder


def stored(table: str, number: int = 0) -> tuple[str, str]:
    rows = [row for row in json.loads((GOLDEN / "rows.json").read_text()) if row["table"] == table]
    return rows[number]["key"], rows[number]["value"]


def test_a_row_with_key_and_table(capsys: pytest.CaptureFixture[str], described: Path) -> None:
    key, value = stored("all_types", 1)
    options = ("--key", key, "--table", str(described / "all_types.json"))
    lines = run(capsys, "row", value, *options, "--tz", "Asia/Shanghai")
    assert ["1", "id", "longlong", "1", "(not", "in", "the", "row", "value)"] in lines
    assert [line[3:] for line in lines if "c_enum" in line] == [["2", "(b)"]]
    assert [line[3:] for line in lines if "c_set" in line] == [["5", "(x,z)"]]
    assert [line[3:] for line in lines if "c_ts" in line] == [["1973-12-30", "23:30:00"]]


def test_a_row_with_a_checksum(capsys: pytest.CaptureFixture[str], described: Path) -> None:
    key, value = stored("cksum_ch")
    lines = run(capsys, "row", value, "--key", key, "--table", str(described / "cksum_ch.json"))
    assert ["checksum", "version", "2:", "390cd36a"] in lines
    assert lines[-1] == ["verdict", "the", "checksum", "matches"]


def test_a_row_with_its_table_but_no_key(capsys: pytest.CaptureFixture[str], described: Path) -> None:
    key, value = stored("upk")
    lines = run(capsys, "row", value, "--table", str(described / "upk.json"))
    assert ["1", "id", "longlong", "(not", "in", "the", "row", "value:", "give", "--key)"] in lines
    encoded = keys.to_encoded(bytes.fromhex(key)).hex()
    lines = run(capsys, "row", value, "--key", encoded, "--table", str(described / "upk.json"))
    assert ["1", "id", "longlong", "18446744073709551615", "(not", "in", "the", "row", "value)"] in lines
    _, value = stored("no_pk")
    assert ["2", "b", "varchar", "'x'"] in run(capsys, "row", value, "--table", str(described / "no_pk.json"))


def test_columns_that_the_table_does_not_have(capsys: pytest.CaptureFixture[str], described: Path) -> None:
    lines = run(capsys, "row", "8000010000003203" + "00616263", "--table", str(described / "no_pk.json"))
    assert ["50", "(not", "in", "the", "table)", "b'abc'"] in lines


def golden_message(kind: str) -> tuple[str, str]:
    """The first message of a kind that TiCDC made, and its arguments."""
    with gzip.open(GOLDEN.parent / "ticdc" / "open.jsonl.gz", "rt") as lines:
        return next((o["key"], o["value"]) for o in map(json.loads, lines) if o["kind"] == kind and o.get("key"))


def test_messages_of_ticdc(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "message", *golden_message("row"))
    assert lines[0][:5] == ["event", "1", "insert", "pub.ints,", "470616264291647490"]
    assert lines[0][-3:] == ["row", "id", "-1"]
    assert lines[1] == ["new", "b", "bigint", "binary|nullable", "-9223372036854775808"]
    lines = run(capsys, "message", *golden_message("ddl"))
    assert lines[0][:3] == ["event", "1", "DDL"]
    assert lines[1][0] == "query"
    (line,) = run(capsys, "message", *golden_message("checkpoint"))
    assert line[:3] == ["event", "1", "resolved,"]


VERSION, WORD = "0000000000000001", "0000000000000002"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("00", "", "message key, byte 0, version: 8 bytes are needed, 1 are left"),
        ("0000000000000002", "", "it is 2, expected 1\n  the fault is the reader's"),
        (VERSION + WORD + "7b", "", "message key, byte 8, length: it says 2 bytes, 1 are left\n  the fault is the sender's"),
        (VERSION + WORD + "7b7d", WORD + "7b7d00", "message value, byte 10, length: 8 bytes are needed, 1 are left"),
        (VERSION + WORD + "7b7d", "", "it has 0 events, the key has 1"),
        (VERSION + WORD + "7b7b", WORD + "7b7d", "message key, byte 17: it is not JSON"),
        (VERSION + WORD + "7b7d", WORD + "3132", "message key, byte 16, ts: expected an integer of 64 bits, found nothing"),
    ],
)
def test_messages_that_are_none(capsys: pytest.CaptureFixture[str], key: str, value: str, expected: str) -> None:
    error = refused(capsys, "message", key, value)
    assert error.startswith("Error TM:ErrMalformedMessage: ")
    assert expected in error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("key", "zz!"), "Error TM:ErrConfig: the key 'zz!' is neither hex nor base64"),
        (("key", "@/does/not/exist"), "Error TM:ErrConfig: the key cannot be read from /does/not/exist: No such file"),
        (("key", "ff"), "Error TM:ErrMalformedKey: key ff is not a key of a table"),
        (("row", "8001"), "Error TM:ErrMalformedRow: row format 2: its head needs 6 bytes, the row has 2"),
        (("row", "800000000000", "--tz", "Mars"), "Error TM:ErrConfig: time zone 'Mars' is not known"),
        (("row", "800000000000", "--table", "/does/not/exist"), "Error TM:ErrConfig: the table's description cannot be read"),
        (("row", "800000000000", "--table", __file__), "is not JSON"),
    ],
)
def test_errors(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str) -> None:
    assert expected in refused(capsys, *arguments)
