"""A process that is started before it is needed: it loads what it will use, and waits until its supervisor says that it begins.

The supervisor sets `STANDBY` in its environment, and writes lines to its stdin, JSON objects:

    {"do": "warm"}                         load what will be used
    {"do": "begin", "arguments": [TEXT…]}  begin, with these arguments besides those of the command line

What comes after `begin` is for the program itself, so no byte of it is read here. If stdin ends, the process ends with 0.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable, Sequence

from tidemill.errors import MalformedMessage

STANDBY = "TIDEMILL_STANDBY"
"""Set in the environment of a process that waits for `begin`."""
CHECK_EVERY_S = 10.0
STDIN = 0


def warm() -> bytes:
    """Return the line that lets a process load what it will use."""
    return _line({"do": "warm"})


def begin(arguments: Sequence[str]) -> bytes:
    """Return the line that lets a process begin."""
    return _line({"do": "begin", "arguments": [*arguments]})


def _line(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def arguments(load: Callable[[], object], check: Callable[[], None] = lambda: None) -> list[str]:
    """Wait for `begin`, and return its arguments; none, at once, where STANDBY is not set. `load` is called for `warm`. `check` is called
    now and then while nothing comes, and raises what makes it useless to wait. Raises MalformedMessage."""
    if os.environ.pop(STANDBY, None) is None:  # what is started from here does not wait
        return []
    while True:
        line = _read_line(check)
        if not line:
            sys.exit(0)
        try:
            told = json.loads(line)
            if told["do"] == "begin":
                return [str(one) for one in told["arguments"]]
            if told["do"] == "warm":
                load()
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedMessage(f"a process that stands by does not understand {line[:80]!r}") from error


def _read_line(check: Callable[[], None]) -> bytes:
    """Read a line, byte by byte. Empty: stdin has ended."""
    line = b""
    while not line.endswith(b"\n"):
        while not select.select([STDIN], [], [], CHECK_EVERY_S)[0]:
            check()
        one = os.read(STDIN, 1)
        if not one:
            return b""
        line += one
    return line
