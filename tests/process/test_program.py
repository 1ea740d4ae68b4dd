"""Programs that are loaded with the garbage collector at rest."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tidemill.process.children import program

MODULE = """
import gc, sys

collects_while_loaded = gc.isenabled()

def main() -> None:
    print(sys.argv[1:], collects_while_loaded, gc.isenabled(), gc.get_freeze_count() > 1000)
"""


def test_a_module_is_loaded_without_collections_and_set_aside(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(MODULE)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(program("told", "--a", "b"), env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "['--a', 'b'] False True True\n"
