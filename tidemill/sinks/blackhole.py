"""`blackhole://`: counts messages and drops them. With a protocol rows are encoded first; without one they are only mounted."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.config.uri import SinkUri
from tidemill.protocols.common.messages import Messages
from tidemill.sinks.base import BatchContext, Target, partition_counts
from tidemill.sinks.event_messages import MessageDriver


class BlackholeTaskSink:
    """Acknowledges everything at once."""

    def __init__(self, uri: SinkUri) -> None:
        self._taken = 0

    def begin(self, ctx: BatchContext) -> None:
        self._taken = 0

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        self._taken += len(messages)

    def flush(self) -> int:
        return self._taken

    def abandon(self) -> None:
        self._taken = 0


class BlackholeDriverSink(MessageDriver):
    """Any topic exists, with `partition-num` partitions (1)."""

    def __init__(self, uri: SinkUri) -> None:
        self._uri = uri

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        return partition_counts(self._uri, topics)

    def begin_batch(self, ctx: BatchContext) -> None: ...

    def send(self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int]) -> None: ...

    def send_resolved(self, targets: Sequence[Target], key: bytes | None, value: bytes | None) -> None: ...

    def finish_batch(self, ctx: BatchContext) -> None: ...

    def discard(self, ctx: BatchContext) -> None: ...

    def close(self) -> None: ...
