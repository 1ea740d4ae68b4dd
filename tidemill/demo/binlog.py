"""Pumps and a Drainer beside the embedded upstream, as processes that may be killed, paused and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tidemill.demo.session import TIDEMILL, DemoFailed, Upstream
from tidemill.playground.programs.mariadb import MariaDbServer
from tidemill.process import children
from tidemill.process.ports import free_ports

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


def pump(node_id: str, folder: Path, upstream: Upstream) -> Node:
    """A Pump. It is not started yet."""
    options = ("--fake-binlog-interval", "0.5", "--heartbeat-interval", "0.5", "--stop-write-at-available-space", "1 MiB")
    return Node("pump", node_id, folder, upstream.pd, options)


def drainer(folder: Path, upstream: Upstream, database: MariaDbServer) -> Node:
    """A Drainer into a database. It is not started yet."""
    config = folder / "drainer.toml"
    config.write_text(
        '[syncer]\ndb-type = "mysql"\nworker-count = 4\n\n[syncer.to]\n'
        f'host = "127.0.0.1"\nport = {database.port}\nuser = "root"\npassword = ""\n'
    )
    options = ("--config", str(config), "--initial-commit-ts", str(upstream.began_ts), "--detect-interval", "1")
    return Node("drainer", "drainer1", folder, upstream.pd, options)


def checkpoint(database: MariaDbServer) -> int:
    """Return the Drainer's checkpoint in the database; 0 before the first."""
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'tidb_binlog' AND table_name = 'checkpoint'")
        if not cursor.fetchall()[0][0]:
            return 0
        cursor.execute("SELECT checkPoint FROM tidb_binlog.checkpoint")
        found = cursor.fetchall()
        return int(json.loads(found[0][0])["commitTS"]) if found else 0


def wait_until(node: Node, database: MariaDbServer, ts: int, within_s: float = 300.0) -> None:
    """Return when the Drainer's checkpoint has reached `ts`. Raises DemoFailed when the Drainer ends or stands still."""
    deadline = time.monotonic() + within_s
    while (reached := checkpoint(database)) < ts:
        node.check()
        if time.monotonic() > deadline:
            raise DemoFailed(f"the Drainer's checkpoint {reached} did not reach {ts} within {within_s:.0f} s", hint=f"See {node.output}.")
        time.sleep(POLL_S)
