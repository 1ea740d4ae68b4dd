"""Part files: tasks write them, the driver joins them. Both see the same file system.

    ROOT/<batch>-<epoch>/<topic>/<partition>.<item>.<round>.<writer_id>.part → .done

`writer_id` is unique, so two processes that run the same item never write to one file. Only the driver makes the epoch's folder: once it
has removed it, a task that outlived its attempt has nowhere to write. `flush` renames parts to `.done`. Only `.done` parts of the
successful epoch are joined.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tidemill.changelog.storage.conditional import Unconditional
from tidemill.errors import LogError, SinkError, SinkUnavailable
from tidemill.sinks.base import BatchContext, FenceCheck, Target, no_fence_check

_ATTEMPT = re.compile(r"[0-9]+-([0-9]+)")
_DONE = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)\.[0-9a-f]+\.done")
_MAY_PASS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT}

PIECE = 1 << 20
"""Bytes of one write at most. Linux takes the memory of a file's cache in blocks as large as the write, and those of 4 MiB and more can
cost five times as much a byte (measured: up to 1.6 ns, 0.25 to 0.3 with 1 MiB)."""


def new_writer_id() -> str:
    """Return a unique word for the file names of one process and item."""
    return secrets.token_hex(4)


def is_over(folder: str, epoch: int) -> bool:
    """Return whether a folder name is that of an attempt, `<batch>-<epoch>`, of this epoch or an earlier one. Attempts of a later epoch are
    another driver's: it has taken over."""
    found = _ATTEMPT.fullmatch(folder)
    return found is not None and int(found[1]) <= epoch


@contextmanager
def file_errors(what: str, place: Path) -> Iterator[None]:
    """Turn failures of the file system into sink errors that name the file, or else `place`. Temporary ones can be retried."""
    try:
        yield
    except OSError as error:
        kind = SinkUnavailable if error.errno in _MAY_PASS else SinkError
        raise kind(f"{what}: {error.filename or place}: {error.strerror or error}") from error


@contextmanager
def log_errors() -> Iterator[None]:
    """Turn errors of the log's storage, whose locks and conditional requests sinks use, into the sink's."""
    try:
        yield
    except Unconditional:
        raise
    except LogError as error:
        raise (SinkUnavailable if error.retryable else SinkError)(error.message, hint=error.hint) from None


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_to(path: Path, *texts: memoryview | bytes, fresh: bool) -> None:
    """Write behind what a file has, or to a new file. Raises OSError.

    The file is opened by its descriptor alone: a part gets a few hundred KiB at a time, and Python's own files cost four times as much to
    open. And long texts are cut: see PIECE.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if fresh else 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        for text in texts:
            at = 0
            while at < len(text):
                at += os.write(descriptor, text[at : at + PIECE])
    finally:
        os.close(descriptor)


class PartWriter:
    """A task's parts: append bytes for targets, then publish all parts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root
        self._item = 0
        self._round = 0
        self._writer_id = ""
        self._check_fence: FenceCheck = no_fence_check
        self._open: dict[Target, Path] = {}

    def begin(self, ctx: BatchContext) -> None:
        self.abandon()
        self._folder, self._item, self._round, self._check_fence = _folder(self._root, ctx), ctx.item, 0, ctx.check_fence
        self._writer_id = new_writer_id()

    def append(self, target: Target, data: memoryview | bytes) -> None:
        path = self._open.get(target)
        with file_errors("writing a part", self._folder):
            if path is None:
                topic, partition = target
                path = self._folder / topic / f"{partition}.{self._item}.{self._round}.{self._writer_id}.part"
                path.parent.mkdir(exist_ok=True)
                self._open[target] = path
                append_to(path, data, fresh=True)
                return
            append_to(path, data, fresh=False)

    def publish(self) -> None:
        self._check_fence(now=True)
        with file_errors("publishing a part", self._folder):
            for path in self._open.values():
                path.rename(path.with_suffix(".done"))
        self._open.clear()
        self._round += 1

    def abandon(self) -> None:
        for path in self._open.values():
            path.unlink(missing_ok=True)
        self._open.clear()


class PartTaskSink:
    """The base of task sinks that write parts: `deliver` appends to parts and counts in `_taken`, `flush` publishes them."""

    def __init__(self, root: Path) -> None:
        self._parts = PartWriter(root)
        self._taken = 0

    def begin(self, ctx: BatchContext) -> None:
        self._parts.begin(ctx)
        self._taken = 0

    def flush(self) -> int:
        self._parts.publish()
        return self._taken

    def abandon(self) -> None:
        self._parts.abandon()


class PartReader:
    """The driver's view of parts: make the folder of an attempt, list its finished parts, remove the folders of older attempts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._epoch = -1  # of the newest attempt

    def begin(self, ctx: BatchContext) -> None:
        self._epoch = ctx.epoch
        with file_errors("preparing a batch", self._root):
            self._drop_old()
            _folder(self._root, ctx).mkdir(parents=True)

    def parts(self, ctx: BatchContext) -> dict[Target, list[Path]]:
        """Return finished parts by target, in the order of items."""
        found: dict[Target, list[tuple[int, int, Path]]] = {}
        with file_errors("reading parts", self._root):
            for topic in _folder(self._root, ctx).iterdir():
                for path in topic.iterdir():
                    if match := _DONE.fullmatch(path.name):
                        found.setdefault((topic.name, int(match[1])), []).append((int(match[2]), int(match[3]), path))
        return {target: [path for *_, path in sorted(parts)] for target, parts in sorted(found.items())}

    def folder(self, ctx: BatchContext) -> Path:
        """Return the folder of an attempt."""
        return _folder(self._root, ctx)

    def joined(self, ctx: BatchContext) -> Path:
        """Return a file name for the driver beside all parts. It is removed with the attempt."""
        return _folder(self._root, ctx) / "joined"

    def scratch(self, ctx: BatchContext, target: Target) -> Path:
        """Return a file name for the driver beside the parts of a target. It is removed with the attempt."""
        folder = _folder(self._root, ctx) / target[0]
        folder.mkdir(exist_ok=True)
        return folder / f"{target[1]}.joined"

    def end(self, ctx: BatchContext) -> None:
        shutil.rmtree(_folder(self._root, ctx), ignore_errors=True)

    def close(self) -> None:
        """Remove what this driver's attempts and older ones have left."""
        self._drop_old()
        self.leave()

    def leave(self) -> None:
        """Remove the folder of parts if it is empty."""
        if self._root.is_dir() and not any(self._root.iterdir()):
            with contextlib.suppress(OSError):  # the next driver has begun
                self._root.rmdir()

    def _drop_old(self) -> None:
        """Remove all attempts up to the newest one of this driver."""
        for folder in self._root.iterdir() if self._root.is_dir() else ():
            if is_over(folder.name, self._epoch):
                shutil.rmtree(folder, ignore_errors=True)


def join(paths: list[Path], into: BinaryIO) -> None:
    """Append whole files."""
    for path in paths:
        with path.open("rb") as file:
            shutil.copyfileobj(file, into, 1 << 20)


def _folder(root: Path, ctx: BatchContext) -> Path:
    return root / f"{ctx.batch}-{ctx.epoch}"
