"""Locks of files that simulated drivers take: one that stands still while it holds one keeps the others out."""

from __future__ import annotations

import os
from types import TracebackType

from tests.support.simulate.actors import current_actor
from tidemill.changelog.storage.flock import FileLock
from tidemill.errors import FolderHeld


def _nothing() -> None:
    """The effect of a gate that only stops."""


class GatedFileLock(FileLock):
    """Stops before it is taken. Who meets it as held waits no time."""

    def __enter__(self) -> None:
        actor = current_actor()
        actor.gate("take the lock", _nothing)
        super().__enter__()
        actor.locks += 1
        self._actor = actor

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._actor.locks -= 1
        super().__exit__(kind, error, trace)

    def _wait(self, handle: int) -> None:
        os.close(handle)
        raise FolderHeld(f"{self.path} is held")
