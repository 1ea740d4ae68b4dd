"""The supervisor keeps two real processes, small Python programs, as it keeps capture and driver."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from tidemill.errors import EXIT_FATAL, EXIT_RETRY
from tidemill.process import supervisor
from tidemill.process.supervisor import LASTING, Answer, ChildFailed, ChildProcess, End, Manner, Restarts, Supervisor, Then, pause_after


def program(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


WAITS = program("import signal, sys; signal.signal(signal.SIGTERM, lambda *a: sys.exit(0)); signal.pause()")


@pytest.fixture(autouse=True)
def quick_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.01)


def test_the_end_of_the_delivering_half_ends_the_other() -> None:
    capture = ChildProcess("capture", WAITS)
    asyncio.run(Supervisor([capture, ChildProcess("deliver", program("pass"))], until="deliver").run())
    assert capture.process is None or capture.process.returncode is not None


def test_a_half_that_dies_is_started_again_until_it_succeeds(tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    flaky = program(f"""
        import os, signal, sys
        with open({str(tries)!r}, "a") as f: f.write("x")
        n = os.path.getsize({str(tries)!r})
        if n == 1: os.kill(os.getpid(), signal.SIGKILL)
        if n == 2: sys.exit({EXIT_RETRY})
    """)
    child = ChildProcess("deliver", flaky)
    asyncio.run(Supervisor([ChildProcess("capture", WAITS), child], until="deliver").run())
    assert tries.read_text() == "xxx"
    assert child.restarts == 2


def test_what_a_restart_cannot_mend_ends_both_with_the_halfs_own_code(capfd: pytest.CaptureFixture[str]) -> None:
    """The error is left to the supervisor to tell, so that it is told once; everything else that a child says is passed on."""
    text = "on its way\\nError TM:ErrFeedMismatch: sink differs\\n  Start it as before.\\nafter it"
    broken = program(f"import sys; print('{text}', file=sys.stderr); sys.exit({EXIT_FATAL})")
    with pytest.raises(ChildFailed, match=r"sink differs\n  Start it as before\.$") as caught:
        asyncio.run(Supervisor([ChildProcess("capture", WAITS), ChildProcess("deliver", broken)], until="deliver").run())
    assert caught.value.code == "TM:ErrFeedMismatch"
    assert capfd.readouterr().err == "on its way\nafter it\n"


def test_a_half_may_say_lines_of_any_length(capfd: pytest.CaptureFixture[str]) -> None:
    child = ChildProcess("deliver", program("import sys; sys.stderr.write('x' * 3_000_000)"))
    asyncio.run(Supervisor([child], until="deliver").run())
    assert len(capfd.readouterr().err.replace("\n", "")) == 3_000_000


def test_a_half_that_only_crashes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "CRASHES_IN_A_ROW", 3)
    child = ChildProcess("deliver", program("import sys; sys.exit(9)"))
    with pytest.raises(ChildFailed, match="exit code 9"):
        asyncio.run(Supervisor([child], until="deliver").run())
    assert child.restarts == 3


def test_a_half_that_gets_further_is_not_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(supervisor, "CRASHES_IN_A_ROW", 2)
    tries = tmp_path / "tries"
    flaky = program(f"""
        import os, sys
        with open({str(tries)!r}, "a") as f: f.write("x")
        sys.exit(0 if os.path.getsize({str(tries)!r}) == 6 else 9)
    """)
    child = ChildProcess("deliver", flaky, progress=lambda: tries.stat().st_size if tries.exists() else 0)
    asyncio.run(Supervisor([child], until="deliver").run())
    assert child.restarts == 5


def test_a_half_that_does_not_heed_the_signal_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_WITHIN_S", 0.2)
    deaf = program("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True); signal.pause()")

    async def scenario() -> None:
        child = ChildProcess("deliver", deaf)
        running = asyncio.Event()
        supervisor = Supervisor([child], until="deliver", on_change=running.set)
        task = asyncio.create_task(supervisor.run())
        await running.wait()
        supervisor.stop()
        await task
        assert child.pid is None

    asyncio.run(asyncio.wait_for(scenario(), 600))


def test_stop_ends_both_halves() -> None:
    async def scenario() -> None:
        children = [ChildProcess("capture", WAITS), ChildProcess("deliver", WAITS)]
        running = asyncio.Event()
        supervisor = Supervisor(children, until="deliver", on_change=lambda: running.set() if all(h.pid for h in children) else None)
        task = asyncio.create_task(supervisor.run())
        await running.wait()
        supervisor.stop()
        await task

    asyncio.run(asyncio.wait_for(scenario(), 600))


@pytest.mark.parametrize("heeds", [True, False])
def test_the_death_of_the_supervisor_ends_its_halves(heeds: bool) -> None:
    """kill -9 of a supervisor: its children notice, and those that do not heed the signal end all the same."""
    handler = "lambda *a: sys.exit(0)" if heeds else "signal.SIG_IGN"
    child = program(f"""
        import signal, sys
        from tidemill.process import lifeline
        lifeline.GRACE_S = 0.2
        signal.signal(signal.SIGTERM, {handler})
        lifeline.hold()
        while True: signal.pause()
    """)
    code = textwrap.dedent(f"""
        import asyncio
        from tidemill.process.supervisor import ChildProcess, Supervisor
        child = ChildProcess("deliver", {child!r})
        supervisor = Supervisor([child], until="deliver", on_change=lambda: child.pid and print(child.pid, flush=True))
        asyncio.run(supervisor.run())
    """)
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    child = psutil.Process(int(supervisor.stdout.readline()))
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.wait()
    psutil.wait_procs([child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_pauses_double_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 1.0)
    assert [pause_after(n) for n in (1, 2, 3, 4, 5, 6, 9)] == [1, 2, 4, 8, 16, 30, 30]


def test_an_error_that_may_pass_is_waited_out_however_often_it_comes() -> None:
    rule = Restarts("capture", lambda: 0)
    away = End(EXIT_RETRY, 1, ("TM:ErrLogUnavailable", "the bucket does not answer"))
    assert {rule.ended(away).then for _ in range(100)} == {Then.AGAIN}
    lost = [rule.ended(End(-9, 1)).then for _ in range(supervisor.CRASHES_IN_A_ROW + 1)]
    assert lost == [Then.AGAIN] * supervisor.CRASHES_IN_A_ROW + [Then.GIVE_UP]


def test_what_lasts_is_never_given_up() -> None:
    ends: list[End] = []
    rule = Restarts("the capture", lambda: 0, LASTING, ends.append)
    answers = [rule.ended(End(EXIT_FATAL, 1, ("TM:ErrConfig", "no such thing"))) for _ in range(supervisor.CRASHES_IN_A_ROW + 9)]
    assert set(answers) == {Answer(Then.AGAIN, supervisor.LONGEST_PAUSE_S)}
    assert len(ends) == len(answers)


def test_one_that_makes_way_is_over() -> None:
    rule = Restarts("capture", lambda: 0, Manner(makes_way=frozenset({"TM:ErrLogLocked"})))
    assert rule.ended(End(EXIT_RETRY, 1, ("TM:ErrLogLocked", "another one"))) == Answer(Then.OVER)
    assert rule.ended(End(EXIT_FATAL, 1, ("TM:ErrConfig", "no such thing"))) == Answer(Then.GIVE_UP)


def test_how_a_half_ended_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    Restarts("capture", lambda: 0).ended(End(-9, 1))
    Restarts("capture", lambda: 0).ended(End(EXIT_RETRY, 1, ("TM:ErrIO", "no room")))
    assert [r.getMessage() for r in caplog.records] == [
        "capture ended and starts again in 0 s: signal SIGKILL",
        "capture ended and starts again in 0 s: TM:ErrIO: no room",
    ]


def test_what_was_raised_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    """An error that nobody expected is named, and its traceback is passed on."""
    child = ChildProcess("deliver", program("raise ZeroDivisionError('by nothing')"))
    seen = []

    class Rests(Restarts):
        def ended(self, end: End) -> Answer:
            seen.append(end)
            return Answer(Then.OVER)

    child.rule = Rests("deliver", lambda: 0)
    asyncio.run(Supervisor([child], until="deliver").run())
    assert seen[0].why == "exit code 1: ZeroDivisionError: by nothing"
    assert "Traceback" in capfd.readouterr().err
