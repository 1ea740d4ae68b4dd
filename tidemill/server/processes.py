"""What a server does with its two processes, the capture and the delivery host. `standing_by.py` starts them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from tidemill.capture.config import CaptureConfig
from tidemill.capture.rule_changes import Numbered, command
from tidemill.changelog.log_format import CaptureRules
from tidemill.process.children import Child
from tidemill.process.supervisor import Restarts
from tidemill.server.standing_by import CAPTURE, DELIVERY, LastingProcess, Lost, Order, Standby, lasting


class Processes(Protocol):
    """What the server asks of its processes. Tests have their own."""

    def start_host(self, heard: Callable[[bytes], None], lost: Lost) -> None: ...

    def start_capture(
        self, start_ts: int | None, progress: Callable[[], int], rules: CaptureRules | None, heard: Callable[[bytes], None]
    ) -> None:
        """`rules`: which tables it takes; None: those of --capture-config."""

    def set_rules(self, asked: Numbered) -> None:
        """Tell the capture to take other tables, now and whenever it is started again."""

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

    def __init__(self, standby: Standby, delivered: Callable[[], int], term: int) -> None:
        """`standby`: keeps processes that are loaded. `delivered`: grows as changefeeds advance. `term`: in which this server leads."""
        self._standby, self._delivered, self._term = standby, delivered, term
        self._running: dict[str, LastingProcess] = {}
        self._level: str | None = None
        """The log level that they were told; None: that of their orders."""

    def start_host(self, heard: Callable[[bytes], None], lost: Lost) -> None:
        order = replace(self._standby.host, term=self._term)
        self._begin(DELIVERY, order, lasting("the delivery host", self._delivered, lost), heard)

    def start_capture(
        self, start_ts: int | None, progress: Callable[[], int], rules: CaptureRules | None, heard: Callable[[bytes], None]
    ) -> None:
        config = replace(self._standby.capture, term=self._term)
        if start_ts is not None:
            config = replace(config, start_ts=str(start_ts))
        if rules is not None:
            config = replace(config, rules=rules)
        self._begin(CAPTURE, config, lasting("the capture", progress), heard)

    def _begin(self, name: str, order: Order, rule: Restarts, heard: Callable[[bytes], None]) -> None:
        process = self._running[name] = self._standby.take(name)
        process.begin(order, rule, heard)
        if self._level is not None:
            process.set_level(self._level)

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

    def set_rules(self, asked: Numbered) -> None:
        process = self._running.get(CAPTURE)
        if process is not None:
            assert isinstance(process.order, CaptureConfig)
            process.order = replace(process.order, rules=asked.rules, rules_number=asked.number)
            process.tell(command(asked))

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
