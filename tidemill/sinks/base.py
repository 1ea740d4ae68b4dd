"""The interface of a sink. It has two halves: task sinks take rows, the driver sink takes DDLs and resolved events.

One attempt at a batch:

    driver.begin_batch(ctx)
        task.begin(ctx); task.deliver(...)…; task.flush()        in every task; any failure: task.abandon()
    driver.ddl(...)…; driver.resolved(...); driver.finish_batch(ctx)

A failed attempt ends with `driver.discard(ctx)`, and the next attempt has a higher epoch. A task of an older epoch may still run. In sinks
with part files it has no effect; in Kafka it ends when it checks the fence, which it does while it waits.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, Protocol, runtime_checkable

from tidemill.config.uri import SinkUri
from tidemill.errors import SinkUnavailable
from tidemill.protocols.common.messages import Messages
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.versions import TableVersion

Target = tuple[str, int]
"""(topic, partition)."""

DRIVER = -1
"""`BatchContext.item` of the driver sink."""


class FenceCheck(Protocol):
    """Checks the fence: raises Fenced if the attempt is over. It is cheap; call it in each turn of a wait, at least once a second."""

    def __call__(self, *, now: bool = False) -> None:
        """`now`: do not use a cached answer, because something is about to be published."""


def no_fence_check(*, now: bool = False) -> None:
    """Do nothing. For an attempt that nothing fences off."""


def taken_late(check_fence: FenceCheck, what: str) -> SinkUnavailable:
    """Return the error for an attempt that lost what it publishes by, though the fence holds: a driver of the past that was frozen while it
    took that woke and took it. The next attempt takes it back. Raises Fenced if the fence does not hold: then the other one is newer."""
    check_fence(now=True)
    return SinkUnavailable(f"an earlier driver has taken over late, and the next attempt takes over again: {what}")


@dataclass(frozen=True, slots=True)
class BatchContext:
    """One try of one batch: rows with from_ts < commit_ts <= to_ts. `item` is the work item of a task."""

    feed: str
    batch: int
    epoch: int  # grows with every attempt, over restarts as well
    from_ts: int
    to_ts: int
    item: int = DRIVER
    check_fence: FenceCheck = no_fence_check  # checks the fence
    zone: tzinfo = UTC  # the changefeed's time zone
    message_limit: int | None = None  # bytes of the largest message that every topic takes
    items: int = 1  # that run at the same time at most
    cluster_id: str = ""  # the upstream's
    acked: int | None = None  # messages that the attempt's tasks have flushed, once they ended; None: nobody counted
    started_ts: int = 0  # the upstream's time when this delivery started: rows at or below it may have been delivered before


class TaskSink(Protocol):
    """The half in a Python worker. It is kept between tasks, so no state of one batch may leak into the next."""

    def begin(self, ctx: BatchContext) -> None:
        """Start an item."""

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        """Queue messages, in order within each target. `messages` may be reused as soon as this returns."""

    def flush(self) -> int:
        """Wait until all messages since `begin` are acknowledged, and return their number. Raises SinkError, SinkUnavailable."""

    def abandon(self) -> None:
        """Drop messages that were not acknowledged, and never deliver them later. Never raises."""


@runtime_checkable
class CountsMissed(Protocol):
    """A task sink that knows whether rows that it changes were there."""

    def missed(self) -> tuple[int, tuple[str, ...]]:
        """Return how many rows since `begin` were to be changed or deleted and were not there, and name some."""


class DriverSink(Protocol):
    """The half in the driver. All methods raise SinkError (give up) or SinkUnavailable (the batch may be tried again)."""

    def place(self, version: TableVersion) -> str | None:
        """Return the topic of a table's rows if the sink chooses it, or None if the dispatchers do."""

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        """Create missing topics, and return how many partitions of each topic are used."""

    def message_limits(self, topics: Set[str]) -> Mapping[str, int]:
        """Return the size of the largest message that each topic takes. Topics without their own limit are left out."""

    def begin_batch(self, ctx: BatchContext) -> None:
        """Begin an attempt, and remove what older attempts left."""

    def ddl(self, event: DdlEvent, topic: str) -> bool:
        """Do a DDL, or send it, after all rows of the batch. It has its names downstream; `topic` is that of its table's rows if the
        dispatchers choose it. Return False if the sink has nothing to do for it."""

    def resolved(self, ts: int) -> None:
        """Send the batch's resolved ts, after all DDLs of the batch are acknowledged."""

    def finish_batch(self, ctx: BatchContext) -> None:
        """Wait until the whole batch is acknowledged or published, and durable."""

    def discard(self, ctx: BatchContext) -> None:
        """Drop what a failed attempt left. Never raises."""

    def close(self) -> None:
        """Close connections and files."""


@runtime_checkable
class HeedsStop(Protocol):
    """A driver sink that may do what takes long, and ends it when a stop is asked for."""

    def heed(self, stop: threading.Event) -> None:
        """Look at this event from now on."""


@runtime_checkable
class HasBrokers(Protocol):
    """A driver sink whose brokers tell how they answer."""

    def brokers(self) -> list[dict[str, Any]]:
        """Return the brokers that have answered, each as `broker`, `in_flight` (requests without an answer), `sent_bytes` and `requests`
        (both since the client began), and `latency_avg_s` and `latency_p99_s` of its newest answers."""


class ByDispatchers:
    """A driver sink that leaves the choice of topics to the dispatchers, and takes messages of any size."""

    def message_limits(self, topics: Set[str]) -> Mapping[str, int]:
        """Return no limits."""
        return {}

    def place(self, version: TableVersion) -> str | None:
        """Return None."""
        return None


def partition_counts(uri: SinkUri, topics: set[str], default: int = 1) -> dict[str, int]:
    """Return the partition counts of topics where only the URI sets them."""
    return dict.fromkeys(topics, uri.partition_num or default)


def count_by_topic(targets: Sequence[Target]) -> Mapping[str, list[int]]:
    """Return the partitions of each topic, in the order of first appearance."""
    found: dict[str, list[int]] = {}
    for topic, partition in targets:
        found.setdefault(topic, []).append(partition)
    return found
