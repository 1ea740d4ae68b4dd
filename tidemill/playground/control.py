"""Control of a running playground: one gRPC method on PD's port, a JSON object in, a JSON object out.

Only a playground serves it. Answers are {"ok": true, …} or {"ok": false, "error": code, "message": …}.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal
from functools import partial
from typing import Any

import grpc
import grpc.aio

from tidemill.errors import SqlError, TidemillError, UpstreamUnavailable
from tidemill.playground.faults import FaultCommands
from tidemill.playground.served import Served
from tidemill.playground.sql.catalog import Table
from tidemill.playground.store.cluster import Pending
from tidemill.playground.store.dump import write_dump
from tidemill.playground.store.mvcc import KeyLocked, LockKind, TxnLockNotFound, WriteConflict
from tidemill.playground.store.regions import Region
from tidemill.playground.store.written import count
from tidemill.playground.workload.loader import load
from tidemill.tidb import keys

SERVICE = "tidemill.playground.Control"
METHOD = f"/{SERVICE}/Call"
TIMEOUT = 600.0
_WRITING = frozenset({"sql", "load", "pause"})
"""Commands that write, and may have to wait for Pumps."""

Json = dict[str, Any]


class ControlService:
    """Runs commands on the playground's event loop."""

    def __init__(self, playground: Served) -> None:
        self._playground = playground
        self._pending: dict[int, Pending] = {}
        self._commands: dict[str, Callable[[Json], Json]] = {
            "sql": self._sql,
            "split": self._split,
            "merge": self._merge,
            "transfer-leader": self._transfer_leader,
            "regions": self._regions,
            "lock": self._lock,
            "dump": self._dump,
            "unlock": self._unlock,
            "gc": self._gc,
            "load": self._load,
            "pause": self._pause,
            "resume": self._resume,
            "stats": self._stats,
            "written": self._written,
            "stop": self._stop,
            **FaultCommands(playground).commands,
        }

    def handler(self) -> grpc.GenericRpcHandler:
        """The gRPC handler."""
        return grpc.method_handlers_generic_handler(SERVICE, {"Call": grpc.unary_unary_rpc_method_handler(self._call)})

    async def _call(self, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        command = json.loads(request)
        if command.get("command") in _WRITING:
            answer = await asyncio.shield(asyncio.ensure_future(self._write(command)))  # a caller that goes away stops no transaction
        else:
            answer = self.run(command)
        return json.dumps(answer, default=_json_default, ensure_ascii=False).encode()

    async def _write(self, command: Json) -> Json:
        answer = await self._playground.turn(partial(self.run, command))
        await self._playground.binlogs_written()
        return answer

    def run(self, request: Json) -> Json:
        """One command: {"command": name, …its arguments}."""
        command = self._commands.get(str(request.get("command")))
        try:
            if command is None:
                raise SqlError(f"there is no command {request.get('command')!r}", hint="Commands: " + ", ".join(self._commands))
            return {"ok": True, **command(request)}
        except TidemillError as error:
            return {"ok": False, "error": error.code, "message": str(error)}
        except (KeyLocked, TxnLockNotFound, WriteConflict, ValueError, KeyError, TypeError) as error:
            return {"ok": False, "error": SqlError.code, "message": f"{type(error).__name__}: {error}"}

    # SQL and rows

    def _sql(self, request: Json) -> Json:
        result = self._playground.execute(request["text"])
        return {"affected": result.affected, "columns": result.columns, "rows": result.rows, "commit_ts": result.commit_ts}

    def _load(self, request: Json) -> Json:
        if self._playground.database.binlogs is not None:
            raise SqlError("`load` writes no binlogs", hint="Use --workload append.")
        table = self._table(request["table"])
        ts = load(self._playground.cluster, table, int(request["rows"]), seed=self._playground.seed, regions=int(request.get("regions", 1)))
        return {"commit_ts": ts}

    def _table(self, text: str) -> Table:
        schema, _, name = text.rpartition(".")
        catalog = self._playground.database.catalog
        for table in catalog.tables.values():
            if (catalog.schema_name(table.schema_id).lower(), table.name.lower()) == (schema.lower() or "test", name.lower()):
                return table
        raise SqlError(f"there is no table {text}")

    # regions

    def _split(self, request: Json) -> Json:
        """Split at handles of a table, or a region in the middle of its integer handles."""
        table = self._table(request["table"])
        cuts = [keys.record_key(p, int(h)) for p in table.model.physical_ids for h in request["handles"]]
        return {"regions": [_region_json(r) for r in self._playground.cluster.split(cuts)]}

    def _merge(self, request: Json) -> Json:
        """Merge a region into its right neighbour, or the first two regions of a table."""
        cluster = self._playground.cluster
        if "table" in request:
            table = self._table(request["table"])
            start, end = keys.record_range(table.model.physical_ids[0])
            touched = [r for r in cluster.regions if r.start < end and (not r.end or r.end > start)]
            if len(touched) < 2:
                raise SqlError(f"table {request['table']} lies in one region")
            return {"region": _region_json(cluster.merge(touched[0].id, touched[1].id))}
        return {"region": _region_json(cluster.merge(int(request["source"]), int(request["target"])))}

    def _transfer_leader(self, request: Json) -> Json:
        cluster = self._playground.cluster
        region = cluster.regions.get(int(request["region"]))
        if region is None:
            raise SqlError(f"there is no region {request['region']}")
        others = [p.store_id for p in region.peers if p.store_id != region.leader.store_id]
        store = int(request.get("store") or (others[0] if others else region.leader.store_id))
        return {"region": _region_json(cluster.transfer_leader(region.id, store))}

    def _regions(self, request: Json) -> Json:
        return {"regions": [_region_json(r) for r in self._playground.cluster.regions]}

    # locks and garbage

    def _lock(self, request: Json) -> Json:
        """Prewrite rows as they are (PUT of the same values) and leave them locked; the first is the primary. `kind` pessimistic: locks
        of a transaction that runs. `primary`: the client died after it had committed (or rolled back) its first row."""
        table = self._table(request["table"])
        cluster = self._playground.cluster
        rows = [self._row(table, int(handle)) for handle in request.get("handles") or [request["handle"]]]
        kind = LockKind(request["kind"]) if request.get("kind") else None
        pending = cluster.prewrite(
            rows, kind=kind, ttl_ms=int(request.get("ttl_ms", 3_600_000)), async_commit=bool(request.get("async_commit"))
        )
        match request.get("primary", "locked"):
            case "committed":
                cluster.commit(pending, keys=pending.keys[:1])
            case "rolled-back":
                cluster.rollback(pending, keys=pending.keys[:1])
        self._pending[pending.start_ts] = pending
        return {"start_ts": pending.start_ts}

    def _row(self, table: Table, handle: int) -> tuple[bytes, bytes]:
        for physical in table.model.physical_ids:
            key = keys.record_key(physical, handle)
            newest = self._playground.cluster.mvcc.tablet(key).newest(key)
            if newest is not None and newest[2] is not None:
                return key, newest[2]
        raise SqlError(f"table {table.name} has no row {handle}")

    def _unlock(self, request: Json) -> Json:
        """Commit or roll back what `lock` prewrote: one transaction, or without start_ts all of them."""
        chosen = [int(request["start_ts"])] if request.get("start_ts") else list(self._pending)
        ended = []
        for start_ts in chosen:
            pending = self._pending.pop(start_ts, None)
            if pending is None:
                raise SqlError(f"there is no lock with start_ts {start_ts}")
            if request.get("rollback"):
                self._playground.cluster.rollback(pending)
            else:
                self._playground.cluster.commit(pending)
            ended.append(start_ts)
        return {"ended": ended}

    def _gc(self, request: Json) -> Json:
        if request.get("remember") and self._playground.cluster.mvcc.collected is None:
            self._playground.cluster.mvcc.collected = {}
        safe_point, dropped = self._playground.cluster.collect_garbage(int(request.get("life_time_ms", 600_000)))
        return {"safe_point": safe_point, "versions_dropped": dropped}

    def _dump(self, request: Json) -> Json:
        return {"versions": write_dump(self._playground.cluster.mvcc, request["path"])}

    # the playground itself

    def _pause(self, request: Json) -> Json:
        """Pause the workload and finish what it has begun, so that no lock of it holds back the resolved ts."""
        self._playground.paused = True
        if self._playground.workload is not None:
            self._playground.workload.settle()
        return {}

    def _resume(self, request: Json) -> Json:
        self._playground.paused = False
        return {}

    def _written(self, request: Json) -> Json:
        """What was written since the beginning, by what a changefeed makes of it."""
        return asdict(count(self._playground.cluster.mvcc))

    def _stop(self, request: Json) -> Json:
        self._playground.stopping.set()
        return {}

    def _stats(self, request: Json) -> Json:
        return self._playground.stats()


def _region_json(region: Region) -> Json:
    return {
        "id": region.id, "start": region.start.hex(), "end": region.end.hex(), "version": region.version, "conf_ver": region.conf_ver,
        "leader_store": region.leader.store_id, "stores": [p.store_id for p in region.peers],
    }  # fmt: skip


def _json_default(value: object) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def call(address: str, command: str, *, timeout: float = TIMEOUT, credentials: Any = None, **arguments: Any) -> Json:
    """Run a command on the playground at `address` (host:port of its PD) and return the answer. `credentials`: those of gRPC, if it has
    TLS.

    Raises UpstreamUnavailable if there is no answer or it is not a playground's, SqlError when the command is refused.
    """
    target = address.partition(",")[0].removeprefix("http://").removeprefix("https://")
    with grpc.insecure_channel(target) if credentials is None else grpc.secure_channel(target, credentials) as channel:
        method = channel.unary_unary(METHOD)
        try:
            answer = json.loads(method(json.dumps({"command": command, **arguments}).encode(), timeout=timeout))
        except grpc.RpcError as error:
            raise UpstreamUnavailable(f"no playground answers at {address}: {error.code().name} {error.details()}") from error
    if not answer.pop("ok"):
        raise SqlError(answer["message"])
    found: Json = answer
    return found
