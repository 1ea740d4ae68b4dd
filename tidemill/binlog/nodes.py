"""Pumps and Drainers as the registry knows them: keys, values and states.

A node writes its own key every few seconds, with its state and how far it is. Keys have no lease and are never deleted: what a killed node
wrote last stays, so a Pump that says `online` may be dead. Values are byte-equal to those of the real programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tidemill.budget import STATE, Budget
from tidemill.errors import MalformedMessage

ROOT = "/tidb-binlog/v1/"


class NodeKind(StrEnum):
    """The folder of the registry."""

    PUMP = "pumps"
    DRAINER = "drainers"

    @property
    def prefix(self) -> str:
        """What the keys of this kind begin with."""
        return f"{ROOT}{self.value}/"

    @property
    def word(self) -> str:
        """The kind for messages."""
        return self.value.removesuffix("s")

    def key(self, node_id: str) -> str:
        """The key of a node."""
        return self.prefix + node_id


class NodeState(StrEnum):
    """The state in a node's value."""

    ONLINE = "online"
    PAUSING = "pausing"
    PAUSED = "paused"
    CLOSING = "closing"
    OFFLINE = "offline"


class NodeEvent(StrEnum):
    """What changes a node's state."""

    JOINED = "it is known to those who have to know it"
    PAUSE = "it is asked to pause"
    CLOSE = "it is asked to go offline"
    FINISHED = "what it does before it ends is done"


TRANSITIONS: Mapping[tuple[NodeState, NodeEvent], NodeState] = {
    (NodeState.PAUSED, NodeEvent.JOINED): NodeState.ONLINE,
    (NodeState.ONLINE, NodeEvent.PAUSE): NodeState.PAUSING,
    (NodeState.PAUSED, NodeEvent.PAUSE): NodeState.PAUSING,
    (NodeState.ONLINE, NodeEvent.CLOSE): NodeState.CLOSING,
    (NodeState.PAUSED, NodeEvent.CLOSE): NodeState.CLOSING,
    # A node that waits before it goes offline may be stopped, and waits again when it is started and asked again.
    (NodeState.CLOSING, NodeEvent.PAUSE): NodeState.PAUSING,
    (NodeState.PAUSING, NodeEvent.FINISHED): NodeState.PAUSED,
    (NodeState.CLOSING, NodeEvent.FINISHED): NodeState.OFFLINE,
}
"""The states of a running process. It begins as `paused`, which a Drainer reads from and a client does not write to."""


def next_state(state: NodeState, event: NodeEvent) -> NodeState | None:
    """Return the state after an event; None if the event changes nothing in this state."""
    return TRANSITIONS.get((state, event))


@dataclass(frozen=True, slots=True)
class Node:
    """One value of the registry. `host` is HOST:PORT of gRPC and HTTP. `max_commit_ts` of a Drainer is its checkpoint."""

    node_id: str
    host: str
    state: NodeState
    is_alive: bool = False
    score: int = 0
    labels: Mapping[str, str] | None = field(default=None, hash=False)
    max_commit_ts: int = 0
    update_ts: int = 0

    def encode(self) -> bytes:
        """Return the JSON of the real programs."""
        value = {
            "nodeId": self.node_id, "host": self.host, "state": self.state.value, "isAlive": self.is_alive, "score": self.score,
            "label": None if self.labels is None else {"labels": dict(sorted(self.labels.items()))},
            "maxCommitTS": self.max_commit_ts, "updateTS": self.update_ts,
        }  # fmt: skip
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        for char in "<>&\u2028\u2029":  # as Go's encoder does
            text = text.replace(char, f"\\u{ord(char):04x}")
        return text.encode()

    def with_state(self, state: NodeState) -> Node:
        """Return the same node in another state."""
        return replace(self, state=state)


def read_node(value: bytes) -> Node:
    """Decode a value of the registry. Raises MalformedMessage."""
    try:
        found = Budget(STATE).json(value)
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
        labels = (found.get("label") or {}).get("labels")
        return Node(
            _text(found, "nodeId"), _text(found, "host"), NodeState(_text(found, "state")), bool(found.get("isAlive", False)),
            _number(found, "score"), None if labels is None else {str(k): str(v) for k, v in labels.items()},
            _number(found, "maxCommitTS"), _number(found, "updateTS"),
        )  # fmt: skip
    except (ValueError, AttributeError, RecursionError) as error:
        raise MalformedMessage(f"the registry has a value that describes no node: {value[:200]!r}: {error}") from None


def _text(found: dict[str, object], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r}")
    return value


def _number(found: dict[str, object], name: str) -> int:
    value = found.get(name, 0)
    if not isinstance(value, int):
        raise ValueError(f"{name} is {value!r}")
    return value
