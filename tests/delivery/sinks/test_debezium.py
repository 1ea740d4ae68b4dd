"""SQL delivered as Debezium's JSON: values and schemas are those that Debezium 2.4 writes for MySQL, everything else is TiCDC's."""

from __future__ import annotations

import base64
import json
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.protocols.debezium import DdlMessage, RowEvent, RowKind, Watermark, decode

TYPES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "golden/debezium/types.json").read_text())
NO_ELEMENT = "col_enum"
"""Its value is outside the ENUM, which needs a session without strict mode. Sessions of the playground are strict."""
PARTITIONS = 2


def delivered(log: str, out: Path, more: str = "", toml: str = "") -> list[tuple[int, dict[str, Any], dict[str, Any]]]:
    """(partition, key, value) of all messages in the order of delivery."""
    config = parse_config(toml)
    replay(log, Settings("test", config.sink_uri(f"messages://{out}?protocol=debezium&partition-num={PARTITIONS}{more}"), config, UTC))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return [tuple(line[part] if part == "partition" else json.loads(base64.b64decode(line[part])) for part in ("partition", "key", "value"))
            for line in lines]  # type: ignore[misc]  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One row of all types, then an update, DDLs and a delete."""
    sql = SqlLog()
    columns = [one for one in TYPES if one["name"] != NO_ELEMENT]
    texts = [one["inserted"] if one["sql"].startswith("BIT") else f"'{one['inserted']}'" for one in columns]
    sql.run(
        f"CREATE TABLE foo ({', '.join(one['name'] + ' ' + one['sql'] for one in TYPES)})",
        f"INSERT INTO foo ({', '.join(one['name'] for one in columns)}) VALUES ({', '.join(texts)})",
        "UPDATE foo SET col_int = 7 WHERE pk = 1",
        "ALTER TABLE foo RENAME TO bar",
        "DELETE FROM bar",
        "DROP TABLE bar",
    )
    return str(sql.write(tmp_path_factory.mktemp("log") / "log"))


def test_values_and_schemas_are_debeziums(log: str, tmp_path: Path) -> None:
    (inserted,) = [(key, value) for _, key, value in delivered(log, tmp_path / "out") if value["payload"].get("op") == "c"]
    key, value = inserted
    assert key == {
        "payload": {"pk": 1},
        "schema": {"type": "struct", "name": "default.app.foo.Key", "optional": False, "fields": [TYPES[0]["field"]]},
    }
    row = value["payload"]["after"]
    assert [(name, row[name]) for name in row] == [(t["name"], None if t["name"] == NO_ELEMENT else t["value"]) for t in TYPES]
    before, after = value["schema"]["fields"][:2]
    assert before["fields"] == after["fields"] == [one["field"] for one in TYPES]
    assert (before["field"], after["field"], after["name"]) == ("before", "after", "default.app.foo.Value")
    assert value["schema"]["name"] == "default.app.foo.Envelope"


def test_every_change_in_order(log: str, tmp_path: Path) -> None:
    toml = "[sink]\ndebezium-disable-schema = true\n[sink.debezium]\ninclude-start-ts = true\n"
    got = delivered(log, tmp_path / "out", "&enable-tidb-extension=true&cluster-id=prod", toml)
    assert {frozenset(message) for _, *both in got for message in both} == {frozenset({"payload"})}
    events = [(partition, decode(json.dumps(key).encode(), json.dumps(value).encode())) for partition, key, value in got]
    assert {value["payload"]["source"]["name"] for _, _, value in got} == {"prod"}
    rows = [event for _, event in events if isinstance(event, RowEvent)]
    assert [(row.table, row.kind) for row in rows] == [("foo", RowKind.INSERT), ("foo", RowKind.UPDATE), ("bar", RowKind.DELETE)]
    assert all(row.start_ts is not None and row.start_ts < row.commit_ts for row in rows)
    assert [next(c.value for c in image if c.name == "col_int") for image in (rows[1].before, rows[1].after)] == [-2147483648, 7]
    ddls = [(partition, event) for partition, event in events if isinstance(event, DdlMessage)]
    assert [partition for partition, _ in ddls] == [0, 1] * 3, "to every partition"
    assert [(e.table, [(c.type, c.id, len(c.columns)) for c in e.changes]) for _, e in ddls[::2]] == [
        ("foo", [("CREATE", '"app"."foo"', len(TYPES))]),
        ("bar", [("ALTER", '"app"."foo","app"."bar"', len(TYPES))]),
        ("bar", [("DROP", '"app"."bar"', 0)]),
    ]
    watermarks = [event.ts for _, event in events if isinstance(event, Watermark)]
    assert watermarks
    assert watermarks[0::2] == watermarks[1::2]


def test_without_old_values(log: str, tmp_path: Path) -> None:
    got = delivered(log, tmp_path / "out", toml="[sink.debezium]\noutput-old-value = false\n")
    changes = [value["payload"] for _, _, value in got if "op" in value["payload"]]
    assert [("before" in change, change["op"]) for change in changes] == [(True, "c"), (False, "u"), (True, "d")]
    assert not [change for change in changes if change["op"] == "m"], "no watermark without the extension"
