"""The HTTP pages of a Drainer: those of the real one, with the same paths and shapes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Protocol

from tidemill.binlog.nodes import NodeEvent
from tidemill.binlog.pump.port import Answer, Request
from tidemill.metrics.samples import Sample, metrics_page

PATHS = "/status /commit_ts /metrics /state/{id}/{pause|close} (PUT)"
_ACTIONS = {"pause": NodeEvent.PAUSE, "close": NodeEvent.CLOSE}
_REFUSED = 3


class Owner(Protocol):
    """What the pages ask their process."""

    done_ts: int

    @property
    def node_id(self) -> str:
        """Its name in the registry."""

    def status(self) -> dict[str, Any]:
        """The content of /status."""

    def ask(self, event: NodeEvent) -> None:
        """Begin to pause or to go offline."""

    def samples(self) -> Iterable[Sample]:
        """The figures of /metrics."""


class DrainerPages:
    """Answers requests."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._metrics = metrics_page(owner.samples)

    async def __call__(self, request: Request) -> Answer:
        """Answer one request."""
        read = request.method in ("GET", "HEAD")
        if request.path == "/status" and read:
            return _json(self._owner.status())
        if request.path == "/commit_ts" and read:
            return _json({"message": "success!", "code": 200, "data": {"ts": self._owner.done_ts}})
        if request.path == "/metrics" and read:
            return Answer(self._metrics.body(), 200, self._metrics.content_type)
        if (found := re.fullmatch(r"/state/([^/]+)/([^/]+)", request.path)) and request.method == "PUT":
            return self._state(found[1], found[2])
        return Answer(f"pages: {PATHS}\n".encode(), 404, "text/plain; charset=utf-8")

    def _state(self, node_id: str, action: str) -> Answer:
        if node_id != self._owner.node_id:
            text = f"invalide nodeID {node_id}, this drainer's nodeID is {self._owner.node_id}"
            return _json({"message": text, "code": _REFUSED, "data": None})
        if action not in _ACTIONS:
            return _json({"message": f"invalide action {action}", "code": _REFUSED, "data": None})
        self._owner.ask(_ACTIONS[action])
        return _json({"message": f"apply action {action} success!", "code": 200, "data": None})


def _json(value: dict[str, Any]) -> Answer:
    return Answer(json.dumps(value, separators=(",", ":")).encode() + b"\n")
