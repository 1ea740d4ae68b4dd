"""Processes that are started from an event loop: what they get, how they end, and that the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.support.capture.loops import run
from tidemill.process import children
from tidemill.process.children import environment, python, start

LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def within(loop: Any, work: Any) -> Any:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(work)


@LOOPS
def test_a_process_from_its_start_to_its_end(loop: Any) -> None:
    text = """
import os, sys
assert os.getsid(0) == os.getpid()
print(os.environ["WORD"], file=sys.stderr, flush=True)
sys.stderr.write(sys.stdin.readline())
sys.exit(7)
"""

    async def main() -> None:
        child = await start(program(text), environment({"WORD": "given"}), new_session=True, keeps_stderr=True)
        assert child.returncode is None
        assert child.tell(b"told\n")
        assert await child.stderr.read() == b"given\ntold\n"
        assert await child.wait() == child.returncode == 7
        assert not child.tell(b"too late\n")
        child.kill()  # nobody else has its number by now, who could be killed
        child.close()
        with pytest.raises(ChildProcessError):  # it is reaped
            os.waitpid(child.pid, os.WNOHANG)

    within(loop, main())


def test_a_child_gets_the_secrets_that_it_is_given_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*children.SECRETS, "TIDEMILL_SECRET_DB", "TIDEMILL_HOSTS"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.delenv("TIDEMILL_JAVA_CACHE", raising=False)  # of `make test`
    given = environment({"TIDEMILL_LOG": "s3://log"})
    assert {k: v for k, v in given.items() if k.startswith("TIDEMILL_")} == {"TIDEMILL_LOG": "s3://log", "TIDEMILL_HOSTS": "hunter2"}
    assert environment(writes=True)["TIDEMILL_SECRET_DB"] == "hunter2"
    assert "TIDEMILL_SINK_URI" not in environment(writes=True)


@LOOPS
def test_signals_and_pipes(loop: Any) -> None:
    waits = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); print(1, file=sys.stderr, flush=True); signal.pause()"
    )

    async def main() -> None:
        child = await start(program(waits), environment(), keeps_stderr=True)
        assert await child.stderr.readline() == b"1\n"
        child.terminate()
        assert await child.wait() == 3
        child = await start(program("import signal; signal.pause()"), environment())
        sent = 0
        while child.tell(b"x" * 4096):  # nobody reads: the pipe is full at some time, and the loop does not wait for it
            sent += 1
        assert 0 < sent < 10_000
        child.kill()
        assert await child.wait() == -signal.SIGKILL
        ends = await start(program("import sys; sys.stdin.read()"), environment())
        ends.close()
        assert await ends.wait() == 0, "its stdin ends with this process's end of it"

    within(loop, main())


@LOOPS
def test_a_line_that_its_pipe_does_not_take_at_once_comes_as_it_reads(loop: Any) -> None:
    text = "import sys; print(*(len(line) for line in sys.stdin.buffer), file=sys.stderr)"

    async def main() -> None:
        child = await start(program(text), environment(), keeps_stderr=True)
        assert child.tell(b"x" * 700_000 + b"\n")
        assert child.tell(b"y\n"), "it comes behind the first"
        while child.unsent:
            await asyncio.sleep(0.01)
        child.close_stdin()
        assert await child.stderr.read() == b"700001 2\n"
        assert await child.wait() == 0
        child.close()

    within(loop, main())


@LOOPS
def test_what_cannot_be_started_is_an_error_of_the_system(loop: Any, tmp_path: Path) -> None:
    async def main() -> None:
        for argv in ([str(tmp_path / "nothing")], ["a\0b"]):
            with pytest.raises(OSError, match=r"nothing|null byte"):
                await start(argv, environment())

    within(loop, main())


def test_the_loop_goes_on_while_a_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start takes until the loop has done something else, and is done elsewhere."""
    went_on, real = threading.Event(), subprocess.Popen

    def slow(*arguments: Any, **options: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        assert went_on.wait(60)
        return real(*arguments, **options)

    async def main() -> None:
        monkeypatch.setattr(children.subprocess, "Popen", slow)
        starting = asyncio.ensure_future(start(program("pass"), environment()))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(went_on.set)
        child = await starting
        assert await child.wait() == 0

    run(main())


def test_a_start_that_nobody_waits_for_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    go, started, real = threading.Event(), [], subprocess.Popen

    def slow(*arguments: Any, **options: Any) -> Any:
        assert go.wait(60)
        started.append(real(*arguments, **options))
        return started[0]

    async def main() -> None:
        monkeypatch.setattr(children.subprocess, "Popen", slow)
        starting = asyncio.ensure_future(start(program("import signal; signal.pause()"), environment()))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        go.set()
        while not started or started[0].returncode is None:
            await asyncio.sleep(0.01)

    run(main())
    assert started[0].returncode == -signal.SIGKILL


@pytest.mark.parametrize("way", ["command line", "environment"])
def test_no_module_comes_from_the_working_directory(tmp_path: Path, way: str) -> None:
    """Neither for the module that is run, nor for a Python that it starts."""
    for name in ("http", "json", "queue", "tidemill"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working directory')")
    argv = python("tidemill.cli.main", "tso", "--help")
    if way == "environment":
        argv.remove("-P")
    done = subprocess.run(argv, cwd=tmp_path, env=environment({"PATH": os.environ["PATH"]}), capture_output=True, text=True, check=False)
    assert (done.returncode, "working directory" in done.stderr) == (0, False), done.stderr


def test_all_of_the_package_starts_processes_so() -> None:
    """Nothing forks on an event loop, and no Python is started that takes modules from the working directory."""
    found = {}
    package = Path(children.__file__).parents[1]
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found[str(path.relative_to(package))] = {
            word for word in ("create_subprocess", "sys.executable", "import multiprocessing") if word in text
        }
    assert {name: words for name, words in found.items() if words} == {
        "cli/playground/next_steps.py": {"sys.executable"},  # names it to a person
        "process/children.py": {"sys.executable"},
        "spark/__init__.py": {"sys.executable"},  # names it to Spark
        "spark/session.py": {"sys.executable"},  # for Spark, whose environment has PYTHONSAFEPATH
    }


OF_A_WORKER = {
    "PYTHON_UNIX_DOMAIN_ENABLED": "True",
    "PYTHON_WORKER_FACTORY_SOCK_DIR": "/tmp",
    "PYTHON_WORKER_FACTORY_PORT": "40001",
    "PYTHON_WORKER_FACTORY_SECRET": "s",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
    "SPARK_REUSE_WORKER": "1",
    "SPARK_LOCAL_DIRS": "/tmp/blockmgr-1",
    "SPARK_JOB_ARTIFACT_UUID": "default",
    "PYSPARK_GATEWAY_PORT": "40002",
    "PYSPARK_GATEWAY_SECRET": "s",
    "_PYSPARK_DRIVER_CONN_INFO_PATH": "/tmp/1",
}


def test_a_child_of_a_spark_worker_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OF_A_WORKER.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SPARK_CONF_DIR", "/conf")
    found = environment({"TIDEMILL_LOG": "log"})
    assert OF_A_WORKER.keys() & found.keys() == set()
    assert (found["SPARK_CONF_DIR"], found["TIDEMILL_LOG"], found["PATH"]) == ("/conf", "log", os.environ["PATH"])


def test_elsewhere_the_folders_for_spark_are_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/fast")
    assert environment()["SPARK_LOCAL_DIRS"] == "/fast"
