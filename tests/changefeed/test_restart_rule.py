"""The state of a changefeed when its process ends: how it is decided, written and shown. The capture goes on."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changefeed.feed_status import Status
from tidemill.changefeed.restart_backoff import Backoff, Patience
from tidemill.changefeed.restart_rule import RestartRule
from tidemill.changefeed.run_status import RunStatus
from tidemill.changefeed.states import State
from tidemill.changelog.storage import durable
from tidemill.errors import EXIT_FATAL, EXIT_RETRY, DiskLow, Fenced, LogUnavailable
from tidemill.process.supervisor import Answer, ChildFailed, ChildProcess, End, Supervisor, Then

AWAY = ("TM:ErrSinkUnavailable", "Kafka b:1: away")
WAITS = [sys.executable, "-c", "import signal, sys; signal.signal(signal.SIGTERM, lambda *a: sys.exit(0)); signal.pause()"]


class World:
    """A changefeed with a made-up clock, whose process writes what it is told to."""

    def __init__(self, folder: Path, *, stuck_s: float = 100.0, new: bool = False) -> None:
        self.now = 1000.0
        self.folder = FeedFolder(folder, "f")
        self.folder.path.mkdir(parents=True)
        self.keeper = RestartRule(self.folder, Patience(stuck_s), resume="type this", new=new, clock=lambda: self.now, chance=lambda: 0.5)

    def process(self, pid: int, *, begun: bool = True, **said: Any) -> None:
        """A process has started and said this last."""
        self.keeper.begins()
        self.folder.save_status(Status("f", pid=pid, begun=begun, **said))

    def ends(self, pid: int, status: int = EXIT_RETRY, error: tuple[str, str] | None = AWAY) -> Answer:
        answer = self.keeper.ended(End(status, pid, error))
        self.keeper.note()
        return answer

    @property
    def written(self) -> dict[str, Any]:
        return self.folder.status() or {}


def test_a_sink_that_is_away_too_long_and_a_person_who_resumes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path)
    world.process(1, state=State.WARNING, warning_since=960.0, checkpoint_ts=7)
    assert world.ends(1) == Answer(Then.AGAIN, 10)
    assert (world.written["state"], world.written["retry_at"], world.written["warning_since"]) == ("warning", 1010, 960)
    assert world.written["error"] == {"code": AWAY[0], "message": AWAY[1]}
    assert (world.written["running"], world.written["checkpoint_ts"]) == (False, 7)
    world.now = 1010
    world.keeper.begins()
    assert world.keeper.retries
    world.now = 1060
    with caplog.at_level(logging.ERROR):
        assert world.ends(2) == Answer(Then.REST)
    assert (world.written["state"], world.written["failed_at"], world.written["retry_at"]) == ("failed", 1060, None)
    assert "TM:ErrSinkUnavailable: Kafka b:1: away" in caplog.text
    assert "type this" in caplog.text
    assert world.keeper.resumed()
    child = ChildProcess("changefeed", [], rule=world.keeper)
    assert (RunStatus(world.folder, [child]).snapshot()["state"], RunStatus(world.folder, [child]).snapshot()["error"]) == ("normal", None)
    assert world.written["error"]["code"] == AWAY[0], "the process looks at what it was"
    world.keeper.begins()
    assert not world.keeper.retries
    world.now = 2000
    assert world.ends(3) == Answer(Then.AGAIN, 10)


def test_what_the_process_reached_in_between_counts(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.process(1, state=State.WARNING, warning_since=950.0, checkpoint_ts=7)
    world.ends(1)
    world.process(2, state=State.NORMAL, checkpoint_ts=8)
    world.now = 1090
    assert world.ends(2, -9, None) == Answer(Then.AGAIN, 1)
    assert world.written["error"]["message"] == "its process ended with signal SIGKILL"


def test_an_error_of_the_rows_fails_it_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.folder.path / "feed.json").write_text("{}")
    world.process(1)
    assert world.ends(1, EXIT_FATAL, ("TM:ErrMessageTooLarge", "d.t")) == Answer(Then.REST)
    assert json.loads((world.folder.path / "feed.json").read_text())["state"] == "failed"


def test_a_new_changefeed_that_cannot_even_start_ends_the_run(tmp_path: Path) -> None:
    world = World(tmp_path, new=True)
    world.process(1, begun=False)
    assert world.ends(1, EXIT_FATAL, ("TM:ErrNoJava", "no Java")) == Answer(Then.GIVE_UP)
    assert world.written["state"] == "failed"  # so that other settings may be given


@pytest.mark.parametrize(
    ("begun", "new", "status", "error"),
    [
        (True, True, EXIT_FATAL, ("TM:ErrMessageTooLarge", "the first batch")),
        (False, False, EXIT_FATAL, ("TM:ErrSchemaIncompatible", "at a later start")),
        (False, True, -9, None),
        (False, True, EXIT_RETRY, (LogUnavailable.code, "the log's storage")),
    ],
)
def test_otherwise_the_capture_lives_on(tmp_path: Path, begun: bool, new: bool, status: int, error: tuple[str, str] | None) -> None:
    world = World(tmp_path, new=new)
    world.process(1, begun=begun)
    assert world.ends(1, status, error).then in (Then.REST, Then.AGAIN)


def test_a_second_start_that_fails_does_not_end_the_run(tmp_path: Path) -> None:
    world = World(tmp_path, new=True)
    world.process(1, begun=False)
    world.ends(1, -9, None)
    world.process(2, begun=False)
    assert world.ends(2, EXIT_FATAL, ("TM:ErrNoJava", "no Java")) == Answer(Then.REST)


def test_what_another_driver_has_taken_is_not_noted(tmp_path: Path) -> None:
    """Another host delivers this changefeed by now. The state is shown here, but not written where that host reads it."""
    world = World(tmp_path)
    (world.folder.path / "feed.json").write_text('{"state": "normal", "error": null}')
    world.process(1)
    assert world.ends(1, EXIT_FATAL, (Fenced.code, "driver b has taken it")) == Answer(Then.REST)
    assert world.written["state"] == "failed"
    assert json.loads((world.folder.path / "feed.json").read_text())["state"] == "normal"


def test_a_state_that_cannot_be_noted_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path)
    (world.folder.path / "feed.json").write_text("no JSON")
    world.process(1)
    assert world.ends(1, EXIT_FATAL, ("TM:ErrMessageTooLarge", "d.t")) == Answer(Then.REST)
    assert "cannot be noted" in caplog.text


def test_a_target_that_was_reached_is_the_end_however_the_process_goes(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.process(1, state=State.FINISHED)
    assert world.ends(1, -11, None) == Answer(Then.OVER)


def test_what_an_earlier_run_reached_is_not_what_this_process_did(tmp_path: Path) -> None:
    """A changefeed that had finished is started with a later target, and its process dies before it says anything."""
    for pid in (1, 2):  # in a container the new process may get the old one's number
        folder = tmp_path / str(pid)
        folder.mkdir()
        world = World(folder)
        world.folder.save_status(Status("f", pid=1, state=State.FINISHED, running=False))
        world.keeper.begins()
        assert world.ends(pid, EXIT_FATAL, ("TM:ErrConfig", "no such option")) == Answer(Then.REST)
        assert world.written["state"] == "failed"


def test_a_failure_of_an_earlier_run_is_not_this_process_s(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.folder.save_status(Status("f", pid=7, state=State.FAILED, running=False))
    world.keeper.begins()
    assert world.ends(7, -9, None) == Answer(Then.AGAIN, 1)
    assert world.written["state"] == "warning"


def test_nothing_is_resumed_while_the_process_runs(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.ends(1)
    world.process(2, state=State.WARNING, rows=5)
    assert not world.keeper.resumed()
    assert (world.written["running"], world.written["rows"]) == (True, 5)


def test_status_while_the_new_process_has_not_spoken(tmp_path: Path) -> None:
    """What the last run left is not told of this one."""
    world = World(tmp_path)
    world.folder.save_status(Status("f", pid=1, state=State.FAILED, error={"code": "c", "message": "old"}, running=False))
    child = ChildProcess("changefeed", [], rule=world.keeper, pid=2)
    run_status = RunStatus(world.folder, [child])
    assert (run_status.snapshot()["state"], run_status.snapshot()["error"], run_status.snapshot()["resume"]) == ("normal", None, None)
    world.process(2, state=State.WARNING)
    assert run_status.snapshot()["state"] == "warning"
    child.pid = None
    world.ends(2, EXIT_FATAL, ("TM:ErrMessageTooLarge", "d.t"))
    assert (run_status.snapshot()["state"], run_status.snapshot()["resume"]) == ("failed", "type this")


# With real processes


def feed_program(tmp_path: Path, *, status: int, code: str) -> list[str]:
    """Notes each start and what a process says of itself; fails until `mended` is there, then ends with 0. It imports nothing of Tidemill,
    which would take most of the test's time."""
    said = FeedFolder(tmp_path / "said", "f")
    said.path.mkdir(parents=True)
    said.save_status(Status("f", begun=True))
    text = f"""
        import json, os, sys, time
        from pathlib import Path
        folder = Path({str(tmp_path)!r})
        with open(folder / "starts", "a") as f: f.write("x")
        said = json.loads(Path({str(said.path)!r}, "delivery.json").read_text()) | {{"pid": os.getpid(), "updated_at": time.time()}}
        own = Path({str(FeedFolder(tmp_path, "f").path)!r}, "delivery.json")
        own.with_suffix(".new").write_text(json.dumps(said))
        own.with_suffix(".new").replace(own)
        if (folder / "mended").exists(): sys.exit(0)
        print("Error {code}: it does not work", file=sys.stderr)
        sys.exit({status})
    """
    return [sys.executable, "-c", textwrap.dedent(text)]


async def supervised(
    tmp_path: Path,
    program: list[str],
    stuck_s: float,
    scenario: Callable[[Supervisor, ChildProcess, ChildProcess], Any],
    capture: list[str] = WAITS,
) -> None:
    folder = FeedFolder(tmp_path, "f")
    folder.path.mkdir(parents=True)
    keeper = RestartRule(folder, Patience(stuck_s, Backoff(first_s=0.01, longest_s=0.02)))
    children = ChildProcess("capture", capture), ChildProcess("changefeed", program, rule=keeper)
    supervisor = Supervisor(children, until="changefeed")
    task = asyncio.create_task(supervisor.run())
    try:
        await scenario(supervisor, *children)
        await task
    finally:
        supervisor.stop()
        await asyncio.gather(task, return_exceptions=True)


def state_of(child: ChildProcess) -> State:
    assert isinstance(child.rule, RestartRule)
    return child.rule.state


async def becomes(supervisor: Supervisor, condition: Callable[[], bool]) -> None:
    """Wait for a change that makes it so."""
    changed = asyncio.Event()
    supervisor.on_change = changed.set
    while not condition():
        await changed.wait()
        changed.clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "code", "stuck_s"),
    [(EXIT_FATAL, "TM:ErrMessageTooLarge", 1800.0), (EXIT_RETRY, "TM:ErrSinkUnavailable", 0.05), (1, "TM:ErrX", 0.05)],
)
def test_the_capture_lives_on_beside_a_failed_changefeed_until_it_is_resumed(
    tmp_path: Path, status: int, code: str, stuck_s: float
) -> None:
    async def scenario(supervisor: Supervisor, capture: ChildProcess, feed: ChildProcess) -> None:
        await becomes(supervisor, lambda: state_of(feed) is State.FAILED)
        pid = capture.pid
        assert pid is not None
        assert (feed.pid, supervisor.stopping) == (None, False)
        starts = len((tmp_path / "starts").read_text())
        (tmp_path / "mended").touch()
        assert supervisor.resume()
        await becomes(supervisor, lambda: capture.pid is None)  # the changefeed ends with 0, and so the run
        assert len((tmp_path / "starts").read_text()) == starts + 1
        assert capture.restarts == 0

    asyncio.run(asyncio.wait_for(supervised(tmp_path, feed_program(tmp_path, status=status, code=code), stuck_s, scenario), 600))


def test_a_failed_changefeed_can_be_stopped(tmp_path: Path) -> None:
    async def scenario(supervisor: Supervisor, capture: ChildProcess, feed: ChildProcess) -> None:
        await becomes(supervisor, lambda: state_of(feed) is State.FAILED)
        supervisor.stop()

    program = feed_program(tmp_path, status=EXIT_FATAL, code="TM:ErrMessageTooLarge")
    asyncio.run(asyncio.wait_for(supervised(tmp_path, program, 100, scenario), 600))


def test_a_capture_that_cannot_go_on_ends_the_run_beside_a_failed_changefeed(tmp_path: Path) -> None:
    lost = f"""
        import pathlib, sys, time
        while not pathlib.Path({str(tmp_path)!r}, "over").exists(): time.sleep(0.01)
        print("Error TM:ErrStartTsBeforeGC: history is gone", file=sys.stderr)
        sys.exit({EXIT_FATAL})
    """

    async def scenario(supervisor: Supervisor, capture: ChildProcess, feed: ChildProcess) -> None:
        await becomes(supervisor, lambda: state_of(feed) is State.FAILED)
        (tmp_path / "over").touch()

    program = feed_program(tmp_path, status=EXIT_FATAL, code="TM:ErrMessageTooLarge")
    with pytest.raises(ChildFailed, match="capture: history is gone"):
        asyncio.run(asyncio.wait_for(supervised(tmp_path, program, 100, scenario, [sys.executable, "-c", textwrap.dedent(lost)]), 600))


def test_a_recovery_that_ended_well_shows_no_old_error(tmp_path: Path) -> None:
    """Killed, started again, delivered for a while, stopped by a person."""
    world = World(tmp_path)
    world.process(1, state=State.NORMAL, checkpoint_ts=7)
    assert world.ends(1, -9, None) == Answer(Then.AGAIN, 1)
    child = ChildProcess("changefeed", [], rule=world.keeper)
    assert RunStatus(world.folder, [child]).snapshot()["state"] == "warning"
    world.process(2, state=State.NORMAL, checkpoint_ts=9, running=False)
    assert world.ends(2, 0, None) == Answer(Then.OVER)
    found = RunStatus(world.folder, [child]).snapshot()
    assert (found["state"], found["error"], found["warning_since"], found["running"]) == ("normal", None, None, False)


def test_what_was_wrong_at_the_end_is_shown_after_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    error = {"code": AWAY[0], "message": AWAY[1]}
    world.process(1, state=State.WARNING, warning_since=960.0, error=error, running=False)
    assert world.ends(1, 0, None) == Answer(Then.OVER)
    found = RunStatus(world.folder, [ChildProcess("changefeed", [], rule=world.keeper)]).snapshot()
    assert (found["state"], found["error"], found["warning_since"]) == ("warning", error, 960)


def test_a_full_disk_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the supervisor, which cannot write what it decided, nor the changefeed, however long it lasts."""
    world = World(tmp_path, stuck_s=30.0)
    world.process(1, state=State.NORMAL, checkpoint_ts=7)

    def full(path: str, *args: Any, **given: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "put", full)
        for _ in range(8):
            world.now += 100
            assert world.ends(1, EXIT_RETRY, (DiskLow.code, "no room")).then is Then.AGAIN
        assert world.keeper.state is State.WARNING
        RunStatus(world.folder, [ChildProcess("changefeed", [], rule=world.keeper)]).write()
    assert "the status of changefeed f cannot be written" in caplog.text
    assert world.ends(1, EXIT_RETRY, (DiskLow.code, "no room")).then is Then.AGAIN
    assert world.written["error"]["code"] == DiskLow.code
