"""A real etcd for tests: on free ports, in a folder of the test. It may be killed and started again."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tidemill.process.ports import free_ports

MISSING = "etcd is not installed: apt-get install etcd-server (make setup does it)"


class Etcd:
    """One member."""

    def __init__(self, folder: Path, tls: Sequence[Path] = ()) -> None:
        """`tls`: files of its certificate, of that one's key, and of the authority of its clients' certificates."""
        self._program = shutil.which("etcd")
        if self._program is None:
            pytest.fail(MISSING)
        self._folder, port = folder, free_ports(1)[0]
        self.address = f"127.0.0.1:{port}"
        self._scheme, self._tls = ("https" if tls else "http"), []
        for flag, path in zip(("--cert-file", "--key-file", "--trusted-ca-file"), tls, strict=False):
            self._tls += [flag, str(path)]
        if tls:
            self._tls.append("--client-cert-auth")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; clients wait until it answers."""
        url = f"{self._scheme}://{self.address}"
        peer = f"http://127.0.0.1:{free_ports(1)[0]}"
        self._process = subprocess.Popen(
            [
                str(self._program), "--data-dir", str(self._folder / "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url,
                "--listen-peer-urls", peer, "--unsafe-no-fsync", "--log-level", "error", *self._tls,
            ],
            stdout=subprocess.DEVNULL, stderr=(self._folder / "etcd.log").open("ab"),
        )  # fmt: skip

    def kill(self) -> None:
        """As kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
