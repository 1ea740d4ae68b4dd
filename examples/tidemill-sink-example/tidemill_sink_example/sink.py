"""`journal:///FILE?protocol=…`: a line for each message. Tasks write parts, the driver appends them to the file when a batch is complete.

A batch that is delivered again after a crash is in the file twice: this sink is at-least-once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tidemill.config.uri import SinkUri
from tidemill.doctor.findings import Finding, bad, good
from tidemill.protocols.common.messages import Messages
from tidemill.sinks.base import BatchContext, Target, partition_counts
from tidemill.sinks.event_messages import MessageDriver


def _parts(uri: SinkUri, ctx: BatchContext) -> Path:
    """Return the folder of one attempt: a task of an earlier one, which may still run, cannot write into it."""
    return Path(f"{uri.path}.parts/{ctx.epoch}")


def _line(uri: SinkUri, topic: str, partition: int, value: bytes | None) -> bytes:
    return f"{uri.own['mark']} {topic}/{partition} ".encode() + (value or b"") + b"\n"


class JournalTask:
    """The half in a worker: collects an item's lines, and writes them as a part."""

    def __init__(self, uri: SinkUri) -> None:
        self._uri, self._lines = uri, list[bytes]()
        self._part = Path()

    def begin(self, ctx: BatchContext) -> None:
        self._lines.clear()
        self._part = _parts(self._uri, ctx) / f"{ctx.item:06d}"

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        self._lines += [_line(self._uri, *targets[message.target], message.value) for message in messages.to_list()]

    def flush(self) -> int:
        self._part.write_bytes(b"".join(self._lines))
        return len(self._lines)

    def abandon(self) -> None:
        self._lines.clear()


class JournalDriver(MessageDriver):
    """The half in the driver. DDLs and resolved events are messages of the protocol: `MessageDriver` makes them."""

    def __init__(self, uri: SinkUri) -> None:
        self._uri, self._tail = uri, list[bytes]()

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        return partition_counts(self._uri, topics)

    def begin_batch(self, ctx: BatchContext) -> None:
        self._tail.clear()
        _parts(self._uri, ctx).mkdir(parents=True, exist_ok=True)

    def send(self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int]) -> None:
        self._tail += [_line(self._uri, topic, partition, value) for partition in partitions]

    def send_resolved(self, targets: Sequence[Target], key: bytes | None, value: bytes | None) -> None:
        self._tail += [_line(self._uri, topic, partition, value) for topic, partition in targets]

    def finish_batch(self, ctx: BatchContext) -> None:
        parts = sorted(_parts(self._uri, ctx).iterdir())
        ctx.check_fence(now=True)  # a driver that another one has replaced appends nothing
        with Path(self._uri.path).open("ab") as file:
            file.writelines([*(part.read_bytes() for part in parts), *self._tail])
        self.discard(ctx)

    def discard(self, ctx: BatchContext) -> None:
        self._tail.clear()
        folder = _parts(self._uri, ctx)
        for part in folder.glob("*"):
            part.unlink()
        if folder.is_dir():
            folder.rmdir()

    def close(self) -> None: ...


def look(uri: SinkUri) -> Iterator[Finding]:
    """Look at the sink for `tidemill doctor`."""
    if Path(uri.path).parent.is_dir():
        yield good("sink", f"{uri.path} can be appended to")
    else:
        yield bad("sink", f"the folder of {uri.path} is not there", "Make it.")
