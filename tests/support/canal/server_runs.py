"""Canal servers for tests: one in a thread, one as a process that can be killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tidemill.canal.server.config import settings_of
from tidemill.canal.server.election import Election
from tidemill.canal.server.server import CanalServer, Pages
from tidemill.canal.server.settings import ServerSettings
from tidemill.changelog.storage.base import Storage
from tidemill.changelog.storage.open import open_storage
from tidemill.sinks.canal.store.publish import read_identity
from tidemill.sinks.canal.store.reader import EntryStoreReader

START_S = 240.0


def one_destination(properties: Mapping[str, str] | None = None) -> ServerSettings:
    """Settings with the destination d; properties with Canal's names, or ours."""
    common, own = {}, {}
    for name, value in (properties or {}).items():
        (common if name.startswith("canal.") and not name.startswith("canal.instance.") else own)[name] = value
    return settings_of(common, {"d": own}, "test")


class ServerThread:
    """A server in a thread, as long as the block lasts."""

    def __init__(
        self, storage: Storage | str, settings: ServerSettings | None = None, listen: str = "127.0.0.1:0", turns: Election | None = None
    ) -> None:
        opened = open_storage(storage) if isinstance(storage, str) else storage

        def source() -> EntryStoreReader | None:
            return EntryStoreReader(opened) if read_identity(opened) is not None else None

        self.server = CanalServer(source, opened, settings or one_destination(), Pages("127.0.0.1:0"), turns)
        self.error: BaseException | None = None
        self._listen, self._ready = listen, threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        async def all_of_it() -> None:
            ready = asyncio.ensure_future(self.server.ready.wait())
            ready.add_done_callback(lambda _: self._ready.set())
            try:
                await self.server.run(self._listen)
            finally:
                ready.cancel()

        try:
            self._loop.run_until_complete(all_of_it())
        except BaseException as error:
            self.error = error
        finally:
            self._ready.set()
            self._loop.close()

    def __enter__(self) -> ServerThread:
        self._thread.start()
        assert self._ready.wait(START_S)
        if self.error is not None:
            raise self.error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, and wait."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.server.stop)
        self._thread.join(START_S)

    def wait(self) -> None:
        """Until it has ended by itself."""
        self._thread.join(START_S)
        assert not self._thread.is_alive()

    @property
    def address(self) -> str:
        return self.server.address

    def page(self, path: str) -> str:
        """A page of its own."""
        with urllib.request.urlopen(f"http://{self.server.status_address}{path}", timeout=START_S) as answer:
            text: str = answer.read().decode()
            return text

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.page("/status"))
        return found

    def until(self, what: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until its status is so."""
        deadline = time.monotonic() + START_S
        while not what(self.status()):
            assert time.monotonic() < deadline, self.status()
            time.sleep(0.01)


class ServerProcess:
    """`tidemill canal` as a process of its own on a fixed port."""

    def __init__(self, store: Path | str, port: int, *options: str, until: str = "serving") -> None:
        command = [sys.executable, "-m", "tidemill.cli.main", "canal", "--store", str(store), "--listen", f"127.0.0.1:{port}"]
        self.address = f"127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [*command, "--destination", "d", *options], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.said: list[str] = []
        self._more = threading.Condition()
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()
        self.said_now(until)

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._more:
                self.said.append(line)
                self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    def said_now(self, word: str, times: int = 1) -> None:
        """Wait until it has said a word so often."""

        def count() -> int:
            return sum(word in line for line in self.said)

        with self._more:
            assert self._more.wait_for(lambda: self._ended or count() >= times, START_S), self.said
            assert count() >= times, "".join(self.said)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self._process.terminate()
        return self._process.wait(START_S)
