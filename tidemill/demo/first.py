"""The first changes of a demo: a statement, and the message that the sink got of it, one below the other.

In: an upstream whose workload rests, and what reads the sink. Out: `Shown` pairs. `session.py` starts both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tidemill.consumer.reading import read_at, reader
from tidemill.demo.delivered import Delivered
from tidemill.demo.session import POLL_S, Delivery, DemoFailed, Upstream
from tidemill.protocols.open import texts
from tidemill.protocols.open.events import DdlMessage, Event, ResolvedMessage
from tidemill.protocols.options import MessageFormat

STATEMENTS = (
    "CREATE TABLE shop.notes (id INT PRIMARY KEY, text VARCHAR(20))",
    "INSERT INTO shop.notes VALUES (1, 'hello')",
    "UPDATE shop.notes SET text = 'hello, Spark' WHERE id = 1",
    "DELETE FROM shop.notes WHERE id = 1",
)
"""A DDL and each kind of row change, in the order in which they run."""
_TABLE = ("shop", "notes")
_WITHIN_S = 60.0
_READ = reader(MessageFormat.OPEN)


@dataclass(frozen=True, slots=True)
class Shown:
    """A statement and its message. `partitions`: how many have it; `seconds`: from the statement's end until the message was read."""

    sql: str
    topic: str
    partitions: int
    key: str
    value: str
    seconds: float


def changes(
    upstream: Upstream, delivery: Delivery, messages: Callable[[], Iterable[Delivered]], statements: Iterable[str] = STATEMENTS
) -> Iterator[Shown]:
    """Run each statement and wait for its message. `messages` reads the sink from its beginning. Raises DemoFailed."""
    seen = 0
    for sql in statements:
        upstream.call("sql", text=sql)
        began = time.monotonic()
        while not (found := _of_the_table(messages())[seen:]):
            delivery.check()
            if time.monotonic() > began + _WITHIN_S:
                raise DemoFailed(f"no message of {sql!r} came within {_WITHIN_S:.0f} s", hint=f"See {delivery.output}.")
            time.sleep(POLL_S)
        seconds = time.monotonic() - began
        if isinstance(found[0][1], DdlMessage):  # each partition gets it, by the next checkpoint
            delivery.wait_until(found[0][1].ts)
            found = _of_the_table(messages())[seen:]
        seen += len(found)
        message = found[0][0]
        keys, values = texts(message.key or b"", message.value or b"")
        yield Shown(sql, message.topic, len(found), keys[0], values[0], seconds)


def _of_the_table(messages: Iterable[Delivered]) -> list[tuple[Delivered, Event]]:
    """The table's messages with their first event, in the order of commit."""
    found = []
    for message in messages:
        for event in read_at(_READ, message.topic, message.partition, 0, message.key, message.value)[:1]:
            if not isinstance(event, ResolvedMessage) and (event.schema, event.table) == _TABLE:
                found.append((message, event))
    return sorted(found, key=lambda one: one[1].ts)
