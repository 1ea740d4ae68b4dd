"""The state of a change log against the files of a storage sink, which a replay of the log wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.changelog.typed_tables import ROWS, TYPES
from tests.support.delivery.runs import tidemill

pytestmark = [pytest.mark.slow, pytest.mark.spark]

Capsys = pytest.CaptureFixture[str]

DDLS = (
    "ALTER TABLE app.strings ADD COLUMN w INT DEFAULT 5",
    "INSERT INTO app.strings VALUES ('late', 9, 'new', 6)",
    "CREATE TABLE app.t (id INT PRIMARY KEY, v INT)",
    "INSERT INTO app.t VALUES (1, 1), (2, 2)",
    "TRUNCATE TABLE app.t",
    "INSERT INTO app.t VALUES (3, 3)",
    "CREATE TABLE app.gone (id INT PRIMARY KEY)",
    "INSERT INTO app.gone VALUES (1)",
    "DROP TABLE app.gone",
    "CREATE TABLE app.parts (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 3",
    "INSERT INTO app.parts VALUES (1, 1), (2, 2), (3, 3)",
    "UPDATE app.parts SET id = 7 WHERE id = 1",
    "DELETE FROM app.types WHERE id = 4",
    "UPDATE app.strings SET v = 'yy' WHERE b = 2",
)
KEYED = "app.types", "app.strings", "app.wide", "app.t", "app.parts"


def diff(capsys: Capsys, *arguments: object) -> tuple[int, dict[str, Any]]:
    code, out, err = tidemill(capsys, "diff", "--output", "json", *arguments)
    assert code in (0, 1), err
    return code, json.loads(out)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("CDC*") if path.suffix != ".index"]


@pytest.mark.parametrize(
    ("query", "toml"),
    [
        ("protocol=csv", "[sink.csv]\ninclude-commit-ts = true\n"),
        ("protocol=csv", '[sink]\ndate-separator = "none"\n'),
        ("protocol=canal-json&enable-tidb-extension=true", ""),
    ],
    ids=["csv-with-commit-ts", "csv", "canal-json"],
)
def test_what_a_storage_sink_holds(tmp_path: Path, capsys: Capsys, query: str, toml: str) -> None:
    sql = SqlLog()
    sql.run(*TYPES, *ROWS, *DDLS)
    log = sql.write(tmp_path / "log", partitions=3)
    config = tmp_path / "feed.toml"
    config.write_text(toml)
    out = tmp_path / "out"
    sink = f"file://{out}?{query}"
    code, _, err = tidemill(capsys, "replay", "--log", log, "--sink-uri", sink, "--config", config, "--tz", "UTC")
    assert code == 0, err
    given = ("--log", log, "--sink-uri", sink, "--config", config, "--tz", "UTC")
    code, found = diff(capsys, *given)
    assert (code, sorted(one["table"] for one in found["tables"])) == (0, sorted(KEYED)), found
    assert found["ts"] == json.loads((out / "metadata").read_text())["checkpoint-ts"]
    assert sum(one["downstream_rows"] for one in found["tables"]) == sum(one["upstream_rows"] for one in found["tables"]) > 10
    spoiled = next(path for path in _files(out) if b"late" in path.read_bytes())
    spoiled.write_bytes(spoiled.read_bytes().replace(b"late", b"LATE"))
    code, found = diff(capsys, *given)
    assert (code, [one["table"] for one in found["tables"] if not one["equal"]]) == (1, ["app.strings"])
    spoiled.write_bytes(b"nothing of this kind\r\n")
    code, _, err = tidemill(capsys, "diff", *given)
    assert code == 2
    assert spoiled.name in err
    (out / "metadata").unlink()
    code, _, err = tidemill(capsys, "diff", *given)
    assert code == 2
    assert "checkpoint-ts" in err


def test_other_files_are_no_tables(tmp_path: Path, capsys: Capsys) -> None:
    log = SqlLog()
    log.run("CREATE TABLE app.t (id INT PRIMARY KEY)")
    code, _, err = tidemill(
        capsys, "diff", "--log", log.write(tmp_path / "log"), "--sink-uri", f"file://{tmp_path}/out?protocol=open-protocol"
    )
    assert code == 2
    assert "protocol=csv or canal-json" in err
