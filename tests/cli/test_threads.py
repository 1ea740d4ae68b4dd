"""What the command line keeps the libraries below from doing."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import os, sys
from tidemill.cli.main import main
try:
    main(["version"])
except SystemExit:
    pass
assert "numpy" not in sys.modules, "the setting would come too late"
import numpy
print(len(os.listdir("/proc/self/task")))
"""


def test_numpy_starts_no_thread_a_cpu() -> None:
    without = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=without, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "1"
