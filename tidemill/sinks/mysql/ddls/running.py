"""DDLs that run: one that everything waits for, and those that go on beside the rows (ADD INDEX).

What goes on is in the books until it is done, with its text: the next process runs it again, and it is done then, or was before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from tidemill.errors import SinkUnavailable
from tidemill.sinks.mysql.codes import Fate
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.control import Ddl
from tidemill.sinks.mysql.ddls.plans import Writer
from tidemill.sinks.mysql.ddls.statement import UPSTREAMS, execute
from tidemill.tso import describe
from tidemill.visible import short_statement

log = logging.getLogger(__name__)

LOOK_S = 0.1
KILLED_S = 10.0
"""How long a statement that was killed may go on. TiDB ends none that waits for a reader of its table. Then its connection is given up, and
the next start waits for its lock (`lock`)."""


class Running:
    """A DDL in a thread of its own."""

    def __init__(self, ddl: Ddl, connect: Callable[[], Connection], writer: Writer, *, keep: bool) -> None:
        """`connect` gives the connection, in the thread. `keep`: it is not closed."""
        self.ddl = ddl
        self._connect, self._writer, self._keep = connect, writer, keep
        self._connection: Connection | None = None
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self.over = threading.Event()
        threading.Thread(target=self._run, name="mysql-ddl", daemon=True).start()

    def _run(self) -> None:
        try:
            self._connection = self._connect()
            execute(self._connection, self.ddl, self._writer, UPSTREAMS, self._stop)
        except BaseException as error:
            self.error = error
        finally:
            if self._connection is not None and not self._keep:
                self._connection.close()
            self.over.set()

    def kill(self) -> None:
        """End the statement that runs, and what would follow it. Never raises."""
        self._stop.set()
        if self._connection is not None:
            self._connection.kill()

    def _end(self) -> bool:
        """End it here: with its statement, which is killed, or without. Returns whether the statement is over in the server too."""
        deadline = time.monotonic() + KILLED_S
        while time.monotonic() < deadline:  # it may begin a statement meanwhile
            self.kill()
            if self.over.wait(LOOK_S):
                return True
        if self._connection is not None:
            self._connection.interrupt()
        self.over.wait()
        return False

    def await_end(self, stop: threading.Event, seconds: float | None = None) -> bool:
        """Wait until it is over, at most so long. If a stop is asked for, the statement is killed. Returns whether it is over.

        Raises what it raised, SinkUnavailable after a stop."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self.over.wait(LOOK_S):
            if stop.is_set():
                then = "runs it again" if self._end() else "waits for it if the server goes on with it"
                raise SinkUnavailable(f"stopped while a DDL ran; the next start {then}: {short_statement(self.ddl.query)}")
            if deadline is not None and time.monotonic() >= deadline:
                return False
        if self.error is not None:
            raise self.error
        return True


class Background:
    """The DDLs of a changefeed that go on beside the rows."""

    def __init__(self, connect: Callable[[], Connection], writer: Callable[[Ddl], Writer]) -> None:
        self._connect, self._writer = connect, writer
        self._running: list[Running] = []

    def start(self, ddl: Ddl) -> Running:
        """Begin one."""
        self._running.append(Running(ddl, self._connect, self._writer(ddl), keep=False))
        return self._running[-1]

    def settle(self, tables: Sequence[str], stop: threading.Event) -> None:
        """Wait for those of these tables (`schema.table`, `schema.*`). A stop ends the waiting, not the DDL. Raises SinkUnavailable."""
        for one in [one for one in self._running if _meet(one.ddl.tables, tables)]:
            if not one.over.is_set():
                log.info("waiting for a DDL of the same table: %s", short_statement(one.ddl.query))
            while not one.over.wait(LOOK_S):
                if stop.is_set():
                    raise SinkUnavailable(f"stopped while a DDL waits for one before it: {short_statement(one.ddl.query)}")

    def ended(self) -> Iterator[tuple[Ddl, BaseException | None]]:
        """Yield those that are over, once, with the error of one that the server refused. What a fault ended that may pass is run again."""
        for one in [one for one in self._running if one.over.is_set()]:
            self._running.remove(one)
            if one.error is not None and may_pass(one.error):
                log.warning("DDL at %s is run again: %s: %s", describe(one.ddl.ts), one.error, short_statement(one.ddl.query))
                self.start(one.ddl)
                continue
            if one.error is None:
                log.info("DDL at %s is done: %s", describe(one.ddl.ts), short_statement(one.ddl.query))
            yield one.ddl, one.error


def may_pass(error: BaseException) -> bool:
    """Return whether a DDL that ended with this error may be run again."""
    return error.fate is not Fate.FAIL if isinstance(error, ServerFault) else getattr(error, "retryable", False)


def _meet(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether two lists of tables have one in common."""
    schemas = {name.removesuffix(".*") for name in (*ours, *theirs) if name.endswith(".*")}
    return bool({*ours} & {*theirs}) or (
        bool(schemas) and any(a.partition(".")[0] in schemas and a.partition(".")[0] == b.partition(".")[0] for a in ours for b in theirs)
    )
