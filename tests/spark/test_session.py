"""Which Java Spark is started with, and in which environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tidemill.spark import session


def java(folder: Path, version: int) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/java").touch()
    (folder / "release").write_text(f'JAVA_VERSION="{version}.0.1"\n')
    return folder


@pytest.mark.parametrize(
    ("versions", "chosen"), [([17, 21], 17), ([21, 17], 21), ([25, 21, 17], 17), ([25, 11, 21], 21), ([25, 8], None), ([], None)]
)
def test_which_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: list[int], chosen: int | None) -> None:
    """The first place is what PATH finds."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    homes = [java(tmp_path / str(v), v) for v in versions]
    monkeypatch.setattr(session, "java_homes", lambda: homes)
    if chosen is None:
        with pytest.raises(session.NoJava, match="17 to 21"):
            session.find_java()
    else:
        assert session.find_java() == tmp_path / str(chosen)


def test_only_java_gets_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program that has a session starts later is not kept from importing files of its own folder."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    given: dict[str, str] = {}

    def launch(*_: Any, **__: Any) -> None:
        given.update(os.environ)
        raise OSError("no more processes")

    monkeypatch.setattr(session, "launch_gateway", launch)
    monkeypatch.setenv("TIDEMILL_SINK_URI", "mysql://root:hunter2@db/")
    before = dict(os.environ)
    with pytest.raises(session.SparkUnavailable, match="Spark at local"):
        session.start_session(tmp_path / "spark.log", master="local[1]")
    assert given["PYTHONSAFEPATH"] == "1"
    assert "hunter2" not in str(given), "Java and its workers get what they write to in their plans"
    assert given["JAVA_HOME"]
    assert dict(os.environ) == before
