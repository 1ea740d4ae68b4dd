"""Part files: tasks write them and a list of them; the driver joins the listed ones. Both see the same file system.

    ROOT/<batch>-<epoch>/<item>.<round>.<n>.<writer_id>.part    bytes for one target
    ROOT/<batch>-<epoch>/<item>.<round>.json                    the list of parts, once all are complete; other parts are ignored; and how
                                                                many messages they stand for

`writer_id` is unique, so two processes that run the same item never write to one file. A list names the files of one process. Only the
driver makes the epoch's folder: once it has removed it, a task that outlived its attempt has nowhere to write.

The driver knows how many messages the tasks have flushed (`BatchContext.acked`). So a listing that lacks a task, as NFS and some object
stores may show it, is not taken for a whole one. The parts of the storage sink (`storage/parts.py`) have the same lists.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tidemill import statefile
from tidemill.changelog.storage.conditional import Unconditional
from tidemill.errors import LogError, SinkError, SinkUnavailable
from tidemill.sinks.base import BatchContext, FenceCheck, Target, no_fence_check
from tidemill.sinks.owner import NOTE
from tidemill.statefile import Fields

_ATTEMPT = re.compile(r"[0-9]+-([0-9]+)")
_LIST = re.compile(r"([0-9]+)\.([0-9]+)\.json")
_PART = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9a-f]+\.part")
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


def list_name(item: int, round_number: int) -> str:
    """Return the name of a task's list within the folder of its attempt."""
    return f"{item}.{round_number}.json"


def list_text(parts: Sequence[Mapping[str, Any]], messages: int) -> bytes:
    """Return the content of a list. `messages`: what the parts stand for, also such as gave no bytes."""
    return json.dumps({"parts": parts, "messages": messages}).encode()


def read_lists(names: Iterable[str], read: Callable[[str], bytes | None], ctx: BatchContext, place: str) -> list[tuple[Fields, str]]:
    """Return the parts in the lists of an attempt, in the order of items and rounds, each with its list's place. `names`: a listing of the
    attempt's folder, `place`.

    Raises SinkUnavailable if the lists stand for another number of messages than the tasks have flushed: the listing is behind.
    """
    found: list[tuple[Fields, str]] = []
    messages = 0
    for _, _, name in sorted((int(m[1]), int(m[2]), m[0]) for name in names if (m := _LIST.fullmatch(name))):
        text = read(name)
        if text is None:
            raise SinkUnavailable(f"{place}/{name} was listed and is gone")
        where = f"{place}/{name}"
        content = statefile.read(text, where, NOTE)
        found += [(part, where) for part in content.parts("parts")]
        messages += content.integer("messages")
    if ctx.acked is not None and messages != ctx.acked:
        raise SinkUnavailable(f"the listing of {place} is behind: it has {messages} of {ctx.acked} messages")
    return found


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
    """A task's parts: append bytes for targets, then list all parts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root
        self._item = self._round = self._listed = 0
        self._writer_id = ""
        self._check_fence: FenceCheck = no_fence_check
        self._open: dict[Target, Path] = {}

    def begin(self, ctx: BatchContext) -> None:
        self.abandon()
        self._folder, self._item, self._check_fence = _folder(self._root, ctx), ctx.item, ctx.check_fence
        self._round = self._listed = 0
        self._writer_id = new_writer_id()

    def append(self, target: Target, data: memoryview | bytes) -> None:
        path = self._open.get(target)
        with file_errors("writing a part", self._folder):
            if path is not None:
                append_to(path, data, fresh=False)
                return
            path = self._folder / f"{self._item}.{self._round}.{len(self._open)}.{self._writer_id}.part"
            self._open[target] = path
            append_to(path, data, fresh=True)

    def publish(self, taken: int) -> None:
        """List all parts. `taken`: messages since `begin`."""
        self._check_fence(now=True)
        if taken == self._listed:
            return
        parts = [{"topic": topic, "partition": partition, "file": path.name} for (topic, partition), path in self._open.items()]
        name = list_name(self._item, self._round)
        with file_errors("listing parts", self._folder):
            written = self._folder / f"{name}.{self._writer_id}"
            append_to(written, list_text(parts, taken - self._listed), fresh=True)
            written.rename(self._folder / name)
        self._open.clear()
        self._round, self._listed = self._round + 1, taken

    def abandon(self) -> None:
        """Remove parts that are not listed. Never raises: the folder of the attempt may be gone, or not be one any more."""
        for path in self._open.values():
            with contextlib.suppress(OSError):  # what stays goes with its attempt
                path.unlink()
        self._open.clear()


class PartTaskSink:
    """The base of task sinks that write parts: `deliver` appends to parts and counts in `_taken`, `flush` lists them."""

    def __init__(self, root: Path) -> None:
        self._parts = PartWriter(root)
        self._taken = 0

    def begin(self, ctx: BatchContext) -> None:
        self._parts.begin(ctx)
        self._taken = 0

    def flush(self) -> int:
        self._parts.publish(self._taken)
        return self._taken

    def abandon(self) -> None:
        self._parts.abandon()


class PartReader:
    """The driver's view of parts: make the folder of an attempt, read its lists, remove the folders of older attempts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._epoch = -1  # of the newest attempt

    def begin(self, ctx: BatchContext) -> None:
        self._epoch = ctx.epoch
        with file_errors("preparing a batch", self._root):
            self._drop_old()
            _folder(self._root, ctx).mkdir(parents=True)

    def parts(self, ctx: BatchContext) -> dict[Target, list[Path]]:
        """Return listed parts by target, in the order of items and rounds. Raises SinkUnavailable if the listing lacks a task, or the
        attempt is over: another driver has removed its parts."""
        folder = _folder(self._root, ctx)
        found: dict[Target, list[Path]] = {}
        with file_errors("reading parts", folder):
            for part, _ in read_lists(self.names(ctx), lambda name: _read(folder / name), ctx, str(folder)):
                if not _PART.fullmatch(file := part.text("file")):
                    raise part.broken(f"{file!r} is no part")
                found.setdefault((part.text("topic"), part.integer("partition")), []).append(folder / file)
        return dict(sorted(found.items()))

    def names(self, ctx: BatchContext) -> list[str]:
        """List the folder of an attempt. Raises OSError, and SinkUnavailable if it is gone."""
        folder = _folder(self._root, ctx)
        try:
            return [path.name for path in folder.iterdir()]
        except FileNotFoundError:
            raise SinkUnavailable(f"{folder} is gone: the attempt is over, and another driver has removed its parts") from None

    def folder(self, ctx: BatchContext) -> Path:
        """Return the folder of an attempt."""
        return _folder(self._root, ctx)

    def scratch(self, ctx: BatchContext, number: int = 0) -> Path:
        """Return a file name for the driver beside the parts. It is removed with the attempt."""
        return _folder(self._root, ctx) / f"{number}.joined"

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


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _folder(root: Path, ctx: BatchContext) -> Path:
    return root / f"{ctx.batch}-{ctx.epoch}"
