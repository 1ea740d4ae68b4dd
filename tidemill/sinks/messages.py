"""`messages:///FILE.jsonl`: each message as a line of JSON, for people, tests and small tools. Format: docs/sinks/messages.md.

Drivers of the past may append to the file at any time: whole lines, which are repeats, and at worst a torn one. So

 1. The file is cut under its lock only, and behind a check of the fence in it: a driver that has a successor cuts nothing of what that one
    appends. A torn end is cut when a driver opens the file and before it appends.
 2. A driver appends where it saw the end. If others have appended meanwhile, its own lines may be joined to a torn one: it cuts them off
    again, and the attempt is repeated.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from tidemill.changelog.storage.flock import FileLock
from tidemill.changelog.storage.open import make_folder
from tidemill.config.uri import SinkUri
from tidemill.errors import SinkError, SinkUnavailable
from tidemill.kernels.deliver.batch import Writer, json_line, line_prefix
from tidemill.protocols.common.messages import Messages
from tidemill.sinks.base import BatchContext, Target, partition_counts
from tidemill.sinks.event_messages import MessageDriver
from tidemill.sinks.parts import PartReader, PartTaskSink, file_errors, join, log_errors, sync_folder

_PIECE = 1 << 20
_BEGINNING = b'{"topic":"'
"""Of each line, see `line_prefix`."""


def _parts_root(uri: SinkUri) -> Path:
    path = Path(uri.path)
    return path.with_name(path.name + ".parts")


class MessagesTaskSink(PartTaskSink):
    """Writes the lines of one item to parts; `flush` lists them."""

    def __init__(self, uri: SinkUri) -> None:
        super().__init__(_parts_root(uri))
        self._writer = Writer()
        self._prefixes: list[bytes] = []
        self._targets: Sequence[Target] = ()

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        if targets is not self._targets:
            self._targets, self._prefixes = targets, [line_prefix(*target) for target in targets]
        for target, lines in self._writer.json_lines(messages, self._prefixes):
            self._parts.append(targets[target], lines)
        self._taken += len(messages)


class MessagesDriverSink(MessageDriver):
    """Joins the parts of a batch into the file: rows by target, then DDLs, then resolved events."""

    def __init__(self, uri: SinkUri, *, fresh: bool) -> None:
        self._uri = uri
        self._path = Path(uri.path)
        self._parts = PartReader(_parts_root(uri))
        self._fresh = fresh
        self._file: FileIO | None = None
        self._lock = FileLock(uri.path)
        self._tail: list[bytes] = []

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        return partition_counts(self._uri, topics)

    def begin_batch(self, ctx: BatchContext) -> None:
        self._tail.clear()
        self._opened(ctx)
        self._parts.begin(ctx)

    def send(self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int]) -> None:
        self._tail += [json_line(topic, partition, key, value) for partition in partitions]

    def send_resolved(self, targets: Sequence[Target], key: bytes | None, value: bytes | None) -> None:
        self._tail += [json_line(topic, partition, key, value) for topic, partition in targets]

    def finish_batch(self, ctx: BatchContext) -> None:
        """Append and sync. A failure is undone, so that the file never holds part of a batch while the driver lives."""
        file = self._opened(ctx)
        with file_errors("appending a batch", self._path):
            parts = self._parts.parts(ctx)
            with self._parts.scratch(ctx).open("w+b") as batch:
                for paths in parts.values():
                    join(paths, batch)
                batch.write(b"".join(self._tail))
                batch.seek(0)
                self._append(ctx, batch, file)
        self._tail.clear()
        self._parts.end(ctx)

    def _append(self, ctx: BatchContext, batch: BinaryIO, file: FileIO) -> None:
        with self._alone(ctx):
            start = at = _cut_torn_line(file)
        try:
            for lines in whole_lines(batch):
                write_all(file, lines)
                at += len(lines)
                if file.tell() != at:
                    raise SinkUnavailable(f"{self._path}: an earlier driver has appended late, and the attempt is repeated")
            os.fsync(file.fileno())
        except BaseException:
            self._file = None
            with contextlib.closing(file), self._alone(ctx):
                file.truncate(start)
            raise

    @contextlib.contextmanager
    def _alone(self, ctx: BatchContext) -> Iterator[None]:
        """Hold the file's lock while its end is looked at and cut. Raises Fenced, SinkUnavailable."""
        with contextlib.ExitStack() as held:
            with log_errors():
                held.enter_context(self._lock)
            ctx.check_fence(now=True)
            yield

    def discard(self, ctx: BatchContext) -> None:
        self._tail.clear()
        self._parts.end(ctx)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._parts.close()

    def _opened(self, ctx: BatchContext) -> FileIO:
        if self._file is None:
            ctx.check_fence(now=True)  # a driver of the past makes no file
            with file_errors("opening the messages file", self._path), contextlib.ExitStack() as undo:
                make_folder(self._path.parent)
                check_is_ours(self._path)
                file = undo.enter_context(FileIO(self._path, "a+"))
                with self._alone(ctx):
                    if self._fresh:
                        file.truncate(0)
                    _cut_torn_line(file)
                sync_folder(self._path.parent)
                undo.pop_all()
            self._file, self._fresh = file, False
        return self._file


def check_is_ours(path: Path) -> None:
    """Raise SinkError for a file with something else than messages: it would be cut, and written to. Raises OSError."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        head = file.read(len(_BEGINNING))
    if not _BEGINNING.startswith(head):
        raise SinkError(
            f"messages://{path} is a file that Tidemill has not begun", hint="Name a new file, or remove this one if nobody needs it."
        )


def whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """Read a file of lines in pieces that end with a line. Two processes that append such pieces to one file leave no torn line."""
    rest = b""
    while piece := file.read(_PIECE):
        end = piece.rfind(b"\n") + 1
        if end:
            yield rest + piece[:end]
            rest = b""
        rest += piece[end:]
    if rest:
        yield rest


def write_all(file: FileIO, data: bytes) -> None:
    """Append in one step. Raises OSError if the file system does not take it all: the rest, appended later, would be a torn line."""
    if file.write(data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _cut_torn_line(file: FileIO) -> int:
    """Remove an unfinished last line, which a crash or a driver of the past left. Returns where the file ends then."""
    end = size = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 65_536)
        newline = os.pread(file.fileno(), end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != size:
        file.truncate(end)
    return file.seek(end)
