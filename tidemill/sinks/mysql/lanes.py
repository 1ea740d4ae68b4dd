"""Lanes: connections of a task that write side by side, each its own transactions in order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

from tidemill.config.database import MysqlOptions
from tidemill.errors import Fenced, SinkError, SinkUnavailable
from tidemill.protocols.sql.hints import Program
from tidemill.protocols.sql.missed import Answer, Missed, Statement
from tidemill.sinks.base import FenceCheck, taken_late
from tidemill.sinks.mysql.bookkeeping import Gate
from tidemill.sinks.mysql.codes import Fate
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.session import IDLE_S, STRICT
from tidemill.sinks.mysql.statements import packets, text_of

log = logging.getLogger(__name__)

TRIES = 8
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 2.0
MOST_PACKET = 4 << 20
"""Bytes of a packet at most, whatever the server takes."""
FRESH_S = IDLE_S / 4
"""A connection that was idle for longer is asked before it is used."""

LEAST_PACKET = 1024
"""Statements are not split into smaller ones than that."""

Make = Callable[[bool, int], Iterable[Statement]]
"""The statements of a transaction. The arguments say whether they may have been run before, and how many bytes each has at most."""


class Lane:
    """One connection, opened when it is needed, and kept. `prepare` changes a session from what the sink sets it to."""

    def __init__(
        self, options: MysqlOptions, prepare: Callable[[Connection], None] | None = None, program: Program = Program.CHANGEFEED
    ) -> None:
        self._options, self._prepare, self._program = options, prepare, program
        self._connection: Connection | None = None
        self._used = 0.0
        self._most = MOST_PACKET  # bytes of a packet
        self.stopped = threading.Event()
        self.missed = Missed()

    @property
    def connection(self) -> Connection:
        """The open connection. Raises ServerFault."""
        if self._connection is not None and time.monotonic() - self._used > FRESH_S:
            self.close()
        if self._connection is None:
            connection = Connection(self._options)
            try:
                if self._prepare is not None:
                    self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        self._used = time.monotonic()
        return self._connection

    def interrupt(self) -> None:
        """End what another thread runs in this lane."""
        connection = self._connection
        if connection is not None:
            connection.interrupt()

    def close(self) -> None:
        """Close the connection; what is not committed is undone."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def write(self, make: Make, gate: Gate, check_fence: FenceCheck, *, safe: bool) -> None:
        """Run a transaction, and try it again where that helps. A second attempt replaces rows: the first may have been committed
        before its answer was lost, unless the gate tells. Raises Fenced, SinkError, SinkUnavailable."""
        wait = FIRST_WAIT_S
        for number_of_try in range(TRIES):
            if self.stopped.is_set():
                raise SinkUnavailable(f"{self._where}: stopped")
            check_fence()
            try:
                self._once(make(safe or number_of_try > 0, self._size), gate, first=number_of_try == 0)
                return
            except ServerFault as fault:
                self._after(fault)
                if fault.fate in (Fate.FAIL, Fate.WAIT) or number_of_try == TRIES - 1 or not self._can_split(fault):
                    raise fault.error(self._where, self._program) from fault
                log.debug("%s: %s; tried again in %.2f s", self._where, fault, wait)
            except Fenced as error:
                self.close()
                raise taken_late(check_fence, f"{self._where}: {error.message}") from error
            except BaseException:
                self.close()
                raise
            self.stopped.wait(wait)
            wait = min(2 * wait, LONGEST_WAIT_S)

    def _can_split(self, fault: ServerFault) -> bool:
        """Let packets be smaller from now on if one was too large. Returns whether another attempt may help."""
        if fault.fate is Fate.SPLIT:
            self._most //= 4
        return self._most >= LEAST_PACKET

    @property
    def _size(self) -> int:
        """Bytes of a packet at most. Raises ServerFault."""
        return min(self._most, self.connection.max_packet - 1024)

    @property
    def _where(self) -> str:
        return f"{self._options.host}:{self._options.port}"

    def _after(self, fault: ServerFault) -> None:
        """Leave the connection without an open transaction."""
        if fault.fate is Fate.RETRY and self._connection is not None:
            with suppress(ServerFault):
                self._connection.rollback()
                self._connection.run(STRICT)
                if self._prepare is not None:
                    self._prepare(self._connection)
                return
        if self._connection is not None:
            self._connection.kill()  # it holds the rows that the next attempt wants
        self.close()

    def _once(self, statements: Iterable[Statement], gate: Gate, *, first: bool) -> None:
        connection, lock = self.connection, gate.lock
        size, missed = self._size, Missed()
        together = self._options.multi_statements
        last = [Statement(gate.move)] if gate.move else []
        found = packets(chain(self._checked(statements, connection.max_packet), last), size, together=together)
        head = next(found, [])
        if not head:
            return
        apart = not together or len(text_of(head)) + len(lock) >= size or not first
        answers = connection.answers(lock if apart else lock + b";" + text_of(head))
        behind = len(answers) if apart else len(answers) - len(head)
        held = [row for answer in answers[:behind] for row in answer.rows]
        if not held:
            connection.rollback()
            raise Fenced("another attempt has begun: the database does not take this one's rows any more")
        if gate.move and int(str(held[0][0])) >= gate.to_ts:
            connection.rollback()  # the answer to its commit was lost
            return
        if not apart:
            _look(missed, head, answers[behind:])
        for packet in chain([head] if apart else [], found):
            _look(missed, packet, connection.answers(text_of(packet)))
        connection.commit()
        self.missed.add(missed)

    @staticmethod
    def _checked(statements: Iterable[Statement], most: int) -> Iterator[Statement]:
        for statement in statements:
            if len(statement.text) + 1024 > most:
                head = statement.text[:60].decode("utf-8", "replace")
                raise SinkError(
                    f"a row takes a statement of {len(statement.text)} bytes, max_allowed_packet of the server is {most}: {head}…",
                    hint="Raise max_allowed_packet of the server.",
                )
            yield statement


def _look(missed: Missed, packet: Sequence[Statement], answers: Sequence[Answer]) -> None:
    for statement, answer in zip(packet, answers, strict=True):
        missed.look(statement, answer)
