"""The coordinator's end of the connections: admits groups, and passes messages on. Runs on the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from tidemill.capture.groups.connection import HANDSHAKE_S, Wire, nonce
from tidemill.capture.groups.messages import (
    Assignment,
    Challenge,
    Ended,
    Head,
    Hello,
    Message,
    Refused,
    Report,
    Stop,
    is_proof,
    proof,
)
from tidemill.capture.groups.scheduler import Who
from tidemill.capture.status import Section
from tidemill.errors import MalformedMessage, cannot_listen

STRANGER_LINE = 4 << 10
"""Bytes of the line with which a group proves that it has this capture's token."""
STRANGERS = 64
"""How many connections may be open that have proven nothing."""
MOST_WAITING = 32 << 20
"""Unsent bytes after which a group that does not read is disconnected."""

_log = logging.getLogger(__name__)


class Listener(Protocol):
    """Is told what happens on the connections."""

    def came(self, group: int, who: Who) -> None: ...

    def reported(self, group: int, attempt: int, section: Section) -> None: ...

    def failed(self, group: int, attempt: int, ended: Ended) -> None: ...

    def went(self, group: int, attempt: int) -> None: ...


class Control:
    """The server for the groups of one capture. `assignment(group)` returns an assignment without its proof."""

    def __init__(self, token: str, listener: Listener, assignment: Callable[[int], Assignment]) -> None:
        self._token, self._listener, self._assignment = token, listener, assignment
        self._server: asyncio.Server | None = None
        self._wires: dict[tuple[int, int], tuple[Wire, str]] = {}  # by group and attempt, with the group's nonce
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[asyncio.Task[None], Wire] = {}
        self.host, self.port = "", 0

    async def start(self, host: str, port: int = 0) -> None:
        """Listen; port 0: any free port. Raises ConfigError."""
        try:
            self._server = await asyncio.start_server(self._accept, host, port, limit=STRANGER_LINE)
        except (OSError, OverflowError) as e:
            raise cannot_listen("--control-addr", f"{host}:{port}", e) from None
        self.host, self.port = host, self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for wire, _ in self._wires.values():
            wire.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ------------------------------------------------------------------ to groups

    def assign(self, group: int, attempt: int) -> None:
        """Give the attempt its partitions."""
        wire, theirs = self._wires.get((group, attempt), (None, ""))
        if wire is not None:
            assignment = self._assignment(group)
            shown = proof(self._token, "coordinator", theirs, group, attempt)
            wire.send(
                Assignment(assignment.partitions, assignment.cluster_id, assignment.settings, assignment.head, assignment.last_to, shown)
            )

    def refuse(self, group: int, attempt: int, reason: str) -> None:
        """Close the attempt's connection, with a reason."""
        wire, _ = self._wires.pop((group, attempt), (None, ""))
        if wire is not None:
            wire.send(Refused(reason))
            wire.close()

    def order(self, group: int, attempt: int) -> None:
        """Tell the attempt to end."""
        self._send(group, attempt, Stop())

    def head(self, group: int, attempt: int, ts: int, last_to: int) -> None:
        """Tell the attempt that the schema stream has advanced."""
        self._send(group, attempt, Head(ts, last_to))

    def _send(self, group: int, attempt: int, message: Message) -> None:
        wire, _ = self._wires.get((group, attempt), (None, ""))
        if wire is None:
            return
        if wire.waiting > MOST_WAITING:
            wire.abort()
        else:
            wire.send(message)

    # ------------------------------------------------------------------ from groups

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        wire = Wire(reader, writer)
        if len(self._strangers) >= STRANGERS:
            _log.warning("more than %d connections to the groups' port say nothing: the oldest is closed", STRANGERS)
            self._strangers.pop(next(iter(self._strangers))).abort()
        self._strangers[task] = wire
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                hello = await self._meet(wire)
            self._strangers.pop(task, None)
            if hello is not None:
                wire.trust()
                await self._attend(wire, hello)
        except TimeoutError:
            _log.warning("a connection to the groups' port sent nothing and is closed")
        except MalformedMessage as e:
            _log.warning("a group's connection is closed: %s", e.message)
        finally:
            self._strangers.pop(task, None)
            wire.close()

    async def _meet(self, wire: Wire) -> Hello | None:
        mine = nonce()
        wire.send(Challenge(mine))
        hello = await wire.receive()
        if hello is None:
            return None
        if not isinstance(hello, Hello):
            raise MalformedMessage("it did not say hello")
        if not is_proof(hello.proof, self._token, "group", mine, hello.nonce, hello.group, hello.attempt):
            _log.warning("a connection without this capture's token claimed to be group %d", hello.group)
            return None
        return hello

    async def _attend(self, wire: Wire, hello: Hello) -> None:
        group, attempt = hello.group, hello.attempt
        if (group, attempt) in self._wires:
            wire.send(Refused("this attempt is connected already"))
            return
        self._wires[group, attempt] = wire, hello.nonce
        try:
            self._listener.came(group, Who(attempt, hello.pid, hello.host, hello.task))
            while (message := await wire.receive()) is not None:
                if isinstance(message, Report):
                    self._listener.reported(group, attempt, _section(message))
                elif isinstance(message, Ended):
                    self._listener.failed(group, attempt, message)
                else:
                    raise MalformedMessage(f"group {group} sent a {type(message).__name__}")
        finally:
            if self._wires.get((group, attempt), (None, ""))[0] is wire:
                del self._wires[group, attempt]
            self._listener.went(group, attempt)


def _section(report: Report) -> Section:
    try:
        return Section.from_dict(report.section)
    except (TypeError, ValueError, AttributeError) as e:
        raise MalformedMessage(f"a report of a group: {e}") from None
