"""What simulated drivers do with files. A lock that one holds while it stands still keeps the others out. A listing of parts may be behind,
as NFS shows one."""

from __future__ import annotations

import os
from types import TracebackType

from tests.support.simulate.actors import current_actor
from tidemill.changelog.storage.flock import FileLock
from tidemill.errors import FolderHeld
from tidemill.sinks.base import BatchContext
from tidemill.sinks.parts import PartReader


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


class GatedPartReader(PartReader):
    """Lists the parts as an effect. A listing that is behind shows the folder as it was before the tasks."""

    def names(self, ctx: BatchContext) -> list[str]:
        actor = current_actor()
        return actor.gate("list parts", lambda: [] if actor.behind else PartReader.names(self, ctx))
