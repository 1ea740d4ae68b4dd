"""A real etcd for tests: on free ports, in a folder of the test. It may be killed and started again."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tidemill.process.ports import free_ports

MISSING = "etcd is not installed: apt-get install etcd-server (make setup does it)"


class Etcd:
    """One member."""

    def __init__(self, folder: Path) -> None:
        self._program = shutil.which("etcd")
        if self._program is None:
            pytest.fail(MISSING)
        self._folder, port = folder, free_ports(1)[0]
        self.address = f"127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; clients wait until it answers."""
        url = f"http://{self.address}"
        peer = f"http://127.0.0.1:{free_ports(1)[0]}"
        self._process = subprocess.Popen(
            [
                str(self._program), "--data-dir", str(self._folder / "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url,
                "--listen-peer-urls", peer, "--unsafe-no-fsync", "--log-level", "error",
            ],
            stdout=subprocess.DEVNULL, stderr=(self._folder / "etcd.log").open("ab"),
        )  # fmt: skip

    def kill(self) -> None:
        """As kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
