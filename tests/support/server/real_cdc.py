"""TiCDC's own programs, where one is on PATH or named by a variable; none is built here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.delivery.runs import await_that

NAMES = {
    "cdc": ("TIDEMILL_CDC", ("cdc",)),
    "kafka-consumer": ("TIDEMILL_CDC_KAFKA_CONSUMER", ("cdc_kafka_consumer", "kafka-consumer")),
    "storage-consumer": ("TIDEMILL_CDC_STORAGE_CONSUMER", ("cdc_storage_consumer", "storage-consumer")),
}
"""Variable and file names of each program, as TiCDC's Makefile and `go build` call them."""


def program(name: str) -> str | None:
    """Return the path of one of TiCDC's programs; None: it is not here."""
    variable, names = NAMES[name]
    return os.environ.get(variable) or next(filter(None, map(shutil.which, names)), None)


def why_not(name: str) -> str:
    """Return why tests of a program are skipped."""
    variable, names = NAMES[name]
    return f"no {' or '.join(names)} on PATH and none named by {variable}"


class Consumer:
    """A running consumer. It ends when the block does."""

    def __init__(self, name: str, folder: Path, **flags: str) -> None:
        path = program(name)
        assert path is not None
        self._log = folder / "consumer.log"
        given = [text for flag, value in flags.items() for text in (f"--{flag.replace('_', '-')}", value)]
        self._argv = [path, *given, "--log-file", str(self._log), "--tz", "UTC"]
        self._folder = folder

    def __enter__(self) -> Self:
        with open(self._folder / "consumer.out", "wb") as out:
            self.process = subprocess.Popen(self._argv, stdout=out, stderr=out, cwd=self._folder)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()

    def until(self, condition: Callable[[], bool]) -> str:
        """Wait for a condition, or for the consumer's end. Return what it says at its end; empty: the condition holds."""
        await_that(lambda: condition() or self.process.poll() is not None, "the consumer gets there")
        return "" if condition() else self._last_words()

    def _last_words(self) -> str:
        said = [path.read_text(errors="replace") for path in (self._log, self._folder / "consumer.out") if path.exists()]
        marked = [line for text in said for line in text.splitlines() if any(word in line for word in ("[PANIC]", "[FATAL]", "panic:"))]
        return (marked or ["it ended without a word"])[0][:2000]


class RealCli:
    """`cdc cli` against a server."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __call__(self, *arguments: str, typed: str = "") -> tuple[int, str]:
        """Run a command. Return its exit code and all that it prints."""
        path = program("cdc")
        assert path is not None
        argv = [path, "cli", *arguments, "--server", f"http://{self._address}"]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, input=typed, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def ok(self, *arguments: str, typed: str = "") -> str:
        """Run a command that succeeds."""
        code, said = self(*arguments, typed=typed)
        assert code == 0, said
        assert "Error" not in said, said
        return said

    def json(self, *arguments: str) -> Any:
        """What a command prints as JSON."""
        said = self.ok(*arguments)
        return json.loads(said[min(at for at in (said.find("{"), said.find("[")) if at >= 0) :])
