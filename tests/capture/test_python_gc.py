"""When Python's garbage collector is paused: while captures of a process begin, and not longer."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from tests.support.capture.captures import config, running, until
from tidemill.capture.python_gc import MANY, GcPause
from tidemill.playground.server import Playground


def test_it_rests_until_the_last_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(gc.isenabled()))
    assert gc.isenabled()
    with GcPause() as one, GcPause() as two:
        assert (gc.isenabled(), one.rests, two.rests) == (False, True, True)
        one.release(MANY)
        one.release(MANY)
        assert (gc.isenabled(), one.rests, frozen) == (False, False, [False]), "another one still begins"
        two.release(MANY - 1)
        assert (gc.isenabled(), frozen) == (True, [False]), "a few objects are not worth it"
    assert gc.isenabled()


def test_it_works_again_after_a_start_that_fails() -> None:
    with pytest.raises(ZeroDivisionError), GcPause():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_it_works_again_when_all_tables_are_live(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(1, resolved_interval=0.1) as playground:
            playground.execute("create database d; create table d.t (id int primary key)")
            async with running(config(playground, tmp_path / "log")) as capture:
                assert not gc.isenabled()
                await until(gc.isenabled)
                assert capture.pulling.machine.counts()["live"] > 0

    asyncio.run(main())
    assert gc.isenabled()
