"""What a server does with its two processes, the capture and the delivery host. `standing_by.py` starts them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tidemill.process.children import Child
from tidemill.server.standing_by import CAPTURE, DELIVERY, Commands, Lasting, LastingProcess, Lost, Standby


class Processes(Protocol):
    """What the server asks of its processes. Tests have their own."""

    def start_host(self, heard: Callable[[bytes], None], lost: Lost) -> None: ...

    def start_capture(self, start_ts: int | None, progress: Callable[[], int], rules: Path | None) -> None:
        """`rules`: a --capture-config file; None: none of the server's."""

    def restart_capture(self) -> None:
        """Let it end: it is started again, and reads the rules again."""

    def tell_host(self, line: bytes) -> bool:
        """False if it did not take the line."""

    def restart_host(self) -> None:
        """End it: it is started again."""

    def set_log_level(self, level: str) -> None:
        """Tell both, now and whenever one is started again."""

    def trouble(self) -> str | None:
        """What is wrong with them; None: nothing."""

    def seen(self) -> Sequence[Mapping[str, object]]:
        """For /debug/info."""

    async def stop(self) -> None:
        """Let them end in good order."""

    async def kill(self) -> None:
        """End them at once."""


MakeProcesses = Callable[[Callable[[], int], int], Processes]
"""Makes the processes of a term: of how many batches were delivered, and the term."""


class OwnProcesses:
    """Real ones."""

    def __init__(self, commands: Commands, delivered: Callable[[], int], term: int, standby: Standby | None = None) -> None:
        """`delivered`: grows as changefeeds advance. `term`: in which this server leads. `standby`: keeps processes that are loaded."""
        self._commands, self._delivered, self._term = commands, delivered, ("--term", str(term))
        self._standby = standby or Standby(commands)
        self._running: dict[str, LastingProcess] = {}
        self._level = ""
        """The log level that they were told; empty: that of their command lines."""

    def start_host(self, heard: Callable[[bytes], None], lost: Lost) -> None:
        rule = Lasting("delivery host", self._delivered, lost)
        self._begin(DELIVERY, self._term, rule, heard)

    def start_capture(self, start_ts: int | None, progress: Callable[[], int], rules: Path | None) -> None:
        at = ("--start-ts", str(start_ts)) if start_ts is not None else ()
        only = ("--capture-config", str(rules)) if rules is not None else ()
        self._begin(CAPTURE, (*at, *only, *self._term), Lasting("capture", progress, lambda why, crashed: None))

    def _begin(self, name: str, more: Sequence[str], rule: Lasting, heard: Callable[[bytes], None] = lambda line: None) -> None:
        process = self._running[name] = self._standby.take(name)
        process.set_level(self._level)
        process.begin(more, rule, heard)

    def set_log_level(self, level: str) -> None:
        self._level = level
        for process in self._running.values():
            process.set_level(level)

    def tell_host(self, line: bytes) -> bool:
        process = self._running.get(DELIVERY)
        return process is not None and process.tell(line)

    def restart_host(self) -> None:
        child = self._child(DELIVERY)
        if child is not None:
            child.kill()

    def restart_capture(self) -> None:
        child = self._child(CAPTURE)
        if child is not None:
            child.terminate()

    def _child(self, name: str) -> Child | None:
        found = self._running.get(name)
        return found.child.process if found is not None else None

    def trouble(self) -> str | None:
        for name, process in sorted(self._running.items()):
            child = process.child
            if child.pid is None:
                return f"the {name} process does not run: {child.last_error[1] if child.last_error else 'it is being started'}"
        return None

    def seen(self) -> Sequence[Mapping[str, object]]:
        children = [process.child for process in self._running.values()]
        return [{"name": c.name, "pid": c.pid, "restarts": c.restarts, "last_error": c.last_error} for c in children]

    async def stop(self) -> None:
        await asyncio.gather(*(process.stop() for process in self._running.values()))

    async def kill(self) -> None:
        await asyncio.gather(*(process.kill() for process in self._running.values()))
