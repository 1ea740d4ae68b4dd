"""A server over a fake host, a fake capture and a fake cluster."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemill.capture.rule_changes import Numbered
from tidemill.capture.rule_changes import report as rules_report
from tidemill.capture.tikv.client.pd import GcState
from tidemill.capture.tikv.gc import let_go
from tidemill.changelog.log_format import CaptureRules
from tidemill.metrics.samples import Sample
from tidemill.server import service as s
from tidemill.server.host.messages import Figures, progress, report
from tidemill.server.manager import Manager
from tidemill.server.options import ServerOptions
from tidemill.server.shared.members import Member
from tidemill.tso import compose

NOW = compose(1_764_000_000_000)
START = NOW - compose(60_000)
SINK = "blackhole://"


@dataclass
class FakePd:
    cluster_id: int = 7
    barriers: set[str] = field(default_factory=set)

    async def gc_safe_point(self) -> int:
        return START - compose(60_000)

    async def gc_state(self) -> GcState:
        return GcState(START, START, ())

    async def delete_gc_barrier(self, barrier_id: str) -> None:
        self.barriers.discard(barrier_id)


class FakeUpstream:
    """A cluster without tables."""

    def __init__(self) -> None:
        self.pd = FakePd()

    async def connect(self) -> FakePd:
        return self.pd

    async def close(self) -> None: ...

    async def now(self) -> int:
        return NOW

    async def tso(self) -> s.Tso:
        return s.Tso(NOW >> 18, 0)

    async def let_go(self, log: Mapping[str, object]) -> None:
        await let_go(self.pd, log)  # type: ignore[arg-type]

    async def resolve_lock(self, region_id: int, ts: int | None = None) -> int:
        return 0

    async def schemas(self, ts: int) -> Any:
        class Nothing:
            tables: Mapping[int, Any] = {}

            def snapshot(self, ts: int) -> Any:
                return self

        return Nothing()


@dataclass
class FakeProcesses:
    """Notes what it is told."""

    told: list[dict[str, Any]] = field(default_factory=list)
    capture_start: int | None = -1
    restarts: int = 0
    capture_starts: int = 0
    changes: int = 0
    """How often the capture was told to take other tables."""
    capture_heard: Callable[[bytes], None] = print
    rules: CaptureRules | None = None
    level: str = ""
    children: list[dict[str, object]] = field(default_factory=list)
    heard: Callable[[bytes], None] = print
    lost: Callable[[str, bool], None] = print

    def start_host(self, heard: Callable[[bytes], None], lost: Callable[[str, bool], None]) -> None:
        self.heard, self.lost = heard, lost
        heard(report("up"))

    def start_capture(
        self, start_ts: int | None, progress: Callable[[], int], rules: CaptureRules | None, heard: Callable[[bytes], None]
    ) -> None:
        self.capture_start, self.rules, self.capture_heard = start_ts, rules, heard
        self.capture_starts += 1

    def set_rules(self, asked: Numbered) -> None:
        self.rules = asked.rules
        self.changes += 1
        self.capture_heard(rules_report(self.take_rules(asked)))

    def take_rules(self, asked: Numbered) -> Numbered:
        """As the capture: return what the log has then."""
        return asked

    def tell_host(self, line: bytes) -> bool:
        self.told.append(json.loads(line))
        return True

    def restart_host(self) -> None:
        self.restarts += 1

    def set_log_level(self, level: str) -> None:
        self.level = level

    def trouble(self) -> str | None:
        return None

    def seen(self) -> Sequence[Mapping[str, object]]:
        return self.children

    async def stop(self) -> None: ...

    async def kill(self) -> None: ...

    def last(self, do: str) -> dict[str, Any]:
        return [one for one in self.told if one["do"] == do][-1]


class World:
    """A server in a folder."""

    def __init__(self, folder: Path, gc_ttl: float = 86400.0, data: str = "data", **more: Any) -> None:
        """`more`: of the server's options."""
        self.folder, self.processes, self.upstream = folder, FakeProcesses(), FakeUpstream()
        options = ServerOptions(str(folder / "log"), folder / data, "127.0.0.1:8300", gc_ttl=gc_ttl, **more)
        self.manager = Manager(options, self.upstream, lambda delivered, term: self.processes)  # type: ignore[arg-type]

    async def __aenter__(self) -> World:
        await self.manager.start()
        await self.manager.lead(1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.manager.stop()

    async def create(self, feed: str = "f", **more: Any) -> s.ChangefeedInfo:
        wanted = s.NewChangefeed(SINK, feed, start_ts=START, **more)
        return (await self.manager.create(wanted)).info

    def says(self, word: str, **more: Any) -> None:
        """The host says something of the newest run."""
        start = self.processes.last("start")
        self.processes.heard(report(word, feed=start["feed"], run=start["run"], **more))

    def moves(self, checkpoint_ts: int, **more: Any) -> None:
        start = self.processes.last("start")
        self.processes.heard(progress({start["feed"]: Figures(start["run"], checkpoint_ts, checkpoint_ts, moved_at=time.time(), **more)}))


@dataclass
class FakeElector:
    """This server leads; another one is there."""

    members: list[Member]
    leads: bool = True
    resigned: list[float | None] = field(default_factory=list)
    failures: int = 0

    def resign(self, rests_s: float | None = None) -> None:
        self.resigned.append(rests_s)

    def failed(self) -> None:
        self.failures += 1

    def samples(self) -> Sequence[Sample]:
        return ()


def run(work: Any) -> Any:
    return asyncio.run(work)
