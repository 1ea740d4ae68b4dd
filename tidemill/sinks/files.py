"""`file:///DIR`: a file of length-prefixed messages for each topic, partition and batch. Format: docs/sinks/files.md."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidemill.config.uri import SinkUri
from tidemill.errors import SinkError
from tidemill.kernels.deliver.batch import Writer, frame
from tidemill.protocols.common.messages import Messages
from tidemill.sinks import owner
from tidemill.sinks.base import BatchContext, ByDispatchers, Target, partition_counts
from tidemill.sinks.parts import PartReader, PartTaskSink, file_errors, join, sync_folder

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


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


class FilesTaskSink(PartTaskSink):
    """Writes the frames of one item to parts; `flush` publishes them."""

    def __init__(self, uri: SinkUri) -> None:
        super().__init__(Path(uri.path) / _PARTS)
        self._writer = Writer()

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        for target, data in self._writer.frames(messages):
            self._parts.append(targets[target], data)
        self._taken += len(messages)


class FilesDriverSink(ByDispatchers):
    """Joins parts, DDLs and resolved events into the batch's files and renames them into place."""

    def __init__(self, uri: SinkUri, *, fresh: bool) -> None:
        self._uri = uri
        self._folder = Path(uri.path)
        self._protocol = uri.protocol.value if uri.protocol is not None else ""
        self._parts = PartReader(self._folder / _PARTS)
        self._fresh = fresh
        self._checked = False
        self._tail: dict[Target, bytearray] = {}
        self._with_ddl: set[Target] = set()  # targets with a DDL in this batch
        self._idle: dict[Target, Path] = {}  # files of the last batch that hold only a resolved event

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        return partition_counts(self._uri, topics)

    def begin_batch(self, ctx: BatchContext) -> None:
        self._forget()
        if not self._checked:
            self._check(ctx)
        self._parts.begin(ctx)

    def ddl(self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._tail.setdefault((topic, partition), bytearray()).extend(frame(key, value))
            self._with_ddl.add((topic, partition))

    def resolved(self, targets: Sequence[Target], key: bytes | None, value: bytes | None) -> None:
        for target in targets:
            self._tail.setdefault(target, bytearray()).extend(frame(key, value))

    def finish_batch(self, ctx: BatchContext) -> None:
        """Complete and sync all files, then give them their names."""
        with file_errors("publishing a batch", self._folder):
            parts = self._parts.parts(ctx)
            ready = {target: self._joined(ctx, target, parts.get(target, [])) for target in sorted({*parts, *self._tail})}
            ctx.check_fence(now=True)
            published = {target: self._publish(ctx, target, path) for target, path in ready.items()}
            for folder in {path.parent for path in published.values()}:
                sync_folder(folder)
            self._drop_idle(published, busy=self._with_ddl | parts.keys())
            self._write_state(ctx)
        self._forget()
        self._parts.end(ctx)

    def discard(self, ctx: BatchContext) -> None:
        self._forget()
        self._parts.end(ctx)

    def close(self) -> None:
        self._parts.close()

    def _forget(self) -> None:
        self._tail.clear()
        self._with_ddl.clear()

    def _joined(self, ctx: BatchContext, target: Target, parts: list[Path]) -> Path:
        """Join all messages of a target in this batch to one file with a temporary name. The first part is not copied."""
        path = self._parts.scratch(ctx, target)
        if parts:
            parts[0].rename(path)
        with path.open("ab") as file:
            join(parts[1:], file)
            file.write(self._tail.get(target, b""))
            file.flush()
            os.fsync(file.fileno())
        return path

    def _publish(self, ctx: BatchContext, target: Target, ready: Path) -> Path:
        folder = self._folder / target[0] / str(target[1])
        folder.mkdir(parents=True, exist_ok=True)
        return ready.replace(folder / file_name(ctx.from_ts, ctx.to_ts))

    def _drop_idle(self, published: dict[Target, Path], busy: set[Target]) -> None:
        """Remove a file with only a resolved event when the partition has its next file. So an idle changefeed does not fill the disk."""
        for target, path in published.items():
            before = self._idle.pop(target, None)
            if before is not None and before != path:
                before.unlink(missing_ok=True)
            if target not in busy:
                self._idle[target] = path

    def _check(self, ctx: BatchContext) -> None:
        """Check that the folder belongs to this changefeed. With `fresh`, remove the batches in it; never those of another changefeed."""
        with file_errors("opening the messages folder", self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            where = str(self._folder)
            owner.check(_content(self._folder / owner.MESSAGES_NOTE), where, ctx.feed, self._protocol)
            owner.check_no_other(_content(self._folder / owner.TABLES_NOTE), where, self._protocol)
            if self._fresh:
                for path in self._folder.glob("*/*/*.messages"):
                    if _NAME.fullmatch(path.name):
                        path.unlink()
        self._checked = True

    def _write_state(self, ctx: BatchContext) -> None:
        ready = self._folder / f".{owner.MESSAGES_NOTE}"
        with ready.open("wb") as file:
            file.write(owner.note(ctx.feed, self._protocol, resolved_ts=ctx.to_ts) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        ready.replace(self._folder / owner.MESSAGES_NOTE)
        sync_folder(self._folder)
