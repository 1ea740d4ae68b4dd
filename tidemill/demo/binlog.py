"""Pumps and a Drainer beside the embedded upstream, as processes that may be killed, paused and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from tidemill.demo.session import TIDEMILL, DemoFailed, Upstream
from tidemill.extras import extra
from tidemill.playground.programs.mariadb import MariaDbServer
from tidemill.process import children
from tidemill.process.ports import free_ports

with extra("binlog"):
    import httpx

POLL_S = 0.2
_END_S = 60.0


class Node:
    """A program of TiDB-Binlog: a Pump or a Drainer."""

    def __init__(self, verb: str, node_id: str, folder: Path, pd: str, options: Sequence[str] = ()) -> None:
        (port,) = free_ports(1)
        self.node_id, self.address = node_id, f"127.0.0.1:{port}"
        self.output = folder / f"{node_id}.log"
        self._argv = [
            *(*TIDEMILL, verb, "--pd-urls", pd, "--addr", self.address, "--node-id", node_id, "--data-dir", str(folder / node_id)),
            *options,
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def start(self) -> None:
        """Start, or start again."""
        with open(self.output, "ab") as noise:
            self.process = subprocess.Popen(self._argv, stdout=noise, stderr=noise, env=children.environment())

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM, upon which the registry says `paused`, and return the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(_END_S)

    def check(self) -> None:
        """Raises DemoFailed when it has ended by itself."""
        assert self.process is not None
        if self.process.poll() is not None:
            tail = self.output.read_text(errors="replace").strip().splitlines()[-5:]
            raise DemoFailed(f"{self.node_id} ended with {self.process.returncode}: " + " | ".join(tail), hint=f"See {self.output}.")

    def status(self) -> dict[str, Any]:
        """Return what GET /status says; empty while it does not answer."""
        with suppress(httpx.HTTPError):
            found: dict[str, Any] = httpx.get(f"http://{self.address}/status", timeout=5).json()
            return found
        return {}


def pump(node_id: str, folder: Path, pd: str) -> Node:
    """A Pump. It is not started yet."""
    options = ("--fake-binlog-interval", "0.5", "--heartbeat-interval", "0.5", "--stop-write-at-available-space", "1 MiB")
    return Node("pump", node_id, folder, pd, options)


def drainer(folder: Path, upstream: Upstream, database: MariaDbServer) -> Node:
    """A Drainer into a database. It is not started yet."""
    config = folder / "drainer.toml"
    config.write_text(
        '[syncer]\ndb-type = "mysql"\nworker-count = 4\n\n[syncer.to]\n'
        f'host = "127.0.0.1"\nport = {database.port}\nuser = "root"\npassword = ""\n'
    )
    options = ("--config", str(config), "--initial-commit-ts", str(upstream.began_ts), "--detect-interval", "1")
    return Node("drainer", "drainer1", folder, upstream.pd, options)


class Accident(Enum):
    """What may happen to a chain."""

    PUMP_KILLED = "a Pump was killed (SIGKILL) and started again"
    PUMP_PAUSED = "a Pump was paused (SIGTERM) and started again"
    PUMP_OFFLINE = "a Pump went offline (binlogctl) and another one joined"
    PUMP_JOINS = "a Pump joined"
    DRAINER_KILLED = "the Drainer was killed (SIGKILL) and started again"
    DRAINER_PAUSED = "the Drainer was paused (SIGTERM) and started again"
    DATABASE_KILLED = "MariaDB was killed (SIGKILL) and started again"
    CLOCK_JUMPED = "PD's clock jumped five seconds ahead"


class Chain:
    """Pumps, a Drainer and a database behind an upstream that writes binlogs. A context manager."""

    def __init__(self, folder: Path, upstream: Upstream, database: MariaDbServer, *, pumps: int = 3, seed: int = 0) -> None:
        self.folder, self.upstream, self.database = folder, upstream, database
        self._random = Random(seed)
        self._made = 0
        self.pumps: list[Node] = []
        self._first = pumps
        self.drainer = drainer(folder, upstream, database)

    def __enter__(self) -> Self:
        for _ in range(self._first):
            self._join()
        self.drainer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for node in (self.drainer, *self.pumps):  # Pumps take what the upstream still has to end
            node.__exit__(kind, error, trace)

    def _join(self) -> None:
        self._made += 1
        self.pumps.append(pump(f"pump{self._made}", self.folder, self.upstream.pd))
        self.pumps[-1].start()

    def strike(self, accident: Accident) -> str:
        """Let something happen; returns what. The same seed chooses the same Pumps."""
        node = self._random.choice(self.pumps)
        match accident:
            case Accident.PUMP_KILLED:
                node.kill()
                node.start()
            case Accident.PUMP_PAUSED:
                node.stop()
                node.start()
            case Accident.PUMP_OFFLINE:
                self._join()
                self._go_offline(node)
            case Accident.PUMP_JOINS:
                self._join()
            case Accident.DRAINER_KILLED:
                self.drainer.kill()
                self.drainer.start()
            case Accident.DRAINER_PAUSED:
                self.drainer.stop()
                self.drainer.start()
            case Accident.DATABASE_KILLED:
                self.database.kill()
                self.database.start()
            case Accident.CLOCK_JUMPED:
                self.upstream.call("clock", ms=5000)
        return accident.value

    def _go_offline(self, node: Node) -> None:
        """Ask a Pump to go offline. It ends when the Drainer has all that it holds."""
        asked = [*TIDEMILL, "binlogctl", "--pd-urls", self.upstream.pd, "--cmd", "offline-pump", "--node-id", node.node_id]
        deadline = time.monotonic() + _END_S
        while (said := subprocess.run(asked, capture_output=True, text=True, check=False, env=children.environment())).returncode:
            if time.monotonic() > deadline:  # it has just been started
                raise DemoFailed(f"{node.node_id} does not go offline: {said.stdout}{said.stderr}")
            time.sleep(POLL_S)
        self.pumps.remove(node)
        assert node.process is not None
        node.process.wait(_END_S)

    def check(self) -> None:
        """Raises DemoFailed when a Pump or the Drainer has ended by itself."""
        for node in (*self.pumps, self.drainer):
            node.check()

    def checkpoint(self) -> int:
        """Return the Drainer's checkpoint in the database; 0 before the first."""
        with self.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'tidb_binlog' AND table_name = 'checkpoint'"
            )
            if not cursor.fetchall()[0][0]:
                return 0
            cursor.execute("SELECT checkPoint FROM tidb_binlog.checkpoint")
            found = cursor.fetchall()
            return int(json.loads(found[0][0])["commitTS"]) if found else 0

    def wait_for_tables(self) -> None:
        """Return when the upstream's first tables are in the database."""
        self.wait_until(self.upstream.began_ts + 1)

    def wait_until(self, ts: int, within_s: float = 300.0) -> None:
        """Return when the Drainer's checkpoint has reached `ts`. Raises DemoFailed when something ends or stands still."""
        deadline = time.monotonic() + within_s
        while (reached := self.checkpoint()) < ts:
            self.check()
            if time.monotonic() > deadline:
                raise DemoFailed(
                    f"the Drainer's checkpoint {reached} did not reach {ts} within {within_s:.0f} s", hint=f"See {self.drainer.output}."
                )
            time.sleep(POLL_S)
