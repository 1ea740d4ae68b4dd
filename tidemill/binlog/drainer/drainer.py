"""A Drainer: its entry in the registry, the Pumps that it pulls from, and the way of each binlog to its destination."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Generic

import grpc

from tidemill import tso
from tidemill.binlog.blocks import NONE
from tidemill.binlog.drainer.destination import Destination, E, Outlet, Reads
from tidemill.binlog.drainer.outlets import CountsMissed
from tidemill.binlog.drainer.pages import DrainerPages
from tidemill.binlog.drainer.pulling import Puller
from tidemill.binlog.drainer.rows.spill import Spill
from tidemill.binlog.drainer.savepoint import Position
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.drainer.settings import DrainerSettings
from tidemill.binlog.drainer.traced import traces_of
from tidemill.binlog.merge import Merge
from tidemill.binlog.nodes import Node, NodeEvent, NodeKind, NodeState
from tidemill.binlog.pump.port import FrontPort, ServerTls
from tidemill.binlog.registry.client import Registry
from tidemill.binlog.registry.heartbeat import Entry as RegistryEntry
from tidemill.capture.lifecycle import in_thread
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.tls import Security, security_of
from tidemill.changelog.storage.durable import make_folder
from tidemill.errors import TidemillError, UpstreamUnavailable
from tidemill.metrics.hosts import own_hosts
from tidemill.metrics.samples import Sample, counter, gauge
from tidemill.wire import pump_pb2

BEAT_S = 1.0
MOST_FAILURES = 20
"""Heartbeats in a row that may fail."""
BATCH, BATCH_BYTES = 8192, 16 << 20
"""Binlogs that are read at once, at most; one may be larger."""
SYNCED_S = 300.0
HOLDS_S = 10.0
"""A Pump that holds the merge for so many seconds is named in the log."""

_OF_STRANGERS = (
    ("grpc.max_concurrent_streams", 16),
    ("grpc.max_receive_message_length", 64 << 10),
    ("grpc.max_connection_age_ms", 300_000),
    ("grpc.max_connection_age_grace_ms", 10_000),
)
"""What a connection of gRPC may take: a Pump calls once, with an empty message. Calls that never end are ended with their connection."""

_log = logging.getLogger(__name__)


class Drainer(Generic[E]):
    """Runs until it is asked to pause or to go offline, or something fails that a retry does not help."""

    def __init__(self, settings: DrainerSettings, destination: Destination[E]) -> None:
        self._settings = settings
        self._destination = destination
        self._wanted: asyncio.Queue[NodeEvent] = asyncio.Queue()
        self._moved = asyncio.Event()
        self._pulls: dict[str, asyncio.Task[None]] = {}
        self._nodes: dict[str, Node] = {}
        self._saved = 0.0
        self._save_ts = 0
        self.alive = False
        """Whether it pulls and delivers."""
        self.address = ""
        """Where it serves gRPC and HTTP."""
        self.waits = ""
        self.done_ts = 0
        """Everything up to here is kept downstream."""
        self.counts = {"transactions": 0, "ddls": 0}
        self._merge: Merge
        self._taken_ts = 0
        """The outlet has taken everything up to here."""
        self._left = NONE  # what came out of the merge and is not read yet
        self._read_to = 0
        self._puller: Puller
        self._pd: PdClient
        self._registry: Registry
        self._began_ts = 0
        self._entry: RegistryEntry
        self._schemas: Schemas
        self._outlet: Outlet[E]
        self._reading: Reads[E]
        self._named = ("", 0.0)
        self._traces = traces_of(destination.name)

    def ask(self, event: NodeEvent) -> None:
        """Begin to pause or to go offline."""
        self._wanted.put_nowait(event)

    @property
    def node_id(self) -> str:
        """Its name in the registry."""
        return self._settings.node_id or f"{self._settings.advertise_addr}"

    async def run(self) -> None:
        """Run to the end. Raises TidemillError, OSError."""
        settings = self._settings
        make_folder(settings.data_dir)
        addresses = settings.pd_urls.split(",")
        try:
            self._pd = await PdClient.connect(addresses, security=_security(settings, addresses))
        except UpstreamUnavailable:
            await self._destination.without_upstream()
            raise
        try:
            await self._prepare()
            await self._serve()
        finally:
            await self._pd.close()

    async def _prepare(self) -> None:
        settings, now = self._settings, await self._pd.tso()
        self._outlet = await self._destination.open(self._pd)
        saved = await asyncio.to_thread(self._outlet.load)
        begin = saved.commit_ts if saved is not None else settings.initial_commit_ts if settings.initial_commit_ts > 0 else now
        self.done_ts = self._taken_ts = self._save_ts = begin
        self._registry, self._began_ts = Registry(self._pd), now
        delivered = saved.schema_version if saved is not None else 0
        self._schemas = await self._destination.schemas(self._pd, begin, delivered, self._waits)
        self._reading = self._destination.reading(self._schemas)
        self._merge = self._traces.merge(begin)
        most, room = settings.cache_mib << 20, Spill(Path(settings.data_dir))
        self._puller = Puller(self._merge, self._pd.channels.security, self._pd.cluster_id, most, self._moved.set, room)
        _log.info("drainer %s begins after %s", self.node_id, tso.describe(begin))

    def _waits(self, what: str | None) -> None:
        if what and what != self.waits:
            _log.warning("%s", what)
        self.waits = what or ""

    async def _serve(self) -> None:
        with tempfile.TemporaryDirectory(prefix="tidemill-drainer-") as folder:
            inner = Path(folder) / "grpc"
            server = grpc.aio.server(options=_OF_STRANGERS)
            server.add_generic_rpc_handlers((_handler(self),))
            server.add_insecure_port(f"unix:{inner}")
            await server.start()
            names = own_hosts(self._settings.addr, self._settings.advertise_addr)
            port = FrontPort(inner, DrainerPages(self), self._tls(), hosts=names)
            host, _, number = self._settings.addr.rpartition(":")
            await port.start(host.strip("[]"), int(number))
            state = NodeState.PAUSED
            advertised = self._settings.advertise_addr
            node = Node(self.node_id, port.address if advertised.endswith(":0") else advertised, state, labels=None)
            self._entry = RegistryEntry(self._registry, NodeKind.DRAINER, node, self._began_ts, lambda: self._save_ts)
            self.alive, self.address = True, port.address
            try:
                state = await self._work()
            finally:
                self.alive = False
                self._outlet.close()
                await self._entry.become(state)
                port.close()
                port.abort()
                await server.stop(None)

    def _tls(self) -> ServerTls | None:
        """Return how the own port is secured: with the certificate that PD, TiKV and Pumps are shown."""
        security = self._pd.channels.security
        if security is None or security.cert is None:
            return None
        return ServerTls(security, frozenset(self._settings.cert_allowed_cn))

    async def _work(self) -> NodeState:
        """Pull and deliver until asked to end. Returns the state to leave in the registry."""
        await self.look()
        await self._entry.become(NodeState.ONLINE)
        asked = asyncio.ensure_future(self._wanted.get())
        jobs = [
            asyncio.ensure_future(self._deliver()),
            asyncio.ensure_future(self._entry.beat(BEAT_S, MOST_FAILURES)),
            asyncio.ensure_future(self._follow()),
            asyncio.ensure_future(self._detect()),
        ]
        try:
            while not asked.done():
                done, _ = await asyncio.wait([asked, *jobs, *self._pulls.values()], timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                for task in done - {asked}:
                    if not task.cancelled():
                        task.result()
                self._tell_holder()
        finally:
            for task in (asked, *jobs, *self._pulls.values()):
                task.cancel()
            await asyncio.gather(asked, *jobs, *self._pulls.values(), return_exceptions=True)
        await self._save(consistent=True)
        self._traces.over(self._save_ts)
        return NodeState.OFFLINE if asked.result() is NodeEvent.CLOSE else NodeState.PAUSED

    # Pumps

    async def look(self) -> None:
        """Read the registry, and pull from all Pumps that are not offline. Raises UpstreamError."""
        self._adopt(await self._registry.nodes(NodeKind.PUMP))

    def _adopt(self, nodes: dict[str, Node]) -> None:
        self._nodes.update(nodes)
        for node_id, node in nodes.items():
            if node.state is NodeState.OFFLINE:
                pull = self._pulls.pop(node_id, None)
                if pull is not None:
                    pull.cancel()
                    self._merge.leave(node_id)
                    self._moved.set()
                    _log.info("Pump %s went offline", node_id)
            elif node_id not in self._pulls:
                since = self._merge.join(node_id)
                self._pulls[node_id] = asyncio.ensure_future(self._puller.pull(lambda node_id=node_id: self._nodes[node_id]))  # type: ignore[misc]
                _log.info("Pump %s (%s at %s) is pulled from, after %s", node_id, node.state.value, node.host, tso.describe(since))

    async def _follow(self) -> None:
        async for nodes in self._registry.watch(NodeKind.PUMP):
            self._adopt(nodes)

    async def _detect(self) -> None:
        while True:
            await asyncio.sleep(self._settings.detect_interval)
            try:
                await self.look()
            except UpstreamUnavailable as error:
                _log.warning("the Pumps cannot be read: %s", error.message)

    def _tell_holder(self) -> None:
        holder = self._merge.holder()
        if holder is None:
            return
        lag = max(0.0, time.time() - tso.physical_ms(holder.ts) / 1000)
        if lag < HOLDS_S:
            self._named = ("", 0.0)
        elif self._named[0] != holder.node_id or time.monotonic() - self._named[1] > 60:
            self._named = (holder.node_id, time.monotonic())
            node, problem = self._nodes.get(holder.node_id), self._puller.problems.get(holder.node_id, "it tells nothing new")
            _log.warning(
                "Pump %s (%s) holds the merge: it is at %s, %.0f s ago; %s",
                holder.node_id, node.state.value if node else "not registered", tso.describe(holder.ts), lag, problem,
            )  # fmt: skip

    # delivery

    async def _deliver(self) -> None:
        while True:
            self._moved.clear()
            try:
                more = await self._round()
            except (TidemillError, OSError) as error:
                self._traces.failed(error)
                raise
            self._traces.over(self._taken_ts)
            if not more:
                await self._news()
            await asyncio.sleep(0)

    async def _round(self) -> bool:
        """Deliver the next entries, and save the position when its time has come. Returns whether more may be there already."""
        entries, more, ddl = await self._batch()
        if entries:
            with self._traces.writing():
                await in_thread(self._outlet.write, entries)
            if self._outlet.is_behind:
                self.done_ts = self._taken_ts
        self._taken_ts = self._read_ts()
        if not self._outlet.is_behind:
            self.done_ts = self._taken_ts
        elif not more:
            await self._flush()
        self._puller.taken()
        if ddl or time.monotonic() - self._saved >= self._destination.save_s:
            await self._save(consistent=False)
        return more

    async def _news(self) -> None:
        """Wait until the merge moved. What is delivered and not saved is saved meanwhile, when its time has come."""
        if self.done_ts > self._save_ts:
            try:
                async with asyncio.timeout_at(
                    asyncio.get_running_loop().time() + self._saved + self._destination.save_s - time.monotonic()
                ):
                    await self._moved.wait()
            except TimeoutError:
                await self._save(consistent=False)
                self._traces.over(self._save_ts)
            else:
                return
        await self._moved.wait()

    async def _batch(self) -> tuple[Sequence[E], bool, bool]:
        """Return the next entries, whether more may be there already, and whether the last one is a DDL: a DDL ends a batch."""
        if not len(self._left):
            self._left, self._read_to = self._merge.next(BATCH, BATCH_BYTES), self._taken_ts
            if not len(self._left):
                return [], False, False
        with self._traces.step("read"):
            read = await self._reading.read(self._left)
        self._traces.read(self._left.part(0, read.count), ddl=read.ends_with_ddl)
        self.counts["ddls"] += read.ends_with_ddl
        self.counts["transactions"] += read.count - (read.ends_with_ddl and not read.is_early)
        if read.count:
            self._read_to = int(self._left.heads["commit_ts"][read.count - 1])
        self._left = self._left.part(read.count) if read.count < len(self._left) else NONE
        return read.entries, True, read.ends_with_ddl

    def _read_ts(self) -> int:
        """Everything at or below this ts was read."""
        if not len(self._left):
            return self._merge.complete_ts
        return self._read_to - (int(self._left.heads["commit_ts"][0]) == self._read_to)

    async def _flush(self) -> int:
        """Return up to where all was taken, when it is kept downstream. Raises SinkError, OSError."""
        ts = self._taken_ts
        with self._traces.step("flush"):
            await in_thread(self._outlet.flush)
        self.done_ts = ts
        return ts

    async def _save(self, *, consistent: bool) -> None:
        """Write the position, once all of it is kept downstream. Raises SinkError, OSError."""
        ts = await self._flush()
        with self._traces.step("save"):
            await in_thread(self._outlet.save, Position(ts, self._schemas.version, consistent))
        self._save_ts, self._saved = ts, time.monotonic()

    # pages

    def status(self) -> dict[str, Any]:
        """The content of /status."""
        holder = self._merge.holder()
        return {
            "PumpPos": {node_id: self._merge.join(node_id) for node_id in self._merge.sources if node_id in self._pulls},
            "Synced": holder is not None and not self._merge.holds and not len(self._left) and _lag(self.done_ts) < SYNCED_S,
            "LastTS": self.done_ts,
            "TsMap": "",
            "HeldBy": None if holder is None else {"Pump": holder.node_id, "TS": holder.ts, "LagSeconds": _lag(holder.ts)},
            "Waits": self.waits,
            "Problems": dict(self._puller.problems),
            "MissedRows": self._missed_rows,
        }

    @property
    def _missed_rows(self) -> int:
        """Rows that were to be changed or deleted in a database and were not there, since the start."""
        return self._outlet.missed_rows if isinstance(self._outlet, CountsMissed) else 0

    def samples(self) -> Iterable[Sample]:
        """The figures of /metrics."""
        holder = self._merge.holder()
        yield gauge("binlog_drainer_checkpoint_tso", "Everything up to here is kept downstream.", self._save_ts)
        yield gauge("binlog_drainer_checkpoint_delay_seconds", "How old that is.", _lag(self._save_ts))
        yield counter("binlog_drainer_ddl_jobs_total", "DDLs that were delivered.", self.counts["ddls"])
        yield counter("tidemill_drainer_missed_rows", "Rows to be changed or deleted that were not there.", self._missed_rows)
        yield counter("binlog_drainer_event", "Transactions that were read.", self.counts["transactions"])
        for node_id in self._pulls:
            at = self._merge.join(node_id)
            yield gauge("binlog_drainer_pump_position", "What came from a Pump, in ms.", tso.physical_ms(at), nodeID=node_id)
            held = 1.0 if holder is not None and holder.node_id == node_id else 0.0
            yield gauge("binlog_drainer_pump_holds", "1: this Pump holds the merge.", held, nodeID=node_id)


def _lag(ts: int) -> float:
    return round(max(0.0, time.time() - tso.physical_ms(ts) / 1000), 1)


def _security(settings: DrainerSettings, addresses: list[str]) -> Security | None:
    paths = (Path(text) if text else None for text in (settings.ssl_ca, settings.ssl_cert, settings.ssl_key))
    return security_of(addresses, *paths)


def _handler(drainer: Drainer[Any]) -> grpc.GenericRpcHandler:
    """The service that Pumps call: a new Pump is pulled from before it gets its answer."""

    async def notify(request: pump_pb2.NotifyReq, context: grpc.aio.ServicerContext) -> pump_pb2.NotifyResp:
        try:
            await drainer.look()
        except TidemillError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, error.message)
        return pump_pb2.NotifyResp()

    method = grpc.unary_unary_rpc_method_handler(notify, pump_pb2.NotifyReq.FromString, pump_pb2.NotifyResp.SerializeToString)
    return grpc.method_handlers_generic_handler("binlog.Cistern", {"Notify": method})
