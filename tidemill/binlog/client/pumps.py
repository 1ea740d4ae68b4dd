"""Which Pump takes a binlog. Pure: it is told what the registry says and how writes ended.

A Pump is used while the registry says `online`. After too many errors in a row it is passed over, and probed, until it answers again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidemill.binlog.client.options import ClientOptions, Strategy
from tidemill.binlog.nodes import Node, NodeState

_SMOOTH = 0.2
"""The share of the newest answer in the latency of a Pump."""
_LEAST_S = 1e-4
"""A latency below this is as good as any: of Pumps that are all quick none is preferred much."""


@dataclass(slots=True)
class PumpState:
    """What the client knows of one Pump. `latency`: seconds of an answer, smoothed; None before the first. `open`: writes that it has not
    answered yet."""

    node: Node
    errors: int = 0
    available: bool = True
    latency: float | None = None
    open: int = 0
    credit: float = 0.0
    probed: float = 0.0  # when

    @property
    def weight(self) -> float:
        """How much of the writes it should get, beside the others' weights."""
        score = self.node.score if self.node.score > 0 else 1
        return score / (max(self.latency or _LEAST_S, _LEAST_S) * (1 + self.open))


class Pumps:
    """All Pumps of a registry that have the client's labels."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._known: dict[str, PumpState] = {}
        self._gone: frozenset[str] = frozenset()
        self._next = 0

    def look(self, nodes: Mapping[str, Node]) -> None:
        """Take what the registry says now. A Pump that was not `online` begins without errors when it is again."""
        wanted = self._options.labels.items()
        online = {i: node for i, node in nodes.items() if node.state is NodeState.ONLINE and wanted <= (node.labels or {}).items()}
        if online.keys() != self._known.keys():
            self._next = 0
        kept = {}
        for node_id in sorted(online):
            state = self._known.get(node_id) or PumpState(online[node_id])
            state.node = online[node_id]
            kept[node_id] = state
        self._known = kept
        self._gone = frozenset(node_id for node_id, node in nodes.items() if node.state is NodeState.OFFLINE)

    @property
    def online(self) -> tuple[str, ...]:
        """The Pumps that the registry says are online, in the order of their names."""
        return tuple(self._known)

    @property
    def available(self) -> tuple[str, ...]:
        """Those that are not passed over."""
        return tuple(node_id for node_id, state in self._known.items() if state.available)

    def host(self, node_id: str) -> str | None:
        """Return where a Pump is; None if it is not online any more."""
        state = self._known.get(node_id)
        return state.node.host if state is not None else None

    def is_gone(self, node_id: str) -> bool:
        """Return whether a Pump has gone offline, for good."""
        return node_id in self._gone

    def choose(self, start_ts: int, retry: int) -> str | None:
        """Return the Pump for a Prewrite's attempt, `retry` counted from 0; None where none is online. Where all are passed over,
        any of them may do."""
        chosen = self.available or self.online
        if not chosen:
            return None
        match self._options.strategy:
            case Strategy.HASH:
                return chosen[(start_ts + retry) % len(chosen)]
            case Strategy.SCORE:
                return self._by_score(chosen)
            case Strategy.RANGE:
                found = chosen[self._next % len(chosen)]
                self._next = (self._next + 1) % len(chosen)
                return found

    def _by_score(self, chosen: Collection[str]) -> str:
        """Return the one to which most is owed: each is owed its weight at every choice, and the one that is chosen pays them all."""
        weights = {node_id: self._known[node_id].weight for node_id in chosen}
        whole = sum(weights.values())
        for node_id, weight in weights.items():
            self._known[node_id].credit += weight / whole
        found = max(chosen, key=lambda node_id: self._known[node_id].credit)
        self._known[found].credit -= 1
        return found

    def begun(self, node_id: str) -> None:
        """A write to a Pump has begun."""
        if (state := self._known.get(node_id)) is not None:
            state.open += 1

    def ended(self, node_id: str, now: float, seconds: float, *, good: bool) -> bool:
        """A write, or a probe, has ended after so many seconds. Returns whether the Pump has become available, or is not any more."""
        state = self._known.get(node_id)
        if state is None:
            return False
        state.open = max(0, state.open - 1)
        state.latency = seconds if state.latency is None else (1 - _SMOOTH) * state.latency + _SMOOTH * seconds
        state.errors = 0 if good else state.errors + 1
        before, state.available = state.available, good or (state.available and state.errors <= self._options.most_errors)
        if before and not state.available:
            state.probed = now
        return before != state.available

    def to_probe(self, now: float) -> list[str]:
        """Return the Pumps that are to be probed now; they count as probed."""
        due = [i for i, state in self._known.items() if not state.available and now - state.probed >= self._options.probe_every]
        for node_id in due:
            self._known[node_id].probed = now
        return due
