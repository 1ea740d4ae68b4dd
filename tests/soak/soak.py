"""A soak: one playground, one capture, and everything that may go wrong between them, as a seed decides.

At the end the upstream rests, the capture catches up, ends whatever orphan locks are left, and is stopped; then the log is judged. While
it runs, the resolved ts never goes back, and the service safe point is never above what the log has.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psutil

from tests.soak.judge import judge
from tests.soak.plan import FAULTS, Plan
from tests.soak.processes import Capture, Tls, Upstream
from tidemill.changelog.log_format import folders
from tidemill.changelog.reader import LogReader
from tidemill.errors import SqlError, TidemillError

CATCH_UP_S = 300.0
LOOK_S = 0.2
LONG_S = 20.0
"""A soak that takes longer leaves orphan locks at its end."""
ORPHANS: tuple[dict[str, Any], ...] = (
    {}, {"primary": "committed"}, {"primary": "rolled-back"}, {"async_commit": True}, {"kind": "pessimistic"}, {"kind": "lock"},
)  # fmt: skip


@dataclass
class Soak:
    """`run` it once. `seconds`: how long faults happen."""

    folder: Path
    seed: int
    seconds: float
    say: Callable[[str], None] = print
    happened: Counter[str] = field(default_factory=Counter)
    heads: list[int] = field(default_factory=list)
    told: int = 0  # the resolved ts in the last status
    samples: int = 0

    def __post_init__(self) -> None:
        self.plan = Plan.of(self.seed)
        self.random = Random(self.seed + 1)

    def run(self) -> None:
        """Raises AssertionError that says what is wrong and how to run it again."""
        self.say(f"soak SEED={self.seed}: {self.plan}")
        try:
            self._run()
        except (AssertionError, TidemillError) as error:
            again = f"make soak SEED={self.seed} ROUNDS=1 SECONDS={self.seconds:.0f}"
            raise AssertionError(f"{error}\nRun it again with: {again}\nIts folder: {self.folder}") from error

    def _run(self) -> None:
        tls = Tls.of(self.plan.tls, self.folder)
        with Upstream(self.folder, self.plan.upstream, tls) as upstream:
            start = ["--start-ts", str(upstream.stats()["began_ts"])] if self.plan.from_the_beginning else []
            capture = Capture(self.folder, ["--pd", upstream.pd, *start, *self.plan.capture, *tls.client])
            began = time.monotonic()
            capture.start()
            try:
                capture.running()
                took = {"start": time.monotonic() - began}
                self._storm(upstream, capture)
                began = time.monotonic()
                self._calm(upstream, capture)
                took["calm"] = time.monotonic() - began
                capture.stop()
            finally:
                if capture.process is not None and capture.process.poll() is None:
                    capture.process.kill()
                    capture.process.wait()
            upstream.call("dump", path=str(self.folder / "dump.arrow"))
            began = time.monotonic()
            figures = judge(capture.log, self.folder / "dump.arrow", upstream.pd, tls.security)
            took["judge"] = time.monotonic() - began
            assert not capture.stalls(), "\n".join(capture.stalls())
            work = upstream.stats()["workload"]
        self.say(f"  {figures}; {capture.starts} starts; {dict(sorted(self.happened.items()))}")
        self.say(f"  seconds: {took}")
        self.say(f"  upstream {work}; capture {dict(sorted(capture.totals.items()))}; {self.samples} looks")

    # ------------------------------------------------------------------ faults

    def _storm(self, upstream: Upstream, capture: Capture) -> None:
        upstream.call("gc", life_time_ms=3_600_000, remember=True)
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            self._watch(upstream, capture, self.random.choice((0.1, 0.4, 1.0)) * 2 * self.random.random())
            [kind] = self.random.choices(list(FAULTS), list(FAULTS.values()))
            try:
                self._strike(kind, upstream, capture)
            except SqlError as refused:  # two faults in each other's way: the store is down already, the region is gone
                self.happened["refused"] += 1
                self.say(f"  {kind}: {refused.message}")
            self.happened[kind] += 1
        if not self.happened["kill"]:
            self._strike("kill", upstream, capture)
            self.happened["kill"] += 1

    def _strike(self, kind: str, upstream: Upstream, capture: Capture) -> None:
        random, plan = self.random, self.plan
        store = random.randint(1, plan.stores)
        match kind:
            case "kill":
                capture.kill()
                self._watch(upstream, None, random.choice((0.0, 0.0, 1.0)))
                capture.start()
            case "worker" if plan.workers > 1 and (workers := capture.workers()):
                with suppress(psutil.NoSuchProcess):
                    random.choice(workers).kill()
            case "sleep":
                self._sleep(random.choice([psutil.Process(capture.pid), *capture.workers()]), random.choice((1.0, 4.0)))
            case "stop":
                capture.running()
                capture.stop()
                capture.start()
            case "wire":
                fault = random.choice(("reset", "cut", "cut", "goaway", "goaway", "stall", "refuse"))
                member = random.randint(1, plan.pds) if random.random() < 0.2 else 0
                self.happened[fault] += 1
                upstream.call("wire", fault=fault, store=store, member=member, seconds=random.choice((0.3, 2.0, 6.0)))
            case "streams":
                upstream.call("break-streams", store=store)
            case "store":
                upstream.call("restart-store", store=store, seconds=random.choice((0.1, 1.0, 3.0)))
            case "pd" | "pds":
                upstream.call("restart-pd", all=kind == "pds", seconds=random.choice((0.1, 1.0, 4.0)))
            case "pd leader" if plan.pds > 1:
                upstream.call("pd-leader")
            case "gc":
                upstream.call("gc", life_time_ms=0)
            case "busy":
                upstream.call("busy", scans=random.choice((0, 1)), seconds=random.choice((0.5, 2.0)))
            case "pace":
                upstream.call("pace", seconds=random.choice((plan.resolved_interval, plan.resolved_interval, 2.0)))
            case "split" | "merge" | "leader" | "region" | "mute":
                self._change_region(kind, upstream)

    @staticmethod
    def _sleep(process: psutil.Process, seconds: float) -> None:
        """A process does nothing for a while, and does not know it."""
        with suppress(psutil.NoSuchProcess):
            process.suspend()
            time.sleep(seconds)  # the sleep itself
            process.resume()

    def _change_region(self, kind: str, upstream: Upstream) -> None:
        random = self.random
        regions: list[dict[str, Any]] = upstream.call("regions")["regions"]
        position = random.randrange(len(regions))
        region = regions[position]
        if kind == "split":
            upstream.call("split", table=random.choice(("one.a", "one.b", "one.p", "one.q")), handles=[random.randrange(1000)])
        elif kind == "merge" and position + 1 < len(regions):
            pair = [region["id"], regions[position + 1]["id"]]
            random.shuffle(pair)
            upstream.call("merge", source=pair[0], target=pair[1])
        elif kind == "leader":
            upstream.call("transfer-leader", region=region["id"], store=random.choice(region["stores"]))
        elif kind == "region":
            errors = ("not_leader", "no_leader", "epoch_not_match", "region_not_found", "server_is_busy", "congested")
            upstream.call("fail-region", region=region["id"], error=random.choice(errors))
        elif kind == "mute":
            upstream.call("mute", region=region["id"])

    # ------------------------------------------------------------------ what must hold all the time

    def _watch(self, upstream: Upstream, capture: Capture | None, seconds: float) -> None:
        """Look at the log and at PD for a while."""
        until = time.monotonic() + seconds
        while True:
            if capture is not None:
                capture.check()
            self._look(upstream, capture)
            if time.monotonic() >= until:
                return
            time.sleep(LOOK_S)

    def _look(self, upstream: Upstream, capture: Capture | None) -> None:
        services: dict[str, int] = upstream.stats()["services"]
        heads = self._heads()
        assert not self.heads or all(new >= old for new, old in zip(heads, self.heads, strict=True)), (
            f"a head went back: {self.heads}, {heads}"
        )
        self.heads, kept = heads, self._kept()
        self.samples += 1
        for service, ts in services.items():
            if service != "gc_worker":
                assert ts <= kept, f"the safe point of {service} is {ts}, and the log has everything up to {kept} only"
        status = capture.status() if capture is not None else {}
        if status.get("resolved_ts"):
            assert self.told <= status["resolved_ts"], f"the status went back from {self.told} to {status['resolved_ts']}"
            assert status["resolved_ts"] <= self.resolved or status["resolved_ts"] <= min(self._heads()), (
                "the status says more than the log has"
            )
            self.told = status["resolved_ts"]

    @property
    def resolved(self) -> int:
        """The log's resolved ts at the last look."""
        return min(self.heads, default=0)

    def _kept(self) -> int:
        """Up to where the log is complete whatever happens to the machine. A segment counts a moment before head.json tells of it."""
        reader = LogReader(self.folder / "log")
        return min(reader.durable_head(folder) for folder in folders(reader.partitions))

    def _heads(self) -> list[int]:
        """Up to where each partition of the log, and its schema stream, is complete."""
        reader = LogReader(self.folder / "log")
        return [*(reader.head(p) for p in range(reader.partitions)), reader.schema_head()]

    # ------------------------------------------------------------------ the end

    @staticmethod
    def _plant(upstream: Upstream) -> int:
        """Locks of clients that died in every way; returns how many transactions."""
        planted = 0
        for name in ("one.a", "one.b", "one.h", "two.c"):
            try:
                upstream.call("resolve-orphans")
                handles = [row[0] for row in upstream.call("sql", text=f"select id from {name} limit 20")["rows"]]
                for i, more in enumerate(ORPHANS):
                    rows = handles[3 * i : 3 * i + 3]
                    if len(rows) == 3:
                        upstream.call("lock", table=name, handles=rows, ttl_ms=0, **more)
                        planted += 1
            except SqlError:
                continue  # a story of the workload was interrupted while the table had another name
        assert planted > len(ORPHANS), "the upstream has hardly a row"
        return planted

    def _calm(self, upstream: Upstream, capture: Capture) -> None:
        """No fault goes on; what was written arrives. Orphan locks are the capture's to end."""
        upstream.call("pace", seconds=self.plan.resolved_interval)
        upstream.call("pause")
        planted = self._plant(upstream) if self.seconds >= LONG_S else 0
        goal = int(upstream.stats()["ts"])
        deadline = time.monotonic() + CATCH_UP_S
        # At its goal the log may still wait for a lock of that very start_ts, and nobody can read there.
        while self.resolved <= goal or capture.status().get("parts_to_read", 1):
            self._watch(upstream, capture, LOOK_S)
            holding, locks = capture.status().get("holding"), upstream.stats()["locks"]
            still = f"the log stands still at {self.resolved} <= {goal} with {locks} locks, of {planted} orphan transactions: {holding}"
            assert time.monotonic() < deadline, still
