"""`view create` that is killed at any step: the name is free, the log does not wait, and the next one of the name is whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.spark.sessions import spark_session
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage import durable
from tidemill.views import view as module
from tidemill.views.changes import Catalog
from tidemill.views.definition import Views
from tidemill.views.refusal import ViewError
from tidemill.views.targets.memory import MemoryTarget
from tidemill.views.view import View, create, drop

SQL = "SELECT k, v FROM app.t"
session = spark_session()
pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _analysed(session: Any, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark makes of the query, asked once: a process that is forked off has no Spark of its own."""
    found = module.by_spark(SQL, Catalog.open(log).find, "")
    monkeypatch.setattr(module, "analysed", lambda *_: found)
    monkeypatch.setattr(module, "ViewSession", nullcontext)


@pytest.fixture
def log(tmp_path: Path) -> str:
    sql = SqlLog()
    sql.run("create table t (k int primary key, v int)", "insert into t values (1, 1)")
    return sql.write(tmp_path / "log")


def killed(views: Views, log: str, step: int, behind: bool) -> bool:
    """Create the view v in a process that dies before its step of that number, or behind it. False: it came to its end."""
    pid = os.fork()
    if pid == 0:
        made = 0

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def work(*args: Any, **given: Any) -> Any:
                nonlocal made
                made += 1
                dies = made == step
                if dies and not behind:
                    os._exit(9)
                found = call(*args, **given)
                if dies:
                    os._exit(9)
                return found

            return work

        durable.put = counted(durable.put)
        durable.make_folder = counted(durable.make_folder)
        module.feeds.register = counted(module.feeds.register)
        MemoryTarget.create = counted(MemoryTarget.create)  # type: ignore[method-assign]
        create(views, "v", log, SQL, "memory")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
def test_killed_at_any_step_it_can_be_created_or_dropped(log: str, tmp_path: Path, *, behind: bool) -> None:
    step = 0
    while True:
        step += 1
        views, others = Views(tmp_path / f"views{step}"), Views(tmp_path / f"others{step}")
        if not killed(views, log, step, behind):
            break
        if step % 2 or views.begun("v") is None:
            if views.names() == ["v"]:  # it was whole already
                drop(views, "v")
            create(views, "v", log, SQL, "memory")
            with View(views, "v") as view:
                view.catch_up()
                assert view.read().to_pylist() == [{"k": 1, "v": 1}]
        drop(views, "v")
        assert not views.path("v").exists()
        assert LogReader(log).feeds() == {}, f"step {step}"
        assert others.names() == []
    assert step > 5
    drop(views, "v")


def test_the_log_does_not_wait_for_what_was_killed_and_never_created_again(log: str, tmp_path: Path) -> None:
    views = Views(tmp_path / "views")
    step = 1
    while killed(views, log, step, behind=True) and not LogReader(log).feeds():
        step += 1
    assert views.begun("v") is not None
    create(views, "w", log, SQL, "memory")
    assert [name.split("-")[1] for name in LogReader(log).feeds()] == ["w"]


def test_a_name_that_is_taken_is_refused(log: str, tmp_path: Path) -> None:
    views = Views(tmp_path / "views")
    create(views, "v", log, SQL, "memory")
    with pytest.raises(ViewError, match="there is a view v in"):
        create(views, "v", log, SQL, "memory")
    with View(views, "v") as view:
        view.catch_up()
    with pytest.raises(ViewError, match="there is no view w"):
        drop(views, "w")
