"""`console://`: changes are printed as they are delivered, once, and only whole lines."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console as Terminal

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.runs import tidemill
from tidemill.cli.shared.console import Console, of_uri
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import ConfigError


@pytest.fixture
def log(tmp_path: Path) -> str:
    sql = SqlLog()
    sql.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')", "UPDATE t SET v = 'c' WHERE id = 1"
    )
    sql.run("DELETE FROM t WHERE id = 2")
    return sql.write(tmp_path / "log")


@pytest.mark.parametrize("protocol", ["", "?protocol=canal-json"])
def test_a_replay_prints_rows_and_ddls(log: str, protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = tidemill(capsys, "replay", "--log", log, "--sink-uri", f"console://{protocol}")
    assert code == 0, err
    told = [" ".join(line.split()[2:]) for line in out.splitlines()[:-1]]
    assert told[0].startswith("app.t DDL CREATE TABLE")
    assert told[1:] == ["app.t insert id=1 v='a'", "app.t insert id=2 v='b'", "app.t update id=1 v: 'a' → 'c'", "app.t delete id=2 v='b'"]


def test_resolved_events_are_printed_on_wish(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = tidemill(capsys, "replay", "--log", log, "--sink-uri", "console://?resolved=true")
    assert " resolved " in out


def test_only_new_and_whole_lines_are_printed(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.jsonl"
    tidemill(capsys, "replay", "--log", log, "--sink-uri", f"messages://{file}?protocol=open-protocol")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0])
    console, said = Console(file, resolved=True), io.StringIO()
    terminal = Terminal(file=said, width=200)
    console.print_new(terminal)
    assert said.getvalue() == ""  # an earlier run printed it
    with file.open("ab") as more:
        more.write(lines[1] + lines[2][:9])
        more.flush()
        console.print_new(terminal)
        first = said.getvalue()
        assert first
        more.write(lines[2][9:] + b"".join(lines[3:]))
    console.print_new(terminal)
    assert said.getvalue().startswith(first)
    assert "delete" in said.getvalue()
    assert console.at == file.stat().st_size


def test_it_is_a_sink_of_messages(tmp_path: Path) -> None:
    uri, console = of_uri("console://?partition-num=1", tmp_path / "a b.jsonl")
    assert (parse_sink_uri(uri).path, console is not None) == (str(tmp_path / "a b.jsonl"), True)
    assert of_uri("file:///x?protocol=csv", tmp_path) == ("file:///x?protocol=csv", None)
    for wrong in ("console://host", "console:///path", "console://?protocol=avro", "console://?resolved=maybe"):
        with pytest.raises(ConfigError, match="console://"):
            of_uri(wrong, tmp_path)
