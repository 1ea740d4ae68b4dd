"""`tidemill playground`: serving, querying and controlling from the command line."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.servers.certificates import Authority
from tidemill import tso
from tidemill.cli.main import main
from tidemill.errors import SqlError, UpstreamUnavailable
from tidemill.playground.control import call
from tidemill.playground.server import PlaygroundThread

ROOT = Path(__file__).parents[2]


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def tidemill(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `tidemill` with arguments, in this process."""

    def run(*arguments: str) -> Done:
        capsys.readouterr()
        try:
            main(list(arguments))
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "tidemill.cli.main", "playground", "--listen", "127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("PD is at "), process.communicate()
        yield line.split()[-1], process
    finally:
        process.kill()
        process.communicate()


def test_serve_query_control_and_stop(tidemill: Run) -> None:
    with serving("--workload", "none", "--stores", "2") as (pd, process):
        call(pd, "sql", text="create database d; use d; create table t (id int primary key, v varchar(9), b blob)")
        call(pd, "sql", text="insert into t values (1, 'ü', x'ff')")
        before = call(pd, "stats")["ts"]
        call(pd, "sql", text="update t set v = 'later'; insert into t values (2, null, null)")
        query = ("playground", "query", "--pd", pd, "--table", "D.T")
        rows = [json.loads(line) for line in tidemill(*query, "--output", "json").out.splitlines()]
        assert rows == [{"id": 1, "v": "later", "b": {"base64": "/w=="}}, {"id": 2, "v": None, "b": None}]
        old = tidemill(*query, "--at", str(before), "--output", "json")
        assert [json.loads(line)["v"] for line in old.out.splitlines()] == ["ü"]
        assert "later" in tidemill(*query).out
        sql = ("playground", "ctl", "sql", "--pd", pd)
        shown = tidemill(*sql, "show tables from d")
        assert "Tables_in_d" in shown.out
        assert "1 rows" in shown.out
        assert json.loads(tidemill(*sql, "select * from d.t", "--output", "json").out)["rows"][1] == [2, None, None]
        assert "1 rows changed, commit ts" in tidemill(*sql, "delete from d.t where id = 2").out
        stats = json.loads(tidemill("playground", "ctl", "stats", "--pd", pd).out)
        assert (stats["tables"], len(stats["stores"])) == (1, 2)
        unknown = tidemill("playground", "query", "--pd", pd, "--table", "d.nope")
        assert (unknown.code, "TM:ErrSql" in unknown.err, "d.t" in unknown.err) == (1, True, True)
        refused = tidemill("playground", "ctl", "sql", "--pd", pd, "selec 1")
        assert (refused.code, "TM:ErrSql" in refused.err) == (1, True)
        assert tidemill("playground", "ctl", "stop", "--pd", pd).code == 0
        assert process.wait(120) == 0


@pytest.mark.slow
@pytest.mark.kafka
def test_a_broker_beside_it_ends_with_it() -> None:
    with serving("--workload", "none", "--kafka") as (pd, process):
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(3)]
        broker = said[0].split()[3].rstrip(".")
        assert f"run --pd {pd} " in said[1]
        assert f"kafka://{broker}/playground" in said[1]
        assert f"show -f kafka://{broker}/playground" in said[2]
        assert AdminClient({"bootstrap.servers": broker}).list_topics(timeout=60).brokers
        call(pd, "stop")
        assert process.wait(120) == 0
        host, _, port = broker.rpartition(":")
        with socket.socket() as probe:
            assert probe.connect_ex((host, int(port))) != 0


def test_faults_and_tls_from_the_command_line(tidemill: Run, tmp_path: Path) -> None:
    authority = Authority()
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem)
    server = authority.sign("server").write(tmp_path, "server")
    client = authority.sign("client").write(tmp_path, "client")
    flags = ("--tls-cert", str(server[0]), "--tls-key", str(server[1]), "--tls-client-ca", str(ca))
    tls = ("--ca", str(ca), "--cert", str(client[0]), "--key", str(client[1]))
    with serving("--workload", "soak", "--rate", "20", "--stores", "3", "--pds", "3", "--gates", *flags) as (pd, process):

        def ctl(command: str, *arguments: str) -> dict[str, Any]:
            done = tidemill("playground", "ctl", *tls, command, "--pd", pd, *arguments)
            assert done.code == 0, done.err
            told: dict[str, Any] = json.loads(done.out)
            return told

        assert len(pd.split(",")) == 3
        region = ctl("regions")["regions"][0]["id"]
        assert ctl("fail-region", "--region", str(region), "--error", "congested") == {"region": region}
        assert ctl("mute", "--region", str(region)) == {"region": region}
        assert "connections" in ctl("wire", "--fault", "stall", "--store", "2", "--seconds", "0.1")
        assert "connections" in ctl("wire", "--fault", "reset", "--member", "2")
        assert ctl("restart-store", "--store", "3", "--seconds", "0.1") == {"store": 3}
        assert ctl("busy", "--seconds", "0.1") == ctl("pace", "--seconds", "0.2") == {}
        assert ctl("pd-leader", "--member", "2") == {"member": 2}
        assert ctl("gc", "--life-time", "0s", "--remember")["safe_point"] > 0
        assert ctl("dump", "--path", str(tmp_path / "dump.arrow"))["versions"] > 0
        query = tidemill("playground", "query", "--pd", pd, "--table", "one.a", "--output", "json", *tls)
        assert query.code == 0, query.err
        assert len(query.out.splitlines()) > 5
        assert tidemill("playground", "ctl", "stats", "--pd", pd).code == 1, "without TLS nobody answers"
        ctl("stop")
        assert process.wait(120) == 0


@pytest.mark.parametrize("flags", [("--tls-cert", "a.pem"), ("--tls-client-ca", "ca.pem"), ("--tls-cert", "no", "--tls-key", "where")])
def test_halves_of_tls_are_refused(tidemill: Run, flags: tuple[str, ...]) -> None:
    done = tidemill("playground", "--listen", "127.0.0.1:0", *flags)
    assert (done.code, "TM:ErrConfig" in done.err) == (1, True)


def test_a_workload_ends_and_the_process_with_it() -> None:
    with serving("--workload", "bank", "--transactions", "20", "--rate", "0", "--exit-after") as (_, process):
        assert process.wait(240) == 0


def test_sigterm_ends_it() -> None:
    with serving("--rate", "20") as (_, process):
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--listen", "nowhere"),
        ("--listen", "127.0.0.1:0", "--workload", "nope"),
        ("query", "--pd", "127.0.0.1:1", "--table", "a.b", "--tz", "Nowhere/At_all"),
    ],
)
def test_mistakes_are_told(tidemill: Run, arguments: tuple[str, ...]) -> None:
    done = tidemill("playground", *arguments)
    assert done.code == 1
    assert done.err.startswith("Error TM:Err")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        (),
        pytest.param(("--gates",), marks=pytest.mark.thorough("a gate listens there instead")),
        pytest.param(("--pds", "3"), marks=pytest.mark.thorough("the first of three members listens there")),
    ],
)
def test_a_taken_port_is_one_error(arguments: tuple[str, ...]) -> None:
    """The address, what is wrong with it and what to do; not a line of gRPC's own."""
    with PlaygroundThread() as playground:
        command = [sys.executable, "-m", "tidemill.cli.main", "playground", "--listen", playground.pd_address, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"Error TM:ErrConfig: --listen {playground.pd_address}: the port is taken: another process listens there",
        "  End that process, or choose another HOST:PORT with --listen; port 0 takes a free one.",
    ]


# control commands


def test_regions_locks_and_garbage() -> None:
    with PlaygroundThread(stores=3) as playground:
        pd = playground.pd_address

        def run(command: str, **arguments: Any) -> dict[str, Any]:
            return call(pd, command, **arguments)

        run("sql", text="create table t (id int primary key, v int); insert into t values (1, 1), (2, 2)")
        assert run("load", table="test.t", rows=100, regions=2)["commit_ts"] > 0
        before = len(run("regions")["regions"])
        made = run("split", table="test.t", handles=[10, 20])["regions"]
        assert len(run("regions")["regions"]) == before + 2
        run("merge", table="test.t")
        pair = [r["id"] for r in run("regions")["regions"]][:2]
        run("merge", source=pair[0], target=pair[1])
        region = made[-1]["id"]
        moved = run("transfer-leader", region=region)["region"]
        assert moved["leader_store"] != made[-1]["leader_store"]

        lock = run("lock", table="test.t", handle=1)["start_ts"]
        assert run("stats")["locks"] == 1
        with pytest.raises(SqlError, match="locked"):
            run("sql", text="update t set v = 9 where id = 1")
        assert run("unlock", start_ts=lock)["ended"] == [lock]
        assert run("lock", table="test.t", handle=2)
        assert len(run("unlock", rollback=True)["ended"]) == 1

        run("sql", text="update t set v = 10 where id = 1; update t set v = 11 where id = 1")
        collected = run("gc", life_time_ms=0)
        assert collected["versions_dropped"] >= 2
        assert tso.physical_ms(collected["safe_point"]) > 0
        for command, arguments in (
            ("nope", {}),
            ("split", {"table": "test.nope", "handles": [1]}),
            ("merge", {"source": 1, "target": 1}),
            ("transfer-leader", {"region": 99_999}),
            ("lock", {"table": "test.t", "handle": 77_777}),
            ("unlock", {"start_ts": 5}),
            ("break-streams", {"store": 9}),
        ):
            with pytest.raises(SqlError):
                run(command, **arguments)
        assert run("break-streams", store=1) == {"broken": 0}
        run("pause")
        assert run("stats")["paused"] is True
        run("resume")


def test_nobody_answers() -> None:
    with pytest.raises(UpstreamUnavailable, match="no playground answers"):
        call("127.0.0.1:1", "stats", timeout=2)
