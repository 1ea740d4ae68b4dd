"""A Drainer from the pull to where it delivers: CPU a transaction of one row, transactions a second, and memory with one giant transaction.

    python -m bench.bench_binlog [limits log blackhole mysql file kafka run large large-mysql large-file] [--rows 400000] [--size-mib 2040]

`limits`: what the machine gives in the same run: the same bytes read from the same socket and dropped, and copied in memory. `log`: pull →
change log, as `tidemill run --binlog` does it. `blackhole`: pull → rows read → dropped. `mysql`: `tidemill drainer` into MariaDB, over one
connection, over 16 as the real one's default, and merged. `file`, `kafka`: `tidemill drainer` into files, into a broker. `run`:
`tidemill run --binlog` into MariaDB, with Spark; its CPU is of all its processes. `large`: one transaction of --size-mib (rows of 200
bytes) into the change log; told is the memory of the process that is not of files, at most, above what it was, and as a multiple of the
transaction. `large-mysql`, `large-file`: the same by `tidemill drainer` into MariaDB, and into files.

The Pump is a process of its own that has its answers ready (`binlog_pump.py`); neither it nor MariaDB is counted. Real Drainer, with
another Pump: 39,000 transactions/s into its black hole, of which it reads no rows; 10,000 rows/s into MariaDB, 17,000 to 20,000 merged;
6.7 to 7.2 µs of CPU each into its black hole, 12 to 13 into files, 25 into MariaDB.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing as mp
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import numpy as np
import uvloop
from confluent_kafka.admin import AdminClient, NewTopic

from bench import binlog_pump
from bench.report.figures import Figure, note
from bench.usage import TreeUsage
from tidemill.binlog.drainer.destination import Forms, Reads, Waits
from tidemill.binlog.drainer.drainer import Drainer
from tidemill.binlog.drainer.savepoint import Position
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.drainer.settings import Downstream, DrainerSettings
from tidemill.binlog.nodes import NodeEvent
from tidemill.binlog.source.capture import BinlogCapture
from tidemill.binlog.source.reading import LogEntry, LogReading
from tidemill.capture.config import CaptureConfig
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.feed.base import Call, FeedEnd
from tidemill.capture.tikv.feed.http2 import connect
from tidemill.capture.tikv.receive.decode import Packed
from tidemill.changelog.spread import Layout
from tidemill.demo.session import Delivery, Upstream
from tidemill.playground.programs.kafka_broker.broker import KafkaBroker
from tidemill.playground.programs.mariadb import MariaDbServer
from tidemill.wire import pump_pb2

KINDS = ("limits", "log", "blackhole", "mysql", "file", "kafka", "run", "large", "large-mysql", "large-file")
MIB = 1 << 20
STAGE = "The Drainer of TiDB-Binlog"
WARM = 0.1
"""The share of the rows that goes before what is measured."""
SERVER = ("--innodb-log-file-size=256M",)
LOAD_S = 900.0


@dataclass
class Pump:
    """The other process. `ready`: its PD, its address, and a ts before all it sends."""

    pipe: Connection
    pd: str
    host: str
    base: int

    def prepare(self, order: str, begin: int, end: int) -> tuple[int, int]:
        """Make answers ready. Returns the last ts, and how many bytes they are."""
        self.pipe.send((order, begin, end))
        found: tuple[int, int] = self.pipe.recv()
        return found

    def go(self) -> None:
        """Send them."""
        self.pipe.send("go")
        self.pipe.recv()


@contextmanager
def pump() -> Iterator[Pump]:
    own, other = mp.Pipe()
    process = mp.get_context("spawn").Process(target=binlog_pump.main, args=(other,), daemon=True)
    process.start()
    try:
        yield Pump(own, *own.recv())
        own.send(("end", 0, 0))
        process.join(30)
    finally:
        process.kill()


@dataclass(frozen=True, slots=True)
class Cost:
    """What something took."""

    wall_s: float
    cpu_s: float

    def of(self, count: int) -> str:
        return f"{count / self.wall_s:9,.0f} transactions/s, {self.cpu_s * 1e6 / count:6.2f} us of CPU each"

    def tell(self, what: str, count: int, more: str = "", aim_us: float | None = None, aim_rate: float | None = None) -> None:
        """Print and note what a transaction took, and how many came a second."""
        print(f"{what:44s} {self.of(count)}{more}", flush=True)
        note(Figure(STAGE, what, self.cpu_s * 1e6 / count, "CPU µs a transaction", aim=aim_us))
        note(Figure(STAGE, f"{what}: rate", count / self.wall_s, "transactions a second", aim=aim_rate, most=False))


async def measured(
    pump: Pump, rows: int, reached: Callable[[], int], failed: asyncio.Future[Any], flush: Callable[[], None] = lambda: None
) -> tuple[Cost, int, int]:
    """Send rows, first a few to warm up. Returns the cost of the others, how many they are, and their bytes. `flush`: returns when all that
    was taken is downstream."""
    warm = int(rows * WARM)
    cost, size = Cost(0, 0), 0
    for begin, end in ((0, warm), (warm, rows)):
        last, size = await asyncio.to_thread(pump.prepare, "rows", begin, end)
        wall, cpu = time.monotonic(), time.process_time()
        await asyncio.to_thread(pump.go)
        await until(lambda last=last: reached() >= last, failed)  # type: ignore[misc]
        await asyncio.to_thread(flush)
        cost = Cost(time.monotonic() - wall, time.process_time() - cpu)
    return cost, rows - warm, size


async def until(condition: Callable[[], bool], failed: asyncio.Future[Any]) -> None:
    async with asyncio.timeout(LOAD_S):
        while not condition():
            if failed.done():
                failed.result()
                raise SystemExit(f"it ended before all was delivered: {failed.result()}")
            await asyncio.sleep(0.005)


# ---- limits


class _Pull:
    metadata = ()

    def __str__(self) -> str:
        return "/binlog.Pump/PullBinlogs"


@dataclass
class Counter:
    """Takes messages and drops them."""

    bytes: int = 0

    def put(self, stream: int, message: Packed, /) -> bool:
        self.bytes += len(message)
        message.give_back()
        return True

    def when_room(self, call: Callable[[], object], /) -> None:
        call()


async def limits(options: argparse.Namespace) -> None:
    with pump() as source:
        counter = Counter()
        feed = await connect(source.host, 0, counter, cast(Call, _Pull()))
        feed.send(pump_pb2.PullBinlogReq(clusterID=1).SerializeToString(), last=True)
        ended: asyncio.Future[FeedEnd] = feed.ended
        _, size = await asyncio.to_thread(source.prepare, "rows", 0, options.rows)
        messages = size - 5 * (options.rows + 1)
        wall, cpu = time.monotonic(), time.process_time()
        await asyncio.to_thread(source.go)
        await until(lambda: counter.bytes >= messages, ended)
        cost = Cost(time.monotonic() - wall, time.process_time() - cpu)
        feed.cancel()
    data, copied = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    cpu = time.process_time()
    for _ in range(5):
        np.copyto(copied, data)
    copy = (time.process_time() - cpu) / 5
    cost.tell("limit: socket, read, unframed, dropped", options.rows, f", {size / options.rows:.0f} bytes")
    print(f"{'limit: memcpy of the same bytes':44s} {'':26s}{copy * 1e6 / options.rows:6.2f} us of CPU each", flush=True)
    note(Figure(STAGE, "limit: memcpy of the same bytes", copy * 1e6 / options.rows, "CPU µs a transaction"))


# ---- destinations


class BlackHole:
    """Drops all."""

    name = "blackhole"
    save_s = 3.0
    is_behind = False

    def __init__(self, base: int) -> None:
        self._base = base
        self.rows = 0

    async def without_upstream(self) -> None:
        return None

    async def open(self, pd: PdClient) -> BlackHole:
        return self

    async def schemas(self, pd: PdClient, ts: int, version: int, waits: Waits) -> Schemas:
        return await Schemas.at(pd, ts, waits)

    def reading(self, schemas: Schemas) -> Reads[LogEntry]:
        return LogReading(schemas, lambda version: True, lambda: Layout(0, 4))

    def load(self) -> Position | None:
        return None

    def write(self, entries: Sequence[LogEntry]) -> None:
        self.rows += sum(batch.num_rows for entry in entries for _, batch in entry.changes)

    def flush(self) -> None:
        return None

    def save(self, position: Position) -> None:
        return None

    def close(self) -> None:
        return None


def settings_of(pump: Pump, folder: Path, **more: Any) -> DrainerSettings:
    found = DrainerSettings("127.0.0.1:0", "127.0.0.1:1", f"http://{pump.pd}", str(folder), "drainer", initial_commit_ts=pump.base)
    return replace(found, **more)


@asynccontextmanager
async def running(work: Any, stop: Callable[[], None] | None = None) -> AsyncIterator[asyncio.Future[Any]]:
    """Work until the block ends; `stop`: asks it to end by itself."""
    task = asyncio.ensure_future(work)
    try:
        yield task
        if stop is not None:
            stop()
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def blackhole(options: argparse.Namespace) -> None:
    with pump() as source, tempfile.TemporaryDirectory() as folder:
        hole = BlackHole(source.base)
        drainer: Drainer[LogEntry] = Drainer(settings_of(source, Path(folder)), hole)
        async with running(drainer.run(), lambda drainer=drainer: drainer.ask(NodeEvent.PAUSE)) as task:
            cost, count, _ = await measured(source, options.rows, lambda: drainer.done_ts, task)
        if hole.rows != options.rows:
            raise SystemExit(f"{hole.rows} rows came, not {options.rows}")
    cost.tell("pull -> black hole, rows read", count, aim_rate=80_000)


@asynccontextmanager
async def capturing(pump: Pump, folder: Path) -> AsyncIterator[tuple[BinlogCapture, asyncio.Future[Any]]]:
    config = CaptureConfig((pump.pd,), f"{folder}/log", start_ts=str(pump.base), data_dir=folder / "data")
    made = BinlogCapture(config, "127.0.0.1:0")
    async with running(made.run(), made.stop) as task:
        yield made, task


def reached(made: BinlogCapture) -> int:
    return made.outlet.resolved_ts if made.outlet is not None else 0


async def log(options: argparse.Namespace) -> None:
    with pump() as source, tempfile.TemporaryDirectory() as folder:
        async with capturing(source, Path(folder)) as (made, task):
            cost, count, _ = await measured(source, options.rows, lambda: reached(made), task)
            assert made.outlet is not None
            if made.outlet.rows != options.rows:
                raise SystemExit(f"{made.outlet.rows} rows came, not {options.rows}")
    cost.tell("pull -> change log", count, aim_us=5)


# ---- memory


@dataclass
class Memory:
    """Memory of this process that is not of files, RssAnon: sampled, as Linux keeps no peak of it. With pages of files: its own peak."""

    least: int = 0
    most: int = 0
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    def now(self) -> int:
        _, resident, shared = (int(word) for word in Path("/proc/self/statm").read_text().split()[:3])
        return (resident - shared) * resource.getpagesize()

    def begin(self) -> None:
        """What is there now is the least."""
        self.least = self.now()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins again

    def peak(self) -> int:
        """All that was resident at once, at most."""
        status = Path("/proc/self/status").read_text()
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))

    def told(self, what: str, size: int, took: str) -> None:
        more = self.most - self.least
        note(Figure(STAGE, f"one transaction of {size // MIB} MiB, {what}: memory of its own", more / MIB, "MiB"))
        print(
            f"one transaction of {size // MIB} MiB, {what}: at most {more / MIB:,.0f} MiB more than the {self.least / MIB:,.0f} before it, "
            f"{more / size:.2f} times its size; with pages of files, which the system can take away, {self.peak() / MIB:,.0f} MiB; {took}",
            flush=True,
        )

    async def watch(self) -> None:
        while True:
            self.most = max(self.most, self.now())
            await asyncio.sleep(0.01)


async def large(options: argparse.Namespace) -> None:
    size = options.size_mib * MIB
    with pump() as source, tempfile.TemporaryDirectory() as folder:
        async with capturing(source, Path(folder)) as (made, task):
            last, _ = await asyncio.to_thread(source.prepare, "rows", 0, 1000)
            await asyncio.to_thread(source.go)
            await until(lambda: reached(made) >= last, task)
        # a Drainer of its own for the large one: its ts lie before those of the rows
    with pump() as source, tempfile.TemporaryDirectory() as folder:
        async with capturing(source, Path(folder)) as (made, task):
            last, _ = await asyncio.to_thread(source.prepare, "large", 0, size)
            memory = Memory()
            memory.begin()
            wall, cpu = time.monotonic(), time.process_time()
            await asyncio.to_thread(source.go)
            async with running(memory.watch()):
                await until(lambda: reached(made) >= last, task)
            wall, cpu = time.monotonic() - wall, time.process_time() - cpu
            assert made.outlet is not None
            rows = made.outlet.rows
    memory.told(f"{rows:,} rows -> change log", size, f"{wall:.1f} s, {cpu * 1e6 / rows:.2f} us of CPU a row")


async def large_form(options: argparse.Namespace, where: str, begin: Callable[[], None] = lambda: None, **to: Any) -> None:
    """The Drainer of its own forms. What it takes to start, and to write a few rows, is not counted. `begin`: empties the downstream."""
    size = options.size_mib * MIB
    memory = Memory()
    for order, end in (("rows", 1000), ("large", size)):
        begin()
        with pump() as source, tempfile.TemporaryDirectory() as folder:
            settings = settings_of(source, Path(folder), db_type=where, to=Downstream(dir=f"{folder}/out", **to))
            drainer: Drainer[Any] = Drainer(settings, Forms(settings))
            async with running(drainer.run(), lambda drainer=drainer: drainer.ask(NodeEvent.PAUSE)) as task:
                last, _ = await asyncio.to_thread(source.prepare, order, 0, end)
                memory = Memory()
                memory.begin()
                wall, cpu = time.monotonic(), time.process_time()
                await asyncio.to_thread(source.go)
                async with running(memory.watch()):
                    await until(lambda: drainer.done_ts >= last, task)  # noqa: B023
                    await asyncio.to_thread(drainer._outlet.flush)
    memory.told(f"drainer -> {where}", size, f"{time.monotonic() - wall:.1f} s, {time.process_time() - cpu:.1f} s of CPU")


async def large_mysql(options: argparse.Namespace) -> None:
    with MariaDbServer(*SERVER, memory="512M") as server:
        await large_form(options, "mysql", lambda: create(server), host="127.0.0.1", port=server.port)
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM bench.t")
            print(f"{cursor.fetchall()[0][0]:,} rows are in MariaDB", flush=True)


async def large_file(options: argparse.Namespace) -> None:
    await large_form(options, "file")


# ---- MariaDB


def create(server: MariaDbServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS bench")
        cursor.execute("DROP DATABASE IF EXISTS tidb_binlog")
        cursor.execute("DROP DATABASE IF EXISTS tidb_cdc")
        cursor.execute("CREATE DATABASE bench")
        cursor.execute(binlog_pump.TABLE)


def counted(server: MariaDbServer, rows: int) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM bench.t")
        found = cursor.fetchall()[0][0]
    if found != rows:
        raise SystemExit(f"{found} rows are in MariaDB, not {rows}")


async def mysql(options: argparse.Namespace) -> None:
    rows = options.rows // 4
    manners: dict[str, dict[str, Any]] = {
        "one connection": {},
        "16 connections, txn-batch 20": {"worker_count": 16, "txn_batch": 20},
        "merged, txn-batch 100": {"merge": True, "worker_count": 16, "txn_batch": 100},
    }
    with MariaDbServer(*SERVER, memory="512M") as server:
        for name, manner in manners.items():
            create(server)
            with pump() as source, tempfile.TemporaryDirectory() as folder:
                to = Downstream(host="127.0.0.1", port=server.port, merge=manner.get("merge", False))
                more = {name: value for name, value in manner.items() if name != "merge"}
                settings = settings_of(source, Path(folder), db_type="mysql", to=to, **more)
                drainer: Drainer[Any] = Drainer(settings, Forms(settings))
                async with running(drainer.run(), lambda drainer=drainer: drainer.ask(NodeEvent.PAUSE)) as task:
                    done, flush = partial(getattr, drainer, "done_ts"), lambda drainer=drainer: drainer._outlet.flush()
                    cost, count, _ = await measured(source, rows, done, task, flush)
            counted(server, rows)
            cost.tell(f"drainer -> MariaDB, {name}", count, aim_rate=25_000)


# ---- the Drainer's own messages


async def form(options: argparse.Namespace, db_type: str, **to: Any) -> None:
    rows = options.rows // 4
    with pump() as source, tempfile.TemporaryDirectory() as folder:
        settings = settings_of(source, Path(folder), db_type=db_type, to=Downstream(dir=f"{folder}/out", **to))
        drainer: Drainer[Any] = Drainer(settings, Forms(settings))
        async with running(drainer.run(), lambda drainer=drainer: drainer.ask(NodeEvent.PAUSE)) as task:
            cost, count, _ = await measured(source, rows, lambda: drainer.done_ts, task, lambda: drainer._outlet.flush())
    cost.tell(f"drainer -> {db_type}", count)


async def file(options: argparse.Namespace) -> None:
    await form(options, "file")


async def kafka(options: argparse.Namespace) -> None:
    with KafkaBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        for made in admin.create_topics([NewTopic("obinlog", 1, 1)]).values():
            made.result()
        await form(options, "kafka", kafka_addrs=broker.address, topic_name="obinlog")


@dataclass(frozen=True)
class Given:
    """What a run needs to know of its upstream."""

    pd: str


async def run(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-bench-")))
        server = stack.enter_context(MariaDbServer(*SERVER, memory="512M"))
        source = stack.enter_context(pump())
        create(server)
        more = ("--binlog", "--drainer-addr", "127.0.0.1:0")
        uri = f"{server.uri}?worker-count=16"
        delivery = stack.enter_context(Delivery(folder, cast(Upstream, Given(source.pd)), uri, start_ts=source.base, options=more))
        assert delivery.process is not None
        usage = stack.enter_context(TreeUsage(delivery.process.pid))
        warm, wall, cpu = int(options.rows * WARM), 0.0, 0.0
        for begin, end in ((0, warm), (warm, options.rows)):
            last, _ = await asyncio.to_thread(source.prepare, "rows", begin, end)
            wall, cpu = time.monotonic(), usage.cpu().total
            source.go()
            while int(delivery.feed_status().get("checkpoint_ts") or 0) < last:
                if delivery.process.poll() is not None:
                    raise SystemExit(f"tidemill run ended: see {delivery.output.read_text()[-2000:]}")
                await asyncio.sleep(0.02)
        cost = Cost(time.monotonic() - wall, usage.cpu().total - cpu)
        counted(server, options.rows)
    cost.tell("run --binlog -> log -> Spark -> MariaDB", options.rows - warm)


WORK = {
    "limits": limits,
    "log": log,
    "blackhole": blackhole,
    "mysql": mysql,
    "file": file,
    "kafka": kafka,
    "run": run,
    "large": large,
    "large-mysql": large_mysql,
    "large-file": large_file,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_binlog", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", default=[], help=f"of {' '.join(KINDS)} (all)")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--size-mib", type=int, default=2040)
    options = parser.parse_args()
    for kind in options.kinds or KINDS:
        uvloop.run(WORK[kind](options))


if __name__ == "__main__":
    main()
