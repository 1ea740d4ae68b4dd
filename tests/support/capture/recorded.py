"""A PD and TiKV made of a recording: what the recorded store sent is served over gRPC to the real client code.

Each register of the client is answered with what the recorded store sent to one recorded register of the same table and region,
in the order they were recorded, with the request id rewritten. PD's regions come from the recording's notes and from the errors
that have been played; the meta keys are made up from the table ids. When a script is over, resolved ts go on forever.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from tests.support.capture.eventfeeds import Emitted, Reference, Row, recording
from tidemill.kernels.receive.layout import PREWRITE
from tidemill.playground.services.gate import ServerTls
from tidemill.tidb.keys import db_key, from_encoded, physical_table_id, table_key, table_prefix, to_encoded
from tidemill.wire import cdcpb_pb2 as cdcpb
from tidemill.wire import errorpb_pb2 as errorpb
from tidemill.wire import kvrpcpb_pb2 as kvrpcpb
from tidemill.wire import metapb_pb2 as metapb
from tidemill.wire import pdpb_pb2 as pdpb
from tidemill.wire import pdpb_pb2_grpc, tikvpb_pb2_grpc

CLUSTER_ID = 7710568214723362125
AFTER_MS = 60_000  # how far behind the recording the cluster's clock stands
TICK = 0.05
SYSTEM = 1 << 40  # table ids from here on are TiDB's own

Select = Callable[[str, cdcpb.ChangeDataRequest], bool]


@dataclass
class Script:
    """What the store sent to one recorded register."""

    stream: str
    request: cdcpb.ChangeDataRequest
    events: list[cdcpb.ChangeDataEvent] = field(default_factory=list)
    lost: bool = False  # the stream broke afterwards

    @property
    def table_id(self) -> int:
        return physical_table_id(from_encoded(self.request.start_key)) if self.request.start_key.startswith(b"t") else 0

    @property
    def error(self) -> cdcpb.Error | None:
        for message in self.events:
            for event in message.events:
                if event.HasField("error"):
                    return event.error
        return None


def scripts(name: str, select: Select) -> list[Script]:
    """The registers of a recording that `select` chooses (stream, request), with what followed each."""
    found: list[Script] = []
    for line in recording(name):
        if line["kind"] == "req" and line.get("type") == "cdcpb.ChangeDataRequest":
            request = cdcpb.ChangeDataRequest.FromString(line["bytes"])
            if request.WhichOneof("request") != "deregister" and select(_stream(line), request):
                found.append(Script(_stream(line), request))
        elif line["kind"] == "resp" and line.get("type") == "cdcpb.ChangeDataEvent":
            _deal(found, _stream(line), cdcpb.ChangeDataEvent.FromString(line["bytes"]))
        elif line["kind"] == "status" and line["code"] == "UNAVAILABLE":
            for script in found:
                script.lost |= script.stream == _stream(line)
    return found


def _stream(line: dict[str, Any]) -> str:
    """Which stream of the recording; taken from the wire: of which connection."""
    return str(line["stream"]) if "stream" in line else f"{line['conn']}/{line['h2_stream']}"


def refusals() -> dict[str, bytes]:
    """The errors of bad_requests by their case, as serialised cdcpb.Error."""
    found: dict[str, bytes] = {}
    case = ""
    for line in recording("bad_requests"):
        if line["kind"] == "note":
            case = str(line["text"]).removeprefix("case: ")
        elif line["kind"] == "resp":
            for event in cdcpb.ChangeDataEvent.FromString(line["bytes"]).events:
                if event.HasField("error"):
                    found[case] = event.error.SerializeToString()
    return found


def _deal(found: list[Script], stream: str, message: cdcpb.ChangeDataEvent) -> None:
    """Give a recorded message's parts to the scripts they belong to: the latest one of that region and request."""
    open_: dict[tuple[int, int], Script] = {}
    for script in found:
        if script.stream == stream:
            open_[script.request.region_id, script.request.request_id] = script
    for script in open_.values():
        region, request = script.request.region_id, script.request.request_id
        if script.error is not None:
            continue
        events = [e for e in message.events if (e.region_id, e.request_id) == (region, request)]
        if events:
            script.events.append(cdcpb.ChangeDataEvent(events=events))
        resolved = message.resolved_ts
        if region in resolved.regions and resolved.request_id in (0, request):
            script.events.append(cdcpb.ChangeDataEvent(resolved_ts=cdcpb.ResolvedTs(regions=[region], ts=resolved.ts)))


def truth(played: Iterable[Script], start_ts: int) -> list[Emitted]:
    """The committed rows of the scripts, once each."""
    rows: set[Emitted] = set()
    for script in played:
        reference = Reference(max(start_ts, script.request.checkpoint_ts))
        for message in script.events:
            for event in message.events:
                for row in event.entries.entries:
                    reference.row(row)
        rows.update(reference.rows)
    return sorted(rows)


class RecordedCluster:
    """See the module."""

    def __init__(
        self,
        name: str,
        select: Select = lambda stream, request: True,
        *,
        plain: bool = False,
        tls: ServerTls | None = None,
        refusal: bytes = b"",
    ) -> None:
        """`refusal`: a cdcpb.Error with which the first register of a table is answered."""
        self.name, self.plain, self._tls, self.refusal = name, plain, tls, refusal
        self.scripts = scripts(name, select)
        self.waiting = list(self.scripts)
        self.played: list[Script] = []
        self.registers: list[cdcpb.ChangeDataRequest] = []
        self.start_ts = min(s.request.checkpoint_ts for s in self.scripts)
        self.end_ts = max(_last_ts(s) for s in self.scripts)
        self.now = self.end_ts + (AFTER_MS << 18)
        self.tables = sorted({s.table_id for s in self.scripts} - {0})
        self.meta = _meta(self.tables)
        self.safe_points: dict[bytes, int] = {}
        self._notes = [line["regions"] for line in recording(name) if line["kind"] == "note" and line.get("text") == "regions"]
        self._seen: dict[int, int] = {}
        self._world: dict[int, metapb.Region] = {}
        self._leaders: dict[int, int] = {}
        for script in self.scripts:
            if script.table_id not in self._seen and not self._covers(script.request):
                self._show_note(script.table_id)
        self.pd_address = ""

    def _covers(self, request: cdcpb.ChangeDataRequest) -> bool:
        return any(r.start_key <= request.start_key and request.end_key <= r.end_key for r in self._world.values())

    # ------------------------------------------------------------------ PD's view

    def _show_note(self, table_id: int) -> None:
        """The next noted regions of the table, or its scripts' regions as one for the whole table."""
        at = self._seen.get(table_id, 0)
        own = [n for n in self._notes if self._concerns(n, table_id)]
        self._seen[table_id] = at + 1
        if own:
            for region in map(_hexed, own[min(at, len(own) - 1)]):
                self._learn(region["id"], region["start"], region["end"], region["conf_ver"], region["version"], region["leader_store"])
            return
        request = next(s.request for s in self.scripts if s.table_id == table_id)
        epoch = request.region_epoch
        start, end = request.start_key, request.end_key
        if table_id:
            start, end = to_encoded(table_prefix(table_id)), to_encoded(table_prefix(table_id + 1))
        self._learn(request.region_id, start, end, epoch.conf_ver, epoch.version, 1)

    def _concerns(self, note: Sequence[dict[str, Any]], table_id: int) -> bool:
        request = next(s.request for s in self.scripts if s.table_id == table_id)
        return any(_hexed(r)["start"] < request.end_key and request.start_key < _hexed(r)["end"] for r in note)

    def _learn(self, id_: int, start: bytes, end: bytes, conf_ver: int, version: int, store: int) -> None:
        for old in [r for r in self._world.values() if r.start_key < end and start < r.end_key]:
            del self._world[old.id]
        region = metapb.Region(id=id_, start_key=start, end_key=end, region_epoch={"conf_ver": conf_ver, "version": version})
        self._world[id_] = region
        self._leaders[id_] = store

    def _shake(self, script: Script) -> None:
        """An error has been sent: PD learns what it tells."""
        error = script.error
        if error is None:
            return
        if error.HasField("epoch_not_match"):
            for region in error.epoch_not_match.current_regions:
                epoch = region.region_epoch
                self._learn(region.id, region.start_key, region.end_key, epoch.conf_ver, epoch.version, 1)
            if not error.epoch_not_match.current_regions:
                self._show_note(script.table_id)
        elif error.HasField("not_leader"):
            self._leaders[error.not_leader.region_id] = error.not_leader.leader.store_id

    def regions(self, start: bytes, end: bytes, limit: int) -> list[pdpb.Region]:
        """Known regions, and made-up ones between them."""
        out = []
        at, filler = b"", 1_000_000
        for region in [*sorted(self._world.values(), key=lambda r: r.start_key), None]:
            border = region.start_key if region else b""
            if at < border or region is None:
                gap = metapb.Region(id=filler, start_key=at, end_key=border, region_epoch={"conf_ver": 1, "version": 1})
                out.append(self._with_leader(gap, 1))
                filler += 1
            if region:
                out.append(self._with_leader(region, self._leaders[region.id]))
                at = region.end_key
        wanted = [r for r in out if (not r.region.end_key or r.region.end_key > start) and (not end or r.region.start_key < end)]
        return wanted[:limit] if limit > 0 else wanted

    @staticmethod
    def _with_leader(region: metapb.Region, store: int) -> pdpb.Region:
        peer = metapb.Peer(id=region.id * 10 + 1, store_id=store)
        return pdpb.Region(region=region, leader=peer)

    # ------------------------------------------------------------------ serving

    async def __aenter__(self) -> RecordedCluster:
        self._server = grpc.aio.server()
        pdpb_pb2_grpc.add_PDServicer_to_server(_Pd(self), self._server)
        tikvpb_pb2_grpc.add_TikvServicer_to_server(_Tikv(self), self._server)
        methods = {"EventFeed": grpc.stream_stream_rpc_method_handler(self._feed, cdcpb.ChangeDataRequest.FromString, _serialize)}
        if not self.plain:
            methods["EventFeedV2"] = methods["EventFeed"]
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("cdcpb.ChangeData", methods)])
        any_port = "127.0.0.1:0"
        tls = self._tls
        port = self._server.add_insecure_port(any_port) if tls is None else self._server.add_secure_port(any_port, tls.credentials())
        self.pd_address = f"127.0.0.1:{port}"
        await self._server.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._server.stop(0)

    async def _feed(self, requests: Any, context: Any) -> None:
        outgoing: asyncio.Queue[cdcpb.ChangeDataEvent | None] = asyncio.Queue()
        live: set[tuple[int, int]] = set()
        tasks = [asyncio.ensure_future(self._listen(requests, outgoing, live)), asyncio.ensure_future(self._tick(outgoing, live))]
        try:
            while (message := await outgoing.get()) is not None:
                await context.write(message)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        finally:
            for task in tasks:
                task.cancel()

    async def _listen(self, requests: Any, outgoing: asyncio.Queue[cdcpb.ChangeDataEvent | None], live: set[tuple[int, int]]) -> None:
        async for request in requests:
            key = request.region_id, request.request_id
            if request.WhichOneof("request") == "deregister":
                live.discard(key)
                error = cdcpb.Error(region_not_found=errorpb.RegionNotFound(region_id=request.region_id))
                event = cdcpb.Event(region_id=request.region_id, request_id=request.request_id, error=error)
                outgoing.put_nowait(cdcpb.ChangeDataEvent(events=[event]))
                continue
            self.registers.append(request)
            if self.refusal and 0 < Script("", request).table_id < SYSTEM:
                error, self.refusal = cdcpb.Error.FromString(self.refusal), b""
                event = cdcpb.Event(region_id=request.region_id, request_id=request.request_id, error=error)
                outgoing.put_nowait(cdcpb.ChangeDataEvent(events=[event]))
                continue
            script = self._next(request)
            for message in _rewritten(script, request, self.plain):
                outgoing.put_nowait(message)
            self._shake(script)
            if script.lost:
                outgoing.put_nowait(None)
            elif script.error is None:
                live.add(key)

    def _next(self, request: cdcpb.ChangeDataRequest) -> Script:
        """The next recorded register of this table and region; one where nothing happens when there is none left."""
        wanted = Script("", request)
        for script in self.waiting:
            same_range = script.request.start_key <= request.start_key and request.end_key <= script.request.end_key
            if script.request.region_id == request.region_id and (same_range or script.table_id == wanted.table_id):
                if script.table_id:
                    self.waiting.remove(script)
                self.played.append(script)
                return script
        rows = cdcpb.Event.Entries(entries=[Row(type=cdcpb.Event.INITIALIZED)])
        wanted.events.append(cdcpb.ChangeDataEvent(events=[cdcpb.Event(entries=rows)]))
        return wanted

    async def _tick(self, outgoing: asyncio.Queue[cdcpb.ChangeDataEvent | None], live: set[tuple[int, int]]) -> None:
        while True:
            await asyncio.sleep(TICK)
            for region, request in sorted(live):
                ts = cdcpb.ResolvedTs(regions=[region], ts=self.now, request_id=0 if self.plain else request)
                outgoing.put_nowait(cdcpb.ChangeDataEvent(resolved_ts=ts))


def _serialize(message: cdcpb.ChangeDataEvent) -> bytes:
    return message.SerializeToString()


def _hexed(region: dict[str, Any]) -> dict[str, Any]:
    return {**region, "start": bytes.fromhex(region["start"]), "end": bytes.fromhex(region["end"])}


def _rewritten(script: Script, request: cdcpb.ChangeDataRequest, plain: bool) -> list[cdcpb.ChangeDataEvent]:
    out = []
    start, end = from_encoded(request.start_key), from_encoded(request.end_key)
    for message in script.events:
        copy = cdcpb.ChangeDataEvent.FromString(message.SerializeToString())
        for event in copy.events:
            event.region_id, event.request_id = request.region_id, request.request_id
            if event.HasField("entries"):
                kept = [r for r in event.entries.entries if not r.key or start <= r.key < end]  # as the observed range does
                del event.entries.entries[:]
                event.entries.entries.extend(kept)
        if copy.HasField("resolved_ts"):
            copy.resolved_ts.request_id = 0 if plain else request.request_id
        out.append(copy)
    return out


def _last_ts(script: Script) -> int:
    last = script.request.checkpoint_ts
    for message in script.events:
        last = max(last, message.resolved_ts.ts)
        for event in message.events:
            last = max([last, *(r.commit_ts if r.type != PREWRITE else r.start_ts for r in event.entries.entries)])
    return last


def _meta(tables: Iterable[int]) -> dict[bytes, bytes]:
    """A database with a table of one column for each id, and the `mysql` database with the job table of real clusters."""

    def name(text: str) -> dict[str, str]:
        return {"O": text, "L": text}

    def column(id_: int, text: str, tp: int, flag: int) -> dict[str, Any]:
        kind = {"Tp": tp, "Flag": flag, "Flen": 11, "Decimal": 0, "Charset": "binary", "Collate": "binary"}
        return {"id": id_, "name": name(text), "offset": id_ - 1, "state": 5, "type": kind}

    def put(schema: int, table: int, text: str, columns: list[dict[str, Any]]) -> None:
        info = {"id": table, "name": name(text), "charset": "utf8mb4", "collate": "utf8mb4_bin", "cols": columns, "state": 5}
        pairs[table_key(schema, table)] = json.dumps({**info, "pk_is_handle": True, "max_col_id": len(columns)}).encode()

    pairs: dict[bytes, bytes] = {}
    for id_, text in ((1, "mysql"), (2, "recorded")):
        info = {"id": id_, "db_name": name(text), "charset": "utf8mb4", "collate": "utf8mb4_bin", "state": 5}
        pairs[db_key(id_)] = json.dumps(info).encode()
    job = [column(1, "job_id", 8, 4099), *(column(i, f"c{i}", 252, 128) for i in (2, 3, 4)), column(5, "job_meta", 251, 128)]
    put(1, 0xFFFFFFFFFFFE, "tidb_ddl_job", job)
    for table in tables:
        if table < SYSTEM:
            put(2, table, f"t{table}", [column(1, "id", 8, 4099)])
    return pairs


class _Pd(pdpb_pb2_grpc.PDServicer):
    def __init__(self, cluster: RecordedCluster) -> None:
        self.cluster = cluster
        self.header = pdpb.ResponseHeader(cluster_id=CLUSTER_ID)

    async def GetMembers(self, request: Any, context: Any) -> Any:
        member = pdpb.Member(name="pd", member_id=1, client_urls=[f"http://{self.cluster.pd_address}"], binary_version="v8.5.7")
        return pdpb.GetMembersResponse(header=self.header, members=[member], leader=member)

    async def Tso(self, requests: Any, context: Any) -> Any:
        async for request in requests:
            self.cluster.now += 1
            stamp = pdpb.Timestamp(physical=self.cluster.now >> 18, logical=self.cluster.now & (1 << 18) - 1)
            yield pdpb.TsoResponse(header=self.header, count=request.count, timestamp=stamp)

    def _store(self, id_: int) -> metapb.Store:
        return metapb.Store(id=id_, address=self.cluster.pd_address, version="8.5.7")

    async def GetAllStores(self, request: Any, context: Any) -> Any:
        return pdpb.GetAllStoresResponse(header=self.header, stores=[self._store(1)])

    async def GetStore(self, request: Any, context: Any) -> Any:
        return pdpb.GetStoreResponse(header=self.header, store=self._store(request.store_id))

    async def ScanRegions(self, request: Any, context: Any) -> Any:
        found = self.cluster.regions(request.start_key, request.end_key, request.limit)
        return pdpb.ScanRegionsResponse(header=self.header, regions=found)

    async def GetGCSafePoint(self, request: Any, context: Any) -> Any:
        return pdpb.GetGCSafePointResponse(header=self.header)

    async def UpdateServiceGCSafePoint(self, request: Any, context: Any) -> Any:
        self.cluster.safe_points[request.service_id] = request.safe_point
        return pdpb.UpdateServiceGCSafePointResponse(
            header=self.header, service_id=request.service_id, TTL=request.TTL, min_safe_point=request.safe_point
        )


class _Tikv(tikvpb_pb2_grpc.TikvServicer):
    def __init__(self, cluster: RecordedCluster) -> None:
        self.cluster = cluster

    async def KvScan(self, request: Any, context: Any) -> Any:
        keys = sorted(k for k in self.cluster.meta if request.start_key <= k and (not request.end_key or k < request.end_key))
        pairs = [kvrpcpb.KvPair(key=k, value=self.cluster.meta[k]) for k in keys[: request.limit]]
        return kvrpcpb.ScanResponse(pairs=pairs)
