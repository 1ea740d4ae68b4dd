"""One Pump as a process: opens its folder, serves, joins the registry, and ends as it is asked to.

On the way up: serve, tell the Drainers, `online`. On the way down: `pausing` or `closing`, write what waits, `paused` or `offline`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio

from tidemill import tso
from tidemill.binlog.messages import fake
from tidemill.binlog.nodes import Node, NodeEvent, NodeKind, NodeState, next_state
from tidemill.binlog.pump.collecting import Collector, cut_of
from tidemill.binlog.pump.faults import PumpCorrupt, PumpRefused
from tidemill.binlog.pump.figures import samples_of
from tidemill.binlog.pump.joining import notify
from tidemill.binlog.pump.port import FrontPort, ServerTls
from tidemill.binlog.pump.problems import Problems, Work
from tidemill.binlog.pump.resolving import Resolver
from tidemill.binlog.pump.serving.http2 import Http2Server
from tidemill.binlog.pump.serving.pages import PumpPages
from tidemill.binlog.pump.serving.service import OPTIONS, PumpService
from tidemill.binlog.pump.settings import PumpSettings, Transport
from tidemill.binlog.pump.store import Store
from tidemill.binlog.registry.client import Registry
from tidemill.binlog.registry.heartbeat import Entry
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.region_calls import RegionCalls
from tidemill.capture.tikv.client.tls import Security, security_of
from tidemill.changelog.storage import durable
from tidemill.changelog.storage.durable import make_folder
from tidemill.errors import TidemillError, UpstreamError, cannot_listen
from tidemill.metrics.hosts import own_hosts
from tidemill.metrics.samples import Sample

SPACE_EVERY_S = 3.0
RESOLVE_EVERY_S = 1.0
COLLECT_EVERY_S = 3600.0
WAIT_EVERY_S = 1.0
"""Seconds between two looks at the Drainers while this Pump goes offline."""

RETRY_S = 10.0
"""Seconds after which a call to PD has failed, once this Pump serves: so soon it is told that PD is away."""

ASK_S = 3.0
"""Seconds that /status waits for PD."""

END_S = 1.0
"""Seconds that calls have to end in, at the end of the process."""

NODE_FILE, JOINED_FILE = ".node", ".joined"

_log = logging.getLogger(__name__)


class Pump:
    """`settings` are checked ones. Belongs to the event loop that `run` is called on."""

    def __init__(self, settings: PumpSettings) -> None:
        self._settings = settings
        self.folder = Path(settings.data_dir)
        self.node_id = settings.node_id
        self.cluster_id = 0
        self.service = PumpService(self)
        self.wanted: asyncio.Queue[NodeEvent] = asyncio.Queue()
        self.waits_for: tuple[str, ...] = ()
        """The Drainers that have to take everything before this Pump goes offline."""
        self.space = 1 << 62
        self.store: Store
        self.collector: Collector
        self.resolver: Resolver
        self._pd: PdClient
        self._registry: Registry
        self._entry: Entry
        self._moved, self._collect = asyncio.Event(), asyncio.Event()
        self._writes = 0
        self.problems = Problems()

    # what the service and the pages ask

    @property
    def state(self) -> NodeState:
        """The state that is in the registry, or will be in a moment."""
        return self._entry.state

    @property
    def has_space(self) -> bool:
        """Whether the disk has room for Prewrites."""
        return self.space >= self._settings.stop_write_at

    def check_space(self) -> None:
        """Raises PumpRefused when the disk is too full."""
        if not self.has_space:
            text = f"no available space, available: {self.space}, StopWriteAtAvailableSpace: {self._settings.stop_write_at}"
            raise PumpRefused(text)

    def wrote(self) -> None:
        """Somebody wrote a binlog: no fake one is needed."""
        self._writes += 1

    async def wait_moved(self, beyond: int) -> int:
        """Wait until more than `beyond` can be pulled; returns up to where."""
        while self.store.order.max_commit_ts <= beyond:
            await self._moved.wait()
        return self.store.order.max_commit_ts

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def ask(self, event: NodeEvent) -> None:
        """Begin to pause or to go offline."""
        self.wanted.put_nowait(event)

    def collect_now(self) -> None:
        """Begin garbage collection."""
        self._collect.set()

    async def drainers(self) -> list[Node]:
        """The Drainers of the registry. Raises UpstreamError."""
        return list((await self._registry.nodes(NodeKind.DRAINER)).values())

    async def status(self) -> dict[str, Any]:
        """The content of /status."""
        nodes, newest, problem = await self._asked()
        held = self.store.order.held_by
        return {
            "status": {node_id: _plain(node) for node_id, node in sorted(nodes.items())},
            "CommitTS": newest,
            "Checkpoint": {},
            "ErrMsg": "; ".join([*self.problems.reasons(), *([problem] if problem else [])]),
            "Problems": self.problems.page(),
            "HeldBy": None if held is None else {
                "StartTS": held.start_ts, "Since": f"{tso.when(held.start_ts):%Y-%m-%dT%H:%M:%SZ}",
                "WaitsSeconds": round(time.monotonic() - held.since, 1), "TiKV": self.resolver.answer,
            },
            "WaitsForDrainers": list(self.waits_for),
            "GCWaitsForDrainers": list(self.collector.held_by),
        }  # fmt: skip

    async def _asked(self) -> tuple[dict[str, Node], int, str]:
        """All Pumps, a ts of PD, and why PD does not tell them: then this Pump and its own ts. PD is not asked while it is known to be
        away."""
        nodes, newest = {self.node_id: self._entry.now()}, self.store.order.max_commit_ts
        if Work.REGISTRY in self.problems:
            return nodes, newest, ""
        try:
            async with asyncio.timeout(ASK_S):
                return {**await self._registry.nodes(NodeKind.PUMP), **nodes}, await self._pd.tso(), ""
        except UpstreamError as error:
            return nodes, newest, error.message
        except TimeoutError:
            return nodes, newest, f"PD did not answer within {ASK_S:g} s"

    def samples(self) -> Iterable[Sample]:
        """The figures of /metrics."""
        return samples_of(self)

    # the process

    async def run(self) -> None:
        """Serve until asked to end. Raises TidemillError, OSError."""
        settings = self._settings
        async with AsyncExitStack() as stack:
            security = _security(settings)
            self._pd = await PdClient.connect(settings.pd_urls, security=security)
            stack.push_async_callback(self._pd.close)
            self.cluster_id = self._pd.cluster_id
            self._pd.retry_s = RETRY_S
            self._registry = Registry(self._pd, RETRY_S)
            make_folder(self.folder)
            self.node_id = self._own_id()
            self.store = Store(
                self.folder, sync=settings.sync_log, chan_cap=settings.kv_chan_cap, slow_s=settings.slow_write_threshold, moved=self._wake
            )
            self.collector = Collector(self.store)
            self.resolver = Resolver(self.store, RegionCalls(self._pd, RESOLVE_EVERY_S), self._pd.tso)
            node = Node(self.node_id, settings.advertise_addr, NodeState.PAUSED, labels=settings.labels or None)
            order = self.store.order
            self._entry = Entry(self._registry, NodeKind.PUMP, node, await self._pd.tso(), lambda: order.max_commit_ts)
            self.store.start()
            try:
                await self._serve(stack, security)
            finally:
                await self.store.close()
            await self._entry.become(self._last_state())

    async def _serve(self, stack: AsyncExitStack, security: Security | None) -> None:
        settings = self._settings
        self._look_at_space()
        calls, inner = Http2Server(self.service, self.store, settings.max_message_size), None
        server: Any = None
        if settings.transport is Transport.GRPC:
            server = grpc.aio.server(options=(*OPTIONS, ("grpc.max_receive_message_length", settings.max_message_size)))
            server.add_generic_rpc_handlers((self.service.handler(),))
            inner = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-pump-")), "grpc")
            server.add_insecure_port(f"unix:{inner}")
            await server.start()
        tls = ServerTls(security, frozenset(settings.cert_allowed_cn)) if security is not None and security.cert is not None else None
        front = FrontPort(inner, PumpPages(self), tls, calls.protocol, hosts=own_hosts(settings.addr, settings.advertise_addr))
        host, _, port = settings.addr.rpartition(":")
        try:
            await front.start(host.strip("[]"), int(port), Path(settings.socket.removeprefix("unix://")) if settings.socket else None)
        except OSError as error:
            if server is not None:
                await server.stop(0)
            raise cannot_listen("--addr", settings.addr, error) from error
        tasks = [asyncio.ensure_future(work) for work in (self._fakes(), self._space(), self._resolve(), self._collects())]
        try:
            await self._join()
            tasks.append(asyncio.ensure_future(self._entry.beat(settings.heartbeat_interval, told=self._beat)))
            await self._until_asked(tasks)
        finally:
            front.close()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await (calls.close(END_S) if server is None else server.stop(END_S))
            front.abort()

    def _last_state(self) -> NodeState:
        return next_state(self.state, NodeEvent.FINISHED) or NodeState.PAUSED

    def _own_id(self) -> str:
        """The node's id: as it was given, or as it was chosen at the first start."""
        kept = self.folder / NODE_FILE
        if self.node_id:
            return self.node_id
        try:
            before = kept.read_text(encoding="utf-8").strip("\0 \n")
        except FileNotFoundError:
            before = ""
        if before:
            return before
        chosen = f"{os.uname().nodename}:{self._settings.advertise_addr.rpartition(':')[2]}"
        durable.write(kept, chosen.encode())
        return chosen

    async def _join(self) -> None:
        """Become online; before that, at the first start, the Drainers have to know. Raises UpstreamError, DrainerSilent."""
        joined = self.folder / JOINED_FILE
        before = await self._registry.get(NodeKind.PUMP, self.node_id)
        if before is None or before.state is NodeState.OFFLINE or not joined.exists():
            await self._entry.become(NodeState.PAUSED)  # Drainers read from it, TiDB does not write to it yet
            try:
                await notify(await self.drainers(), self._pd.channels)
            except TidemillError:
                await self._entry.become(NodeState.OFFLINE)
                raise
            joined.touch()
        await self._entry.become(NodeState.ONLINE)
        _log.info("the Pump %s of cluster %d serves at %s", self.node_id, self.cluster_id, self._settings.advertise_addr)

    async def _until_asked(self, tasks: list[asyncio.Task[None]]) -> None:
        """Return when it is time to end. Raises what a task or the store fails with."""
        while True:
            asked = asyncio.ensure_future(self.wanted.get())
            try:
                ends: list[asyncio.Future[Any]] = [asked, self.store.failure, *tasks]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                asked.cancel()
            for done in ends[1:]:
                if done.done():
                    done.result()
            state = next_state(self.state, asked.result()) if asked.done() and not asked.cancelled() else None
            if state is None:
                continue
            if state is NodeState.OFFLINE:
                return  # it is told when everything is closed
            await self._become(state)
            if state is NodeState.PAUSING:
                return
            tasks.append(asyncio.ensure_future(self._drain()))

    async def _become(self, state: NodeState) -> None:
        try:
            await self._entry.become(state)
        except UpstreamError as error:
            _log.warning("the registry does not know yet that this Pump is %s: %s", state, error.message)

    async def _drain(self) -> None:
        """Before it goes offline: all transactions are over, and all Drainers have everything."""
        while self.store.order.open:
            self.waits_for = (f"{len(self.store.order.open)} open transactions",)
            await asyncio.sleep(WAIT_EVERY_S)
        last = 0
        while True:
            try:
                if not last:
                    last = await self._fake()
                behind = [n.node_id for n in await self.drainers() if n.state is not NodeState.OFFLINE and n.max_commit_ts < last]
            except UpstreamError as error:
                behind = [f"PD: {error.message}"]
            self.waits_for = tuple(sorted(behind))
            if not behind:
                self.ask(NodeEvent.FINISHED)
                await asyncio.Event().wait()  # until the process ends
            await asyncio.sleep(WAIT_EVERY_S)

    # what is done beside serving

    async def _fake(self) -> int:
        """Write a fake binlog with PD's time, and return it. Raises UpstreamError, PumpFailed."""
        ts = await self._pd.tso()
        try:
            await self.store.write(fake(ts).encode())
        except OSError as error:
            raise UpstreamError(f"a fake binlog could not be written: {error}") from error
        return ts

    async def _fakes(self) -> None:
        """Without writes, a fake binlog each interval tells Drainers how far they may go."""
        seen = -1
        while True:
            await asyncio.sleep(self._settings.fake_binlog_interval)
            if self._writes != seen:
                seen = self._writes
                continue
            try:
                await self._fake()
                self.problems.over(Work.FAKE_BINLOGS)
            except UpstreamError as error:
                self.problems.tell(Work.FAKE_BINLOGS, error.message)

    def _beat(self, error: UpstreamError | None) -> None:
        if error is None:
            self.problems.over(Work.REGISTRY)
        else:
            self.problems.tell(Work.REGISTRY, error.message)

    def _look_at_space(self) -> None:
        found = os.statvfs(self.folder)
        before, self.space = self.space, found.f_bavail * found.f_frsize
        limit = self._settings.stop_write_at
        if (before < limit) != (self.space < limit):
            _log.warning("%d bytes are free at %s; below %d no Prewrites are taken", self.space, self.folder, limit)

    async def _space(self) -> None:
        while True:
            await asyncio.sleep(SPACE_EVERY_S)
            self._look_at_space()

    async def _resolve(self) -> None:
        while True:
            await asyncio.sleep(RESOLVE_EVERY_S)
            try:
                while await self.resolver.look():
                    pass
                self.problems.over(Work.TIKV)
            except (UpstreamError, PumpCorrupt) as error:
                self.problems.tell(Work.TIKV, error.message)
            except OSError as error:
                self.problems.tell(Work.TIKV, f"a Commit found in TiKV could not be written: {error}")

    async def _collects(self) -> None:
        while True:
            try:
                async with asyncio.timeout(COLLECT_EVERY_S):
                    await self._collect.wait()
            except TimeoutError:
                _log.debug("it is time for garbage collection")
            self._collect.clear()
            try:
                drainers = await self.drainers()
                now = await self._pd.tso()
                cut = cut_of(now, self._settings.gc_s, self.store.order.max_commit_ts, drainers, waits=self._settings.gc_waits)
                await self.collector.collect(cut)
                self.problems.over(Work.GC)
            except UpstreamError as error:
                self.problems.tell(Work.GC, error.message)
            except OSError as error:
                self.problems.tell(Work.GC, f"garbage collection could not delete: {error}")


def _security(settings: PumpSettings) -> Security | None:
    paths = [Path(text) if text else None for text in (settings.ssl_ca, settings.ssl_cert, settings.ssl_key)]
    return security_of(settings.pd_urls.split(","), *paths)


def _plain(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(node.encode())
    return found
