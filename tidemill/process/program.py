"""`python -m tidemill.process.program MODULE …`: loads a module, see `loading`, and runs its `main`. Also what every process of Tidemill
begins with."""

from __future__ import annotations

import importlib
import os
import re
import sys

from tidemill.errors import ConfigError
from tidemill.process.ending import fail
from tidemill.process.loading import loading

QUIET = {"GRPC_VERBOSITY": "NONE", "OPENBLAS_NUM_THREADS": "1"}
"""For the environment of a process and of those that it starts. What gRPC has to say comes as errors of ours. OpenBLAS, which comes with
NumPy and is not used here, would start a thread a CPU: each takes 0.1 CPU s before it sleeps."""
UMASK = "TIDEMILL_UMASK"
"""Environment variable with the umask, where others than the user are to read what is written: 022, 027."""


def quiet() -> None:
    """Put QUIET into the environment."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def set_umask() -> None:
    """Take rights from new files: logs hold rows, states hold sink URIs. Raises ConfigError."""
    text = os.environ.get(UMASK, "077")
    if not re.fullmatch(r"0?[0-7]{3}", text):
        raise ConfigError(f"{UMASK} = {text}: expected a umask such as 027")
    os.umask(int(text, 8))


def main() -> None:
    """Entry point."""
    name = sys.argv.pop(1)
    quiet()
    try:
        set_umask()
    except ConfigError as error:
        fail(error)
    with loading():
        module = importlib.import_module(name)
    module.main()


if __name__ == "__main__":
    main()
