"""The task half of the Kafka sink: one idempotent producer for each worker, kept between batches and dropped after any failure.

librdkafka keeps the order of a partition's messages as long as it refuses none when they are queued. So this module has its own window,
which is smaller than the client's queue. If the client refuses a message anyway, it must have refused all later ones too; else the attempt
fails.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemill.config.uri import SinkUri
from tidemill.errors import SinkUnavailable
from tidemill.kernels.deliver import batch, kernels
from tidemill.protocols.common.messages import Messages
from tidemill.sinks.base import BatchContext, FenceCheck, Target, no_fence_check
from tidemill.sinks.kafka import faults, options
from tidemill.sinks.kafka.denials import Denials
from tidemill.sinks.kafka.native import QUEUE_FULL, NativeProducer

_STEP_MESSAGES = 1024
_STEP_BYTES = 8 * 1024 * 1024
_REPORTS_MS = 2000  # how long a dead producer may take to report its messages
_SLICE_MS = 200  # how often a wait checks for failures, and the fence


@dataclass(frozen=True, slots=True)
class _Routes:
    """Targets as arrays; `topic_of` holds indexes into `topics`."""

    targets: Sequence[Target]
    topics: list[str]
    topic_of: npt.NDArray[np.int64]
    partition_of: npt.NDArray[np.int64]

    @classmethod
    def of(cls, targets: Sequence[Target]) -> _Routes:
        numbers: dict[str, int] = {}
        topic_of = [numbers.setdefault(topic, len(numbers)) for topic, _ in targets]
        partition_of = [partition for _, partition in targets]
        return cls(targets, list(numbers), np.array(topic_of, np.int64), np.array(partition_of, np.int64))


class KafkaTaskSink:
    """See `TaskSink`."""

    def __init__(self, uri: SinkUri) -> None:
        self._uri = uri
        self._limit: int | None = None  # of the largest message; the producer's batches keep below it
        self._where = ",".join(uri.broker.hosts)
        self._producer: NativeProducer | None = None
        self._messages = np.zeros(0, np.uint8)
        self._routes = _Routes.of(())
        self._base = 0  # messages acknowledged before the item began
        self._taken = self._flushed = 0
        self._queued_bytes = 0
        self._check_fence: FenceCheck = no_fence_check
        self._acked, self._moved_at = 0, 0.0  # messages acknowledged, and when that number last grew
        self._denials = Denials(trusted=True)  # the driver has reached the brokers before any task

    def begin(self, ctx: BatchContext) -> None:
        self._check_fence = ctx.check_fence
        if self._taken != self._flushed:
            self.abandon()  # the last item was neither flushed nor abandoned
        if ctx.message_limit != self._limit:
            self.abandon()
            self._limit = ctx.message_limit
        producer = self._opened()
        self._base, self._queued_bytes = producer.acked, producer.answered_bytes
        self._taken = self._flushed = 0
        self._acked, self._moved_at = producer.acked, time.monotonic()

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        count = len(messages)
        if not count:
            return
        table = np.ascontiguousarray(messages.table)
        if targets is not self._routes.targets:
            self._routes = _Routes.of(targets)
        routes = self._routes
        order, topics = batch.by_group(routes.topic_of[table["target"]])
        if len(self._messages) < kernels.KAFKA_MESSAGE * count:
            self._messages = np.zeros(kernels.KAFKA_MESSAGE * 2 * count, np.uint8)
        kernels.kafka_messages(count, table.ctypes.data, order.ctypes.data, routes.partition_of.ctypes.data, self._messages.ctypes.data)
        sizes = (np.maximum(table["key_len"], 0) + np.maximum(table["value_len"], 0))[order]
        for topic, start, end in batch.runs(topics):
            self._queue(routes.topics[topic], start, end, sizes)

    def flush(self) -> int:
        """Wait for all acknowledgements, as long as some come and the attempt is not fenced off."""
        producer = self._opened()
        while not producer.flush(_SLICE_MS):
            self._raise_failure()
            self._check_fence()
        self._raise_failure()
        acked = producer.acked - self._base
        if acked != self._taken:
            raise self._unacknowledged(producer)
        self._flushed = self._taken
        return acked

    def abandon(self) -> None:
        if self._producer is not None:
            self._producer.destroy()
            self._producer = None
        self._taken = self._flushed = 0

    def _opened(self) -> NativeProducer:
        if self._producer is None:
            self._producer = NativeProducer(options.rows_config(self._uri, self._limit))
        return self._producer

    def _queue(self, topic: str, start: int, end: int, sizes: npt.NDArray[np.int64]) -> None:
        """Queue messages start … end of the array in steps that fit the window."""
        while start < end:
            step = _step(sizes[start : min(end, start + _STEP_MESSAGES)])
            size = int(sizes[start : start + step].sum())
            self._wait_for_room(size)
            taken = self._produce(topic, start, step)
            self._queued_bytes += int(sizes[start : start + taken].sum())
            self._taken += taken
            start += taken

    def _wait_for_room(self, size: int) -> None:
        producer = self._opened()
        producer.poll(0)
        self._raise_failure()
        while self._queued_bytes > producer.answered_bytes and self._queued_bytes - producer.answered_bytes + size > options.WINDOW_BYTES:
            producer.poll(_SLICE_MS)
            self._raise_failure()
            self._check_fence()

    def _produce(self, topic: str, start: int, count: int) -> int:
        """Queue messages. Returns how many were queued. Raises if the client refused one finally, or refused one and took a later one."""
        producer = self._opened()
        first = kernels.KAFKA_MESSAGE * start
        taken = producer.produce(topic, self._messages.ctypes.data + first, count)
        if taken == count:
            return taken
        array = self._messages[first : first + kernels.KAFKA_MESSAGE * count].reshape(count, kernels.KAFKA_MESSAGE)
        errors = array[:, :4].copy().view(np.int32).ravel()
        refused = errors[errors != 0]
        other = refused[refused != QUEUE_FULL]
        if len(other):
            self._raise_failure()  # the client died of a message sent before, since that was last looked at: its refusal is the cause
            code = int(other[0])
            raise faults.sink_error(code, f"Kafka {self._where}: {topic}: {producer.describe(code)}{producer.last_error(', after: ')}")
        if errors[:taken].any():
            raise SinkUnavailable(f"Kafka {self._where}: {topic}: the client's queue was full in the middle of a step; order would be lost")
        array[taken:, :4] = 0
        producer.poll(_SLICE_MS)
        return taken

    def _raise_failure(self) -> None:
        producer = self._opened()
        fatal = producer.fatal_error()
        if fatal:
            producer.flush(_REPORTS_MS)  # a dead producer reports the message that ended it only afterwards
        if producer.failed:
            code, text = producer.first_failure()
            raise faults.sink_error(code, f"Kafka {self._where}: {text}")
        if fatal:
            raise SinkUnavailable(f"Kafka {self._where}: {producer.describe(fatal[0])}: {fatal[1]}")
        self._look_at_denials(producer)
        self._look_at_progress(producer)

    def _look_at_denials(self, producer: NativeProducer) -> None:
        if producer.client_error == faults.AUTHENTICATION:
            producer.forget_client_error()
            self._denials.denied(time.monotonic())
            if self._denials.meant:
                raise faults.sink_error(faults.AUTHENTICATION, f"Kafka {self._where}: {producer.last_error()}")

    def _look_at_progress(self, producer: NativeProducer) -> None:
        """Raise if acknowledgements have stopped for too long. The client itself never gives up a message: it would send later ones."""
        if producer.acked != self._acked:
            self._denials.succeeded()
            self._acked, self._moved_at = producer.acked, time.monotonic()
        elif producer.acked - self._base == self._taken:
            self._moved_at = time.monotonic()
        elif time.monotonic() - self._moved_at > options.DELIVERY_TIMEOUT_MS / 1000:
            raise self._unacknowledged(producer)

    def _unacknowledged(self, producer: NativeProducer) -> SinkUnavailable:
        left = self._taken - (producer.acked - self._base)
        waited = time.monotonic() - self._moved_at
        why = producer.last_error(", after: ")
        return SinkUnavailable(f"Kafka {self._where}: {left} of {self._taken} messages not acknowledged, none for {waited:.0f} s{why}")


def _step(sizes: npt.NDArray[np.int64]) -> int:
    """Return how many messages of these sizes go into one call: at least one, at most _STEP_BYTES of them."""
    return max(1, int(np.searchsorted(np.cumsum(sizes), _STEP_BYTES, "right")))
