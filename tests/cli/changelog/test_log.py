"""`tidemill log`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.changelog.logs import START, build_log, golden, golden_log, put
from tests.support.delivery.runs import tidemill
from tidemill.changelog import feeds
from tidemill.changelog.reader import LogReader
from tidemill.changelog.writer import LogWriter
from tidemill.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, output, errors."""
    return tidemill(capsys, "log", *arguments)


def test_a_whole_log_verifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden_log(tmp_path, segments=3)
    status, out, _ = run(capsys, "verify", str(tmp_path))
    assert status == 0
    assert out.endswith("whole\n")
    assert f"{len(golden().rows) + len(golden().schema)} rows" in out
    assert run(capsys, "verify", str(tmp_path), "--quick")[0] == 0


def test_every_problem_is_listed_and_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden_log(tmp_path, segments=3)
    _, second, _ = sorted((tmp_path / "rows" / "0").glob("0*.arrow"))
    second.unlink()
    (tmp_path / "schema" / "stranger").write_text("hello")
    status, out, _ = run(capsys, "verify", str(tmp_path))
    assert status == 1
    assert out.count("PROBLEM") == 2
    assert "2 problems" in out


def test_no_log_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "verify", str(tmp_path / "nowhere"))
    assert status == 1
    assert "Error TM:ErrLog: " in err
    assert not (tmp_path / "nowhere").exists()


def test_show_tells_what_a_log_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden_log(tmp_path, partitions=2, segments=3)
    feeds.register(tmp_path, "nightly", golden().start_ts + 5)
    status, out, _ = run(capsys, "show", str(tmp_path))
    assert status == 0
    assert "cluster golden" in out
    assert "nightly" in out
    status, out, _ = run(capsys, "show", str(tmp_path), "--json")
    facts = json.loads(out)
    assert facts["rows"] == len(golden().rows) + len(golden().schema)
    assert facts["resolved_ts"] == golden().last_ts + 1
    assert facts["feeds"] == {"nightly": golden().start_ts + 5}
    assert [f["folder"] for f in facts["folders"]] == ["schema", "rows/0", "rows/1"]
    assert facts["tables"] == ["test.t1"]


def test_a_stopped_log_is_compacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [put(7, h, START + 1 + h) for h in range(40)]
    build_log(tmp_path, rows, ends=[START + k for k in range(1, 41)])
    status, out, _ = run(capsys, "compact", str(tmp_path), "--grace", "0s")
    assert status == 0
    assert "40 segments joined" in out or "80 segments joined" in out
    assert len(LogReader(tmp_path).chain(0, START, START + 40)) == 1


def test_a_log_that_is_written_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_log(tmp_path)
    with LogWriter.open(tmp_path):
        status, _, err = run(capsys, "compact", str(tmp_path))
    assert status == 1
    assert "TM:ErrLogLocked" in err


def test_an_old_log_is_trimmed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden_log(tmp_path, segments=10)
    status, out, _ = run(capsys, "trim", str(tmp_path), "--log-retention", "1s", "--grace", "0s")
    assert status == 0
    assert LogReader(tmp_path).start_ts > golden().start_ts
    assert "files removed" in out
    assert run(capsys, "verify", str(tmp_path))[0] == 0


def test_drop_deletes_a_log_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden_log(tmp_path, partitions=2, segments=3)
    (tmp_path / "notes.txt").write_text("mine")
    feeds.register(tmp_path, "nightly", golden().start_ts + 5)
    status, _, err = run(capsys, "drop", str(tmp_path), "--without-pd")
    assert (status, "TM:ErrLogInUse" in err, "nightly" in err) == (1, True, True)
    with LogWriter.open(tmp_path):
        status, _, err = run(capsys, "drop", str(tmp_path), "--without-pd", "--force")
        assert (status, "TM:ErrLogLocked" in err) == (1, True)
    assert run(capsys, "verify", str(tmp_path))[0] == 0
    status, out, _ = run(capsys, "drop", str(tmp_path), "--without-pd", "--force")
    assert (status, "is gone" in out) == (0, True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_drop_wants_to_know_about_pd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden_log(tmp_path)
    status, _, err = run(capsys, "drop", str(tmp_path))
    assert (status, "--without-pd" in err) == (2, True)
    assert run(capsys, "verify", str(tmp_path))[0] == 0


def test_a_storage_that_fails_is_told_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.json").mkdir(parents=True)
    with pytest.raises(SystemExit) as end:
        main(["log", "show", str(tmp_path)])
    assert end.value.code == 1
    assert capsys.readouterr().err.startswith(f"Error TM:ErrLogRefused: {tmp_path / 'log.json'}: the storage refuses: ")


def test_a_changefeed_that_nobody_runs_any_more_is_forgotten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden_log(tmp_path, segments=3)
    feeds.register(tmp_path, "nightly", golden().start_ts + 5)
    status, _, err = run(capsys, "forget", str(tmp_path), "daily")
    assert (status, "no changefeed daily" in err, "These do: nightly." in err) == (1, True, True)
    status, out, _ = run(capsys, "forget", str(tmp_path), "nightly")
    assert status == 0
    assert f"nightly needed changes from {golden().start_ts + 5}" in out
    assert LogReader(tmp_path).feeds() == {}


def test_heads_tells_how_far_each_partition_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = 1000 << 18
    log = build_log(tmp_path / "log", [put(70, 1, START + 5)], partitions=2, head=START + 90 * second)
    (log / "rows/1/head.json").write_text(json.dumps({"resolved_ts": START + 60 * second}))
    (log / "schema/head.json").write_text(json.dumps({"resolved_ts": START + 80 * second}))
    status, out, _ = run(capsys, "heads", str(log), "--json")
    assert status == 0
    assert json.loads(out) == {
        "resolved_ts": START + 60 * second,
        "schema": START + 80 * second,
        "partitions": [START + 80 * second, START + 60 * second],
    }
    out = run(capsys, "heads", str(log))[1]
    assert "rows/1" in out
    assert "20.0 s behind the furthest" in out
    assert LogReader(log).heads() == [START + 80 * second, START + 60 * second]
