"""A real etcd for tests: on free ports, in a folder of the test. It may be killed and started again."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

MISSING = "etcd is not installed: apt-get install etcd-server (make setup does it)"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Etcd:
    """One member."""

    def __init__(self, folder: Path) -> None:
        self._program = shutil.which("etcd")
        if self._program is None:
            pytest.fail(MISSING)
        self._folder, port = folder, _free_port()
        self.address = f"127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; clients wait until it answers."""
        url = f"http://{self.address}"
        peer = f"http://127.0.0.1:{_free_port()}"
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
