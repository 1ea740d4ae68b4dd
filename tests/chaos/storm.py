"""A demo workload with DDL whose processes are killed at random, seeded moments; afterwards everything has to be there.

What may happen: kill -9 of the capture, of the Spark driver, of its JVM, of Python workers, of the supervisor (which is started again as a
person would); the upstream's streams break; the upstream does not answer for some seconds.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.support.delivery.runs import assert_equal, audited, await_that, gone, processes, settled
from tidemill.demo.delivered import from_files, from_kafka
from tidemill.demo.session import Delivery, DemoFailed, Upstream
from tidemill.playground.programs.kafka_broker import KafkaBroker

ROLES = ("capture", "driver", "jvm", "worker", "supervisor")
FAULTS = (*ROLES, "streams", "silence")
SILENCE_S = 4.0
TOPIC = "storm"


@dataclass
class Storm:
    """One upstream, one run, many faults. Into files, or into Kafka, where a batch that is tried again leaves repeats."""

    folder: Path
    seed: int
    faults: int
    kafka: bool = False
    mode: str = "throughput"  # performance-mode
    kinds: tuple[str, ...] = FAULTS
    say: Callable[[str], None] = print
    happened: list[str] = field(default_factory=list)

    def blow(self) -> None:
        """Run it all. Raises AssertionError naming what is lost, and the seed."""
        options = ("--stores", "2", "--resolved-interval", "0.3", "--ddl-every", "60", "--region-every", "60")
        rng = random.Random(self.seed)
        config = self.folder / "feed.toml"
        config.write_text(f'performance-mode = "{self.mode}"\n')
        with ExitStack() as stack:
            broker = stack.enter_context(KafkaBroker()).address if self.kafka else ""
            place = f"kafka://{broker}/{TOPIC}" if broker else f"file://{self.folder}/delivered"
            sink = f"{place}?protocol=open-protocol&partition-num=3"
            upstream = stack.enter_context(Upstream(self.folder, seed=self.seed, rate=25, options=options))
            delivery = Delivery(
                self.folder, upstream, sink, options=("--trigger-ms", "50", "--config", str(config)), start_ts=upstream.began_ts
            )
            stack.enter_context(delivery)
            await_that(lambda: "worker" in processes(delivery), "Spark is up: a run whose first start fails is over", delivery)
            order = [kind for _ in range(1 + self.faults // len(self.kinds)) for kind in rng.sample(self.kinds, len(self.kinds))]
            for kind in order[: self.faults]:
                self._calm(rng, delivery)
                self.happened.append(kind)
                self.say(f"{kind} at checkpoint {delivery.checkpoint()}")
                self._strike(kind, rng, upstream, delivery)
            end_ts, truth = settled(upstream, delivery)
            everyone = [p for group in processes(delivery).values() for p in group]
            assert delivery.stop() == 0, "the run did not end with 0"
            assert gone(everyone) == [], "processes outlived the run"
            audit = audited(from_kafka(broker, TOPIC) if broker else from_files(self.folder / "delivered"))
            assert_equal(audit, delivery.log, truth, end_ts)
            assert len(audit.ddls) > 3
            self.say(f"{len(audit.rows)} rows, {len(audit.ddls)} DDLs, {audit.repeats} repeats after {', '.join(self.happened)}")

    def _calm(self, rng: random.Random, delivery: Delivery) -> None:
        """Mostly wait until something was delivered since the last fault, then for a random moment; now and then strike at once."""
        if rng.random() < 0.8:
            before = delivery.checkpoint()
            await_that(lambda: delivery.checkpoint() > before and "worker" in processes(delivery), "it goes on", delivery)
        time.sleep(rng.random() * 1.5)  # the random moment

    def _strike(self, kind: str, rng: random.Random, upstream: Upstream, delivery: Delivery) -> None:
        if kind == "streams":
            upstream.call("break-streams", store=rng.choice((1, 2)))
        elif kind == "silence":
            assert upstream.pid is not None
            os.kill(upstream.pid, signal.SIGSTOP)
            time.sleep(SILENCE_S)  # the silence itself
            os.kill(upstream.pid, signal.SIGCONT)
        elif kind == "supervisor":
            everyone = [p for group in processes(delivery).values() for p in group]
            delivery.kill()
            delivery.start()
            assert gone(everyone, 90) == [], "processes outlived their supervisor"
        else:
            self._kill(kind, rng, delivery)

    def _kill(self, role: str, rng: random.Random, delivery: Delivery) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            delivery.check()
            found = processes(delivery).get(role, [])
            if found:
                try:
                    rng.choice(_forked(found) if role == "worker" else found).kill()
                except psutil.NoSuchProcess:
                    continue
                return
            time.sleep(0.05)
        raise DemoFailed(f"no process to kill: {role}")


def _forked(workers: list[psutil.Process]) -> list[psutil.Process]:
    """The workers without the daemon that forked them, if there are any. A worker that has lost its daemon goes on, and nobody finds it."""
    pids = {one.pid for one in workers}
    return [one for one in workers if one.ppid() in pids] or workers
