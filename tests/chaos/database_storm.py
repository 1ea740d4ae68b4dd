"""A workload with DDLs into a MariaDB, everything killed at random, the database too; afterwards `tidemill diff` finds nothing.

The workload is one of the playground's: mixed, bank, soak. The tables are compared twice: with TiKV, and with the state of the change log.
"""

from __future__ import annotations

import random
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass

from tests.chaos.storm import ROLES, Storm
from tests.support.delivery.runs import await_that, gone, processes
from tests.support.servers.mariadb import MariaDb
from tidemill.demo.session import TIDEMILL, Delivery, Upstream
from tidemill.process import children

DATABASE = "database"
FAULTS = (*ROLES, "streams", DATABASE)
SOAK = """
[filter]
rules = ["*.*", "!one.a", "!one.b", "!one.tmp", "!two.a", "!two.c", "!two.l*", "!*.back", "!*.kept", "!d*.*"]
"""
"""Of the soak's tables those that are never recovered or flashed back, which only TiDB can do, nor made like such ones."""


@dataclass
class DatabaseStorm(Storm):
    """One upstream, one run into one database, many faults."""

    kinds: tuple[str, ...] = FAULTS
    workload: str = "mixed"
    parameters: str = ""
    server: MariaDb | None = None

    def blow(self) -> None:
        """Run it all. Raises AssertionError naming what differs, and the seed."""
        options = ("--stores", "2", "--resolved-interval", "0.3", "--ddl-every", "60", "--region-every", "60", "--workload", self.workload)
        rng = random.Random(self.seed)
        with ExitStack() as stack:
            server = self.server = stack.enter_context(MariaDb())
            upstream = stack.enter_context(Upstream(self.folder, seed=self.seed, rate=25, options=options))
            uri = f"{server.uri}?{self.parameters}"
            config = self.folder / "changefeed.toml"
            config.write_text(SOAK if self.workload == "soak" else "")
            run = ("--trigger-ms", "50", "--sink-retry", "240s", "--config", str(config))
            delivery = stack.enter_context(Delivery(self.folder, upstream, uri, options=run, start_ts=upstream.began_ts))
            await_that(lambda: delivery.feed_status().get("rows", 0) > 0, "rows are delivered", delivery)
            order = [kind for _ in range(1 + self.faults // len(self.kinds)) for kind in rng.sample(self.kinds, len(self.kinds))]
            for kind in order[: self.faults]:
                self._calm(rng, delivery)
                self.happened.append(kind)
                self.say(f"{kind} at checkpoint {delivery.checkpoint()}")
                self._strike(kind, rng, upstream, delivery)
            end_ts = upstream.rest()
            delivery.wait_until(end_ts, 300)
            everyone = [p for group in processes(delivery).values() for p in group]
            assert delivery.stop() == 0, "the run did not end with 0"
            assert gone(everyone) == [], "processes outlived the run"
            self._diff("--pd", upstream.pd, "--config", str(config))
            self._diff("--log", str(delivery.log), "--config", str(config))
            self.say(f"equal after {', '.join(self.happened)}")

    def _calm(self, rng: random.Random, delivery: Delivery) -> None:
        """Mostly wait until something was delivered since the last fault. Small batches need no worker, so none may be there."""
        if rng.random() < 0.8:
            before = delivery.checkpoint()
            await_that(lambda: delivery.checkpoint() > before, "it goes on", delivery)
        time.sleep(rng.random() * 1.5)  # the random moment

    def _kill(self, role: str, rng: random.Random, delivery: Delivery) -> None:
        if role != "worker" or processes(delivery).get(role):
            super()._kill(role, rng, delivery)

    def _strike(self, kind: str, rng: random.Random, upstream: Upstream, delivery: Delivery) -> None:
        if kind != DATABASE:
            super()._strike(kind, rng, upstream, delivery)
            return
        assert self.server is not None
        self.server.kill()
        self.server.start()

    def _diff(self, *source: str) -> None:
        """As a person would, in a process of its own."""
        assert self.server is not None
        command = [*TIDEMILL, "diff", *source, "--sink-uri", self.server.uri, "--fix-sql", str(self.folder / "fix.sql")]
        found = subprocess.run(command, capture_output=True, text=True, check=False, env=children.environment())
        assert found.returncode == 0, f"seed {self.seed}: {found.stdout}{found.stderr}"
        self.say(found.stdout.splitlines()[-1])
