"""An embedded upstream and a `tidemill run` beside it, as processes that a test may kill.

with Upstream(folder, seed=7) as upstream, Delivery(folder, upstream, "file:///…") as delivery:
    …
    end = upstream.rest()               the workload pauses; everything written is at or below this ts
    delivery.wait_until(end)
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidemill.errors import TidemillError, UpstreamUnavailable
from tidemill.process import children

START_S = 60.0
POLL_S = 0.2
TIDEMILL = tuple(children.python("tidemill.cli.main"))


class DemoFailed(TidemillError):
    """A process of the demo ended or stood still."""

    code = "TM:ErrDemo"


class Upstream:
    """A playground in a process of its own."""

    def __init__(self, folder: Path, *, seed: int = 0, rate: float = 50.0, options: Sequence[str] = ()) -> None:
        self._log = folder / "playground.log"
        self._argv = [*TIDEMILL, "playground", "--listen", "127.0.0.1:0", "--seed", str(seed), "--rate", str(rate), *options]
        self._process: subprocess.Popen[str] | None = None
        self.pd = ""
        self.began_ts = 0

    def __enter__(self) -> Self:
        with open(self._log, "ab") as noise:
            self._process = subprocess.Popen(self._argv, stdout=subprocess.PIPE, stderr=noise, text=True, env=children.environment())
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("PD is at "):
            self._process.kill()
            raise DemoFailed(f"the playground did not start: {line.strip() or 'it said nothing'}", hint=f"See {self._log}.")
        threading.Thread(target=self._drain, daemon=True).start()
        self.pd = line.removeprefix("PD is at ").strip()
        self.began_ts = int(self.stats()["began_ts"])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait()

    @property
    def pid(self) -> int | None:
        """The id of its process."""
        return None if self._process is None else self._process.pid

    def _drain(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for _ in self._process.stdout:
            pass

    def call(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Run a control command: see `tidemill playground ctl`."""
        from tidemill.playground.control import call

        return call(self.pd, command, **arguments)

    def stats(self) -> dict[str, Any]:
        """Its figures."""
        return self.call("stats")

    def rest(self) -> int:
        """Pause the workload and end its locks. Return a ts; everything that the workload wrote is at or below it."""
        self.call("pause")
        self.call("unlock")
        return asyncio.run(self._now())

    async def _now(self) -> int:
        from tidemill.capture.tikv.client.pd import PdClient

        client = await PdClient.connect(self.pd)
        try:
            return await client.tso()
        finally:
            await client.close()


class Delivery:
    """A `tidemill run` in a process of its own, started and started again as a person would."""

    def __init__(
        self, folder: Path, upstream: Upstream, sink_uri: str, *, options: Sequence[str] = (), start_ts: int | None = None
    ) -> None:
        self.log = folder / "log"
        self.data = folder / "data"
        self.output = folder / "run.log"
        self._argv = [
            *(*TIDEMILL, "run", "--pd", upstream.pd, "--sink-uri", sink_uri, "--log", str(self.log), "--data-dir", str(self.data)),
            *("--changefeed-id", "demo", "--tz", "UTC", "--log-file", str(folder / "tidemill.log"), *options),
        ]
        self._start = [] if start_ts is None else ["--start-ts", str(start_ts)]
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def start(self) -> None:
        """Start, or start again after a kill: the same command, as a person would."""
        with open(self.output, "ab") as noise:
            self.process = subprocess.Popen([*self._argv, *self._start], stdout=noise, stderr=noise, env=children.environment())

    def stop(self) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(90)

    def kill(self) -> None:
        """Kill the supervisor with SIGKILL. Its child processes end by themselves."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def feed_folder(self) -> Path:
        return self.data / "changefeeds" / "demo"

    def feed_status(self) -> Mapping[str, Any]:
        """Return the newest status of the delivery; empty before the first one."""
        return _json(self.feed_folder / "delivery.json")

    def status(self) -> Mapping[str, Any]:
        """The run's last status: delivery, capture and processes."""
        return _json(self.feed_folder / "status.json")

    def capture_status(self) -> Mapping[str, Any]:
        """The capture's last status."""
        return _json(self.feed_folder / "capture" / "status.json")

    def checkpoint(self) -> int:
        """Return the checkpoint ts: everything at or below it is delivered. 0 before the first batch."""
        return int(_json(self.feed_folder / "checkpoint.json").get("checkpoint_ts", 0))

    def check(self) -> None:
        """Raises DemoFailed when the run has ended by itself."""
        assert self.process is not None
        if self.process.poll() is not None:
            tail = self.output.read_text(errors="replace").strip().splitlines()[-5:]
            raise DemoFailed(f"tidemill run ended with {self.process.returncode}: " + " | ".join(tail), hint=f"See {self.output}.")

    def wait_until(self, ts: int, within_s: float = 300.0) -> None:
        """Return when the checkpoint has reached `ts`. Raises DemoFailed when the run ends or stands still."""
        deadline = time.monotonic() + within_s
        while self.checkpoint() < ts:
            self.check()
            if time.monotonic() > deadline:
                raise DemoFailed(
                    f"the checkpoint {self.checkpoint()} did not reach {ts} within {within_s:.0f} s", hint=f"See {self.output}."
                )
            time.sleep(POLL_S)

    def wait_until_served(self, ts: int, within_s: float = 300.0) -> None:
        """Return when the server of a canal:// sink has everything up to `ts`. Raises DemoFailed."""
        deadline = time.monotonic() + within_s
        while self.status().get("canal", {}).get("checkpoint_ts", 0) < ts:
            self.check()
            if time.monotonic() > deadline:
                raise DemoFailed(f"the server did not reach {ts} within {within_s:.0f} s", hint=f"See {self.output}.")
            time.sleep(POLL_S)


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return found


def tables_of(upstream: Upstream, ts: int) -> dict[tuple[str, str], tuple[Any, list[dict[str, Any]]]]:
    """The upstream's tables at `ts`, read through PD and TiKV: (definition, rows of plain values) by name."""
    return asyncio.run(_read_tables(upstream.pd, ts))


async def _read_tables(pd: str, ts: int) -> dict[tuple[str, str], tuple[Any, list[dict[str, Any]]]]:
    from datetime import UTC

    from tidemill.capture.clusterversion import oldest_version
    from tidemill.capture.tikv.client.pd import PdClient
    from tidemill.capture.tikv.read.snapshot import Snapshot
    from tidemill.demo.compare import plain
    from tidemill.playground.store import truth
    from tidemill.tidb.types.jsonstyle import style_of

    client = await PdClient.connect(pd)
    try:
        snapshot = Snapshot(client, ts)
        found, style = {}, style_of(oldest_version(await client.stores()))
        for name, info in (await truth.describe_remote(snapshot)).items():
            if info.has_usable_key:
                rows = [{k: plain(v) for k, v in row.items()} async for row in truth.read_remote(snapshot, info, UTC, style)]
                found[name] = info, rows
        return found
    except OSError as error:
        raise UpstreamUnavailable(f"reading the upstream's tables: {error}") from error
    finally:
        await client.close()
