"""A folder that cannot be made is told by the flag that names it, in every verb that has it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemill.cli.main import main
from tidemill.cli.shared import folders
from tidemill.cli.shared.folders import made_folder
from tidemill.errors import ConfigError

VERBS = {
    "run": ("--pd", "127.0.0.1:1", "--sink-uri", "blackhole://"),
    "server": ("--pd", "127.0.0.1:1"),
    "capture": ("--pd", "127.0.0.1:1"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_flag_is_named(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tidemill.logs.setup", lambda *_, **__: None)
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit):
        main([verb, *VERBS[verb], "--log", str(tmp_path / "log"), "--data-dir", str(tmp_path / "file" / "data")])
    said = capsys.readouterr().err
    assert f"Error TM:ErrConfig: --data-dir {tmp_path}/file/data cannot be made: {tmp_path}/file is a file" in said
    assert "Name a folder" in said
    assert not (tmp_path / "log").exists()
    made_folder("--data-dir", tmp_path / "another" / "data")  # what the hint says


def test_one_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_folder("--data-dir", tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(ConfigError, match="cannot be written by this user"):
        made_folder("--data-dir", tmp_path)


def test_a_disk_that_is_away_is_waited_for_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(folder: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(folders, "make_folder", away)
    made_folder("--data-dir", tmp_path / "x")
