"""Logs replayed into files of tables: the events that any other sink gets, in the folders of their versions, partitions and dates."""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.logs import START
from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.feeds import PARTITION_IDS, PLAIN, World
from tests.support.servers.s3 import make_bucket, objects, s3_server
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery import plan
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.task import chunker

__all__ = ["s3_server"]
DATE = "2026"  # of START


@pytest.fixture
def several_items(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Divide even the smallest batch, run its items here, in small chunks."""
    from tidemill.changefeed import replay as module
    from tidemill.spark.local import LocalRunner

    def local(*_: object) -> LocalRunner:
        runner = LocalRunner()
        runner.parallelism = 3
        return runner

    monkeypatch.setattr(plan, "SMALL_BYTES", -1)
    monkeypatch.setattr(chunker.Chunker.__init__, "__defaults__", (16, 32 << 20))
    monkeypatch.setattr(module, "EitherRunner", local)
    return iter(())


def settings(uri: str) -> Settings:
    config = parse_config("")
    return Settings("test", config.sink_uri(uri), config, UTC)


def told(line: bytes) -> tuple[int, str, str, str]:
    """What identifies an event: commit_ts, table, kind, values."""
    event = json.loads(line)
    return event["_tidb"]["commitTs"], event["table"], event["type"], json.dumps([event["data"], event["old"]])


def from_messages(path: Path) -> dict[str, list[Any]]:
    """Row events by table."""
    found: dict[str, list[Any]] = defaultdict(list)
    for line in path.read_text().splitlines():
        value = base64.b64decode(json.loads(line)["value"])
        event = json.loads(value)
        if not event["isDdl"] and event["type"] != "TIDB_WATERMARK":
            found[event["table"]].append(told(value))
    return found


def from_files(files: dict[str, bytes]) -> tuple[dict[str, list[Any]], dict[str, set[str]]]:
    """Row events by table, each folder's in its order, and the folders of each table."""
    found, folders = defaultdict(list), defaultdict(set)
    for name in sorted(files):
        if match := re.fullmatch(r"app/(\w+)/(.*)/CDC[0-9]{20}\.json", name):
            lines = files[name].removesuffix(b"\r\n").split(b"\r\n")
            found[match[1]] += [told(line) for line in lines]
            folders[match[1]].add(match[2])
            assert [told(line)[0] for line in lines] == sorted(told(line)[0] for line in lines), f"{name} is in commit order"
    return found, folders


def read_folder(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("affinity", ["table", "key"])
@pytest.mark.usefixtures("several_items")
def test_events_and_folders(tmp_path: Path, affinity: str) -> None:
    world = World.make(seed=3)
    switch = START + 200
    world.add_column(PLAIN, switch)
    log = world.log(tmp_path / "log", partitions=3, segments=2, affinity=affinity)
    common = "protocol=canal-json&enable-tidb-extension=true"
    replay(log, settings(f"messages://{tmp_path}/out.jsonl?{common}"))
    summary = replay(log, settings(f"file://{tmp_path}/out?{common}&date-separator=year"))
    files = read_folder(tmp_path / "out")
    rows, folders = from_files(files)
    want = from_messages(tmp_path / "out.jsonl")
    assert {t: sorted(events) for t, events in rows.items()} == {t: sorted(events) for t, events in want.items()}
    assert sum(map(len, rows.values())) == summary.rows
    begin = min(int(f.split("/")[0]) for f in folders["t2"])
    assert folders == {
        "t1": {f"{begin}/{DATE}", f"{switch}/{DATE}"},
        "t2": {f"{begin}/{DATE}"},
        "t3": {f"{begin}/{i}/{DATE}" for i in PARTITION_IDS},
    }
    assert json.loads(files["metadata"]) == {"checkpoint-ts": summary.to_ts}
    for table, of_table in folders.items():
        for folder in of_table:
            assert [n for n in files if n.startswith(f"app/{table}/meta/schema_{folder.split('/')[0]}_")], (
                f"{table} {folder} has a schema file"
            )
    assert {n for n in files if n.startswith(".tidemill/")} == {
        ".tidemill/owner.json",
        ".tidemill/publication.json",
        ".tidemill/publish.lock",
    }


def test_a_replay_into_s3_is_that_into_a_folder(tmp_path: Path, s3_server: str) -> None:
    log = World.make(seed=4).log(tmp_path / "log")
    make_bucket(s3_server, "replays")
    common = "protocol=canal-json&enable-tidb-extension=true"
    keys = f"endpoint={s3_server}&access-key=test&secret-access-key=test&region=us-east-1"
    for _ in range(2):  # the second empties the folder first
        replay(log, settings(f"s3://replays/some/where?{common}&{keys}"))
    replay(log, settings(f"file://{tmp_path}/out?{common}"))
    stamp = re.compile(rb'"ts":[0-9]+')
    clean = [
        {name: stamp.sub(b"", data) for name, data in files.items() if not name.startswith(".tidemill/publi")}
        for files in (objects(s3_server, "replays/some/where"), read_folder(tmp_path / "out"))
    ]
    assert clean[0] == clean[1]


@pytest.mark.usefixtures("several_items")
def test_open_protocol_keeps_its_messages_files(tmp_path: Path) -> None:
    log = World.make(seed=4).log(tmp_path / "log")
    replay(log, settings(f"file://{tmp_path}/out?protocol=open-protocol&partition-num=2"))
    assert {path.suffix for path in (tmp_path / "out").rglob("*") if path.is_file()} == {".messages", ".json", ".lock"}


SELECTED = "[[sink.column-selectors]]\nmatcher = ['app.t']\ncolumns = ['*', '!secret']\n"


HEAD = b"ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts,id,name"


@pytest.mark.parametrize(
    ("protocol", "lines"),
    [
        ("csv", [HEAD, b'"I","t","app",TS,1,"a"', b'"U","t","app",TS,1,"b"', HEAD, b'"D","t","app",TS,1,"b"']),
        ("canal-json", [{"id": "1", "name": "a"}, {"id": "1", "name": "b"}, {"id": "1", "name": "b"}]),
    ],
)
def test_columns_may_be_left_out(tmp_path: Path, protocol: str, lines: list[Any]) -> None:
    """Of the lines and the head of each file; schema files describe the whole table, as TiCDC's do."""
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, secret VARCHAR(9), name VARCHAR(9))")
    sql.run("INSERT INTO t VALUES (1, 'x', 'a')", "UPDATE t SET name = 'b', secret = 'y'")
    sql.run("ALTER TABLE t ADD INDEX i (name)", "DELETE FROM t")
    config = parse_config(SELECTED)
    more = "csv-include-commit-ts=true&csv-output-field-header=true" if protocol == "csv" else "enable-tidb-extension=true"
    sink = config.sink_uri(f"file://{tmp_path}/out?protocol={protocol}&date-separator=none&{more}")
    replay(sql.write(tmp_path / "log"), Settings("test", sink, config, UTC))
    files = read_folder(tmp_path / "out")
    found = [line for name in sorted(files) if "/CDC0" in name for line in files[name].removesuffix(b"\r\n").split(b"\r\n")]
    if protocol == "csv":
        assert [re.sub(rb",[0-9]{18}", b",TS", line) for line in found] == lines
    else:
        assert [json.loads(line)["data"][0] for line in found] == lines
    schemas = [json.loads(data) for name, data in files.items() if "/t/meta/schema_" in name]
    assert len(schemas) == 2
    assert all([c["ColumnName"] for c in one["TableColumns"]] == ["id", "secret", "name"] for one in schemas)
