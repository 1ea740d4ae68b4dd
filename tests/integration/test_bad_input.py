"""What cannot be done is refused by one clear line that names what and where, with exit code 1, and nothing is left half-written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.changelog.logs import golden_log
from tests.support.delivery.feeds import World
from tests.support.delivery.runs import await_that, tidemill
from tests.support.faults import disks
from tidemill.changelog.place import check_place
from tidemill.changelog.storage.open import open_storage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.demo.session import TIDEMILL, Delivery, Upstream
from tidemill.playground.server import PlaygroundThread
from tidemill.playground.store.cluster import Cluster
from tidemill.process.places import check_master

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def upstream() -> Iterator[PlaygroundThread]:
    with PlaygroundThread(seed=5) as playground:
        playground.execute("create database d")
        playground.execute("create table d.t (id int primary key, v varchar(20))")
        playground.execute("insert into d.t values (1, 'one')")
        yield playground


@pytest.fixture(scope="module")
def whole_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_log(tmp_path_factory.mktemp("golden") / "log", segments=4)


def pd_of(upstream: PlaygroundThread) -> str:
    return upstream.playground.pd_address


def refused(capsys: Capsys, *arguments: object, code: str, says: tuple[str, ...] = ()) -> str:
    """Run it, and hold its one line against what it must say."""
    status, out, err = tidemill(capsys, *arguments)
    told = "\n".join(line for line in err.splitlines() if not line.startswith("[20"))  # without the log
    assert status == 1, (out, err)
    assert told.startswith(f"Error {code}"), err
    assert told.count("Error TM:") == 1
    assert "Traceback" not in err
    for part in says:
        assert part in err
    return err


URIS = {
    "unknown scheme": ("pulsar://h:1/t?protocol=open-protocol", ("pulsar",)),
    "unknown protocol": ("kafka://h:1/t?protocol=open-protocoll", ("open-protocoll", "open-protocol")),
    "unknown option": ("kafka://h:1/t?protocol=open-protocol&partition-nun=3", ("partition-nun", "partition-num")),
    "bad value": ("kafka://h:1/t?protocol=open-protocol&partition-num=many", ("partition-num", "many")),
    "no topic": ("kafka://h:1/?protocol=open-protocol", ("topic",)),
    "no protocol": ("kafka://h:1/t", ("protocol",)),
}


@pytest.mark.parametrize("verb", ["run", "replay"])
@pytest.mark.parametrize("name", URIS)
def test_sink_uris(tmp_path: Path, capsys: Capsys, whole_log: Path, upstream: PlaygroundThread, verb: str, name: str) -> None:
    uri, says = URIS[name]
    place = ("--pd", pd_of(upstream), "--data-dir", tmp_path / "data") if verb == "run" else ()
    log = tmp_path / "log" if verb == "run" else whole_log
    refused(capsys, verb, "--log", log, "--sink-uri", uri, *place, code="TM:ErrConfig", says=says)
    assert list(tmp_path.iterdir()) == []


TOMLS = {
    "unknown key": ("[sink]\ndispatcherz = []\n", ("dispatcherz", "dispatchers")),
    "unknown section": ("[filtre]\nrules = []\n", ("filtre", "filter")),
    "wrong type": ("force-replicate = 'yes please'\n", ("force-replicate",)),
    "no TOML": ("[sink\n", ("config.toml",)),
    "bad rule": ("[filter]\nrules = ['a.[']\n", ("a.[",)),
    "bad dispatcher": ("[[sink.dispatchers]]\nmatcher = ['a.*']\npartition = 'indexvalue'\n", ("indexvalue",)),
}


@pytest.mark.parametrize("name", TOMLS)
def test_configuration_files(tmp_path: Path, capsys: Capsys, whole_log: Path, name: str) -> None:
    text, says = TOMLS[name]
    file = tmp_path / "config.toml"
    file.write_text(text)
    sink = f"messages://{tmp_path}/out.jsonl?protocol=open-protocol"
    refused(capsys, "replay", "--log", whole_log, "--sink-uri", sink, "--config", file, code="TM:ErrConfig", says=says)
    assert list(tmp_path.iterdir()) == [file]


def test_flags(tmp_path: Path, capsys: Capsys, upstream: PlaygroundThread, whole_log: Path) -> None:
    run = ("run", "--pd", pd_of(upstream), "--sink-uri", "blackhole://", "--log", tmp_path / "log", "--data-dir", tmp_path / "data")
    for flags, says in (
        (("--config", tmp_path / "absent.toml"), "absent.toml"),
        (("--tz", "Mars/Olympus"), "Mars/Olympus"),
        (("--changefeed-id", "a/b"), "a/b"),
        (("--log-level", "loud"), "loud"),
        (("--start-ts", "yesterday"), "yesterday"),
        (("--start-ts", "2999-01-01T00:00:00Z"), "--start-ts"),
        (("--start-ts", "now", "--target-ts", "-1h"), "--target-ts"),
        (("--sink-retry", "soon"), "--sink-retry"),
        (("--status-addr", "nowhere"), "--status-addr"),
    ):
        refused(capsys, *run, *flags, code="TM:ErrConfig", says=(says,))
    assert not (tmp_path / "log").exists()
    assert tidemill(capsys, "run", "--pd", "x")[0] == 2
    assert tidemill(capsys, "run", "--no-such-flag")[0] == 2
    assert tidemill(capsys, "replay", "--log", whole_log, "--sink-uri", "blackhole://", "--log-level", "loud")[0] == 1


def test_pd_is_not_there(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.cli.changefeeds.launch.PD_PATIENCE_S", 0.3)
    refused(
        capsys, "run", "--sink-uri", "blackhole://", "--log", tmp_path / "log", "--data-dir", tmp_path / "data", "--pd", "127.0.0.1:1",
        code="TM:ErrUpstreamUnavailable", says=("127.0.0.1:1",),
    )  # fmt: skip
    assert not (tmp_path / "log").exists()


def test_a_cluster_without_tidb_outside_of_keyspaces(tmp_path: Path, capsys: Capsys) -> None:
    """A cluster with API v2 looks like this when the keys of API v1 are read."""

    def forget(cluster: Cluster) -> None:
        for key, _ in list(cluster.mvcc.items(b"m", b"n")):
            ts = cluster.oracle.next()
            cluster.mvcc.write(key, None, ts, cluster.oracle.next())

    with PlaygroundThread(seed=6) as playground:
        playground.call(forget, playground.playground.cluster)
        pd = ("--pd", pd_of(playground))
        refused(capsys, "tables", *pd, code="TM:ErrClusterMismatch", says=("keyspace", "API v2"))
        refused(capsys, "capture", *pd, "--log", tmp_path / "log", code="TM:ErrClusterMismatch", says=("keyspace",))
    assert not (tmp_path / "log").exists()


@pytest.mark.slow
def test_history_that_was_collected(tmp_path: Path, capsys: Capsys) -> None:
    """By the capture alone, and through `run`, which tells what its half told: once."""
    with PlaygroundThread(seed=7) as playground:
        playground.execute("create database d")
        begin = playground.playground.began_ts
        pd = pd_of(playground)
        assert tidemill(capsys, "playground", "ctl", "gc", "--pd", pd, "--life-time", "0s")[0] == 0
        for start in (begin, "-1h"):
            refused(capsys, "capture", "--pd", pd, "--log", tmp_path / "log", "--start-ts", start, code="TM:ErrStartTsBeforeGC")
        done = subprocess.run(
            [*TIDEMILL, "run", "--pd", pd, "--log", tmp_path / "log", "--sink-uri", "blackhole://", "--data-dir", tmp_path / "data",
             "--start-ts", str(begin), "--log-level", "error"],
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error TM:ErrStartTsBeforeGC: capture: "), done.stderr
    assert done.stderr.count("Error ") == 1
    assert not (tmp_path / "log" / "log.json").exists()
    assert not (tmp_path / "data/changefeeds/default/feed.json").exists()
    status = json.loads((tmp_path / "data/changefeeds/default/status.json").read_text())
    assert (status["run"], status["error"]["code"]) == ("failed", "TM:ErrStartTsBeforeGC")


def test_a_second_writer(tmp_path: Path, capsys: Capsys, whole_log: Path, upstream: PlaygroundThread) -> None:
    log = tmp_path / "log"
    with subprocess.Popen(
        [*TIDEMILL, "capture", "--pd", pd_of(upstream), "--log", log], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as first:
        await_that((log / "log.json").exists, "the first capture made the log")
        refused(
            capsys, "capture", "--pd", pd_of(upstream), "--log", log, "--data-dir", tmp_path / "second", code="TM:ErrLogLocked",
            says=(str(first.pid),),
        )  # fmt: skip
        refused(
            capsys, "run", "--pd", pd_of(upstream), "--log", log, "--data-dir", tmp_path / "third", "--sink-uri", "blackhole://",
            code="TM:ErrLogLocked", says=(str(first.pid),),
        )  # fmt: skip
        assert not (tmp_path / "third/changefeeds/default/feed.json").exists()
        first.terminate()
        output, _ = first.communicate(timeout=60)
    assert first.returncode == 0, output
    assert verify(str(log)).is_whole


# Places and masters


def places(folder: Path) -> dict[str, tuple[Path, str]]:
    """Logs that cannot be, and what is said of them."""
    (folder / "file").write_text("x")
    (folder / "full").mkdir()
    (folder / "full" / "thesis.tex").write_text("x")
    return {
        "below a file": (folder / "file" / "log", "cannot be written"),
        "nowhere": (Path("/proc/tidemill/log"), "cannot be written"),
        "somebody else's": (folder / "full", "is not empty and is not a change log: it has thesis.tex"),
    }


@pytest.mark.parametrize("verb", ["run", "capture"])
@pytest.mark.parametrize("name", ["below a file", "nowhere", "somebody else's"])
def test_a_log_that_cannot_be_there(tmp_path: Path, capsys: Capsys, upstream: PlaygroundThread, verb: str, name: str) -> None:
    log, says = places(tmp_path)[name]
    sink = ("--sink-uri", "blackhole://") if verb == "run" else ()
    code = "TM:ErrLogRefused" if name == "below a file" else "TM:ErrLog"
    before = sorted(tmp_path.rglob("*"))
    refused(
        capsys, verb, "--pd", pd_of(upstream), "--log", log, *sink, "--data-dir", tmp_path / "data",
        code=code, says=(str(log), *((says,) if code == "TM:ErrLog" else ())),
    )  # fmt: skip
    assert [p for p in sorted(tmp_path.rglob("*")) if "data" not in p.parts] == before


def test_a_log_whose_making_was_cut_short_is_made(tmp_path: Path) -> None:
    (tmp_path / "log" / "schema").mkdir(parents=True)
    check_place(open_storage(tmp_path / "log"))
    check_place(open_storage(tmp_path / "new" / "log"))
    assert not (tmp_path / "new").exists()


MASTERS = ("sprk://x", "foo", "local[0.5]", "spark://host", "spark://host:port", "local-cluster[2]", "")


@pytest.mark.parametrize("master", MASTERS)
def test_what_is_no_spark_master(tmp_path: Path, capsys: Capsys, whole_log: Path, upstream: PlaygroundThread, master: str) -> None:
    pd = ("--pd", pd_of(upstream), "--log", tmp_path / "log")
    says = (f"--master {master!r} is not a Spark master",)
    refused(capsys, "replay", "--log", whole_log, "--sink-uri", "blackhole://", "--master", master, code="TM:ErrConfig", says=says)
    refused(capsys, "capture", *pd, "--master", master, code="TM:ErrConfig", says=says)
    refused(capsys, "run", *pd, "--sink-uri", "blackhole://", "--master", master, code="TM:ErrConfig", says=says)
    assert not (tmp_path / "log").exists()


def test_what_spark_takes_for_a_master() -> None:
    for master in (
        *(None, "local", "local[*]", "local[4]", "local[2,3]", "local-cluster[2,1,1024]", "yarn"),
        *("spark://h:7077", "spark://h1:7077,h2:7077", "k8s://https://h:6443", "k8s://h:6443"),
    ):
        check_master(master)


def test_a_dead_master(tmp_path: Path, capsys: Capsys, whole_log: Path, upstream: PlaygroundThread) -> None:
    master = ("--master", "spark://127.0.0.1:1,127.0.0.1:2")
    says = ("no Spark master answers: 127.0.0.1:1: ", "127.0.0.1:2: ", "refused")
    refused(capsys, "replay", "--log", whole_log, "--sink-uri", "blackhole://", *master, code="TM:ErrSparkUnavailable", says=says)
    pd = ("--pd", pd_of(upstream), "--log", tmp_path / "log")
    refused(capsys, "capture", *pd, *master, code="TM:ErrSparkUnavailable", says=says)
    data = ("--data-dir", tmp_path / "data")
    refused(capsys, "run", *pd, "--sink-uri", "blackhole://", *master, *data, code="TM:ErrSparkUnavailable", says=says)
    assert not (tmp_path / "log").exists()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("environment", "code", "says"),
    [
        pytest.param({"JAVA_HOME": "NO_JAVA"}, "TM:ErrSparkUnavailable", "no room for the heap", id="a java that does not work"),
        pytest.param(
            {"SPARK_CONF_DIR": "BAD_PORT"},
            "TM:ErrSparkUnavailable",
            "spark.driver.port",
            id="settings that spark refuses",
            marks=pytest.mark.thorough("the other one ends a run in the same way; tests/spark/test_start.py has the words of both"),
        ),
    ],
)
def test_spark_that_does_not_start(tmp_path: Path, upstream: PlaygroundThread, environment: dict[str, str], code: str, says: str) -> None:
    """A new changefeed that cannot start ends the run: one line on stderr, the same in the log file, no traceback."""
    java = tmp_path / "NO_JAVA"
    (java / "bin").mkdir(parents=True)
    (java / "bin/java").write_text("#!/bin/sh\necho 'Error: no room for the heap' >&2\nexit 1\n")
    (java / "bin/java").chmod(0o755)
    (java / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (tmp_path / "BAD_PORT").mkdir()
    (tmp_path / "BAD_PORT/spark-defaults.conf").write_text("spark.driver.port harbour\n")
    done = subprocess.run(
        [*TIDEMILL, "run", "--pd", pd_of(upstream), "--log", tmp_path / "log", "--sink-uri", "blackhole://",
         "--data-dir", tmp_path / "data", "--log-file", tmp_path / "tidemill.log"],
        capture_output=True, text=True, timeout=200, check=False,
        env={**os.environ, **{name: str(tmp_path / place) for name, place in environment.items()}},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.startswith(f"Error {code}: changefeed: "), done.stderr
    assert says in done.stderr
    assert done.stderr.count("Error TM:") == 1
    assert "spark.log" in done.stderr
    assert len(done.stderr.splitlines()) == 2
    log = (tmp_path / "tidemill.log").read_text()
    assert f"[ERROR] [run] [tidemill] Error {code}: changefeed: " in log
    assert "Traceback" not in log


# Damaged logs


def _segments(log: Path) -> list[Path]:
    return sorted((log / "rows" / "0").glob("*.arrow"))


def _truncate(log: Path) -> Path:
    file = _segments(log)[1]
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return file


def _scribble(log: Path) -> Path:
    file = _segments(log)[1]
    file.write_bytes(b"\0" * file.stat().st_size)
    return file


def _gap(log: Path) -> Path:
    file = _segments(log)[1]
    file.unlink()
    return _segments(log)[1]


def _no_head_no_end(log: Path) -> Path:
    file = _segments(log)[-1]
    file.write_bytes(b"")
    return file


@pytest.mark.slow
@pytest.mark.parametrize("damage", [_truncate, _scribble, _gap, _no_head_no_end])
def test_damaged_logs(tmp_path: Path, capsys: Capsys, damage: object) -> None:
    log = Path(World.make().log(tmp_path / "log", segments=4))
    file = damage(log)  # type: ignore[operator]
    out = tmp_path / "delivered"
    sink = f"file://{out}?protocol=open-protocol"
    refused(capsys, "replay", "--log", log, "--sink-uri", sink, code="TM:ErrLogCorrupt", says=(file.name,))
    assert not list(out.rglob("*.tmp"))
    code, said, _ = tidemill(capsys, "log", "verify", log)
    assert code == 1
    assert file.name in said


def test_what_is_no_log(tmp_path: Path, capsys: Capsys) -> None:
    sink = ("--sink-uri", "blackhole://")
    refused(capsys, "replay", "--log", tmp_path / "absent", *sink, code="TM:ErrLog", says=("absent",))
    (tmp_path / "log").mkdir()
    (tmp_path / "log/log.json").write_text('{"format": 7}')
    refused(capsys, "replay", "--log", tmp_path / "log", *sink, code="TM:ErrLog", says=("log.json",))
    refused(capsys, "log", "verify", tmp_path / "absent", code="TM:ErrLog", says=("absent",))


def test_timestamps_outside_the_log(capsys: Capsys, whole_log: Path) -> None:
    facts = json.loads(tidemill(capsys, "log", "show", whole_log, "--json")[1])
    both = (str(facts["start_ts"]), str(facts["resolved_ts"]))
    replay = ("replay", "--log", whole_log, "--sink-uri", "blackhole://")
    refused(capsys, *replay, "--start-ts", facts["start_ts"] - 1, code="TM:ErrStartTsOutOfLog", says=both)
    refused(capsys, *replay, "--target-ts", facts["resolved_ts"] + 1, code="TM:ErrStartTsOutOfLog", says=both)


# Disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small_disk(tmp_path / "small", "128k") as place:
        yield place


@pytest.mark.parametrize("scheme", ["file", "messages"])
def test_a_sink_on_a_full_disk(capsys: Capsys, whole_log: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """Whole batches may be there; the one that did not fit is not, not even in part."""
    from tidemill.changefeed import replay
    from tidemill.delivery.machine.retry import RetryPolicy
    from tidemill.demo.delivered import from_files, from_jsonl

    monkeypatch.setattr(replay, "RETRY", RetryPolicy(total_s=0))
    sink = f"{scheme}://{small_disk}/out?protocol=open-protocol"
    refused(capsys, "replay", "--log", whole_log, "--sink-uri", sink, code="TM:ErrSink", says=("No space left", str(small_disk)))
    left = list(from_files(small_disk / "out")) if scheme == "file" else list(from_jsonl(small_disk / "out"))
    for message in left:
        assert message.key
    assert not [p for p in small_disk.rglob("*") if p.is_file() and p.suffix == ".tmp"]


def test_a_log_on_a_full_disk(capsys: Capsys, small_disk: Path, upstream: PlaygroundThread) -> None:
    refused(
        capsys, "capture", "--pd", pd_of(upstream), "--log", small_disk / "log", "--data-dir", small_disk.parent / "data",
        code="TM:ErrDiskLow", says=(str(small_disk),),
    )  # fmt: skip


_NO_RETRY = """
from tidemill.changefeed import replay
from tidemill.cli.main import main
from tidemill.delivery.machine.retry import RetryPolicy
replay.RETRY = RetryPolicy(total_s=0)
main()
"""


def test_a_limit_on_files(tmp_path: Path, whole_log: Path) -> None:
    """As a quota: what is larger than 64 KiB cannot be written."""
    sink = f"messages://{tmp_path}/out.jsonl?protocol=open-protocol"
    replay = [sys.executable, "-c", _NO_RETRY, "replay", "--log", str(whole_log), "--sink-uri", sink, "--log-level", "error"]
    done = subprocess.run(["prlimit", "--fsize=65536", *replay], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("Error TM:ErrSink"), done.stderr
    assert "out.jsonl" in done.stderr


def test_the_lock_of_a_writer_in_this_process(tmp_path: Path, capsys: Capsys, whole_log: Path) -> None:
    log = tmp_path / "log"
    shutil.copytree(whole_log, log)
    with LogWriter.open(str(log)):
        refused(capsys, "log", "compact", log, code="TM:ErrLogLocked")


@pytest.mark.slow
@pytest.mark.parametrize(
    "master",
    [
        "local[2]",
        pytest.param(
            "local-cluster[1,2,1024]",
            marks=pytest.mark.thorough("[local[2]] has every process but executors; tests/spark/test_settings.py"),
        ),
    ],
)
def test_files_of_the_folder_that_a_run_is_started_in_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    """By no process: supervisor, capture, groups, initial load, driver, Spark's Python workers."""
    folder, caught = tmp_path / "folder", tmp_path / "imported"
    folder.mkdir()
    for name in ("http", "json", "queue", "socket", "pyarrow", "tidemill"):
        (folder / f"{name}.py").write_text(f"open({str(caught)!r}, 'a').write({name!r} + '\\n')\nraise ImportError({name!r})\n")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with Upstream(tmp_path, seed=9, rate=20) as upstream:
        await_that(lambda: upstream.stats()["transactions"] > 20, "the upstream has rows")
        options = ("--trigger-ms", "50", "--workers", "2", "--snapshot", "--master", master)
        with Delivery(tmp_path, upstream, f"file://{tmp_path}/delivered?protocol=open-protocol", options=options) as delivery:
            delivery.wait_until(upstream.rest())
            await_that(lambda: delivery.feed_status()["rows"] > 0, "the status that is written after the checkpoint counts them", delivery)
            assert delivery.stop() == 0
        assert list((tmp_path / "delivered").glob("*/*/*.messages"))
    assert not caught.exists(), caught.read_text()
