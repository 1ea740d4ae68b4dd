"""The commands of binlogctl: show nodes, ask them to pause or to go offline, write their state, write a savepoint, wait for a Drainer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote
from zoneinfo import ZoneInfo

from tidemill import credentials, tso
from tidemill.binlog.nodes import Node, NodeKind, NodeState
from tidemill.binlog.registry.client import Registry
from tidemill.budget import ANSWER, Budget
from tidemill.capture.tikv.client.channels import check_advertised
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.tls import Security
from tidemill.changelog.storage import durable
from tidemill.errors import ConfigError, TidemillError, UpstreamUnavailable
from tidemill.extras import extra

with extra("binlog"):
    import httpx

SAVEPOINT = "savepoint"
HTTP_S = 10.0
DONE = 200
_SHOWN = 300

Tell = Callable[[str], None]


class NodeRefused(TidemillError):
    """A node does not do what it is asked to."""

    code = "TM:ErrNodeRefused"


class NotReached(TidemillError):
    """A Drainer was not at a ts in time."""

    code = "TM:ErrDrainerNotThere"
    retryable = True


@dataclass(frozen=True, slots=True)
class Query:
    """What a command was given."""

    node_id: str = ""
    state: str = ""
    data_dir: Path = Path("binlog_position")
    show_offline: bool = False
    time_zone: str = ""
    ts: int = 0
    timeout_s: float = 0.0


class Control:
    """Carries out commands. `tell` gets the lines."""

    def __init__(self, pd: PdClient, security: Security | None, tell: Tell) -> None:
        self._pd, self._security, self._tell = pd, security, tell
        self._registry = Registry(pd)

    async def run(self, command: str, query: Query) -> None:
        """Do one command. Raises ConfigError, UpstreamError, NodeRefused, NotReached."""
        if command == "generate_meta":
            await self._generate_meta(query)
        elif command == "wait":
            await self._wait(query)
        elif command in SHOWN:
            await self._show(SHOWN[command], query)
        elif command in UPDATED:
            await self._update(UPDATED[command], query)
        elif command in APPLIED:
            await self._apply(*APPLIED[command], query)
        else:
            raise ConfigError(f"--cmd {command!r} is not known", hint=f"Commands: {', '.join(COMMANDS)}.")

    async def _show(self, kind: NodeKind, query: Query) -> None:
        for _, node in sorted((await self._registry.nodes(kind)).items()):
            if query.show_offline or node.state is not NodeState.OFFLINE:
                self._tell(line("query node", type=kind.word, node=described(node)))

    async def _update(self, kind: NodeKind, query: Query) -> None:
        try:
            state = NodeState(query.state)
        except ValueError:
            raise ConfigError(f"--state {query.state!r} is not a state", hint=f"States: {', '.join(NodeState)}.") from None
        node = await self._node(kind, query.node_id)
        await self._registry.put(kind, node.with_state(state))

    async def _apply(self, kind: NodeKind, action: str, query: Query) -> None:
        node = await self._node(kind, query.node_id)
        scheme = "http" if self._security is None else "https"
        check_advertised(node.host)
        url = f"{scheme}://{node.host}/state/{quote(node.node_id, safe='')}/{action}"
        budget = Budget(ANSWER)
        try:
            status, body = await asyncio.to_thread(self._put, url, budget)
            told = budget.json(body)
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            raise UpstreamUnavailable(f"the {kind.word} {node.node_id} at {node.host} does not answer: {error}") from None
        if status != DONE or not isinstance(told, dict) or told.get("code") != DONE:
            said = body[:_SHOWN].decode("utf-8", "replace").strip()
            raise NodeRefused(f"the {kind.word} {node.node_id} at {node.host} refuses: {said}")
        self._tell(line("Apply action on node success", action=action, NodeID=node.node_id))

    def _put(self, url: str, budget: Budget) -> tuple[int, bytes]:
        """Return status and body of the answer. Blocks for up to HTTP_S. Raises OverBudget and httpx.HTTPError."""
        with (
            httpx.Client(verify=self._context(), timeout=HTTP_S, trust_env=False) as client,
            client.stream("PUT", url, headers={"Accept-Encoding": "identity"}) as answer,
        ):
            return answer.status_code, budget.body(answer.headers.get("Content-Encoding"), answer.iter_raw())

    def _context(self) -> ssl.SSLContext | bool:
        if self._security is None:
            return False
        self._security.check()
        context = ssl.create_default_context(cafile=self._security.ca)
        if self._security.cert is not None:
            context.load_cert_chain(self._security.cert, self._security.key, credentials.own_key_password)
        return context

    async def _node(self, kind: NodeKind, node_id: str) -> Node:
        if not node_id:
            raise ConfigError("this command needs --node-id")
        found = await self._registry.get(kind, node_id)
        if found is None:
            raise ConfigError(f"key {kind.key(node_id)} in etcd not found", hint=f"See --cmd {kind.value} --show-offline-nodes.")
        return found

    async def _generate_meta(self, query: Query) -> None:
        ts = await self._pd.tso()
        durable.write(query.data_dir / SAVEPOINT, f"commitTS = {ts}\n".encode())
        moment = {}
        if query.time_zone:
            try:
                moment = {"time": f"{tso.when(ts).astimezone(ZoneInfo(query.time_zone)):%Y-%m-%d %H:%M:%S %z}"}
            except (KeyError, ValueError):
                raise ConfigError(f"--time-zone {query.time_zone!r} is not known") from None
        self._tell(line("save meta", meta=f"commitTS: {ts}", **moment))

    async def _wait(self, query: Query) -> None:
        """Wait until a Drainer (without --node-id: each that is not offline) has everything up to --ts (0: up to now)."""
        ts = query.ts or await self._pd.tso()
        if query.node_id:
            await self._node(NodeKind.DRAINER, query.node_id)
        behind: list[Node] = []
        try:
            async with asyncio.timeout(query.timeout_s or None):
                async for nodes in self._registry.watch(NodeKind.DRAINER):
                    wanted = [node for node_id, node in nodes.items() if _is_meant(node_id, node, query)]
                    behind = [node for node in wanted if node.max_commit_ts < ts]
                    if wanted and not behind:
                        break
        except TimeoutError:
            names = ", ".join(described(node) for node in behind) or "there is none"
            raise NotReached(f"no Drainer has reached {tso.describe(ts)} within {query.timeout_s:g} s: {names}") from None
        self._tell(line("reached", ts=str(ts)))


SHOWN = {"pumps": NodeKind.PUMP, "drainers": NodeKind.DRAINER}
UPDATED = {"update-pump": NodeKind.PUMP, "update-drainer": NodeKind.DRAINER}
APPLIED = {
    "pause-pump": (NodeKind.PUMP, "pause"), "pause-drainer": (NodeKind.DRAINER, "pause"),
    "offline-pump": (NodeKind.PUMP, "close"), "offline-drainer": (NodeKind.DRAINER, "close"),
}  # fmt: skip
COMMANDS = ("generate_meta", "wait", *SHOWN, *UPDATED, *APPLIED)


def _is_meant(node_id: str, node: Node, query: Query) -> bool:
    return node_id == query.node_id if query.node_id else node.state is not NodeState.OFFLINE


def described(node: Node) -> str:
    """A node as the real binlogctl prints it."""
    moment = f"{tso.when(node.update_ts):%Y-%m-%d %H:%M:%S} +0000 UTC"
    return f"{{NodeID: {node.node_id}, Addr: {node.host}, State: {node.state}, MaxCommitTS: {node.max_commit_ts}, UpdateTime: {moment}}}"


def line(message: str, **fields: str) -> str:
    """A line of the log format of TiDB's programs."""
    now = datetime.now(UTC)
    parts = [f"[{name}={_quoted(value)}]" for name, value in fields.items()]
    return " ".join([f"[{now:%Y/%m/%d %H:%M:%S}.{now.microsecond // 1000:03d} +00:00]", "[INFO]", f'["{message}"]', *parts])


def _quoted(text: str) -> str:
    return f'"{text}"' if any(char in text for char in ' ="[]') else text
