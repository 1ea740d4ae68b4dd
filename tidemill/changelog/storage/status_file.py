"""Status files: how a process is doing, for people and other processes. Nothing depends on one, so nothing ends where it cannot be written,
and one that is missing or cut says nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemill import statefile
from tidemill.changelog.storage import durable
from tidemill.changelog.storage.retry import TELL_EVERY_S
from tidemill.errors import DiskLow, FeedBroken, LogRefused, LogUnavailable

log = logging.getLogger(__name__)

_KIND = statefile.Kind(FeedBroken, "It is written again by the process that it is of.", may_be_lost=True)


class StatusFile:
    """One status file. Any thread may call."""

    def __init__(self, path: Path, of: str) -> None:
        """`of`: whose status it is, for warnings."""
        self.path, self._of = path, of
        self._next_warning_at = 0.0

    def write(self, content: Mapping[str, Any]) -> None:
        """Replace the file as a whole. If that fails, warn once a minute and go on."""
        try:
            durable.write_json(self.path, content, sync=False)
        except (LogUnavailable, LogRefused, DiskLow) as error:
            if time.monotonic() >= self._next_warning_at:
                self._next_warning_at = time.monotonic() + TELL_EVERY_S
                log.warning("the status of %s cannot be written: %s", self._of, error.message)

    def read(self) -> dict[str, Any]:
        """Return what the file says; nothing if it is missing, cut, or cannot be read."""
        return read_status(self.path)


def read_status(path: Path) -> dict[str, Any]:
    """As `StatusFile.read`."""
    try:
        found = statefile.whole(durable.read(path), str(path), _KIND)
        return {} if found is None else found.others()
    except (LogUnavailable, LogRefused, FeedBroken):
        return {}
