"""How a process of Tidemill ends after an error: one line for the user, and an exit code for a supervisor."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from tidemill import logs
from tidemill.errors import SystemFailed, TidemillError, exit_code, redact
from tidemill.process.lifeline import SUPERVISED
from tidemill.visible import printable


def fail(error: TidemillError) -> NoReturn:
    """Print an error, without secrets, and exit with 1 (or with the code that a supervisor expects)."""
    text = f"Error {error.code}: {redact(str(error))}"
    logs.note_in_file(text)
    print(printable(text), file=sys.stderr)
    sys.exit(exit_code(error, supervised=SUPERVISED in os.environ))


def fail_of_system(error: OSError) -> NoReturn:
    """End like `fail`, for an error of the operating system. An unusable path does not get better by itself; other errors may pass."""
    fail(SystemFailed.of(error))


@contextmanager
def reported() -> Iterator[None]:
    """End the process with the error that a block raises."""
    try:
        yield
    except TidemillError as error:
        fail(error)
    except OSError as error:
        fail_of_system(error)
