"""The playground as one object: a cluster, its gRPC servers and, behind them, SQL and workloads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, tzinfo
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from tidemill.playground.cluster import Cluster, Store
from tidemill.playground.control import ControlService
from tidemill.playground.feed_service import FeedService
from tidemill.playground.kv_service import KvService
from tidemill.playground.loader import load
from tidemill.playground.oracle import wall_clock_ms
from tidemill.playground.pd_service import PdService
from tidemill.playground.sql.ast import TableName
from tidemill.playground.sql.session import Database, Result
from tidemill.playground.truth import Name, TruthTable, tables_at
from tidemill.playground.workload import Options, Workload, make_workload

T = TypeVar("T")

CLUSTER_ID = 7_300_000_000_000_000_000
RESOLVED_INTERVAL = 1.0
GC_INTERVAL = 60.0
SLICE = 0.02
"""Seconds that a workload may work before others get their turn."""
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM bytes: who the servers are, and, where clients have to show who they are, whom they trust."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None

    def credentials(self) -> Any:
        """As grpc wants them."""
        pairs = [(self.key, self.certificate)]
        return grpc.ssl_server_credentials(pairs, self.client_ca, require_client_auth=self.client_ca is not None)


class Playground:
    """An embedded TiDB cluster. It belongs to the event loop that `start` is called on; nothing may be called from another thread.

    `stores` TiKV stores listen on ports of their own, the first one shares PD's. The content of workloads depends on `seed`.
    With a `gc_life_time` (seconds) older history is collected every minute, as far as services' safe points allow.
    `gc_barriers`: PD serves GC barriers, as version 9 and newer do.
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
    ) -> None:
        self.seed = seed
        self._tls = tls
        self.cluster = Cluster(CLUSTER_ID + seed if cluster_id is None else cluster_id, range(1, stores + 1), clock)
        self.database = Database(self.cluster)
        self.began_ts = self.cluster.oracle.next()
        """A capture that starts here sees everything that workloads and SQL ever wrote."""
        self.resolved_interval, self.gc_life_time = resolved_interval, gc_life_time
        self.pd = PdService(self.cluster, lambda: f"http://{self.pd_address}", gc_barriers=gc_barriers)
        self.feeds: dict[int, FeedService] = {}
        self.control = ControlService(self)
        self.pd_address = ""
        self.paused = False
        self.stopping = asyncio.Event()
        self.workload: Workload | None = None
        self._session = self.database.session()
        self._servers: dict[int, grpc.aio.Server] = {}
        self._ticker: asyncio.Task[None] | None = None

    # serving

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serve: PD and store 1 on `port` (0: any free one), further stores on free ports.

        Raises OSError when the address cannot be used.
        """
        for store in list(self.cluster.stores.values()):
            await self._start_store(store, host, port if store.id == 1 else 0)
        self.pd_address = self.cluster.stores[1].address
        self._ticker = asyncio.ensure_future(self._tick())

    async def _start_store(self, store: Store, host: str, port: int) -> None:
        self.feeds[store.id] = FeedService(self.cluster.feeds, store.id)
        handlers = [KvService(self.cluster, store.id).handler(), self.feeds[store.id].handler()]
        if store.id == 1:
            handlers += [self.pd.handler(), self.control.handler()]
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers(tuple(handlers))
        try:
            if self._tls is None:
                bound = server.add_insecure_port(f"{host}:{port}")
            else:
                bound = server.add_secure_port(f"{host}:{port}", self._tls.credentials())
        except RuntimeError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error}") from error
        if not bound:
            raise OSError(f"cannot listen on {host}:{port}")
        await server.start()
        self._servers[store.id] = server
        self.cluster.stores[store.id] = Store(store.id, f"{host}:{bound}", store.version)

    async def stop_store(self, store_id: int) -> None:
        """Take a store (not the first) off the network, as when its process is killed: streams break, its leaders stay where they are."""
        await self._servers.pop(store_id).stop(0)

    async def restart_store(self, store_id: int) -> None:
        """Bring a stopped store back at its old address."""
        store = self.cluster.stores[store_id]
        host, _, port = store.address.rpartition(":")
        await self._start_store(store, host, int(port))

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        collected = loop.time()
        while True:
            await asyncio.sleep(self.resolved_interval)
            self.cluster.tick()
            if self.gc_life_time and loop.time() - collected >= GC_INTERVAL:
                self.cluster.collect_garbage(int(self.gc_life_time * 1000))
                collected = loop.time()

    async def stop(self, grace: float = 0.0) -> None:
        """End all streams and close the ports."""
        if self._ticker is not None:
            self._ticker.cancel()
        for server in self._servers.values():
            await server.stop(grace)
        self._servers.clear()

    async def __aenter__(self) -> Self:
        if not self._servers:
            await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    # writing

    def execute(self, sql: str) -> Result:
        """Run SQL in the playground's own session; the result of the last statement.

        Raises SqlError.
        """
        return self._session.execute(sql)

    def load(self, table: str, rows: int, *, regions: int = 1) -> int:
        """Add many made-up rows to `schema.table`; the commit_ts of the last. Raises SqlError."""
        schema, _, name = table.rpartition(".")
        return load(self.cluster, self.database.catalog.table(TableName(schema, name), "test"), rows, seed=self.seed, regions=regions)

    def prepare(self, workload: str, options: Options | None = None) -> Workload:
        """Choose a workload and create its tables. Raises SqlError."""
        self.workload = make_workload(workload, self.database, self.seed, options or Options())
        self.workload.prepare()
        return self.workload

    async def work(self, *, rate: float = 0.0, transactions: int = 0, seconds: float = 0.0) -> None:
        """Run the prepared workload at `rate` transactions a second (0: as many as it can) until a limit (0: none) or `stopping`."""
        workload = self.workload
        assert workload is not None
        loop = asyncio.get_running_loop()
        begin = loop.time()
        first = workload.progress.transactions
        acted = 0
        while not self.stopping.is_set():
            now = loop.time() - begin
            if (seconds and now >= seconds) or (transactions and workload.progress.transactions - first >= transactions):
                break
            if self.paused or (rate and acted > rate * now):
                await asyncio.sleep(SLICE)
                if self.paused:
                    begin, acted = loop.time(), 0
                continue
            until = loop.time() + SLICE
            while loop.time() < until and not (transactions and workload.progress.transactions - first >= transactions):
                workload.act()
                acted += 1
                if rate and acted > rate * (loop.time() - begin):
                    break
            await asyncio.sleep(0)
        workload.settle()

    # looking

    def tables_at(self, ts: int | None = None, zone: tzinfo = UTC) -> dict[Name, TruthTable]:
        """What all tables of users hold at a ts (now without one), by (schema, table). Raises KeyLocked."""
        return tables_at(self.cluster.mvcc, self.cluster.oracle.next() if ts is None else ts, zone)

    def stats(self) -> dict[str, Any]:
        """Figures for people and tests."""
        cluster = self.cluster
        progress = self.workload.progress if self.workload is not None else None
        return {
            "pd": self.pd_address,
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

    def execute(self, sql: str) -> Result:
        """Run SQL; the result of the last statement. Raises SqlError."""
        return self.call(self.playground.execute, sql)

    @property
    def pd_address(self) -> str:
        """Where clients find PD."""
        return self.playground.pd_address

    def __enter__(self) -> Self:
        self.run(self.playground.start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.run(self.playground.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
