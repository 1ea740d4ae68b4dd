"""`file:///DIR`: a file of length-prefixed messages for each topic, partition and batch. Format: docs/sinks/files.md.

A batch is a publication (`sinks/publication.py`) of these steps:

    place    the batch's files, joined from the tasks' parts
    remove   files of the batch before that hold only a resolved event, where the partition has its next file
    raise    tidemill.json: {"resolved_ts": to_ts}
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidemill.changelog.storage.open import make_folder
from tidemill.config.uri import SinkUri
from tidemill.errors import SinkError
from tidemill.kernels.deliver.batch import Writer, frame
from tidemill.protocols.common.messages import Messages
from tidemill.sinks import owner
from tidemill.sinks.base import BatchContext, Target, partition_counts
from tidemill.sinks.event_messages import MessageDriver
from tidemill.sinks.parts import PartReader, PartTaskSink, file_errors, join
from tidemill.sinks.publication import Place, Plan, Position, Publisher, Raise, Remove, Step
from tidemill.sinks.storage.store import LocalStore
from tidemill.statefile import read as read_state
from tidemill.tso import describe

log = logging.getLogger(__name__)

_NAME = re.compile(r"[0-9]{20}-[0-9]{20}\.messages")
_PARTS = ".parts"


def file_name(from_ts: int, to_ts: int) -> str:
    """Return the name of a batch's file, made from its interval (from_ts, to_ts]."""
    return f"{from_ts:020d}-{to_ts:020d}.messages"


def read_messages(path: Path) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield the keys and values of a messages file, in order. Raises SinkError for a file that ends inside a message."""
    data = path.read_bytes()
    at = 0

    def part() -> bytes | None:
        nonlocal at
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        start, at = at + 4, at + 4 + max(size, 0)
        if at > len(data) or size < -1:
            raise SinkError(f"{path}: the message at offset {start - 4} is cut short")
        return None if size < 0 else data[start:at]

    while at < len(data):
        yield part(), part()


class FilesTaskSink(PartTaskSink):
    """Writes the frames of one item to parts; `flush` lists them."""

    def __init__(self, uri: SinkUri) -> None:
        super().__init__(Path(uri.path) / _PARTS)
        self._writer = Writer()

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        for target, data in self._writer.frames(messages):
            self._parts.append(targets[target], data)
        self._taken += len(messages)


class FilesDriverSink(MessageDriver):
    """Joins parts, DDLs and resolved events into the batch's files, and publishes these."""

    def __init__(self, uri: SinkUri, *, fresh: bool) -> None:
        self._uri = uri
        self._folder = Path(uri.path)
        self._protocol = str(uri.protocol or "")
        self._parts = PartReader(self._folder / _PARTS)
        self._publisher = Publisher(LocalStore(self._folder))
        self._fresh = fresh
        self._published: int | None = None  # everything up to here is there; None: another driver may have published since
        self._tail: dict[Target, bytearray] = {}
        self._with_ddl: set[Target] = set()  # targets with a DDL in this batch
        self._idle: dict[Target, str] = {}  # files of the last batch that hold only a resolved event

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        return partition_counts(self._uri, topics)

    def begin_batch(self, ctx: BatchContext) -> None:
        self._forget()
        if self._published is None:
            self._published = self._open(ctx)
        self._parts.begin(ctx)

    def send(self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._tail.setdefault((topic, partition), bytearray()).extend(frame(key, value))
            self._with_ddl.add((topic, partition))

    def send_resolved(self, targets: Sequence[Target], key: bytes | None, value: bytes | None) -> None:
        for target in targets:
            self._tail.setdefault(target, bytearray()).extend(frame(key, value))

    def finish_batch(self, ctx: BatchContext) -> None:
        """Complete and sync all files, then publish them. A batch that was published is not published again."""
        assert self._published is not None, "begin_batch comes first"
        if ctx.to_ts > self._published:
            self._publish(ctx)
            self._published = ctx.to_ts
        else:
            log.warning("%s holds everything up to %s already", self._folder, describe(self._published))
        self._forget()
        self._parts.end(ctx)

    def _publish(self, ctx: BatchContext) -> None:
        with file_errors("publishing a batch", self._folder):
            parts = self._parts.parts(ctx)
            targets = sorted({*parts, *self._tail})
            staged = {target: self._joined(ctx, number, target, parts.get(target, [])) for number, target in enumerate(targets)}
        names = {target: f"{target[0]}/{target[1]}/{file_name(ctx.from_ts, ctx.to_ts)}" for target in targets}
        idle = {target: names[target] for target in targets if target not in self._with_ddl and target not in parts}
        moves = [(path.relative_to(self._folder).as_posix(), names[target]) for target, path in staged.items()]
        replaced = [self._idle[target] for target in targets if target in self._idle]
        steps: list[Step] = [Place(moves)] if moves else []
        steps += [Remove(replaced)] if replaced else []
        note = owner.note(ctx.feed, self._protocol, resolved_ts=ctx.to_ts) + b"\n"
        last = Raise(owner.MESSAGES_NOTE, note, Position.RESOLVED)
        self._publisher.publish(ctx, Plan(ctx.from_ts, ctx.to_ts, self._of_attempt(ctx), steps, last))
        self._idle = {target: name for target, name in self._idle.items() if target not in names} | idle

    def discard(self, ctx: BatchContext) -> None:
        """Drop a failed attempt. If it failed while publishing, its files stay: who claims the note next finishes it first."""
        self._forget()
        self._published = None
        self._idle.clear()
        try:
            if not self._publisher.needs(self._of_attempt(ctx)):
                self._parts.end(ctx)
        except SinkError as error:
            log.debug("what a failed attempt left cannot be removed now: %s", error)

    def close(self) -> None:
        """Leave staged files to who claims the note next: a plan may need them."""
        self._parts.leave()

    def _of_attempt(self, ctx: BatchContext) -> str:
        """Return the folder of an attempt as plans name it: relative to the messages folder."""
        return self._parts.folder(ctx).relative_to(self._folder).as_posix()

    def _forget(self) -> None:
        self._tail.clear()
        self._with_ddl.clear()

    def _joined(self, ctx: BatchContext, number: int, target: Target, parts: list[Path]) -> Path:
        """Join all messages of a target in this batch to one file with a temporary name. The first part is not copied."""
        path = self._parts.scratch(ctx, number)
        if parts:
            parts[0].rename(path)
        with path.open("ab") as file:
            join(parts[1:], file)
            file.write(self._tail.get(target, b""))
            file.flush()
            os.fsync(file.fileno())
        return path

    def _open(self, ctx: BatchContext) -> int:
        """Check that the folder belongs to this changefeed, and finish what an earlier driver published in part. With `fresh`, remove the
        batches in it; never those of another changefeed. Returns the ts up to which everything is there."""
        store, where = self._publisher.store, str(self._folder)
        with file_errors("opening the messages folder", self._folder):
            make_folder(str(self._folder), sync=True)
        owner.check(store.read(owner.MESSAGES_NOTE), where, ctx.feed, self._protocol)
        owner.check_no_other(store.read(owner.TABLES_NOTE), where, self._protocol)
        self._publisher.claim(ctx)
        if self._fresh:
            self._publisher.forget()
            with file_errors("opening the messages folder", self._folder):
                for path in self._folder.glob("*/*/*.messages"):
                    if _NAME.fullmatch(path.name):
                        path.unlink()
            store.delete(owner.MESSAGES_NOTE)
            self._fresh = False
        note = store.read(owner.MESSAGES_NOTE)
        return read_state(note, f"{store}/{owner.MESSAGES_NOTE}", owner.NOTE).integer("resolved_ts", default=0) if note is not None else 0
