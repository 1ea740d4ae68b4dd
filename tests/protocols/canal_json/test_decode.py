"""The Canal-JSON decoder: TiCDC's messages give back the rows, under all options; what is broken is refused with place and fault."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.golden import ticdc
from tests.support.golden.text_rows import encode_all, golden_records
from tidemill.kernels.canal_json import CanalJsonRowEncoder
from tidemill.protocols.canal_json import Column, DdlMessage, RowEvent, RowKind, WatermarkMessage, decode
from tidemill.protocols.canal_json.encode import CanalJsonTable
from tidemill.protocols.common.jsonmessage import JsonMessageError
from tidemill.protocols.open.decode import Fault
from tidemill.protocols.options import Compression, EncodingOptions, LargeMessage, LargeMessageOption, MessageFormat
from tidemill.sinks.claim_check import ClaimCheckStorage, keeper

EXTENSION = EncodingOptions(MessageFormat.CANAL_JSON, enable_tidb_extension=True)
MESSAGE: dict[str, Any] = {
    "id": 0, "database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "UPDATE", "es": 1, "ts": 2, "sql": "",
    "sqlType": {"id": 4, "v": 12}, "mysqlType": {"id": "int(11) unsigned", "v": "varchar(9)"}, "old": [{"v": "a"}],
    "data": [{"id": "7", "v": "b"}],
}  # fmt: skip


def golden_values(*kinds: str) -> list[tuple[dict[str, Any], bytes]]:
    """Golden lines with their message, those of a configuration or kind only."""
    found = []
    for line in ticdc.lines("canal_json"):
        if line["kind"] in kinds and ("value" in line or "value_b64" in line):
            found.append((line, line["value"].encode() if "value" in line else ticdc.raw(line["value_b64"]) or b""))
    return found


def as_delivered(cell: object) -> object:
    """A cell as a message can hold it: bytes that are not UTF-8 are replaced."""
    return cell.decode("utf-8", "replace").encode() if isinstance(cell, bytes) else cell


@pytest.mark.slow
def test_golden_rows_come_back() -> None:
    for line, value in golden_values("row"):
        row = ticdc.rows()[line["id"]]
        info = row.version.info
        table = CanalJsonTable(row.version.schema, row.version.table, info, ticdc.zone_of(row.zone), EXTENSION)
        (event,) = decode(value)
        assert isinstance(event, RowEvent)
        assert (event.schema, event.table, event.es) == (row.version.schema, row.version.table, row.record.commit_ts >> 18)
        assert event.commit_ts == (row.record.commit_ts if line["config"] in ("ext", "handle-key-only") else None)
        for image, stored in ((event.after, row.record.value), (event.whole_before, row.record.old_value)):
            if not stored:
                assert image == ()
                continue
            cells = table.reader.read(row.record.key, stored)
            want = {
                c.name: cell if c.is_binary else as_delivered(cell) for c, cell in zip(info.output_columns, cells, strict=True)
            }  # fmt: skip
            got = {c.name: c.value for c in image}
            if event.only_handle_key or line["config"] == "delete-only-handle":
                assert got.keys() <= want.keys()
                want = {name: want[name] for name in got}
            assert got == want, line


def test_golden_ddls_and_watermarks() -> None:
    for line, value in golden_values("ddl", "checkpoint"):
        (event,) = decode(value)
        if line["kind"] == "checkpoint":
            assert event == WatermarkMessage(line["ts"])
            continue
        members = json.loads(value)
        assert isinstance(event, DdlMessage)
        assert (event.query, event.type, event.schema, event.table) == tuple(members[k] for k in ("sql", "type", "database", "table"))
        assert event.commit_ts == members.get("_tidb", {}).get("commitTs")


def test_a_message_as_canal_sends_it() -> None:
    """Several rows, types with length, numbers of ENUM as names, an old row with what changed only."""
    message = MESSAGE | {"data": [{"id": "7", "v": "b"}, {"id": "8", "v": None}], "old": [{"v": "a"}, {"v": "x"}]}
    first, second = decode(json.dumps(message).encode())
    assert isinstance(first, RowEvent)
    assert isinstance(second, RowEvent)
    identity = Column("id", "int(11) unsigned", 4, True, 7)
    assert first.after == (identity, Column("v", "varchar(9)", 12, False, b"b"))
    assert first.before == (Column("v", "varchar(9)", 12, False, b"a"),)
    assert first.whole_before == (identity, Column("v", "varchar(9)", 12, False, b"a"))
    assert [c.value for c in second.whole_before] == [8, b"x"]
    (deleted,) = decode(json.dumps(MESSAGE | {"type": "DELETE", "old": None}).encode())
    assert isinstance(deleted, RowEvent)
    assert (deleted.kind, deleted.after, [c.value for c in deleted.before]) == (RowKind.DELETE, (), [7, b"b"])


@pytest.mark.parametrize(
    ("value", "field", "problem", "fault"),
    [
        (b"", "", "it is not JSON", Fault.SENDER),
        (b"[]", "", "", Fault.SENDER),
        (b'{"type": tru}', "", "it is not JSON", Fault.SENDER),
        (b'{"type":"INSERT","type":"INSERT"}', "", "an object has a member twice", Fault.SENDER),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "", "nested too deep", Fault.SENDER),
        (b'{"es":' + b"9" * 5000 + b"}", "", "a number of 5000 digits", Fault.SENDER),
        ({"type": "TRUNCATED"}, "type", "expected INSERT, UPDATE or DELETE, found 'TRUNCATED'", Fault.READER),
        ({"es": "1"}, "es", "expected an integer of 64 bits, found '1'", Fault.SENDER),
        ({"database": None}, "database", "it is missing", Fault.SENDER),
        ({"data": None}, "data", "it has no row", Fault.SENDER),
        ({"data": [7]}, "data", "expected an object for each row, found 7", Fault.SENDER),
        ({"data": [{"id": 7}]}, "data.id", "expected a string or null, found 7", Fault.SENDER),
        ({"data": [{"id": "seven"}]}, "data.id", "expected an integer, found 'seven' (its type is int(11) unsigned)", Fault.SENDER),
        ({"old": [{"id": "1"}, {"id": "2"}]}, "old", "it has 2 rows, data has 1", Fault.SENDER),
        ({"mysqlType": {"v": "blob"}, "data": [{"v": "\u4e2d"}], "old": None}, "data.v", "a character that is not a byte", Fault.SENDER),
        ({"mysqlType": {"v": 3}}, "mysqlType.v", "expected a string, found 3", Fault.SENDER),
        ({"pkNames": "id"}, "pkNames", "expected a list of names", Fault.SENDER),
        ({"_tidb": {"commitTs": -(1 << 64)}}, "_tidb.commitTs", "expected an integer of 64 bits", Fault.SENDER),
    ],
)
def test_what_is_refused(value: bytes | dict[str, Any], field: str, problem: str, fault: Fault) -> None:
    data = value if isinstance(value, bytes) else json.dumps(MESSAGE | value).encode()
    with pytest.raises(JsonMessageError) as caught:
        decode(data)
    assert problem in caught.value.message
    assert (caught.value.field, caught.value.fault) == (field, fault)
    assert f"byte {caught.value.offset}" in caught.value.message
    if field:
        name = field.rpartition(".")[2]
        assert data[caught.value.offset :].startswith(json.dumps(name).encode())


@pytest.mark.parametrize("kind", [Compression.SNAPPY, Compression.LZ4])
def test_compressed_messages(kind: Compression) -> None:
    """The kernel's compression, read back."""
    options = EncodingOptions(MessageFormat.CANAL_JSON, enable_tidb_extension=True, large_message=LargeMessage(compression=kind))
    ids = [line["id"] for line, _ in golden_values("row") if line["config"] == "ext"][::10]
    programs, records = golden_records(ids)
    plain = CanalJsonRowEncoder(programs, EXTENSION, clock=lambda: 5)
    packed = CanalJsonRowEncoder(programs, options, clock=lambda: 5)
    for whole, small in zip(encode_all(plain, records), encode_all(packed, records), strict=True):
        assert small.value != whole.value
        assert decode(small.value or b"") == decode(whole.value or b"")
    assert packed.slow_rows == 0


@pytest.mark.parametrize("raw", [False, True])
def test_claim_checks(tmp_path: Path, raw: bool) -> None:
    """A message that is too large says where the whole is kept, and has the handle key."""
    large = LargeMessage(LargeMessageOption.CLAIM_CHECK, claim_check_storage_uri=f"file://{tmp_path}", claim_check_raw_value=raw)
    options = EncodingOptions(MessageFormat.CANAL_JSON, enable_tidb_extension=True, max_message_bytes=700, large_message=large)
    ids = [line["id"] for line, _ in golden_values("row") if line["config"] == "handle-key-only"][:60]
    programs, records = golden_records(ids)
    whole = encode_all(CanalJsonRowEncoder(programs, EXTENSION, clock=lambda: 1_795_000_000_000), records)
    messages = encode_all(CanalJsonRowEncoder(programs, options, clock=lambda: 1_795_000_000_000, keep=keeper(options)), records)
    fetch = ClaimCheckStorage(f"file://{tmp_path}").fetch
    kept = 0
    for message, full in zip(messages, whole, strict=True):
        (event,), (want,) = decode(message.value or b""), decode(full.value or b"")
        assert isinstance(event, RowEvent)
        if event.claim_check is None:
            assert message.value == full.value
            continue
        kept += 1
        assert not event.only_handle_key
        assert event.claim_check.startswith(f"file://{tmp_path}/")
        (fetched,) = decode(message.value or b"", fetch=fetch)
        assert isinstance(fetched, RowEvent)
        assert (fetched.after, fetched.before) == (want.after, want.before)  # type: ignore[union-attr]
        file = (tmp_path / event.claim_check.rpartition("/")[2]).read_bytes()
        assert file == full.value if raw else base64.b64decode(json.loads(file)["value"]) == full.value
    assert kept == sum(len(m.value or b"") + 36 > 700 for m in whole) > 5


def test_no_bytes_crash_it() -> None:
    rng = random.Random(6)
    values = [value for _, value in golden_values("row", "ddl", "checkpoint")]
    refused = 0
    for _ in range(3000):
        data = bytearray(rng.choice(values))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    del data[at : at + rng.randint(1, 9)]
                case _:
                    data[at:at] = rng.choice((b'"', b"{", b"[", b"null", b"\\", b"9" * 30, b"\xff"))
            if not data:
                break
        try:
            decode(bytes(data))
        except JsonMessageError:
            refused += 1
    assert refused > 1500
