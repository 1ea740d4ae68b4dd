"""Where the log of a query's capture lies, and the folder of the process that owns the capture."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import ConfigError

VARIABLE = "TIDEMILL_CAPTURES"
"""Environment variable with the folder of the captures that queries own."""


@dataclass(frozen=True, slots=True)
class Place:
    """`log`: path or URL of the log. `folder`: of the owner, on the driver's machine."""

    log: str
    folder: Path

    @property
    def lock(self) -> Path:
        """Held by the owner as long as it lives."""
        return self.folder / "owner.lock"

    @property
    def error(self) -> Path:
        """Why the owner has ended, if an error ended it."""
        return self.folder / "error.json"

    @property
    def journal(self) -> Path:
        """The log lines of owner and capture."""
        return self.folder / "capture.log"


def place_of(log: str, cluster_id: int, rules: Sequence[str], *, snapshot: bool) -> Place:
    """Return the place of a log. Without a `log` it is one that queries of the same tables of the same cluster share, and find again.

    The folders are made. Raises ConfigError if none can be written."""
    if log:
        whole = log if "://" in log else str(Path(log).absolute())
        return Place(whole, _made(_root() / f"log-{_digest(whole)}"))
    folder = _made(_root() / f"{cluster_id}-{_digest(json.dumps([*rules, snapshot]))}")
    return Place(str(folder / "log"), folder)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _root() -> Path:
    """The folder of all, as for other states of a user; else one of the user's own among the temporary files."""
    if named := os.environ.get(VARIABLE):
        return Path(named).absolute()
    with suppress(RuntimeError, KeyError, OSError):  # a user without a home
        found = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tidemill" / "captures"
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(found, os.W_OK | os.X_OK):
            return found
    return Path(tempfile.gettempdir()) / f"tidemill-captures-{os.getuid()}"


def _made(folder: Path) -> Path:
    hint = f"Let the environment variable {VARIABLE} name a folder of your own."
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = [(one, one.lstat()) for one in (folder, folder.parent)]
    except OSError as error:
        raise ConfigError(f"the folder of the query's capture cannot be made: {folder}: {error.strerror}", hint=hint) from None
    for one, state in found:  # whoever has the folder around it can put another one in its place
        if state.st_uid != os.getuid() and not (one != folder and VARIABLE in os.environ):
            raise ConfigError(f"the folder of the query's capture is another user's: {one}", hint=hint)
    return folder
