"""Programs that are loaded with the garbage collector at rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.process.children import program

MODULE = """
import gc, sys

collects_while_loaded = gc.isenabled()

def main() -> None:
    print(sys.argv[1:], collects_while_loaded, gc.isenabled(), gc.get_freeze_count() > 1000)
"""


CRASH = """
import ctypes

def main() -> None:
    ctypes.string_at(0)
"""


def run(module: str, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / f"{module}.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(program(module, "--a", "b"), env=environment, capture_output=True, text=True, check=False)


def test_a_module_is_loaded_without_collections_and_set_aside(tmp_path: Path) -> None:
    assert run("told", MODULE, tmp_path).stdout == "['--a', 'b'] False True True\n"


def test_a_crash_in_c_code_shows_where(tmp_path: Path) -> None:
    done = run("crash", CRASH, tmp_path)
    assert done.returncode == -signal.SIGSEGV
    assert "crash.py" in done.stderr
    assert "in main" in done.stderr


@pytest.mark.parametrize("stderr", ["None", "io.StringIO()"])
def test_a_program_is_loaded_whatever_stderr_is(stderr: str) -> None:
    code = f"import io, sys; sys.stderr = {stderr}\nfrom tidemill.process.loading import loading\nwith loading(): pass\nprint('loaded')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "loaded\n"
