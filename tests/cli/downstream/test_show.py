"""`tidemill show` on files of sinks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.golden.ticdc import lines, raw
from tests.support.schema.tables import column, table
from tidemill.cli.main import main
from tidemill.consumer.reading import reader
from tidemill.consumer.upstream import upstream
from tidemill.errors import ConfigError, MalformedMessage
from tidemill.kernels.deliver.batch import frame, json_line
from tidemill.protocols.debezium import DebeziumTable, watermark_message
from tidemill.protocols.open.encode import resolved_message
from tidemill.protocols.options import EncodingOptions, MessageFormat
from tidemill.sinks.files import file_name
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.types.times import Moment, pack_time

MESSAGES = [(raw(line["key"]), raw(line["value"])) for line in lines("open") if line["kind"] == "row" and line["config"] == "default"][:50]


def show(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Its exit code, and what it writes to both streams."""
    monkeypatch.setattr("sys.argv", ["tidemill", "show", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "changes.jsonl"
    path.write_bytes(b"".join(json_line("t", 0, *message) for message in [*MESSAGES, resolved_message(470_000_000_000_000_000)]))
    return path


def test_a_file_of_messages(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = show(monkeypatch, capsys, str(file))
    assert (code, err) == (0, "50 row changes\n")
    assert len(out.splitlines()) == 50
    assert show(monkeypatch, capsys, f"messages://{file}") == (code, out, err)
    assert show(monkeypatch, capsys, str(file), "--resolved")[1].splitlines() == [
        *out.splitlines(),
        "2026-10-25 05:55:14.843  resolved  470000000000000000",
    ]
    some = show(monkeypatch, capsys, str(file), "-n", "3")[1]
    assert some == "".join(out.splitlines(keepends=True)[:3])
    assert show(monkeypatch, capsys, str(file), "--table", "no.such") == (0, "", "0 row changes\n")
    table = out.split()[2]
    of_table = show(monkeypatch, capsys, str(file), "--table", table)[1]
    assert of_table.splitlines() == [line for line in out.splitlines() if line.split()[2] == table]


def test_a_folder_of_messages(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out" / "t" / "0"
    folder.mkdir(parents=True)
    (folder / file_name(1, 2)).write_bytes(b"".join(frame(*message) for message in MESSAGES))
    assert show(monkeypatch, capsys, str(tmp_path / "out")) == show(monkeypatch, capsys, str(file))


def test_files_of_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A file:// sink with protocol=canal-json, as TiCDC lays it out. What lies above its checkpoint is not shown."""
    folder = tmp_path / "a sink" / "app" / "t" / "469999999999999999" / "2026-10-25"
    folder.mkdir(parents=True)
    row = {"id": 0, "database": "app", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "INSERT", "es": 1, "ts": 1, "sql": "",
           "sqlType": {"id": 4}, "mysqlType": {"id": "int"}, "old": None}  # fmt: skip
    made = [
        row | {"data": [{"id": str(ts % 10)}], "_tidb": {"commitTs": ts}} for ts in range(470_000_000_000_000_003, 470_000_000_000_000_006)
    ]
    file = folder / "CDC00000000000000000001.json"
    file.write_bytes(b"".join(json.dumps(one).encode() + b"\r\n" for one in made))
    (tmp_path / "a sink" / "metadata").write_text('{"checkpoint-ts":470000000000000004}')
    code, out, err = show(monkeypatch, capsys, str(tmp_path / "a sink"))
    assert (code, err) == (0, "2 row changes\n")
    assert [line.split("  ")[1:] for line in out.splitlines()] == [["app.t", "insert", "id=3"], ["app.t", "insert", "id=4"]]
    uri = f"file://{tmp_path}/a%20sink?protocol=canal-json&enable-tidb-extension=true"
    assert show(monkeypatch, capsys, uri) == (code, out, err)
    assert "Of files of tables (CDC….json) give the sink's folder" in show(monkeypatch, capsys, str(file))[2]
    assert "--follow is for a topic" in show(monkeypatch, capsys, uri, "-f")[2]


CANAL = {
    "id": 0, "database": "app", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "UPDATE", "es": 1_792_907_714_843, "ts": 1,
    "sql": "", "sqlType": {"id": 4, "v": 4}, "mysqlType": {"id": "int", "v": "int"}, "data": [{"id": "7", "v": "2"}], "old": [{"v": "1"}],
}  # fmt: skip


def test_canal_json_without_commit_ts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """TiCDC's default. Only who applies messages needs to know their order."""
    path = tmp_path / "changes.jsonl"
    path.write_bytes(json_line("t", 0, None, json.dumps(CANAL).encode()))
    line = "2026-10-25 05:55:14.843  app.t  update  id=7  v: 1 → 2\n"
    for arguments in ([str(path)], [str(path), "--protocol", "canal-json"]):
        assert show(monkeypatch, capsys, *arguments) == (0, line, "1 row change\n")
    folder = tmp_path / "sink" / "app" / "t" / "469999999999999999"
    folder.mkdir(parents=True)
    (folder / "CDC00000000000000000001.json").write_bytes(json.dumps(CANAL).encode() + b"\r\n")
    (tmp_path / "sink" / "metadata").write_text('{"checkpoint-ts":470000000000000004}')
    assert show(monkeypatch, capsys, f"file://{tmp_path}/sink?protocol=canal-json")[1] == line
    with pytest.raises(MalformedMessage, match="no commit ts"):
        reader()(None, json.dumps(CANAL).encode())


def test_csv_without_commit_ts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """No time is made up, and an update is told as one."""
    sink = tmp_path / "sink"
    version = 469_999_999_999_999_999
    columns = [{"ColumnName": "id", "ColumnType": "INT", "ColumnIsPk": "true"}, {"ColumnName": "v", "ColumnType": "INT"}]
    described = {"Table": "t", "Schema": "app", "TableVersion": version, "Query": "CREATE TABLE t", "Type": 3, "TableColumns": columns}
    for path, text in {
        "metadata": '{"checkpoint-ts":470000000000000004}',
        f"app/t/meta/schema_{version}_0123456789.json": json.dumps(described),
        f"app/t/{version}/CDC00000000000000000001.csv": '"I","t","app",7,1\r\n"U","t","app",7,2\r\n"D","t","app",7,2\r\n',
    }.items():
        (sink / path).parent.mkdir(parents=True, exist_ok=True)
        (sink / path).write_bytes(text.encode())
    code, out, err = show(monkeypatch, capsys, str(sink))
    assert (code, out.splitlines()[1:]) == (
        0,
        [
            f"{'(no time)':23}  app.t  insert  id=7  v=1",
            f"{'(no time)':23}  app.t  update  id=7  v=2",
            f"{'(no time)':23}  app.t  delete  id=7  v=2",
        ],
    )
    assert out.splitlines()[0].endswith("app.t  DDL  CREATE TABLE t")
    assert err.startswith("3 row changes\n")
    assert "include-commit-ts" in err


def test_debezium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Shown, though `consume` does not read it."""
    options = EncodingOptions(MessageFormat.DEBEZIUM)
    columns = [column(MySQLType.LONG, name="id"), column(MySQLType.VARCHAR, name="word"), column(MySQLType.DATE, name="day")]
    made = DebeziumTable("app", "t", table(columns, pk_is_handle=True), options)
    at = 470_000_000_000_000_000
    old, new = (pack_row({2: word, 3: pack_time(Moment(2021, 2, 28)).to_bytes(8, "little")}) for word in (b"a", b"b"))
    message = made.row(record_key(100, 7), new, old, at - 1, at, 0)
    control = watermark_message(at, 0, options)
    path = tmp_path / "changes.jsonl"
    path.write_bytes(b"".join(json_line("t", 0, *one) for one in (message, control)))
    for arguments in ([str(path)], [str(path), "--protocol", "debezium"]):
        code, out, err = show(monkeypatch, capsys, *arguments, "--resolved")
        assert (code, err) == (0, "1 row change\n")
        assert out.splitlines() == [
            "2026-10-25 05:55:14.843  app.t  update  id=7  word: 'a' → 'b'",
            "2026-10-25 05:55:14.843  resolved  470000000000000000",
        ]
    with pytest.raises(ConfigError, match="protocol 'debezium' cannot be read"):
        upstream("kafka://b:1/t?protocol=debezium", [])
    assert upstream("kafka://b:1/t?protocol=debezium", [], to_show=True).protocol is MessageFormat.DEBEZIUM


def test_what_it_cannot_show(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for content in (b"7\n", b"[]\n", b"x\n", b'{"topic":1}\n', b'{"topic":"t","partition":0,"key":"?","value":7}\n'):
        file.write_bytes(content)
        code, _, err = show(monkeypatch, capsys, str(file))
        assert code == 1
        assert "is not a file of messages" in err
    file.write_bytes(json_line("t", 3, b"k", b"csv,row"))
    assert "topic t, partition 3, offset 0: " in show(monkeypatch, capsys, str(file))[2]
    assert "does not exist" in show(monkeypatch, capsys, str(tmp_path / "nothing"))[2]
    assert "--follow is for a topic" in show(monkeypatch, capsys, str(file), "-f")[2]
    (tmp_path / "log.json").write_text("{}")
    assert "is a change log" in show(monkeypatch, capsys, str(tmp_path))[2]
