"""`tidemill status` finds the capture of a run; `tidemill resync` says so when nobody would answer."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.support.logs import golden_log
from tidemill.changefeed.checkpoint import Status
from tidemill.changelog import initial
from tidemill.changelog.storage import open_storage
from tidemill.cli import status as status_verb
from tidemill.cli.main import main


def tidemill(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = 0
    try:
        main(list(arguments))
    except SystemExit as end:
        status = int(end.code or 0)
    said = capsys.readouterr()
    return status, said.out, said.err


def capture_of(data_dir: Path, changefeed: str) -> None:
    folder = data_dir / "changefeeds" / changefeed / "capture"
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps({"state": "running", "cluster_id": f"cluster of {changefeed}"}))


def test_the_capture_of_a_run_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture_of(tmp_path, "one")
    assert "cluster of one" in tidemill(capsys, "status", "--data-dir", str(tmp_path))[1]
    capture_of(tmp_path, "two")
    code, _, err = tidemill(capsys, "status", "--data-dir", str(tmp_path))
    assert (code, "one, two" in err, "--changefeed-id" in err) == (1, True, True)
    assert "cluster of two" in tidemill(capsys, "status", "--data-dir", str(tmp_path), "-c", "two")[1]
    code, _, err = tidemill(capsys, "status", "--data-dir", str(tmp_path), "-c", "three")
    assert (code, "no changefeed three" in err) == (1, True)


def test_the_delivery_of_a_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture_of(tmp_path, "one")
    error = {"code": "TM:ErrSinkUnavailable", "message": "Kafka b:1: away"}
    said = Status("one", state="warning", pid=7, checkpoint_ts=470616264291647490, rows=5, ddls=2, error=error)
    (tmp_path / "changefeeds" / "one" / "delivery.json").write_text(json.dumps(asdict(said)))
    lines = tidemill(capsys, "status", "--data-dir", str(tmp_path))[1].splitlines()
    assert lines[-3:] == [
        "delivery   warning (process 7)",
        "delivered  470616264291647490 (2026-11-21 10:56:16.552 UTC); 5 rows and 2 DDLs",
        "error      TM:ErrSinkUnavailable: Kafka b:1: away",
    ]
    told = json.loads(tidemill(capsys, "status", "--data-dir", str(tmp_path), "--json")[1])
    assert told["delivery"]["checkpoint_ts"] == 470616264291647490


@pytest.mark.parametrize(
    ("state", "age", "said", "history"),
    [
        ("running", 0, "running (process 7)", "for another 86400 s if the capture falls silent"),
        ("running", 3600, "running (process 7), silent for 3600 s: is it gone?", "for another 82800 s: so long the capture may stay away"),
        ("stopped", 3600, "stopped (process 7)", "for another 82800 s: so long the capture may stay away"),
        ("failed", 86460, "failed (process 7)", "until 60 s ago: if TiDB has collected it since, the capture will refuse to go on"),
    ],
)
def test_the_time_that_is_left_is_told(monkeypatch: pytest.MonkeyPatch, state: str, age: int, said: str, history: str) -> None:
    monkeypatch.setattr(status_verb.time, "time", lambda: 1_795_255_301.0 + age)
    told = {
        "state": state, "pid": 7, "updated": 1_795_255_301.0, "gc_safe_point": 470615405653655552, "gc_seconds_left": 86400,
    }  # fmt: skip
    lines = status_verb.summary(told)
    assert lines[0] == f"state      {said}"
    (line,) = [line for line in lines if line.startswith("history")]
    assert "kept by PD from 470615405653655552 (2026-11-21 10:01:41.108 UTC) on" in line
    assert line.endswith(history)


def test_resync_without_a_capture_leaves_no_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden_log(tmp_path)
    code, _, err = tidemill(capsys, "resync", "--log", str(tmp_path), "--table", "d.t")
    assert (code, "no capture writes" in err) == (1, True)
    assert open_storage(str(tmp_path)).names(initial.REQUESTS) == []
