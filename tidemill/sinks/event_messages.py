"""What sinks of messages share: DDLs and resolved events become messages of the changefeed's protocol. A sink adds how they are sent."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence

from tidemill.protocols.common.messages import ControlMessages, KeyValue
from tidemill.sinks.base import ByDispatchers, Target
from tidemill.tidb.schema.events import DdlEvent


class EventMessages:
    """A changefeed's messages besides rows, and where they go."""

    def __init__(self, control: ControlMessages | None, partitions: Callable[[str], int], targets: Callable[[], Sequence[Target]]) -> None:
        """`control`: None if rows have no protocol. `partitions`: how many a topic has; it is made if it is new. `targets`: those of
        resolved events."""
        self.control, self._partitions, self.targets = control, partitions, targets

    def ddl(self, event: DdlEvent, topic: str) -> tuple[KeyValue, Sequence[int]] | None:
        """Return the message of a DDL and its partitions of the topic; None if the protocol has none."""
        message = self.control.ddl_message(event) if self.control is not None else None
        if message is None or self.control is None:
            return None
        return message, range(1 if self.control.ddl_on_first_partition else self._partitions(topic))

    def resolved(self, ts: int) -> KeyValue | None:
        """Return the message of a resolved ts; None if the protocol has none."""
        return self.control.resolved_message(ts) if self.control is not None else None


class MessageDriver(ByDispatchers, abc.ABC):
    """A driver sink of messages. It has none until a delivery gives it its own."""

    _messages = EventMessages(None, lambda topic: 1, lambda: ())

    def speak(self, messages: EventMessages) -> None:
        """Send DDLs and resolved events as these messages from now on."""
        self._messages = messages

    def ddl(self, event: DdlEvent, topic: str) -> bool:
        """See `DriverSink`."""
        found = self._messages.ddl(event, topic)
        if found is None:
            return False
        (key, value), partitions = found
        self.send(topic, key, value, partitions)
        return True

    def resolved(self, ts: int) -> None:
        """See `DriverSink`."""
        message = self._messages.resolved(ts)
        if message is not None:
            self.send_resolved(self._messages.targets(), *message)

    @abc.abstractmethod
    def send(self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int]) -> None:
        """Send a DDL, or what describes a table, to these partitions, after all rows of the batch."""

    @abc.abstractmethod
    def send_resolved(self, targets: Sequence[Target], key: bytes | None, value: bytes | None) -> None:
        """Send a resolved message to all targets, after all DDLs of the batch are acknowledged."""
