"""`tidemill capture` and `tidemill tables` as processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.capture.captures import until
from tidemill.capture.config import CaptureConfig, duration_ms
from tidemill.changelog.reader import LogReader
from tidemill.cli.main import main
from tidemill.errors import ConfigError
from tidemill.playground.server import Playground
from tidemill.process.ports import free_ports

COMMAND = [sys.executable, "-m", "tidemill.cli.main"]


async def fetch(address: str, path: str) -> tuple[int, str]:
    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    return await asyncio.to_thread(get)


async def output_of(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**os.environ, "COLUMNS": "200"}
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def test_capture_serves_its_status_and_ends_with_0(tmp_path: Path) -> None:
    async def work() -> None:
        async with asyncio.timeout(600), Playground(20, resolved_interval=0.1) as playground:
            playground.execute("create database d; create table d.t (id int primary key, v int)")
            log, address = tmp_path / "log", f"127.0.0.1:{free_ports(1)[0]}"
            process = await asyncio.create_subprocess_exec(
                *COMMAND, "capture", "--pd", playground.pd_address, "--log", str(log), "--log-partitions", "2", "--log-compression",
                "zstd", "--log-retention", "1h", "--status-addr", address, "--data-dir", str(tmp_path / "data"), "--log-level", "debug",
                "--log-file", str(tmp_path / "capture.log"),
            )  # fmt: skip
            status_file = tmp_path / "data" / "status.json"
            await until(status_file.exists)
            playground.execute("insert into d.t values (1, 1), (2, 2)")
            ts = playground.cluster.oracle.next()
            await until(lambda: LogReader(log).resolved_ts() >= ts)
            code, text = await fetch(address, "/status")
            status = json.loads(text)
            assert code == 200
            assert (status["state"], status["tables"], len(status["heads"])) == ("running", 1, 2)
            assert status["regions"]["live"] > 0
            assert status["lag_s"] < 60
            await until(lambda: json.loads(status_file.read_text())["rows"] >= 2)
            code, text = await fetch(address, "/metrics")
            assert "# TYPE tidemill_capture_rows_total counter" in text
            assert 'tidemill_capture_partition_resolved_ts{partition="1"}' in text
            assert (await fetch(address, "/other"))[0] == 404
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
            status = json.loads(status_file.read_text())
            assert (status["state"], status["error"]) == ("stopped", None)
            assert "new log" in (tmp_path / "capture.log").read_text()

    asyncio.run(work())


@pytest.mark.slow
def test_a_fatal_error_is_told_with_its_code(tmp_path: Path) -> None:
    async def work() -> None:
        async with asyncio.timeout(600), Playground(21) as playground:
            playground.execute("create database d")
            start = str(playground.cluster.oracle.next())
            await asyncio.sleep(0.05)
            playground.cluster.collect_garbage(1)
            flags = ("--pd", playground.pd_address, "--log", str(tmp_path / "log"))
            code, _, err = await output_of("capture", *flags, "--start-ts", start)
            assert code == 1
            assert err.splitlines()[-2].startswith(f"Error TM:ErrStartTsBeforeGC: history from {start} (")
            status = json.loads((tmp_path / "log.capture" / "status.json").read_text())
            assert (status["state"], status["error"]["code"]) == ("failed", "TM:ErrStartTsBeforeGC")
            code, _, err = await output_of("capture", *flags, "--start-ts", "+1h")
            assert (code, "lies in the cluster's future" in err) == (1, True)

    asyncio.run(work())
    with pytest.raises(SystemExit) as end:
        main(["capture", "--log", "x"])
    assert end.value.code == 2


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "ends"), [("capture", 0), ("tables", 130)])
def test_a_pd_that_hangs_is_told_at_once_and_can_be_given_up(tmp_path: Path, verb: str, ends: int) -> None:
    """It accepts connections and does not answer. That is logged while it is tried again, and Ctrl-C ends it."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        flags = ["--log", str(tmp_path / "log")] if verb == "capture" else []
        process = await asyncio.create_subprocess_exec(
            *COMMAND, verb, "--pd", address, *flags, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        async with asyncio.timeout(600):
            first = (await process.stderr.readline()).decode()
            assert f"no PD member answers with a leader ({address}: " in first
            assert "trying again" in first
            process.send_signal(signal.SIGINT)
            _, err = await process.communicate()
        assert process.returncode == ends
        assert b"Traceback" not in err
        server.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--transport", "smoke"), "--transport 'smoke'"),
        (("--log-compression", "rar"), "--log-compression 'rar'"),
        (("--log-retention", "soon"), "--log-retention 'soon' is not a duration"),
        (("--gc-ttl", "5"), "--gc-ttl 5"),
        (("--log-partitions", "0"), "--log-partitions 0"),
        (("--pd", ","), "no PD address"),
        (("--status-addr", "nowhere"), "--status-addr nowhere"),
        (("--workers", "0"), "--workers 0: at least 1"),
        (("--workers", "2", "--master", "nonsense"), "--master 'nonsense' is not a Spark master"),
        (("--snapshot", "--master", "local[0]"), "--master 'local[0]' is not a Spark master"),
        (("--master", "spark://"), "--master 'spark://' is not a Spark master"),
    ],
)
def test_bad_flags(flags: tuple[str, ...], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["capture", "--pd", "127.0.0.1:1", "--log", str(tmp_path / "log"), *flags])
    assert end.value.code == 1
    err = capsys.readouterr().err
    assert text in err
    assert "Error TM:ErrConfig" in err


def test_tables_tells_which_have_a_usable_key() -> None:
    async def work() -> None:
        async with asyncio.timeout(600), Playground(22) as playground:
            playground.execute("create database d")
            playground.execute("create table d.a (id int primary key, v int)")
            playground.execute("create table d.b (x int, y int)")
            playground.execute("create table d.c (x int not null, y int not null, unique key u (x, y))")
            playground.execute("create table d.p (id int primary key) partition by hash (id) partitions 3")
            code, out, _ = await output_of("tables", "--pd", playground.pd_address, "--output", "json")
            assert code == 0
            found = {t["table"]: (t["kind"], t["partitions"], t["key"]) for t in json.loads(out)}
            assert found == {"a": ("table", None, "id"), "b": ("table", None, None), "c": ("table", None, "x, y"), "p": ("table", 3, "id")}
            _, out, _ = await output_of("tables", "--pd", playground.pd_address)
            assert "4 tables and views; 1 without a usable key" in out
            assert out.splitlines()[0].split() == ["schema", "table", "id", "kind", "partitions", "key"]

    asyncio.run(work())


def test_durations() -> None:
    assert [duration_ms(t, "x") for t in ("1ms", "90s", "1.5h", "2d")] == [1, 90_000, 5_400_000, 172_800_000]
    with pytest.raises(ConfigError):
        duration_ms("7", "--x")


def test_where_scratch_files_go() -> None:
    assert CaptureConfig(("a",), "/data/log").folder == Path("/data/log.capture")
    assert CaptureConfig(("a",), "file:///data/log").folder == Path("/data/log.capture")
    assert CaptureConfig(("a",), "s3://b/log", data_dir=Path("/x")).folder == Path("/x")
    with pytest.raises(ConfigError, match="needs --data-dir"):
        assert CaptureConfig(("a",), "s3://b/log").folder
