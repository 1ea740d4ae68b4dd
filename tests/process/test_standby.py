"""A process that stands by: it loads, begins with the arguments that come, and leaves what follows to the program."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidemill.process import standby
from tidemill.process.children import environment

PROGRAM = """
import os, sys
from tidemill.process import standby
from tidemill.errors import MalformedMessage
try:
    print(standby.arguments(lambda: print("loads")), standby.STANDBY in os.environ)
except MalformedMessage as error:
    print(error.code)
print(sys.stdin.read(), end="")
"""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (standby.warm() + standby.begin(["--term", "3"]) + b"rest\n", "loads\n['--term', '3'] False\nrest\n"),
        (standby.begin([]), "[] False\n"),
        (standby.warm(), "loads\n"),
        (b"", ""),
        (b"{}\n", "TM:ErrMalformedMessage\n"),
        (b"nonsense\n", "TM:ErrMalformedMessage\n"),
    ],
)
def test_what_it_is_told(given: bytes, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=given, capture_output=True, env=environment({standby.STANDBY: "1"}), check=True
    )
    assert ended.stdout.decode() == said


def test_one_that_is_not_told_to_wait_begins() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], input=b"rest\n", capture_output=True, env=environment(), check=True)
    assert ended.stdout == b"[] False\nrest\n"
