"""What a sink is: one half lives in the tasks and takes rows, the other in the driver and takes DDLs and resolved events.

One try of a batch, for both halves:

    driver.begin_batch(ctx)
        task.begin(ctx); task.deliver(...)…; task.flush()        in every task; any failure: task.abandon()
    driver.ddl(...)…; driver.resolved(...); driver.finish_batch(ctx)

A try that fails anywhere ends with `driver.discard(ctx)`; the next one has a higher epoch. Whatever a task of an older epoch still
does changes nothing (sinks that keep parts) or ends when it looks at the fence (Kafka), which it does while it waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Protocol

from tidemill.config.uri import SinkUri
from tidemill.protocols.common.messages import Messages
from tidemill.tidb.schema.tracking.versions import TableVersion

Target = tuple[str, int]
"""(topic, partition)."""

DRIVER = -1
"""`BatchContext.item` of the driver's half."""


class Look(Protocol):
    """Raises Fenced where a try is over. Cheap enough to be called in each turn of a wait, at the latest each second."""

    def __call__(self, *, now: bool = False) -> None:
        """`now`: something is about to leave for good, so that what was seen a moment ago does not do."""


def no_look(*, now: bool = False) -> None:
    """Of a try that nobody ends."""


@dataclass(frozen=True, slots=True)
class BatchContext:
    """One try of one batch: rows with from_ts < commit_ts <= to_ts. `item` is the work item of a task."""

    feed: str
    batch: int
    epoch: int  # grows with every try, over restarts as well
    from_ts: int
    to_ts: int
    item: int = DRIVER
    look: Look = no_look  # at the fence
    zone: tzinfo = UTC  # the changefeed's
    message_limit: int | None = None  # bytes of the largest message that every topic takes


class TaskSink(Protocol):
    """The half inside a Python worker. Kept between tasks, so nothing of one batch may leak into the next."""

    def begin(self, ctx: BatchContext) -> None:
        """Start an item."""

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        """Queue messages, in order within each target. `messages` may be reused as soon as this returns."""

    def flush(self) -> int:
        """Wait until everything since `begin` is acknowledged; returns how many messages that is. Raises SinkError, SinkUnavailable."""

    def abandon(self) -> None:
        """Forget what was not acknowledged and never deliver it later. Never raises."""


class DriverSink(Protocol):
    """The half inside the driver. All methods raise SinkError (give up) or SinkUnavailable (the batch may be tried again)."""

    def place(self, version: TableVersion) -> str | None:
        """The topic of a table's rows where the sink itself decides that; None: the dispatchers do."""

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        """Create what is missing; returns how many partitions of each topic are used."""

    def message_limits(self, topics: Set[str]) -> Mapping[str, int]:
        """Bytes of the largest message that topics take; those without a limit of their own are left out."""

    def begin_batch(self, ctx: BatchContext) -> None:
        """A try begins: left-overs of older tries are removed."""

    def ddl(self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int]) -> None:
        """Send to these partitions, after all rows of the batch."""

    def resolved(self, targets: Sequence[Target], key: bytes, value: bytes | None) -> None:
        """Send to all targets, after all DDLs of the batch are acknowledged."""

    def finish_batch(self, ctx: BatchContext) -> None:
        """Return when everything of the batch is acknowledged or published, and durable."""

    def discard(self, ctx: BatchContext) -> None:
        """The try has failed: drop what it left. Never raises."""

    def close(self) -> None:
        """Give back connections and files."""


class ByDispatchers:
    """A driver's half that leaves the choice of topics to the dispatchers, and takes messages of any size."""

    def message_limits(self, topics: Set[str]) -> Mapping[str, int]:
        """None."""
        return {}

    def place(self, version: TableVersion) -> str | None:
        """None."""
        return None


def partition_counts(uri: SinkUri, topics: set[str], default: int = 1) -> dict[str, int]:
    """Partition counts where nobody but the URI decides them."""
    return dict.fromkeys(topics, uri.partition_num or default)


def count_by_topic(targets: Sequence[Target]) -> Mapping[str, list[int]]:
    """Partitions of each topic, in the order of first appearance."""
    found: dict[str, list[int]] = {}
    for topic, partition in targets:
        found.setdefault(topic, []).append(partition)
    return found
