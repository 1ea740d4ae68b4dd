"""The registry in a real etcd and in the playground's: the same calls, and what a broken value or a broken connection does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from etcd3aio.kv import KVService
from etcd3aio.lease import LeaseService

from tests.support.binlog.binlogs import until
from tests.support.servers.etcds import Etcd
from tidemill import tso
from tidemill.binlog.nodes import Node, NodeKind, NodeState
from tidemill.binlog.registry.client import Registry
from tidemill.binlog.registry.heartbeat import Entry
from tidemill.capture.tikv.client.channels import Channels
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.errors import UpstreamUnavailable
from tidemill.playground.server import Playground

NODE = Node("p1", "127.0.0.1:8250", NodeState.ONLINE, max_commit_ts=5, update_ts=6)


@dataclass(slots=True)
class Members:
    """Of PD's client only what a registry uses: members and their channels."""

    leader: str
    channels: Channels = field(default_factory=Channels)

    @property
    def addresses(self) -> tuple[str, ...]:
        """All members."""
        return (self.leader,)


@asynccontextmanager
async def _served(kind: str, folder: Path) -> AsyncIterator[tuple[Registry, Members]]:
    etcd = Etcd(folder) if kind == "etcd" else None
    playground = Playground() if kind == "playground" else None
    if etcd is not None:
        etcd.start()
    else:
        assert playground is not None
        await playground.start()
    members = Members(etcd.address if etcd is not None else playground.pd_address)  # type: ignore[union-attr]
    try:
        yield Registry(cast(PdClient, members)), members
    finally:
        await members.channels.close()
        if etcd is not None:
            etcd.kill()
        else:
            await playground.stop()  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["etcd", "playground"])
def test_nodes_are_written_read_and_watched(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with _served(kind, tmp_path) as (registry, members):
            assert await registry.nodes(NodeKind.PUMP) == {}
            assert await registry.get(NodeKind.PUMP, "p1") is None
            seen: list[dict[str, Node]] = []

            async def watch() -> None:
                async for nodes in registry.watch(NodeKind.PUMP):
                    seen.append(nodes)

            watching = asyncio.ensure_future(watch())
            await until(lambda: seen == [{}])
            await registry.put(NodeKind.PUMP, NODE)
            await registry.put(NodeKind.DRAINER, NODE)
            await until(lambda: seen[-1] == {"p1": NODE})
            await registry.put(NodeKind.PUMP, NODE.with_state(NodeState.PAUSED))
            await until(lambda: seen[-1]["p1"].state is NodeState.PAUSED)
            channel = members.channels.get(members.leader)
            kv = KVService(channel)
            await kv.put(NodeKind.PUMP.key("odd"), b"no node")
            await registry.put(NodeKind.PUMP, NODE)
            await until(lambda: seen[-1] == {"p1": NODE})
            assert "odd" in caplog.text
            raw: Any = await kv.get(NodeKind.PUMP.key("p1"))
            assert raw.kvs[0].value == NODE.encode()
            assert raw.kvs[0].version == 3
            await kv.delete(NodeKind.PUMP.key("p1"))
            await until(lambda: seen[-1] == {})
            lease: Any = await LeaseService(channel).grant(60)
            await kv.put(NodeKind.PUMP.key("p2"), NODE.encode(), lease=lease.ID)
            await until(lambda: "p2" in seen[-1])
            await LeaseService(channel).revoke(lease.ID)
            await until(lambda: seen[-1] == {})
            watching.cancel()

    asyncio.run(run())


def test_a_watch_goes_on_after_etcd_was_killed(tmp_path: Path) -> None:
    async def run() -> None:
        etcd = Etcd(tmp_path)
        etcd.start()
        members = Members(etcd.address)
        registry = Registry(cast(PdClient, members))
        await registry.put(NodeKind.PUMP, NODE)
        seen: list[dict[str, Node]] = []

        async def watch() -> None:
            async for nodes in registry.watch(NodeKind.PUMP):
                seen.append(nodes)

        watching = asyncio.ensure_future(watch())
        await until(lambda: seen)
        etcd.kill()
        with pytest.raises(UpstreamUnavailable, match="etcd at"):
            await Registry(cast(PdClient, members), retry_s=0.1).nodes(NodeKind.PUMP)
        etcd.start()
        await registry.put(NodeKind.PUMP, NODE.with_state(NodeState.OFFLINE))
        await until(lambda: seen[-1]["p1"].state is NodeState.OFFLINE)
        watching.cancel()
        await members.channels.close()
        etcd.kill()

    asyncio.run(run())


def test_an_entry_is_written_when_its_state_changes_and_at_each_beat() -> None:
    async def run() -> None:
        async with Playground() as playground:
            members = Members(playground.pd_address)
            registry = Registry(cast(PdClient, members))
            began = tso.compose(1_700_000_000_000)
            progress = [7]
            entry = Entry(registry, NodeKind.PUMP, Node("p", "h:1", NodeState.PAUSED), began, lambda: progress[0])
            await entry.become(NodeState.ONLINE)
            found = await registry.get(NodeKind.PUMP, "p")
            assert found == Node("p", "h:1", NodeState.ONLINE, max_commit_ts=7, update_ts=began)
            beating = asyncio.ensure_future(entry.beat(0.01))
            progress[0] = 8
            key = NodeKind.PUMP.key("p").encode()
            await until(lambda: b'"maxCommitTS":8' in playground.etcd.pairs[key].value)
            beating.cancel()
            await playground.stop()
            failing = Entry(Registry(cast(PdClient, members), retry_s=0.0), NodeKind.PUMP, NODE, began, lambda: 0)
            with pytest.raises(UpstreamUnavailable):
                await failing.beat(0.0, most_failures=2)
            assert failing.failures == 2
            await members.channels.close()

    asyncio.run(run())
