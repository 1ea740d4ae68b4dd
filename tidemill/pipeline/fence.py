"""The fence: a file with the epoch in force. A task whose epoch is over stops before its next chunk.

Spark reports a failed job at once, but the Python workers of its other tasks live on for a moment and could write after the rows of the
next try. Each try of a batch therefore is an epoch of its own, over restarts of the driver as well.
"""

from __future__ import annotations

from pathlib import Path

from tidemill.errors import Fenced, TidemillError
from tidemill.pipeline import durable


class BrokenFence(TidemillError):
    """The fence file holds no number."""

    code = "TM:ErrFence"


def check(path: str, epoch: int) -> None:
    """Raises Fenced if the epoch in force is another one. Costs one small read."""
    with open(path, "rb") as file:
        now = int(file.read())
    if now != epoch:
        raise Fenced(f"epoch {epoch} is over: {now} has begun")


class Fence:
    """The driver's side: begins epochs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._epoch = int(path.read_bytes())
        except FileNotFoundError:
            self._epoch = 0
        except ValueError:
            raise BrokenFence(f"{path} holds no epoch", hint="Write a number into it that is higher than any before.") from None

    @property
    def epoch(self) -> int:
        """In force now."""
        return self._epoch

    def advance(self) -> int:
        """Begin the next epoch, durably, and return it: all tasks of the ones before stop."""
        self._epoch += 1
        durable.write(self.path, b"%d\n" % self._epoch)
        return self._epoch
