"""The playground as one object: a cluster, its gRPC servers and, behind them, SQL and workloads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, tzinfo
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from tidemill.binlog.client.options import ClientOptions
from tidemill.playground import suspending
from tidemill.playground.control import ControlService
from tidemill.playground.services.etcd import EtcdService
from tidemill.playground.services.feed import FeedService
from tidemill.playground.services.gate import ServerTls
from tidemill.playground.services.kv import KvService
from tidemill.playground.services.members import Members
from tidemill.playground.services.pd import PdService
from tidemill.playground.services.ports import Port
from tidemill.playground.services.pumps import PumpWriter
from tidemill.playground.sql.binlogs import NoPump
from tidemill.playground.sql.parse.ast import TableName
from tidemill.playground.sql.session import Database, Result
from tidemill.playground.store.cluster import VERSION, Cluster
from tidemill.playground.store.etcd import EtcdStore
from tidemill.playground.store.loading import load_meta
from tidemill.playground.store.oracle import wall_clock_ms
from tidemill.playground.store.truth import Name, TruthTable, tables_at
from tidemill.playground.workload.loader import load
from tidemill.playground.workload.mixed import Options, Workload
from tidemill.playground.workload.names import make_workload
from tidemill.tidb.types.jsonstyle import style_of

_log = logging.getLogger(__name__)

T = TypeVar("T")

CLUSTER_ID = 7_300_000_000_000_000_000
RESOLVED_INTERVAL = 1.0
GC_INTERVAL = 60.0
SLICE = 0.02
"""Seconds after which a workload lets other tasks of the event loop run."""
AFTER_FAULT = 1.0
"""Seconds that a workload rests after a fault. A fault that comes each time would otherwise keep the servers from running."""


class Playground:
    """An embedded TiDB cluster. It belongs to the event loop that `start` is called on; nothing may be called from another thread.

    It has `stores` TiKV stores, each on a port of its own; the first one shares PD's port. The content of workloads depends on `seed`.
    With a `gc_life_time` (seconds) older history is collected every minute, as far as services' safe points allow.
    `gc_barriers`: PD serves GC barriers, as version 9 and newer do. `pds`: the number of PD members, each on a port of its own.
    `gates`: connections may be broken in every way (see gate.py). `old_feed`: stores do not serve EventFeedV2.
    `version`: the version that stores report to PD. `load_kv`: lines of a file with meta keys, which the store has instead of its own (see
    store/loading.py); there is no SQL then. `binlog`: everything that SQL writes is told by binlogs too; `follow_pumps` has to be called
    before anything is written, and `turn` is the way to write.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        stores: int = 1,
        cluster_id: int | None = None,
        resolved_interval: float = RESOLVED_INTERVAL,
        gc_life_time: float = 0.0,
        gc_barriers: bool = False,
        clock: Callable[[], int] = wall_clock_ms,
        tls: ServerTls | None = None,
        pds: int = 0,
        gates: bool = False,
        old_feed: bool = False,
        version: str = VERSION,
        load_kv: Iterable[str] | None = None,
        binlog: ClientOptions | None = None,
    ) -> None:
        """Raises ConfigError for a line of `load_kv` that cannot be read."""
        self.seed = seed
        self._tls, self._gates, self._old_feed, self._gc_barriers = tls, gates, old_feed, gc_barriers
        self.cluster = Cluster(CLUSTER_ID + seed if cluster_id is None else cluster_id, range(1, stores + 1), clock, version)
        self.database = Database(self.cluster, empty=load_kv is not None)
        if load_kv is not None:
            load_meta(self.cluster, load_kv)
        self._binlog = binlog
        self._pumps: PumpWriter | None = None
        self._turn = asyncio.Lock()
        if binlog is not None:
            self.database.write_binlogs(NoPump())
        self.etcd = EtcdStore(time.monotonic)
        self.began_ts = self.cluster.oracle.next()
        """A capture that starts here sees everything that workloads and SQL ever wrote."""
        self.resolved_interval, self.gc_life_time = resolved_interval, gc_life_time
        self.members = Members(pds, time.monotonic)
        self._shared = pds == 0  # PD and store 1 are one server
        self.feeds: dict[int, FeedService] = {}
        self.kvs: dict[int, KvService] = {}
        self.control = ControlService(self)
        self.pd_address = ""
        self.paused = False
        self.stopping = asyncio.Event()
        self.workload: Workload | None = None
        self._session = self.database.session()
        self.store_ports: dict[int, Port] = {}
        self.pd_ports: dict[int, Port] = {}
        self.control_port = Port(lambda: [self.control.handler()], tls)
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: dict[str, asyncio.Lock] = {}
        self._ticker: asyncio.Task[None] | None = None

    # serving

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serve: PD on `port` (0: any free one), store 1 too if PD has no members of its own, and all others on free ports.

        Raises OSError when the address cannot be used. Then nothing is left open.
        """
        try:
            await self._open_ports(host, port)
        except OSError:
            await self.stop()
            raise
        self.pd_address = ",".join(m.address for m in self.members.all.values())
        self._ticker = asyncio.ensure_future(self._tick())

    async def _open_ports(self, host: str, port: int) -> None:
        for store in list(self.cluster.stores.values()):
            self.store_ports[store.id] = Port(partial(self._store_handlers, store.id), self._tls, gated=self._gates)
            address = await self.store_ports[store.id].start(host, port if self._shared and store.id == 1 else 0)
            self.cluster.stores[store.id] = replace(store, address=address)
        if self._shared:
            self.members.all[1].address = self.cluster.stores[1].address
        else:
            for member in self.members.all.values():
                self.pd_ports[member.id] = Port(partial(self._pd_handlers, member.id), self._tls, gated=self._gates)
                member.address = await self.pd_ports[member.id].start(host, port if member.id == 1 else 0)
        await self.control_port.start(host)

    def _store_handlers(self, store_id: int) -> list[grpc.GenericRpcHandler]:
        feed = self.feeds[store_id] = FeedService(self.cluster.feeds, store_id, multiplexing=not self._old_feed)
        kv = self.kvs[store_id] = KvService(self.cluster, store_id)
        handlers = [kv.handler(), feed.handler()]
        return handlers + (self._pd_handlers(1) if self._shared and store_id == 1 else [])

    def _pd_handlers(self, member_id: int) -> list[grpc.GenericRpcHandler]:
        scheme = "http" if self._tls is None else "https"
        pd = PdService(self.cluster, self.members, member_id, scheme=scheme, gc_barriers=self._gc_barriers)
        return [pd.handler(), self.control.handler(), *EtcdService(self.etcd, self.cluster.cluster_id).handlers()]

    async def stop_store(self, store_id: int) -> None:
        """Take a store off the network, as when its process is killed: streams break, its leaders stay where they are.
        A store that shares its port with PD takes it along."""
        await self.store_ports[store_id].stop()

    async def restart_store(self, store_id: int) -> None:
        """Bring a stopped store back at its old address."""
        port = self.store_ports[store_id]
        port.tls = self._tls
        await port.restart()

    async def stop_pd(self, member_id: int) -> None:
        """Kill a PD member. If it was the leader, another one is elected after a while, if a majority is up."""
        self.members.all[member_id].up = False
        led = self.members.leader == member_id
        self.members.resign(member_id)
        await self.pd_ports[member_id].stop()
        if led:
            self.later(self._elect())

    async def start_pd(self, member_id: int) -> None:
        """Bring a PD member back at its old address."""
        await self.pd_ports[member_id].restart()
        self.members.all[member_id].up = True
        self.later(self._elect())

    async def change_pd_leader(self, member_id: int) -> None:
        """The leader resigns in favour of another member, which leads after an election."""
        self.members.resign(self.members.leader)
        await self._elect(member_id)

    async def _elect(self, member_id: int = 0) -> None:
        await asyncio.sleep(self.members.election_s)
        self.members.elect(member_id)

    async def alone(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` when nothing else of that name is running."""
        async with self._turns.setdefault(name, asyncio.Lock()):
            await work()

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in the background until the playground stops."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        collected = loop.time()
        while True:
            await asyncio.sleep(self.resolved_interval)
            self.cluster.tick()
            self.etcd.expire()
            if self.gc_life_time and loop.time() - collected >= GC_INTERVAL:
                self.cluster.collect_garbage(int(self.gc_life_time * 1000))
                collected = loop.time()

    async def stop(self, grace: float = 0.0) -> None:
        """End all streams and close the ports."""
        if self._pumps is not None:
            await self._pumps.close()
        if self._ticker is not None:
            self._ticker.cancel()
        for task in list(self._tasks):
            task.cancel()
        for port in (*self.store_ports.values(), *self.pd_ports.values(), self.control_port):
            await port.stop(grace)
        self.store_ports.clear()
        self.pd_ports.clear()

    async def __aenter__(self) -> Self:
        if not self.store_ports:
            await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    # writing

    async def follow_pumps(self) -> None:
        """Wait until a Pump is online, and write binlogs from then on."""
        assert self._binlog is not None
        self._pumps = await PumpWriter.connect(self.pd_address, self._binlog)
        self.database.write_binlogs(self._pumps)

    async def turn(self, function: Callable[[], T]) -> T:
        """Call something that may write. With binlogs it waits for Pumps, and one waits for the other. Raises what it raises."""
        if self._binlog is None:
            return function()
        async with self._turn:
            return await suspending.run(function)

    async def binlogs_written(self) -> None:
        """Wait until the Pumps have what has been committed so far."""
        if self._pumps is not None:
            await self._pumps.settle()

    def execute(self, sql: str) -> Result:
        """Run SQL in the playground's own session, and return the result of the last statement.

        Raises SqlError.
        """
        return self._session.execute(sql)

    def load(self, table: str, rows: int, *, regions: int = 1) -> int:
        """Add many made-up rows to `schema.table`, and return the commit_ts of the last. Raises SqlError."""
        schema, _, name = table.rpartition(".")
        return load(self.cluster, self.database.catalog.table(TableName(schema, name), "test"), rows, seed=self.seed, regions=regions)

    def prepare(self, workload: str, options: Options | None = None) -> Workload:
        """Choose a workload and create its tables. Raises SqlError."""
        self.workload = make_workload(workload, self.database, self.seed, options or Options())
        self.workload.prepare()
        return self.workload

    async def work(self, *, rate: float = 0.0, transactions: int = 0, seconds: float = 0.0, go_on: bool = False) -> None:
        """Run the prepared workload at `rate` transactions a second (0: as many as it can) until a limit (0: none) or `stopping`.

        With `go_on` a fault of the workload is logged with its traceback and counted; the transaction is given up, and the next one
        follows.
        """
        workload = self.workload
        assert workload is not None
        loop = asyncio.get_running_loop()
        last = workload.progress.transactions + transactions if transactions else 0
        until = loop.time() + seconds if seconds else 0.0
        while True:
            turn = asyncio.ensure_future(self._work(workload, rate, last, until))
            try:
                await asyncio.wait({turn})
            finally:
                turn.cancel()
            fault = turn.exception()
            if fault is None:
                return
            if not go_on:
                raise fault
            workload.progress.faults += 1
            _log.error("the workload met a fault of the playground, of seed %s; it goes on", self.seed, exc_info=fault)
            await self.turn(workload.recover)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), AFTER_FAULT)

    async def _work(self, workload: Workload, rate: float, last: int, until: float) -> None:
        """Run until there are `last` transactions in all, or until the loop's time `until`; 0 for no limit."""
        loop = asyncio.get_running_loop()
        begin, acted = loop.time(), 0

        def is_over() -> bool:
            return bool((until and loop.time() >= until) or (last and workload.progress.transactions >= last))

        while not (self.stopping.is_set() or is_over()):
            if self.paused or (rate and acted > rate * (loop.time() - begin)):
                await asyncio.sleep(SLICE)
                if self.paused:
                    begin, acted = loop.time(), 0
                continue
            pause = loop.time() + SLICE
            while loop.time() < pause and not (last and workload.progress.transactions >= last):
                if self._binlog is None:
                    workload.act()
                else:
                    await self.turn(lambda: None if self.paused else workload.act())  # `pause` may have had its turn before
                acted += 1
                if rate and acted > rate * (loop.time() - begin):
                    break
            await asyncio.sleep(0)
        await self.turn(workload.settle)

    # looking

    def tables_at(self, ts: int | None = None, zone: tzinfo = UTC) -> dict[Name, TruthTable]:
        """Return the tables of users with their rows at a ts (default: now), by (schema, table). Raises KeyLocked."""
        style = style_of(self.cluster.version)
        return tables_at(self.cluster.mvcc, self.cluster.oracle.next() if ts is None else ts, zone, style)

    def stats(self) -> dict[str, Any]:
        """Figures for people and tests."""
        cluster = self.cluster
        progress = self.workload.progress if self.workload is not None else None
        return {
            "pd": self.pd_address,
            "pd_leader": self.members.leading.address if self.members.leading is not None else "",
            "control": self.control_port.address,
            "cluster_id": str(cluster.cluster_id),
            "began_ts": self.began_ts,
            "ts": cluster.oracle.last,
            "stores": {s.id: s.address for s in cluster.stores.values()},
            "regions": len(cluster.regions),
            "tables": sum(1 for t in self.database.catalog.tables.values() if t.schema_id > 2),
            "transactions": cluster.transactions,
            "rows_written": cluster.rows_written,
            "streams": len(cluster.feeds.streams),
            "subscriptions": sum(len(s.subscriptions) for s in cluster.feeds.streams),
            "locks": len(cluster.mvcc.locks),
            "gc_safe_point": cluster.safe_points.collected,
            "services": {s.service_id.decode("utf-8", "replace"): s.safe_point for s in cluster.safe_points.services()},
            "workload": None if progress is None else {name: getattr(progress, name) for name in progress.__slots__},
            "paused": self.paused,
        }


class PlaygroundThread:
    """A playground on an event loop in a thread of its own, for callers that are not asynchronous. A context manager."""

    def __init__(self, seed: int = 0, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="playground", daemon=True)
        self._thread.start()

        async def make() -> Playground:
            return Playground(seed, **options)

        self.playground = self.run(make())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the playground's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def call(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Run a plain function on the playground's loop and wait for it."""

        async def run() -> T:
            return function(*arguments, **options)

        return self.run(run())

    def start(self, make: Callable[[], tuple[T, Coroutine[Any, Any, None]]]) -> tuple[T, Future[None]]:
        """Begin a coroutine on the playground's loop. `make` is called there and returns what belongs to the coroutine, and the coroutine;
        the future ends with it."""
        thing, coroutine = self.call(make)
        return thing, asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def execute(self, sql: str) -> Result:
        """Run SQL, and return the result of the last statement. Raises SqlError."""
        return self.run(self.playground.turn(partial(self.playground.execute, sql)))

    @property
    def pd_address(self) -> str:
        """The address of PD."""
        return self.playground.pd_address

    def __enter__(self) -> Self:
        self.run(self.playground.start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.run(self.playground.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
