"""`tidemill status` finds the capture of a run. `tidemill resync` says so if no capture would carry it out."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.changelog.logs import golden_log
from tests.support.delivery.runs import tidemill
from tidemill.capture.status import CaptureStatus
from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changefeed.feed_status import Status
from tidemill.changefeed.states import State
from tidemill.changelog import initial_load
from tidemill.changelog.storage.open import open_storage
from tidemill.cli.changefeeds import status as status_verb
from tidemill.cli.main import main
from tidemill.tso import compose


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
        "delivered  470616264291647490 (2026-11-21 10:56:16.552 UTC); 5 rows and 2 DDLs in all",
        "error      TM:ErrSinkUnavailable: Kafka b:1: away",
    ]
    told = json.loads(tidemill(capsys, "status", "--data-dir", str(tmp_path), "--json")[1])
    assert told["delivery"]["checkpoint_ts"] == 470616264291647490


NOW = 1_795_255_301.0
TS = 470615405653655552  # 10 s before


def delivery_line(monkeypatch: pytest.MonkeyPatch, behind_s: float = 0.0, parts: int = 0, **said: object) -> str:
    """What is told of a run."""
    monkeypatch.setattr(status_verb.time, "time", lambda: NOW)
    status = asdict(Status("f", pid=7, checkpoint_ts=TS, last_batch={"batch": 3})) | {"run": "running", "updated_at": NOW} | said
    return status_verb.delivered(status, TS + (int(behind_s * 1000) << 18), parts)[0].removeprefix("delivery   ")


def test_a_broker_that_is_dead_does_not_look_normal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert delivery_line(monkeypatch, moved_at=NOW - 1) == "normal (process 7)"
    assert delivery_line(monkeypatch, moved_at=NOW - 50) == "normal (process 7)", "the log has nothing more"
    line = delivery_line(monkeypatch, 50, moved_at=NOW - 50)
    assert line == "nothing was acknowledged for 50 s (process 7): the sink does not answer, or a batch takes long"


def test_tables_that_are_still_being_read_are_not_blamed_on_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    for last_batch in ({}, {"batch": 3}):
        line = delivery_line(monkeypatch, 50, 7, moved_at=NOW - 50, last_batch=last_batch)
        assert line == "nothing was delivered for 50 s (process 7): 7 parts of tables are still to be read, which it may wait for"
    assert delivery_line(monkeypatch, 50, 7, moved_at=NOW - 1) == "normal (process 7)"


def test_a_slow_first_start_is_not_blamed_on_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark starts and kernels are compiled before the first batch of a process can be delivered."""
    line = delivery_line(monkeypatch, 50, moved_at=NOW - 50, last_batch={})
    assert line == "starting (process 7): the first batch has not been delivered yet"


def test_what_comes_next_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    since = datetime.fromtimestamp(NOW - 100).astimezone().isoformat(" ", "seconds")
    line = delivery_line(monkeypatch, state="warning", warning_since=NOW - 100, retry_at=NOW + 40, running=False)
    assert line == f"warning since {since} (it is tried again in 40 s)"
    line = delivery_line(monkeypatch, state="failed", failed_at=NOW - 100, running=False)
    assert line == f"failed since {since}; it is not tried again by itself, the capture goes on"
    assert delivery_line(monkeypatch, run="stopped", updated_at=NOW - 100) == f"normal; the run ended at {since}"
    assert delivery_line(monkeypatch, updated_at=NOW - 100) == "normal when it was last heard of, 100 s ago: is the run gone?"
    lines = status_verb.delivered(asdict(Status("f", state="failed")) | {"resume": "type this"})
    assert lines[-1] == "to resume  type this"


def test_what_is_over_is_not_told_as_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_verb.time, "time", lambda: NOW)
    told = {"resolved_time": "T", "lag_s": 0.254, "updated": NOW - 3600}
    since = datetime.fromtimestamp(NOW - 3600).astimezone().isoformat(" ", "seconds")
    for state, age, line in (
        ("running", 1, "resolved   T, 0.254 s behind"),
        ("running", 3600, f"resolved   T, silent since {since}"),
        ("stopped", 3600, f"resolved   T, stopped since {since}"),
    ):
        lines = status_verb.summary({**told, "state": state, "updated": NOW - age})
        assert line in lines


def test_only_what_really_holds_the_log_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, named in ((0.4, False), (12.0, True)):
        lines = status_verb.summary({"state": "running", "holding": {"table": "d.t", "seconds": seconds}})
        assert any(line.startswith("held by    d.t") for line in lines) == named


def test_the_time_that_is_used_up_is_told() -> None:
    lines = status_verb.summary({"state": "running", "gc_safe_point": TS, "gc_ttl_used": 0.62, "gc_seconds_left": 86400})
    (line,) = [line for line in lines if line.startswith("history")]
    assert line.endswith("62% of --gc-ttl are over without the log catching up: at 100% the capture ends and lets it go")


def test_without_options_the_default_of_run_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tidemill(capsys, "status")[0] == 1
    capture_of(tmp_path / "tidemill-data", "one")
    assert "cluster of one" in tidemill(capsys, "status")[1]


def test_the_run_is_read_before_its_changefeed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the changefeed's process has spoken, the run knows more; of a changefeed that is run by hand it knows nothing new."""
    capture_of(tmp_path, "one")
    folder = tmp_path / "changefeeds" / "one"
    (folder / "delivery.json").write_text(json.dumps(asdict(Status("one", state="failed", updated_at=5.0))))
    run = asdict(Status("one", state="warning", updated_at=6.0)) | {"capture": {}, "run": "stopped"}
    (folder / "status.json").write_text(json.dumps(run))
    assert json.loads(tidemill(capsys, "status", "--data-dir", str(tmp_path), "--json")[1])["delivery"]["state"] == "warning"
    (folder / "delivery.json").write_text(json.dumps(asdict(Status("one", state="normal", updated_at=7.0))))
    assert json.loads(tidemill(capsys, "status", "--data-dir", str(tmp_path), "--json")[1])["delivery"]["state"] == "normal"


def test_a_changefeed_that_nobody_keeps_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = tidemill(capsys, "changefeed", "resume", "--data-dir", str(tmp_path))
    assert (code, "has no changefeed" in err) == (1, True)
    capture_of(tmp_path, "one")
    (tmp_path / "changefeeds" / "one" / "run.lock").write_text(f"{os.getpid()}\n")  # left behind
    code, _, err = tidemill(capsys, "changefeed", "resume", "--data-dir", str(tmp_path))
    assert (code, "no `tidemill run` is running for changefeed one" in err, "Start `tidemill run` again" in err) == (1, True, True)


def test_the_process_that_keeps_a_changefeed_is_told_to_resume_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = FeedFolder(tmp_path, "one")
    folder.lock("run.lock")
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        code, out, _ = tidemill(capsys, "changefeed", "resume", "--data-dir", str(tmp_path), "-c", "one")
    finally:
        signal.signal(signal.SIGUSR1, before)
        folder.unlock()
    assert (code, heard) == (0, [signal.SIGUSR1])
    assert f"process {os.getpid()} resumes changefeed one" in out


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
    assert open_storage(str(tmp_path)).names(initial_load.REQUESTS) == []


def test_a_changefeed_that_begins_says_so() -> None:
    """Before its process has written anything there is neither a process id nor a checkpoint."""
    assert status_verb.delivered({"state": "normal", "running": True}) == [
        "delivery   starting: the first batch has not been delivered yet",
        "delivered  nothing yet; 0 rows and 0 DDLs in all",
    ]


def test_a_running_delivery_has_a_pace() -> None:
    """How far behind the clock and how fast; not of a run that is over or silent, whose figures would stand still."""
    now = time.time()
    status = {"state": "normal", "running": True, "pid": 1, "run": "running", "updated_at": now, "moved_at": now, "rows_per_s": 12.5}
    status |= {"checkpoint_ts": int((now - 3) * 1000) << 18, "last_batch": {"batch": 1}}
    assert re.fullmatch(r"pace       [3-9]\.\d s behind the clock; 12.5 rows/s in the last minute", status_verb.delivered(status)[2])
    for over in ({"run": "stopped"}, {"run": "failed"}, {"updated_at": now - 60}, {"running": False}):
        assert not any(line.startswith("pace") for line in status_verb.delivered(status | over))


def test_causes_stand_before_what_waits_for_them() -> None:
    """The table with the lock comes first, and the schema stream is not called a partition."""
    beside = {"partition": 3, "table": "shop.users (114)", "cause": "a lock beside it", "ranges": 1}
    lock = {"partition": 3, "table": "shop.orders (293)", "cause": "lock", "ranges": 1}
    schema = {"partition": 6, "table": "schema", "cause": "a lock beside it", "ranges": 1}
    first, second, third = status_verb.held_lines([beside, schema, lock])
    assert first.startswith("held up    partition 3: shop.orders (293)")
    assert second.startswith("held up    partition 3: shop.users (114)")
    assert third.startswith("held up    schema,")


def test_a_capture_of_binlogs_tells_of_its_pumps() -> None:
    told = {
        "PumpPos": {"p2": 458752000000000050, "p1": 458752000000000090},
        "HeldBy": {"Pump": "p2", "TS": 458752000000000050, "LagSeconds": 42.4},
        "Waits": "DDL job 7 is not in TiKV's history yet",
        "Problems": {"p2": "UNAVAILABLE refused"},
    }
    lines = status_verb.binlog_lines(told)
    assert lines[0].startswith("Pump       p1 at 458752000000000090")
    assert lines[1].endswith(": UNAVAILABLE refused")
    assert lines[2:] == ["held by    Pump p2, which is 42 s behind", "waits      DDL job 7 is not in TiKV's history yet"]
    assert status_verb.binlog_lines({}) == []


def test_the_files_of_a_server_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "server.json").write_text('{"id": "x"}')
    folder = tmp_path / "changefeeds/orders"
    folder.mkdir(parents=True)
    assert run_status(capsys, "--data-dir", str(tmp_path)).splitlines()[:2] == [
        "capture: it has not written a status yet",
        "changefeed orders: unknown, checkpoint none",
    ]
    status = CaptureStatus(state="running", log="s3://key:hunter2@bucket/log")
    status.refresh(compose(1_764_000_000_000))
    (tmp_path / "capture").mkdir()
    status.write(tmp_path / "capture")
    said = run_status(capsys, "--data-dir", str(tmp_path))
    assert "capture: running, resolved" in said
    assert "hunter2" not in said
    assert "resolved" in run_status(capsys, "--data-dir", str(tmp_path), "-c", "orders")
    found = json.loads(run_status(capsys, "--data-dir", str(tmp_path), "--output", "json"))
    assert [one["changefeed"] for one in found["changefeeds"]] == ["orders"]
    error = {"code": "TM:ErrSink", "message": "kafka://me:hunter2@h/t is away"}
    FeedFolder(tmp_path, "orders").save_status(Status("orders", state=State.WARNING, checkpoint_ts=1 << 60, error=error))
    said = run_status(capsys, "--data-dir", str(tmp_path))
    assert "changefeed orders: warning, checkpoint 1152921504606846976" in said
    assert "TM:ErrSink" in said
    assert "hunter2" not in said
    (folder / "delivery.json").write_text("nonsense")
    assert "changefeed orders: unknown" in run_status(capsys, "--data-dir", str(tmp_path))


def run_status(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit):
        main(["status", *arguments])
    return capsys.readouterr().out
