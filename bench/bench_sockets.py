"""Ten thousand regions over real sockets: a whole capture of a playground with several stores, which is a process of its own.

    python -m bench.bench_sockets [--count 10000] [--stores 4] [--transport h2] [--seconds 10]

One table is split into COUNT regions. Told are wall time, CPU and memory of the capture's process alone: until every region is live,
steady with a resolved ts a second, while every region fails at once (a storm: each with `region_not_found`), and after all streams break.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing as mp
import resource
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from bench.report.figures import Figure, note
from tidemill.capture.capture import Capture
from tidemill.capture.config import CaptureConfig
from tidemill.capture.tikv.feed.base import Transport
from tidemill.playground.server import Playground
from tidemill.playground.store.feed import region_not_found
from tidemill.tidb.keys import record_key

MIB = 1 << 20


# ---- the other process: PD and stores --------------------------------------------------------------------------------


async def serve(stores: int, pipe: Connection) -> None:
    """A playground that is told what to do through a pipe."""
    loop = asyncio.get_running_loop()
    async with Playground(1, stores=stores) as playground:
        playground.execute("create table t (id bigint primary key, v int)")
        (table,) = [t for t in playground.database.catalog.tables.values() if t.name == "t"]
        cluster = playground.cluster
        pipe.send(playground.pd_address)
        while True:
            order, count = await loop.run_in_executor(None, pipe.recv)
            if order == "split":
                cluster.split([record_key(table.model.id, 10 * i) for i in range(1, count)])
                for i, region in enumerate(list(cluster.regions)):
                    cluster.transfer_leader(region.id, region.peers[i % len(region.peers)].store_id)
            elif order == "fail":
                for region in list(cluster.regions):
                    cluster.feeds.fail_region(region.id, region_not_found(region.id))
            elif order == "break":
                for feed in playground.feeds.values():
                    feed.break_streams()
            elif order == "insert":
                playground.execute(f"insert into t values ({count}, 1)")
            elif order == "end":
                return
            pipe.send(cluster.oracle.next())


def other_process(stores: int, pipe: Connection) -> None:
    """Until told to end."""
    asyncio.run(serve(stores, pipe))


# ---- this process: the capture ---------------------------------------------------------------------------------------


class Step:
    """Prints what the block cost this process."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def __exit__(self, *_: object) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        memory = pages * resource.getpagesize() / MIB
        wall, cpu = time.monotonic() - self._wall, time.process_time() - self._cpu
        print(f"{self.name:52s} {wall:7.2f} s, {cpu:7.2f} CPU s, {memory:6.0f} MiB resident", flush=True)
        note(Figure("Capture: regions over real sockets", self.name, cpu, "CPU s"))


async def until(condition: Callable[[], bool], failed: asyncio.Task[None]) -> None:
    """Look again and again, for ten minutes."""
    async with asyncio.timeout(600):
        while not condition():
            if failed.done():
                await failed
            await asyncio.sleep(0.02)


async def measure(pd: str, pipe: Connection, count: int, transport: Transport, seconds: float) -> None:
    """See the module."""
    loop = asyncio.get_running_loop()

    async def tell(order: str, number: int = 0) -> int:
        pipe.send((order, number))
        ts: int = await loop.run_in_executor(None, pipe.recv)
        return ts

    await tell("split", count)
    with tempfile.TemporaryDirectory() as folder:
        capture = Capture(CaptureConfig(pd=(pd,), log=f"{folder}/log", transport=transport))
        with Step("start, before the first region is asked for"):
            running = asyncio.ensure_future(capture.run())
            await until(lambda: capture.status.state == "running" or running.done(), running)
        machine = capture.pulling.machine

        def all_live() -> bool:
            counts = machine.counts()
            return counts["live"] >= count and counts["live"] == sum(counts.values())

        async def caught_up(name: str, order: str, number: int = 0) -> None:
            with Step(name):
                ts = await tell(order, number)
                await until(lambda: capture.resolved_ts >= ts and all_live(), running)

        with Step(f"{count} regions live"):
            await until(all_live, running)
        await caught_up("… and the log up to the present", "insert", 5)
        with Step(f"steady for {seconds:.0f} s"):
            await asyncio.sleep(seconds)
        await caught_up(f"{count} regions fail at once, until the log is up again", "fail")
        await caught_up("all streams break, until the log is up again", "break")
        print(f"errors: {dict(machine.errors)}")
        capture.stop()
        await running


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--stores", type=int, default=4)
    parser.add_argument("--transport", choices=[t.value for t in Transport], default=Transport.H2.value)
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    spawn = mp.get_context("spawn")
    here, there = spawn.Pipe()
    other = spawn.Process(target=other_process, args=(args.stores, there), daemon=True)
    other.start()
    try:
        asyncio.run(measure(here.recv(), here, args.count, Transport(args.transport), args.seconds))
    finally:
        here.send(("end", 0))
        other.join(10)


if __name__ == "__main__":
    main()
