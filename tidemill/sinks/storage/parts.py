"""Part files of the storage sink: tasks write them and a list of them; the driver publishes the listed ones.

.tidemill/tries/<batch>-<epoch>/begin.json                 the driver began this attempt; {"after": ts}: rows at or below are published
.tidemill/tries/<batch>-<epoch>/<item>.<round>.<n>.<attempt>.part    bytes of one data file to be
.tidemill/tries/<batch>-<epoch>/<item>.<round>.json        the list of parts, once all are complete; other parts are ignored; and how
                                                           many messages they stand for

`attempt` is unique, so two processes that run the same item never write to one file. A list names the files of one process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tidemill import statefile
from tidemill.errors import SinkUnavailable
from tidemill.sinks.base import BatchContext, FenceCheck, Target, no_fence_check
from tidemill.sinks.owner import NOTE
from tidemill.sinks.parts import append_to, file_errors, is_over, list_name, list_text, new_writer_id, read_lists
from tidemill.sinks.storage.paths import FOLDER, inside
from tidemill.sinks.storage.store import Store
from tidemill.statefile import Fields

TRIES = f"{FOLDER}/tries"
_BEGIN = "begin.json"


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a target and date, in order, as a data file will hold them. `file` is the part's name in the store."""

    topic: str
    partition: int
    date: str
    file: str
    bytes: int


def folder_of(ctx: BatchContext) -> str:
    """Return the folder of an attempt."""
    return f"{TRIES}/{ctx.batch}-{ctx.epoch}"


def drop_old(store: Store, epoch: int) -> None:
    """Remove what attempts up to an epoch left."""
    for name in store.folders(TRIES):
        if is_over(name, epoch):
            store.clear(f"{TRIES}/{name}")


def begin(store: Store, ctx: BatchContext, after: int) -> None:
    """Announce an attempt to its tasks."""
    store.make_folder(folder_of(ctx))
    store.stage(f"{folder_of(ctx)}/{_BEGIN}", json.dumps({"after": after}).encode())


def begun(store: Store, ctx: BatchContext) -> int:
    """Return the ts up to which rows are already published. Raises SinkUnavailable if the attempt is over."""
    text = store.read(f"{folder_of(ctx)}/{_BEGIN}")
    if text is None:
        ctx.check_fence(now=True)
        raise SinkUnavailable(
            f"{store}: batch {ctx.batch}, try {ctx.epoch} is over, or {socket.gethostname()} does not see what the driver wrote there",
            hint="A folder as a sink has to be a file system that all machines of the Spark cluster mount at this path.",
        )
    return statefile.read(text, f"{store}/{folder_of(ctx)}/{_BEGIN}", NOTE).integer("after")


def listed(store: Store, ctx: BatchContext) -> list[Part]:
    """Return the parts of an attempt, in the order of items and rounds. Raises SinkUnavailable if the attempt is over: another driver has
    removed its parts; and if lists of tasks are missing: a folder of NFS, and some object stores, may show what was there a while ago."""
    folder = folder_of(ctx)
    names = store.names(folder)
    if _BEGIN not in names:
        raise SinkUnavailable(f"{store}: batch {ctx.batch}, try {ctx.epoch} is over: another driver has removed its parts")
    entries = read_lists(names, lambda name: store.read(f"{folder}/{name}"), ctx, f"{store}/{folder}")
    return [_part(entry, where) for entry, where in entries]


def _part(entry: Fields, where: str) -> Part:
    file = inside(entry.text("file"), where)
    return Part(entry.text("topic"), entry.integer("partition"), entry.text("date"), file, entry.integer("bytes"))


class PartFiles:
    """The files that one task writes. A part ends when it has `size` bytes."""

    def __init__(self, store: Store, size: int) -> None:
        self._store, self._size = store, size
        self._spool: Path | None = None  # local scratch of a store that is not local
        self._folder = ""
        self._item = self._round = self._listed = 0
        self._writer_id = ""
        self._check_fence: FenceCheck = no_fence_check
        self._open: dict[tuple[Target, str], Part] = {}
        self._full: list[Part] = []

    def begin(self, ctx: BatchContext) -> None:
        self.abandon()
        self._folder, self._item, self._check_fence = folder_of(ctx), ctx.item, ctx.check_fence
        self._round = self._listed = 0
        self._writer_id = new_writer_id()

    def room(self, target: Target, date: str) -> int:
        """Return the bytes until the open part is full, or `size` if the next append begins a part."""
        part = self._open.get((target, date))
        return self._size if part is None else self._size - part.bytes

    def append(self, target: Target, date: str, data: memoryview | bytes, head: bytes = b"") -> None:
        """Add to the open part, or to a new one that begins with `head`."""
        place = target, date
        part = self._open.get(place)
        if part is None:
            number = len(self._open) + len(self._full)
            name = f"{self._item}.{self._round}.{number}.{self._writer_id}.part"
            part, fresh = Part(*target, date, f"{self._folder}/{name}", 0), True
            self._open[place] = part  # before the first write: if that fails, `abandon` removes what is there of the file
        else:
            head, fresh = b"", False
        path = self._path(part)
        with file_errors("writing a part", path):
            append_to(path, head, data, fresh=fresh)
        part = Part(part.topic, part.partition, part.date, part.file, part.bytes + len(head) + len(data))
        if part.bytes >= self._size:
            self._open.pop(place, None)
            self._full.append(part)
        else:
            self._open[place] = part

    def publish(self, taken: int) -> None:
        """Make all parts durable, then list them. `taken`: messages since `begin`, also such as gave no bytes."""
        parts = sorted([*self._full, *self._open.values()], key=lambda part: int(part.file.rsplit(".", 3)[1]))
        if not parts and taken == self._listed:
            return
        for part in parts:
            path = self._path(part)
            self._check_fence()
            if self._spool is not None:
                self._store.upload(path, part.file)
            else:
                _sync(path)
        self._check_fence(now=True)
        text = list_text([asdict(part) for part in parts], taken - self._listed)
        self._store.stage(f"{self._folder}/{list_name(self._item, self._round)}", text)
        self._forget(parts)
        self._round, self._listed = self._round + 1, taken

    def abandon(self) -> None:
        """Remove parts that are not listed. Never raises."""
        self._forget([*self._full, *self._open.values()], written=self._spool is None)

    def close(self) -> None:
        """Remove the scratch folder."""
        if self._spool is not None:
            shutil.rmtree(self._spool, ignore_errors=True)
            self._spool = None

    def _forget(self, parts: Iterable[Part], *, written: bool = False) -> None:
        if written or self._spool is not None:
            for part in parts:
                with contextlib.suppress(OSError):  # what stays goes with its attempt
                    self._path(part).unlink()
        self._open.clear()
        self._full.clear()

    def _path(self, part: Part) -> Path:
        """Return where a part is written on this machine."""
        path = self._store.local_path(part.file)
        if path is not None:
            return path
        if self._spool is None:
            # Spark removes its folder with the executor, however that ends.
            place = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
            self._spool = Path(tempfile.mkdtemp(prefix="tidemill-spool-", dir=place))
        return self._spool / part.file.rpartition("/")[2]


def _sync(path: Path) -> None:
    with file_errors("writing a part", path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
