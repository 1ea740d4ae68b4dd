"""Writers of a local log that end, or stop, at a file operation of their choice.

    python -m tests.support.changelog.killed_writer LOG every
        forks writers, one after another; the nth is killed (-9) at its nth file operation
    python -m tests.support.changelog.killed_writer LOG stop WHERE
        publishes a segment; stops (SIGSTOP) inside the step that gives it its name (WHERE: inside), or before that step (before); prints
        what came of it

Each forked writer goes on where the one before ended; `every` ends when one has come to its end, and prints how many were killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tests.support.changelog.log_writer_process import upstream
from tests.support.changelog.logs import batch_of
from tidemill.changelog.options import LogOptions
from tidemill.changelog.storage.base import Draft
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.writer import LogWriter, Share
from tidemill.errors import TidemillError

OPTIONS = LogOptions(compact_rows=20, grace_s=-1, low_water_bytes=0)
GROUP = Share(schema=False, partitions=frozenset({0}))


class Counting(LocalStorage):
    """Kills its process before its nth change of a file."""

    def __init__(self, root: Path, at: int) -> None:
        super().__init__(root, sync=False)
        self.left = at

    def _count(self) -> None:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._count()
        super().replace(name, data, durable=durable)

    def _write(self, path: str, data: bytes, *, sync: bool) -> None:
        super()._write(path, data, sync=sync)
        self._count()  # written, and not renamed yet

    def delete(self, name: str) -> None:
        self._count()
        super().delete(name)

    def draft(self, folder: str) -> Draft:
        self._count()
        return _Watched(super().draft(folder), self._count)


class _Watched(Draft):
    def __init__(self, draft: Draft, count: object) -> None:
        self._draft, self._count, self.sink = draft, count, draft.sink

    def seal(self) -> None:
        self._count()  # type: ignore[operator]
        self._draft.seal()

    def publish(self, name: str) -> None:
        self._count()  # type: ignore[operator]
        self._draft.publish(name)
        self._count()  # type: ignore[operator]

    def discard(self) -> None:
        self._draft.discard()


def work(storage: LocalStorage, share: Share) -> None:
    """Some segments, a head, a join, and what goes with a join."""
    with LogWriter.open(storage, share=share, options=OPTIONS) as writer:
        for p in writer.partitions:
            one = writer.partition(p)
            for length in (9, 7, 8):
                rows = upstream(p, one.head, one.head + length)
                if rows:
                    one.publish(one.head + length, [batch_of(rows)])
                else:
                    one.set_head(one.head + length)
            end = one.head + 9
            one.publish_parts(end, [[batch_of(upstream(p, one.head, end)[k::2])] for k in range(2)])
            if not upstream(p, end, end + 1):
                one.set_head(end + 1)
        writer.maintain(0)
        writer.maintain(0)


def every(root: Path) -> int:
    for n in range(1, 1000):
        pid = os.fork()
        if not pid:
            work(Counting(root, n), GROUP)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return n - 1
        assert os.WTERMSIG(status) == signal.SIGKILL
    raise AssertionError("no end")


class Stopping(LocalStorage):
    def draft(self, folder: str) -> Draft:
        draft = super().draft(folder)
        publish = draft.publish

        def stopping(name: str) -> None:
            os.kill(os.getpid(), signal.SIGSTOP)
            publish(name)

        draft.publish = stopping  # type: ignore[method-assign]
        return draft


def stop(root: Path, where: str) -> None:
    storage = Stopping(root) if where == "inside" else LocalStorage(root)
    writer = LogWriter.open(storage, share=GROUP)
    one = writer.partition(0)

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch_of(upstream(0, one.head, one.head + 30))
        if where == "before":
            os.kill(os.getpid(), signal.SIGSTOP)

    try:
        one.publish(one.head + 30, rows())
        sys.stdout.write("published\n")
    except TidemillError as error:
        sys.stdout.write(f"{error.code}\n")


if __name__ == "__main__":
    if sys.argv[2] == "every":
        sys.stdout.write(f"{every(Path(sys.argv[1]))}\n")
    else:
        stop(Path(sys.argv[1]), sys.argv[3])
