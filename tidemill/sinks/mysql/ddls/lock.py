"""A lock of the server (GET_LOCK) under which DDLs run.

It belongs to a session: the commit that a DDL makes does not release it, the end of the session does, which the server makes behind the
session's statement. MySQL, MariaDB and TiDB are alike here. So whoever gets the lock knows that no statement of its last holder runs, and
that none can begin: its session is gone, or gave the lock up.

TiDB does not tell which session holds a lock. There each session that asks for one takes a lock with its own id in the name as well.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tidemill.errors import SinkUnavailable
from tidemill.sinks.mysql.connection import Connection, ServerFault

log = logging.getLogger(__name__)

WAIT_S = 1
"""How long the server waits at a time: a stop is heeded in between."""
_NO_THREAD = 1094
_IDLE = "Sleep"


@dataclass(frozen=True, slots=True)
class _Words:
    """How a server is asked to give a lock, to take it back, and for the sessions that may hold it: their ids, commands and statements."""

    take: str
    give_up: str
    holders: str


_COMMON = _Words(
    "SELECT GET_LOCK('{name}', {seconds})",
    "SELECT RELEASE_LOCK('{name}')",
    "SELECT id, command, info FROM information_schema.processlist WHERE id = IS_USED_LOCK('{name}')",
)
_TIDB = _Words(
    "SELECT GET_LOCK('{name}', {seconds}), GET_LOCK(CONCAT('{name}:', CONNECTION_ID()), 0)",
    "SELECT RELEASE_ALL_LOCKS()",
    "SELECT id, command, info FROM information_schema.processlist "
    "WHERE id <> CONNECTION_ID() AND IS_USED_LOCK(CONCAT('{name}:', id)) IS NOT NULL",
)


def _words(connection: Connection) -> _Words:
    return _TIDB if connection.server.is_tidb else _COMMON


Check = Callable[[Connection], None]
"""Raises Fenced unless the caller is the newest of its name."""


def lock_name(*parts: object) -> str:
    """Return the name of a lock: servers take 64 characters and do not tell letter case."""
    return "tidemill:" + hashlib.md5(repr(parts).encode(), usedforsecurity=False).hexdigest()


@contextmanager
def held(connection: Connection, name: str, check: Check, stop: threading.Event) -> Iterator[None]:
    """Hold a lock. `check` is called once it is held, as well: a newer driver may have taken over meanwhile.

    Raises Fenced, ServerFault, SinkUnavailable after a stop.
    """
    _take(connection, name, check, stop)
    try:
        check(connection)
        yield
    finally:
        with suppress(ServerFault):  # the session is gone, and the lock with it
            connection.rows(_words(connection).give_up.format(name=name))


def _take(connection: Connection, name: str, check: Check, stop: threading.Event) -> None:
    """Take a lock. Its holder is of an earlier driver: a statement that it runs is waited for, a session that does nothing is ended."""
    words, seconds = _words(connection), 0
    while connection.rows(words.take.format(name=name, seconds=seconds))[0][0] != 1:
        if stop.is_set():
            raise SinkUnavailable(f"{connection.where}: stopped while a DDL of an earlier driver ran")
        holders = connection.rows(words.holders.format(name=name))
        connection.rollback()
        check(connection)  # behind the question who holds it: a newer driver's session is never ended
        for session, command, text in holders:
            if command == _IDLE:
                log.warning(
                    "%s: session %s of an earlier driver holds the lock for DDLs and does nothing: it is ended", connection.where, session
                )
                _end(connection, int(session))
            elif not seconds:
                log.warning("%s: waiting for a DDL of an earlier driver in session %s: %s", connection.where, session, text)
        seconds = WAIT_S


def _end(connection: Connection, session: int) -> None:
    try:
        connection.run(f"KILL {session}")
    except ServerFault as fault:
        if fault.code != _NO_THREAD:
            raise
