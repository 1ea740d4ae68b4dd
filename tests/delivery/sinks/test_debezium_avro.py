"""SQL delivered as Debezium's Avro: fastavro reads every message by the schemas that were registered, and finds what Debezium writes."""

from __future__ import annotations

import base64
import io
import json
import struct
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.servers.registries import Front, MemoryRegistry, front, memory
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.config.registry_address import with_registry
from tidemill.delivery.inputs.table_router import Settings
from tidemill.protocols.debezium import RowKind
from tidemill.protocols.debezium_avro.decode import DebeziumAvroReader

__all__ = ["front", "memory"]
pytestmark = pytest.mark.slow

TYPES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "golden/debezium/types.json").read_text())
NO_ELEMENT = "col_enum"
"""Its value is outside the ENUM, which needs a session without strict mode. Sessions of the playground are strict."""
DECIMALS, BINARIES = ("col_decimal", "col_numeric"), ("col_varbinary", "col_binary", "col_blob")
"""The columns that Avro has otherwise than TiCDC's JSON: exact, and as bytes."""
LEAST_MS = 1_600_000_000_000


class Sent(NamedTuple):
    topic: str
    key: Any
    value: Any


def read(registry: MemoryRegistry, data: str) -> Any:
    """A key or value, read by the schema that it names."""
    raw = base64.b64decode(data)
    magic, number = struct.unpack(">bI", raw[:5])
    (text,) = (text for text, found in registry.ids.items() if found == number)
    stream = io.BytesIO(raw[5:])
    found = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(text)), None)
    assert (magic, stream.read()) == (0, b"")
    return found


def delivered(log: str, out: Path, front: Front, memory: MemoryRegistry, more: str = "") -> list[Sent]:
    config = parse_config("[sink]\ndispatchers = [{matcher = ['*.*'], topic = '{schema}.{table}'}]\n")
    uri = with_registry(f"messages://{out}?protocol=debezium-avro&partition-num=1{more}", front.url)
    replay(log, Settings("test", config.sink_uri(uri), config, UTC))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return [Sent(line["topic"], *(read(memory, line[part]) for part in ("key", "value"))) for line in lines]


def expected(one: dict[str, Any]) -> Any:
    """The value of a column: that of the JSON protocol, but exact."""
    name, value = one["name"], one["value"]
    if name == NO_ELEMENT or value is None:
        return None
    if name in DECIMALS:
        return Decimal(one["inserted"])
    if name in BINARIES or one["field"]["type"] == "bytes":
        return base64.b64decode(value)
    return struct.unpack("<f", struct.pack("<f", value))[0] if one["field"]["type"] == "float" else value


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A row of all types, an update, a column more, a delete, and a table without rows."""
    sql = SqlLog("CREATE TABLE empty (id INT PRIMARY KEY)")
    columns = [one for one in TYPES if one["name"] != NO_ELEMENT]
    texts = [one["inserted"] if one["sql"].startswith("BIT") else f"'{one['inserted']}'" for one in columns]
    sql.run(
        f"CREATE TABLE foo ({', '.join(one['name'] + ' ' + one['sql'] for one in TYPES)})",
        f"INSERT INTO foo ({', '.join(one['name'] for one in columns)}) VALUES ({', '.join(texts)})",
        "UPDATE foo SET col_int = 7 WHERE pk = 1",
        "ALTER TABLE foo ADD COLUMN added INT",
        "DELETE FROM foo",
    )
    return str(sql.write(tmp_path_factory.mktemp("log") / "log"))


def test_every_change_is_debeziums(log: str, front: Front, memory: MemoryRegistry, tmp_path: Path) -> None:
    inserted, updated, deleted = delivered(log, tmp_path / "out", front, memory)
    row = {one["name"]: expected(one) for one in TYPES}
    assert inserted.value["after"] == row
    assert [(sent.topic, sent.key, sent.value["op"]) for sent in (inserted, updated, deleted)] == [
        ("app.foo", {"pk": 1}, op) for op in "cud"
    ]
    assert (inserted.value["before"], updated.value["before"], updated.value["after"]) == (None, row, row | {"col_int": 7})
    assert (deleted.value["before"], deleted.value["after"]) == (row | {"col_int": 7, "added": None}, None)
    source = dict(inserted.value["source"])
    assert source.pop("ts_ms") == source.pop("commit_ts") >> 18 > LEAST_MS
    assert source == {
        "version": "2.4.0.Final", "connector": "TiCDC", "name": "default", "snapshot": "false", "db": "app", "sequence": None,
        "table": "foo", "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0, "thread": None, "query": None,
    }  # fmt: skip
    assert inserted.value["ts_ms"] > LEAST_MS
    assert inserted.value["transaction"] is None
    assert front.registered == ["app_foo-key", "app_foo-value", "app_foo-value"], "neither DDLs nor tables without rows have a subject"


def test_options(log: str, front: Front, memory: MemoryRegistry, tmp_path: Path) -> None:
    more = "&debezium-output-old-value=false&debezium-include-start-ts=true&cluster-id=prod-1&avro-decimal-handling-mode=string"
    inserted, updated, deleted = delivered(
        log, tmp_path / "out", front, memory, f"{more}&avro-bigint-unsigned-handling-mode=string&enable-tidb-extension=true"
    )
    assert (inserted.value["after"]["col_decimal"], inserted.value["after"]["col_bigint_unsigned"]) == ("12345.12345", str(2**64 - 1))
    assert updated.value["before"] is None
    assert deleted.value["before"]["col_int"] == 7
    assert {sent.value["source"]["name"] for sent in (inserted, updated, deleted)} == {"prod-1"}
    assert all(0 < sent.value["source"]["start_ts"] < sent.value["source"]["commit_ts"] for sent in (inserted, updated, deleted))
    schema = json.loads(memory.subjects["app_foo-value"][0])
    assert schema["namespace"] == "prod_1.app.foo"
    columns = schema["fields"][0]["type"][1]["fields"]
    assert [c["tidb_type"] for c in columns if c["name"] in ("col_bigint_unsigned", "col_blob")] == ["blob", "bigint unsigned"]


def test_our_reader_tells_the_same(log: str, front: Front, memory: MemoryRegistry, tmp_path: Path) -> None:
    delivered(log, tmp_path / "out", front, memory, "&debezium-include-start-ts=true&enable-tidb-extension=true")
    texts = {number: text for text, number in memory.ids.items()}
    reader = DebeziumAvroReader(texts.__getitem__)
    lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    inserted, updated, deleted = (reader.decode(*(base64.b64decode(line[part]) for part in ("key", "value"))) for line in lines)
    assert [(event.kind, event.schema, event.table, event.cluster) for event in (inserted, updated, deleted)] == [
        (kind, "app", "foo", "default") for kind in (RowKind.INSERT, RowKind.UPDATE, RowKind.DELETE)
    ]
    assert inserted.start_ts is not None
    assert inserted.start_ts < inserted.commit_ts
    assert (inserted.before, updated.before, deleted.after) == ((), inserted.after, ())
    columns = {column.name: column for column in inserted.after}
    assert [(columns[one["name"]].type, columns[one["name"]].meaning) for one in TYPES if one["name"] not in (*DECIMALS, *BINARIES)] == [
        (one["field"]["type"], one["field"].get("name", "")) for one in TYPES if one["name"] not in (*DECIMALS, *BINARIES)
    ]
    assert [name for name, column in columns.items() if column.key] == ["pk"]
    shown = ("col_d_2023", "col_dt_fsp_6", "col_t_neg", "col_decimal", "col_blob", "col_bit_5", "col_bit_1", "col_bigint_unsigned")
    assert [columns[name].value for name in shown] == [
        "2023-11-30", "2023-11-30 12:34:56.123456", "-12:34:56.123456", "12345.12345", b"foo", 16, True, -1
    ]  # fmt: skip
    assert columns["col_bigint_unsigned"].tidb_type == "bigint unsigned"
