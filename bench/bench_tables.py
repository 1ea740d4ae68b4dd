"""What very many tables cost a capture: until it captures all of them, and then, without a change, for as long as it runs.

    python -m bench.bench_tables [--count 100000] [--stores 4] [--seconds 60]
    python -m bench.bench_tables --s3 [--count 10000] [--latency-ms 30]

The upstream (a playground with COUNT empty tables, each a region of its own) is a process that is not counted. The capture is started
twice: with a new log, and again where that ends. Told is the wall and CPU time until all tables are live and the log is up to date, its
memory, the share of a core that it takes during SECONDS without a change, and what has held its event loop for more than 100 ms.

`--s3`: the log lies on S3 (moto, which is not counted either), behind a proxy that delays each request; it holds a finished initial load
of all tables, a part each. Requests a second are told too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.served import serving
from tests.support.schema.many_tables import create_tables, load_tables
from tidemill.playground.server import Playground

PATIENCE_S = 1800.0
FRESH_S = 10.0  # a log that is at most this far behind is up to date
STALL = re.compile(r"stood still for (\d+) ms")


# ---- the upstream ----------------------------------------------------------------------------------------------------


async def serve(count: int, stores: int) -> None:
    """A cluster of `count` tables, until stdin ends."""
    playground = Playground(1, stores=stores, resolved_interval=1.0)
    create_tables(playground, count)
    async with playground:
        print(json.dumps({"pd": playground.pd_address}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


# ---- the log on S3 ---------------------------------------------------------------------------------------------------


@dataclass
class SlowS3:
    """A bucket behind a proxy that delays requests, and counts them."""

    latency_s: float
    requests: int = 0
    url: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def serving(self) -> Iterator[None]:
        from moto.server import ThreadedMotoServer

        from tests.support.faults.s3_faults import Fault, spoiled
        from tests.support.servers.s3 import make_bucket

        def late(method: str, path: str) -> Fault:
            with self._lock:
                self.requests += 1
            time.sleep(self.latency_s)  # the latency itself
            return Fault.NONE

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        make_bucket(f"http://{host}:{port}", "bench")
        with spoiled(f"http://{host}:{port}", late) as proxy:
            self.url = location(proxy.partition("://")[2])
            self.direct = location(f"{host}:{port}")
            yield
        server.stop()


def location(endpoint: str) -> str:
    return f"s3://test:test@bench/log?endpoint_override={endpoint}&scheme=http&region=us-east-1"


# ---- the capture -----------------------------------------------------------------------------------------------------


class Capture:
    """A `tidemill capture`, as its status and its clocks tell of it."""

    def __init__(self, pd: str, log: str, folder: Path, name: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.text = folder, folder / f"{name}.log"
        command = [sys.executable, "-m", "tidemill.cli.main", "capture", "--pd", pd, "--log", log, "--data-dir", str(folder)]
        self._began = time.monotonic()
        self.process = subprocess.Popen([*command, "--log-file", str(self.text)])
        self._self = psutil.Process(self.process.pid)

    def status(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.folder / "status.json").read_text())
        except FileNotFoundError:
            return {}
        return found if found["pid"] == self.process.pid else {}

    def cpu(self) -> float:
        times = self._self.cpu_times()
        return times.user + times.system

    def until_live(self, tables: int) -> str:
        """What it took until all tables were live and the log up to date."""
        while True:
            status = self.status()
            live = status.get("regions", {}).get("live", 0)
            if status.get("tables", 0) >= tables and live >= tables and status["lag_s"] < FRESH_S:
                break
            if self.process.poll() is not None or time.monotonic() - self._began > PATIENCE_S:
                raise SystemExit(f"the capture does not get there: {status.get('regions')}, {self.text}")
            time.sleep(0.5)
        wall, cpu, rss = time.monotonic() - self._began, self.cpu(), self._self.memory_info().rss >> 20
        return f"{wall:.1f} s, {cpu:.1f} CPU s, {rss} MiB, {self.stalls()}"

    def at_rest(self, seconds: float) -> str:
        """What it takes without a change."""
        cpu, seen = self.cpu(), self.text.stat().st_size
        time.sleep(seconds)
        return f"{100 * (self.cpu() - cpu) / seconds:.1f} % of a core, {self.stalls(seen)}"

    def stalls(self, since: int = 0) -> str:
        found = [int(ms) for ms in STALL.findall(self.text.read_text()[since:])] if self.text.exists() else []
        return f"event loop held {len(found)} times, {max(found)} ms at most" if found else "event loop never held"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int)
    parser.add_argument("--stores", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--latency-ms", type=float, default=30.0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    count = args.count or (10_000 if args.s3 else 100_000)
    if args.serve:
        asyncio.run(serve(count, args.stores))
        return
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = SlowS3(args.latency_ms / 1000)
        if args.s3:
            stack.enter_context(store.serving())
        log = store.url if args.s3 else str(work / "log")
        pd = stack.enter_context(serving("bench.bench_tables", "--count", str(count), "--stores", str(args.stores)))
        for name in ("new log", "again"):
            capture = Capture(pd, log, work / "data", name.split()[0])
            try:
                print(f"{count} tables, {name}: live after {capture.until_live(count)}", flush=True)
                requests = store.requests
                print(f"{count} tables, at rest: {capture.at_rest(args.seconds)}", flush=True)
                if args.s3:
                    print(f"{(store.requests - requests) / args.seconds:.1f} requests a second", flush=True)
            finally:
                capture.stop()
                print(capture.text.read_text()[-3000:] if capture.process.returncode else "", end="", flush=True)
            if args.s3 and name == "new log":
                load_tables(store.direct, count)


if __name__ == "__main__":
    main()
