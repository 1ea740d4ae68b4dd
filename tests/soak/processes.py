"""The two processes of a soak: the playground and the capture, as a person starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from tests.support.delivery.runs import gone
from tests.support.servers.certificates import Authority
from tidemill.capture.tikv.client.tls import Security
from tidemill.playground.control import call

TIDEMILL = (sys.executable, "-m", "tidemill.cli.main")
SMALL = (sys.executable, "-c", "import tidemill.capture.config as c; c.LEAST_QUOTA = 1; from tidemill.cli.main import main; main()")
"""The command line that takes any memory quota."""
HELD = {"TIDEMILL_SUPERVISED": "1"}
"""The processes end when that of the test does, whatever ends it."""
STALL, NEXT_LINE = "the event loop stood still", "\n["
START_S = 300.0  # compiling kernels included


@dataclass(frozen=True, slots=True)
class Tls:
    """Flags of TLS for both sides, and what a client in this process needs."""

    server: tuple[str, ...] = ()
    client: tuple[str, ...] = ()
    security: Security | None = None

    @classmethod
    def of(cls, kind: str, folder: Path) -> Tls:
        """`kind`: empty, tls or mutual."""
        if not kind:
            return cls()
        authority = Authority()
        ca = folder / "ca.pem"
        ca.write_bytes(authority.pem)
        cert, key = authority.sign("server").write(folder, "server")
        server, client = ["--tls-cert", str(cert), "--tls-key", str(key)], ["--ca", str(ca)]
        security = Security(ca)
        if kind == "mutual":
            own_cert, own_key = authority.sign("client").write(folder, "client")
            server += ["--tls-client-ca", str(ca)]
            client += ["--cert", str(own_cert), "--key", str(own_key)]
            security = Security(ca, own_cert, own_key)
        return cls(tuple(server), tuple(client), security)


@dataclass
class Upstream:
    """A playground."""

    folder: Path
    flags: Sequence[str]
    tls: Tls
    pd: str = ""
    control: str = ""
    process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        command = [*TIDEMILL, "playground", "--listen", "127.0.0.1:0", *self.flags, *self.tls.server]
        with open(self.folder / "playground.log", "ab") as noise:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=noise, text=True, env=os.environ | HELD
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("PD is at "), f"the playground did not start: see {self.folder / 'playground.log'}"
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.pd = self.control = line.removeprefix("PD is at ").strip()
        self.control = str(self.stats()["control"])
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def call(self, command: str, **arguments: Any) -> dict[str, Any]:
        """A control command."""
        assert self.process is not None
        assert self.process.poll() is None, f"the playground ended: see {self.folder / 'playground.log'}"
        credentials = None if self.tls.security is None else self.tls.security.credentials()
        return call(self.control, command, credentials=credentials, **arguments)

    def stats(self) -> dict[str, Any]:
        """Its figures."""
        return self.call("stats")


@dataclass
class Capture:
    """A `tidemill capture`, started again and again with the same command."""

    folder: Path
    flags: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    totals: dict[str, int] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        self.starts += 1
        command = [*SMALL, "capture", "--log", str(self.log), "--log-file", str(self.folder / "capture.log"), *self.flags]
        with open(self.folder / "capture.err", "ab") as noise:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=noise, stderr=noise, env=os.environ | HELD)

    def status(self) -> dict[str, Any]:
        """What this process last said; empty before its first word."""
        assert self.process is not None
        try:
            status: dict[str, Any] = json.loads((self.folder / "log.capture" / "status.json").read_text())
        except FileNotFoundError:
            return {}
        return status if status["pid"] == self.process.pid else {}

    def check(self) -> None:
        """Raises AssertionError when it has ended by itself."""
        assert self.process is not None
        code = self.process.poll()
        assert code is None, f"the capture ended by itself with {code}: {self.last_words()}"

    def last_words(self) -> str:
        """The end of what it wrote."""
        return (self.folder / "capture.err").read_text(errors="replace")[-2000:]

    def stalls(self) -> list[str]:
        """What has held an event loop of this capture or of its groups, with the stacks."""
        text = "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("capture*.log*")))
        return [f"{STALL}{found.split(NEXT_LINE)[0]}" for found in text.split(STALL)[1:]]

    def running(self) -> None:
        """Wait until it captures."""
        deadline = time.monotonic() + START_S
        while self.status().get("state") != "running":
            self.check()
            assert time.monotonic() < deadline, "the capture does not start"
            time.sleep(0.05)

    def note(self) -> None:
        """Add up the counters of this process before it ends."""
        status = self.status()
        for name in ("rows", "spilled_rows", "locks_resolved", "regions_renewed", "protocol_violations"):
            self.totals[name] = self.totals.get(name, 0) + int(status.get(name, 0))
        for name, n in status.get("region_errors", {}).items():
            self.totals[name] = self.totals.get(name, 0) + int(n)

    def workers(self) -> list[psutil.Process]:
        """The processes of its groups."""
        assert self.process is not None
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.note()
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM: it ends with 0."""
        assert self.process is not None
        workers = self.workers()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        assert code == 0, f"the capture ended with {code}: {self.last_words()}"
        self.note()
        assert gone(workers, 30) == [], "workers outlived their capture"
