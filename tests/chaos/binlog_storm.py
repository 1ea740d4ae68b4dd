"""A workload with DDLs by TiDB-Binlog: Pumps, a Drainer into a MariaDB, and a run into files or Kafka, all struck at random, seeded
moments.

Afterwards the database is compared with TiKV by `tidemill diff`, and what the run delivered with the upstream's tables.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.delivery.runs import assert_equal, audited
from tests.support.servers.mariadb import MariaDb
from tidemill.demo.binlog import Accident, Chain
from tidemill.demo.delivered import from_files, from_kafka
from tidemill.demo.session import TIDEMILL, Delivery, Upstream, tables_of
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.process import children
from tidemill.process.ports import free_ports

TOPIC = "changes"
RUN_KILLED = "the run was killed (SIGKILL) and started again"


@dataclass
class BinlogStorm:
    """One upstream, its Pumps, and both ways out of them. Without `run`, only the Drainer. `kafka`: the run delivers there, not into
    files."""

    folder: Path
    seed: int
    faults: int
    workload: str = "mixed"
    run: bool = True
    kafka: bool = False
    rest_s: float = 1.5
    say: Callable[[str], None] = print
    happened: list[str] = field(default_factory=list)

    def blow(self) -> None:
        """Run it all. Raises AssertionError naming what differs."""
        rng = random.Random(self.seed)
        kinds: list[Accident | str] = [*Accident, *([RUN_KILLED] if self.run else [])]
        options = ("--binlog", "--workload", self.workload, "--resolved-interval", "0.3", "--ddl-every", "40", "--region-every", "60")
        with ExitStack() as stack:
            server = stack.enter_context(MariaDb())
            upstream = stack.enter_context(Upstream(self.folder, seed=self.seed, rate=60, options=options))
            chain = stack.enter_context(Chain(self.folder, upstream, server, seed=self.seed))
            broker = stack.enter_context(KafkaBroker()).address if self.kafka else ""
            delivery = stack.enter_context(self._delivery(upstream, broker)) if self.run else None
            chain.wait_for_tables()
            if delivery is not None:
                delivery.wait_until(upstream.began_ts + 1)
            order = [kind for _ in range(1 + self.faults // len(kinds)) for kind in rng.sample(kinds, len(kinds))]
            for kind in order[: self.faults]:
                time.sleep(rng.random() * self.rest_s)  # the random moment
                if isinstance(kind, Accident):
                    self.happened.append(chain.strike(kind))
                elif delivery is not None:
                    delivery.kill()
                    delivery.start()
                    self.happened.append(kind)
                self.say(self.happened[-1])
            end_ts = upstream.rest()
            chain.wait_until(end_ts)
            self._diff(upstream, server, end_ts)
            if delivery is not None:
                delivery.wait_until(end_ts)
                assert delivery.stop() == 0, "the run did not end with 0"
                came = from_kafka(broker, TOPIC) if broker else from_files(self.folder / "delivered")
                assert_equal(audited(came), delivery.log, tables_of(upstream, end_ts), end_ts)

    def _delivery(self, upstream: Upstream, broker: str) -> Delivery:
        place = f"kafka://{broker}/{TOPIC}" if broker else f"file://{self.folder}/delivered"
        sink = f"{place}?protocol=open-protocol&partition-num=3"
        options = ("--binlog", "--drainer-addr", f"127.0.0.1:{free_ports(1)[0]}", "--trigger-ms", "50")
        return Delivery(self.folder, upstream, sink, options=options, start_ts=upstream.began_ts)

    def _diff(self, upstream: Upstream, server: MariaDb, ts: int) -> None:
        """As a person would, in a process of its own."""
        command = [*TIDEMILL, "diff", "--pd", upstream.pd, "--sink-uri", server.uri, "--ts", str(ts)]
        found = subprocess.run(command, capture_output=True, text=True, check=False, env=children.environment())
        assert found.returncode == 0, f"seed {self.seed}: {found.stdout}{found.stderr}"
        self.say(found.stdout.splitlines()[-1])
