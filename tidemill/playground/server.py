"""The playground as one object: a cluster, its gRPC servers and, behind them, SQL and workloads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

import grpc
import grpc.aio

from tidemill.playground.cluster import Cluster, Store
from tidemill.playground.feed_service import FeedService
from tidemill.playground.kv_service import KvService
from tidemill.playground.oracle import wall_clock_ms
from tidemill.playground.pd_service import PdService
from tidemill.playground.sql.session import Database, Result

CLUSTER_ID = 7_300_000_000_000_000_000
RESOLVED_INTERVAL = 1.0
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
)


class Playground:
    """An embedded TiDB cluster. Everything runs on the event loop that `start` is called on; no method may be called from elsewhere."""

    def __init__(
        self,
        seed: int = 0,
        *,
        stores: int = 1,
        cluster_id: int | None = None,
        resolved_interval: float = RESOLVED_INTERVAL,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.seed = seed
        self.cluster = Cluster(CLUSTER_ID + seed if cluster_id is None else cluster_id, range(1, stores + 1), clock)
        self.database = Database(self.cluster)
        self.resolved_interval = resolved_interval
        self._session = self.database.session()
        self.pd = PdService(self.cluster, lambda: f"http://{self.pd_address}")
        self.feeds: dict[int, FeedService] = {}
        self.pd_address = ""
        self._servers: list[grpc.aio.Server] = []
        self._ticker: asyncio.Task[None] | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serve: PD and store 1 on `port` (0: any free one), further stores on free ports.

        Raises OSError when the address cannot be used.
        """
        for store in list(self.cluster.stores.values()):
            self.feeds[store.id] = FeedService(self.cluster.feeds, store.id)
            handlers = [KvService(self.cluster, store.id).handler(), self.feeds[store.id].handler()]
            if store.id == 1:
                handlers.append(self.pd.handler())
            address = await self._listen(host, port if store.id == 1 else 0, handlers)
            self.cluster.stores[store.id] = Store(store.id, address, store.version)
            if store.id == 1:
                self.pd_address = address
        self._ticker = asyncio.ensure_future(self._tick())

    def execute(self, sql: str) -> Result:
        """Run SQL in the playground's own session; the result of the last statement.

        Raises SqlError.
        """
        return self._session.execute(sql)

    async def _listen(self, host: str, port: int, handlers: list[grpc.GenericRpcHandler]) -> str:
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers(tuple(handlers))
        try:
            bound = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error}") from error
        if not bound:
            raise OSError(f"cannot listen on {host}:{port}")
        await server.start()
        self._servers.append(server)
        return f"{host}:{bound}"

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.resolved_interval)
            self.cluster.tick()

    async def stop(self, grace: float = 0.0) -> None:
        """End all streams and close the ports."""
        if self._ticker is not None:
            self._ticker.cancel()
        for server in self._servers:
            await server.stop(grace)
        self._servers.clear()

    async def __aenter__(self) -> Self:
        if not self._servers:
            await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()
