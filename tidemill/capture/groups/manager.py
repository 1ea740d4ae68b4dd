"""Manages all groups of a capture for its coordinator: connects the control server, the launcher and the scheduler. Runs on the event
loop."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tidemill.capture.config import CaptureConfig
from tidemill.capture.groups.credentials import Credentials, new_token
from tidemill.capture.groups.launch import Launcher, Processes, SparkJob
from tidemill.capture.groups.messages import Assignment, Ended
from tidemill.capture.groups.orders import GroupOrder, JobOrder
from tidemill.capture.groups.plan import address_for
from tidemill.capture.groups.scheduler import Action, Assign, Fail, Kill, Launch, Member, Order, Phase, Refuse, Say, Scheduler, Who
from tidemill.capture.groups.server import Control
from tidemill.capture.lifecycle import Lifecycle
from tidemill.capture.status import Section
from tidemill.errors import redact

TICK = 1.0
STOP_S = 20.0
"""How long groups may take to seal and end."""

Start = Callable[[Credentials, "GroupManager"], Launcher]

_log = logging.getLogger(__name__)


class GroupManager:
    """`schema()` returns how far the schema stream is: its head, and the end of its last segment. `start`: another launcher, for tests."""

    def __init__(
        self,
        config: CaptureConfig,
        cluster_id: str,
        divided: Sequence[tuple[int, ...]],
        folder: Path,
        life: Lifecycle,
        schema: Callable[[], tuple[int, int]],
        start: Start | None = None,
    ) -> None:
        self.config, self.divided, self.folder = config, list(divided), folder
        self._cluster_id, self._life, self._schema = cluster_id, life, schema
        self._start = start or _launcher
        self._token = new_token()
        self._control = Control(self._token, self, self._assignment)
        self._launcher: Launcher  # both are set by `open`
        self.scheduler: Scheduler
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self.assembled = asyncio.Event()
        """Set when all groups have had their partitions for the first time."""

    async def open(self) -> None:
        """Listen for groups. Raises ConfigError."""
        for left in self.folder.glob("group-*"):  # of groups that were killed
            shutil.rmtree(left, ignore_errors=True)
        await self._control.start(*address_for(self.config))
        credentials = Credentials(self._control.host, self._control.port, self.config.log, self._token)
        self._launcher = self._start(credentials, self)
        self.scheduler = Scheduler(
            self.divided,
            launches=self._launcher.launches,
            waits_for=self._launcher.waits_for,
            silent_after=self.config.silent_after,
        )

    def begin(self, divided: Sequence[tuple[int, ...]]) -> None:
        """Start the groups with these partitions, as many groups as before."""
        self.divided = list(divided)
        self.scheduler.divide(divided)
        self._do(self.scheduler.begin(self._loop.time()))

    async def run(self) -> None:
        """Watch over the groups forever. Raises the error that ends the capture."""
        launching = asyncio.ensure_future(self._launcher.run())
        try:
            while not launching.done():
                self._do(self.scheduler.tick(self._loop.time()))
                await asyncio.wait([launching], timeout=TICK)
            launching.result()
        finally:
            launching.cancel()
            await asyncio.gather(launching, return_exceptions=True)

    async def stop(self) -> None:
        """Let the groups seal and end; kill those that do not."""
        self._do(self.scheduler.stop(self._loop.time()))
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                while not self.scheduler.is_over:
                    self._ended.clear()
                    await self._ended.wait()
        await self._launcher.stop()

    async def close(self) -> None:
        """Close the port."""
        await self._control.stop()

    def follow(self) -> None:
        """Tell the groups that the schema stream has advanced."""
        for group, attempt in self.scheduler.running():
            self._control.head(group, attempt, *self._schema())

    # ------------------------------------------------------------------ events of the connections and the launcher

    def came(self, group: int, who: Who) -> None:
        self._do(self.scheduler.hello(group, who, self._loop.time()))
        if len(self.scheduler.running()) == len(self.divided):
            self.assembled.set()

    def reported(self, group: int, attempt: int, section: Section) -> None:
        self.scheduler.report(group, attempt, section, self._loop.time())

    def failed(self, group: int, attempt: int, ended: Ended) -> None:
        if ended.code:
            self._do(self.scheduler.failed(group, attempt, ended.code, ended.message, ended.retryable))

    def went(self, group: int, attempt: int) -> None:
        self.exited(group, attempt, "its connection ended")

    def exited(self, group: int, attempt: int, how: str) -> None:
        """Note that an attempt's process, or its connection, has ended."""
        self._do(self.scheduler.gone(group, attempt, how, self._loop.time()))
        self._ended.set()

    def _assignment(self, group: int) -> Assignment:
        settings = self.config.of_group(len(self.divided))
        return Assignment(self.divided[group], self._cluster_id, settings, *self._schema())

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Launch(group, attempt):
                    self._launcher.launch(group, attempt)
                case Assign(group, attempt):
                    self._control.assign(group, attempt)
                case Refuse(group, attempt, reason):
                    self._control.refuse(group, attempt, reason)
                case Order(group, attempt):
                    self._control.order(group, attempt)
                case Kill(group, who):
                    self._launcher.kill(group, who)
                case Fail(error):
                    self._life.fail(error)
                case Say(text, grave):
                    _log.log(logging.WARNING if grave else logging.INFO, "%s", text)

    # ------------------------------------------------------------------ status

    @property
    def synced(self) -> dict[int, int]:
        """The heads of partitions that survive a crash of their machine, as last reported."""
        return {p: head for m in self.scheduler.members if m.section is not None for p, head in m.section.synced.items()}

    @property
    def heads(self) -> dict[int, int]:
        """The heads of partitions, as their groups last reported."""
        return {p: head for m in self.scheduler.members if m.section is not None for p, head in m.section.heads.items()}

    def progress(self) -> int:
        """Return a number that grows as groups advance."""
        return sum(self.heads.values())

    def sections(self) -> list[Section]:
        """Return each group's section; its regions are marked with the group and its host."""
        return [_marked(m) for m in self.scheduler.members if m.section is not None]

    def look(self) -> list[dict[str, Any]]:
        """Return the groups' state for the status."""
        now = self._loop.time()
        trouble = self._launcher.trouble()
        return [_described(m, now - m.since, trouble if m.phase is Phase.WAITING else None) for m in self.scheduler.members]


def _marked(member: Member) -> Section:
    assert member.section is not None
    where = {"group": member.number, "host": member.who.host if member.who is not None else ""}
    section = member.section
    slowest, held = [one | where for one in section.slowest], [one | where for one in section.held_tables]
    return replace(section, slowest=slowest, held_tables=held, stuck=[one | where for one in section.stuck])


_TOLD_TOGETHER = ("heads", "synced", "slowest", "stuck", "held_tables")
"""Fields that the status reports for all groups together, not for each."""


def _described(member: Member, seconds: float, trouble: tuple[str, str] | None) -> dict[str, Any]:
    error = member.error or trouble
    who, section = member.who, member.section or Section()
    connected = member.phase in (Phase.RUNNING, Phase.HELD, Phase.STOPPING)
    return {
        "group": member.number,
        "state": member.phase.value,
        "since": (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="seconds"),
        "host": who.host if who is not None and connected else "",
        "pid": who.pid if who is not None and connected else 0,
        "attempt": member.attempt,
        "restarts": member.restarts,
        "partitions": list(member.partitions),
        "heads": {str(p): section.heads.get(p, 0) for p in member.partitions},
        "error": {"code": error[0], "message": redact(error[1])} if error is not None else None,
        "part": {name: value for name, value in asdict(section).items() if name not in _TOLD_TOGETHER},
    }


def _launcher(credentials: Credentials, manager: GroupManager) -> Launcher:
    config, folder = manager.config, manager.folder
    if config.master is None:
        return Processes(partial(group_order, credentials, config, folder), manager.exited)
    groups = len(manager.divided)
    quota = config.of_group(groups)["memory_quota"]
    order = JobOrder(credentials, config.master, groups, quota, folder, config.log_level, config.log_file)
    return SparkJob(order, manager.progress)


def group_order(credentials: Credentials, config: CaptureConfig, folder: Path, group: int, attempt: int) -> GroupOrder:
    """Return the order of a group's process."""
    return GroupOrder(credentials, group, attempt, folder / f"group-{group}-{attempt}", config.log_level, config.log_file)
