"""The HTTP pages of a Pump: those of the real one, with the same paths and shapes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Protocol

from tidemill.binlog.indexkeys import Pointer
from tidemill.binlog.messages import Binlog, read_binlog, read_prewritten
from tidemill.binlog.nodes import Node, NodeEvent
from tidemill.binlog.pump.log import LogReader
from tidemill.binlog.pump.port import Answer, Request
from tidemill.binlog.pump.store import Store
from tidemill.errors import TidemillError
from tidemill.metrics.samples import Sample, metrics_page

PATHS = "/status /drainers /metrics /debug/binlog/{ts} /debug/gc/trigger (POST) /state/{id}/{pause|close} (PUT)"
_ACTIONS = {"pause": NodeEvent.PAUSE, "close": NodeEvent.CLOSE}
_REFUSED = 3


class Owner(Protocol):
    """What the pages ask their process."""

    node_id: str
    store: Store

    async def status(self) -> dict[str, Any]:
        """The content of /status."""

    async def drainers(self) -> list[Node]:
        """The Drainers of the registry. Raises UpstreamError."""

    def ask(self, event: NodeEvent) -> None:
        """Begin to pause or to go offline."""

    def collect_now(self) -> None:
        """Begin garbage collection."""

    def samples(self) -> Iterable[Sample]:
        """The figures of /metrics."""


class PumpPages:
    """Answers requests."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._metrics = metrics_page(owner.samples)

    async def __call__(self, request: Request) -> Answer:
        """Answer one request; what fails is told in the answer."""
        try:
            return await self._answer(request)
        except TidemillError as error:
            return Answer(f"{error.message}\n".encode(), 500, "text/plain; charset=utf-8")

    async def _answer(self, request: Request) -> Answer:
        method, path = request.method, request.path
        read = method in ("GET", "HEAD")
        if path == "/status" and read:
            return Answer(_json(await self._owner.status()) + b"\n")
        if path == "/drainers" and read:
            return Answer(b"[" + b",".join(node.encode() for node in await self._owner.drainers()) + b"]\n")
        if path == "/metrics" and read:
            return Answer(self._metrics.body(), 200, self._metrics.content_type)
        if path == "/debug/gc/trigger" and method == "POST":
            self._owner.collect_now()
            return Answer(b"trigger gc success\n", 200, "text/plain; charset=utf-8")
        if found := re.fullmatch(r"/debug/binlog/(\d{1,19})", path):
            return self._binlog(int(found[1]))
        if (found := re.fullmatch(r"/state/([^/]+)/([^/]+)", path)) and method == "PUT":
            return self._state(found[1], found[2])
        return Answer(f"pages: {PATHS}\n".encode(), 404, "text/plain; charset=utf-8")

    def _state(self, node_id: str, action: str) -> Answer:
        if node_id != self._owner.node_id:
            return _told(f"invalide nodeID {node_id}, this pump's nodeID is {self._owner.node_id}", _REFUSED)
        if action not in _ACTIONS:
            return _told(f"invalid action {action}", _REFUSED)
        self._owner.ask(_ACTIONS[action])
        return _told(f"apply action {action} success!", 200)

    def _binlog(self, ts: int) -> Answer:
        store = self._owner.store
        at = store.index.get(ts)
        if at is None:
            return Answer(f"fail read binlog by ts: {ts}: leveldb: not found".encode(), 200, "text/plain; charset=utf-8")
        return Answer(_json(_described(read_binlog(read_record(store, at)), at)) + b"\n")


def read_record(store: Store, at: Pointer) -> bytes:
    """Return the payload of one record. Raises PumpCorrupt."""
    reader = LogReader(store.log.folder)
    try:
        return reader.payload(at)
    finally:
        reader.close()


def _described(binlog: Binlog, at: Pointer) -> dict[str, Any]:
    rows = read_prewritten(binlog.prewrite_value) if binlog.prewrite_value else None
    return {
        "tp": binlog.tp.name.capitalize(), "start_ts": binlog.start_ts, "commit_ts": binlog.commit_ts,
        "prewrite_key": binlog.prewrite_key.hex(), "ddl_query": binlog.ddl_query.decode("utf-8", "replace"),
        "ddl_job_id": binlog.ddl_job_id, "ddl_schema_state": binlog.ddl_schema_state, "file": at.file, "offset": at.offset,
        "schema_version": rows.schema_version if rows is not None else None,
        "rows_by_table": {one.table_id: len(one.sequence) for one in rows.mutations} if rows is not None else {},
    }  # fmt: skip


def _told(message: str, code: int) -> Answer:
    return Answer(json.dumps({"message": message, "code": code, "data": None}, indent=2, ensure_ascii=False).encode())


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
