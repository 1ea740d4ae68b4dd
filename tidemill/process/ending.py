"""How a process of Tidemill ends for an error: one line for a person, an exit code for a supervisor."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from tidemill import logs
from tidemill.errors import SystemFailed, TidemillError, exit_code, redact
from tidemill.process.lifeline import SUPERVISED


def fail(error: TidemillError) -> NoReturn:
    """Print an error for a person, without secrets, and end with 1 (or what a supervisor wants to know)."""
    text = f"Error {error.code}: {redact(str(error))}"
    logs.note_in_file(text)
    print(text, file=sys.stderr)
    sys.exit(exit_code(error, supervised=SUPERVISED in os.environ))


def fail_of_system(error: OSError) -> NoReturn:
    """End as `fail` does for what the system refuses. A place that cannot be used stays so; other troubles may pass."""
    fail(SystemFailed.of(error))
