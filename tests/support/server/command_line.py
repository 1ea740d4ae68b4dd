"""`tidemill …` in this process, against a server over a fake service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.server.fake_service import FakeService


@dataclass
class Cli:
    """Runs `tidemill …` in this process."""

    service: FakeService
    address: str
    _run: Callable[..., tuple[int, str, str]]

    def __call__(self, *arguments: str, typed: str = "") -> tuple[int, str, str]:
        """Return exit code, stdout and stderr. `typed`: what the user types."""
        return self._run(list(arguments), typed)

    def ok(self, *arguments: str, typed: str = "") -> str:
        """Return stdout of a command that succeeds."""
        code, out, err = self(*arguments, typed=typed)
        assert (code, err) == (0, ""), err
        return out
