"""`tidemill server` as a process, for tests: its API, its processes, its end."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import psutil

from tests.support.changelog.steps import freeze, thaw
from tests.support.delivery.runs import await_that
from tidemill.process.children import environment, python
from tidemill.process.ports import free_ports


def _is_alive_with(process: psutil.Process, mark: str) -> bool:
    """Whether a process lives and its command line has a word. It may end while it is looked at."""
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE and mark in " ".join(process.cmdline())
    return False


class Server:
    """A server of one playground. Its data directory and its log stay when it ends."""

    def __init__(self, folder: Path, pd: str, *options: str, name: str = "", log: str = "", tls: ssl.SSLContext | None = None) -> None:
        """`name`: of one of several servers of a log. `log`: a URL; by default a folder. `tls`: what its clients use."""
        self.folder, self.address = folder, f"127.0.0.1:{free_ports(1)[0]}"
        self.log, self.data = folder / "log", folder / f"data{name}"
        where = ("--pd", pd, "--log", log or str(self.log), "--data-dir", str(self.data), "--addr", self.address)
        self._argv = python("tidemill.cli.main", "server", *where, "--tz", "UTC", *options)
        self._scheme, self._verify = ("https", tls) if tls is not None else ("http", True)
        self.process: subprocess.Popen[bytes] | None = None
        self.said = folder / f"server{name}.out"

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()

    def start(self) -> None:
        with open(self.said, "ab") as out:
            self.process = subprocess.Popen(self._argv, stdout=out, stderr=out, env=environment())
        await_that(self._answers, f"the server answers: {self.said}")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.said.read_text()
        try:
            return self.call("GET", "status").get("pid") == self.process.pid
        except httpx.TransportError:
            return False

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = httpx.request(method, f"{self._scheme}://{self.address}/api/v2/{path}", json=body, timeout=60, verify=self._verify)
        found: dict[str, Any] = answer.json()
        return found

    def create(self, feed: str, sink: str, **more: Any) -> dict[str, Any]:
        config = {"ignore_ineligible_table": True}
        return self.call("POST", "changefeeds", {"changefeed_id": feed, "sink_uri": sink, "replica_config": config, **more})

    def feed(self, feed: str) -> dict[str, Any]:
        return self.call("GET", f"changefeeds/{feed}/status")

    def checkpoint(self, feed: str) -> int:
        found: int = self.feed(feed).get("checkpoint_ts", 0)
        return found

    def state(self, feed: str) -> str:
        return str(self.feed(feed).get("state"))

    def children(self, mark: str) -> list[psutil.Process]:
        """Its processes whose command line has a word."""
        assert self.process is not None
        found = psutil.Process(self.process.pid).children(recursive=True)
        return [p for p in found if _is_alive_with(p, mark)]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    @property
    def leads(self) -> bool:
        """Whether it says that it leads."""
        try:
            return bool(self.call("GET", "status")["is_owner"])
        except httpx.TransportError:
            return False

    @property
    def follows(self) -> bool:
        """Whether it has ended all that it did as the leader."""
        try:
            return '"term": 0' in httpx.get(f"{self._scheme}://{self.address}/debug/info", timeout=60, verify=self._verify).text
        except httpx.TransportError:
            return False

    def whole(self) -> list[psutil.Process]:
        """Its process and all below it."""
        assert self.process is not None
        found = psutil.Process(self.process.pid)
        return [found, *found.children(recursive=True)]

    def freeze(self, *, alone: bool = False) -> None:
        """Stop it as a machine that stands still does. `alone`: its capture and its host go on.

        Not while it is in a step on a file of the log.
        """
        while not freeze(self.whole()[: 1 if alone else None], self.log):
            pass

    def wake(self) -> None:
        thaw(self.whole())

    def stop(self) -> int:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGTERM)
        return self.process.wait(120)
