"""What the command line writes is its user's alone, whatever the shell's umask."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("umask", "mode"), [(None, 0o600), ("022", 0o644), ("027", 0o640)])
def test_new_files_are_the_users_alone(tmp_path: Path, umask: str | None, mode: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TIDEMILL_UMASK"}
    environment |= {"PYTHONPATH": str(ROOT)} | ({"TIDEMILL_UMASK": umask} if umask else {})
    code = f"""
import contextlib, sys
from tidemill.cli.main import main
sys.argv = ["tidemill", "version"]
with contextlib.suppress(SystemExit):
    main()
open({str(tmp_path / "log")!r}, "w").close()
"""
    subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=120, check=True, umask=0o000)
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == mode


def test_a_umask_that_is_none(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TIDEMILL_UMASK": "rw"}
    command = [sys.executable, "-m", "tidemill.cli.main", "version"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, "TIDEMILL_UMASK = rw" in ended.stderr) == (1, True)
