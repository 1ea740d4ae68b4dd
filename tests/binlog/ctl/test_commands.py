"""binlogctl's commands on a playground with a Pump, and its lines against recorded ones."""

from __future__ import annotations

import asyncio
import gzip
import re
import tomllib
from pathlib import Path

import pytest

from tests.support.binlog.binlogs import lines
from tests.support.binlog.pumps import RunningPump, free_address, running_pump
from tidemill.binlog.ctl.commands import Control, NodeRefused, NotReached, Query, described
from tidemill.binlog.nodes import NodeState, read_node
from tidemill.budget import ANSWER
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.errors import ConfigError, UpstreamUnavailable
from tidemill.playground.server import Playground


def test_a_node_is_described_as_the_real_one_does() -> None:
    steps = {step["step"]: step for step in lines("node_states")}
    shown = steps["binlogctl_pumps"]["result"]["out"][0]
    wanted = re.search(r'\[node="(.*)"\]', shown)
    values = [read_node(one["value"].encode()) for step in steps.values() for one in step["first_puts"]]
    assert wanted is not None
    assert wanted[1] in {described(node) for node in values}


async def _run(running: RunningPump, command: str, query: Query) -> list[str]:
    told: list[str] = []
    pd = await PdClient.connect(running.playground.pd_address)
    try:
        await Control(pd, None, told.append).run(command, query)
    finally:
        await pd.close()
    return [text.split("] ", 1)[1] for text in told]


def test_nodes_are_shown_written_and_asked(tmp_path: Path) -> None:
    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path / "data", playground) as running:
            running.drainer("d1", free_address(), NodeState.OFFLINE, 5)
            (shown,) = await _run(running, "pumps", Query())
            assert shown.startswith(f'[INFO] ["query node"] [type=pump] [node="{{NodeID: pump1, Addr: {running.address}, State: online')
            assert await _run(running, "drainers", Query()) == []
            assert len(await _run(running, "drainers", Query(show_offline=True))) == 1
            with pytest.raises(ConfigError, match="key /tidb-binlog/v1/pumps/nosuch in etcd not found"):
                await _run(running, "pause-pump", Query("nosuch"))
            with pytest.raises(ConfigError, match="not a state"):
                await _run(running, "update-drainer", Query("d1", "gone"))
            await _run(running, "update-drainer", Query("d1", "paused"))
            assert len(await _run(running, "drainers", Query())) == 1
            with pytest.raises(UpstreamUnavailable, match="d1 at"):
                await _run(running, "pause-drainer", Query("d1"))
            running.drainer("other", running.address, NodeState.ONLINE)
            with pytest.raises(NodeRefused, match="invalide nodeID other"):
                await _run(running, "pause-drainer", Query("other"))
            running.drainer("elsewhere", "127.0.0.1:1/x?y=", NodeState.ONLINE)
            with pytest.raises(UpstreamUnavailable, match="not a HOST:PORT"):
                await _run(running, "pause-drainer", Query("elsewhere"))
            assert await _run(running, "pause-pump", Query("pump1")) == [
                '[INFO] ["Apply action on node success"] [action=pause] [NodeID=pump1]'
            ]
            await running.task

    asyncio.run(run())


@pytest.mark.parametrize(
    ("encoding", "body", "why"),
    [
        (b"identity", b"[" * 200_000, ""),
        (b"identity", b"[" + b"0," * (ANSWER.nodes + 1) + b"0]", "more than 4,194,304 values"),
        (b"identity", b"\xff", ""),
        (b"gzip", gzip.compress(b'{"code":200}'), "encoded"),
    ],
    ids=["deep", "many values", "no text", "compressed"],
)
def test_a_node_that_answers_anything(tmp_path: Path, encoding: bytes, body: bytes, why: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Encoding: " + encoding + b"\r\n\r\n" + body)
        writer.close()

    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path / "data", playground) as running:
            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            host, port = server.sockets[0].getsockname()
            running.drainer("d1", f"{host}:{port}", NodeState.ONLINE)
            with pytest.raises(UpstreamUnavailable, match=f"d1 at.*{why}"):
                await _run(running, "pause-drainer", Query("d1"))
            server.close()

    asyncio.run(run())


def test_a_savepoint_can_be_read_by_a_drainer_also_with_a_time_zone(tmp_path: Path) -> None:
    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path / "data", playground) as running:
            (told,) = await _run(running, "generate_meta", Query(data_dir=tmp_path / "meta", time_zone="Asia/Shanghai"))
            found = tomllib.loads((tmp_path / "meta" / "savepoint").read_text(encoding="utf-8"))
            assert f'["save meta"] [meta="commitTS: {found["commitTS"]}"]' in told
            assert "+0800" in told

    asyncio.run(run())


def test_wait_ends_when_the_drainer_is_there_and_tells_who_is_not(tmp_path: Path) -> None:
    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path / "data", playground) as running:
            running.drainer("d1", "h:1", NodeState.ONLINE, 5)
            with pytest.raises(NotReached, match="NodeID: d1"):
                await _run(running, "wait", Query("d1", ts=9, timeout_s=0.1))
            waiting = asyncio.ensure_future(_run(running, "wait", Query("d1", ts=9, timeout_s=20)))
            running.drainer("d1", "h:1", NodeState.ONLINE, 9)
            assert await waiting == ['[INFO] ["reached"] [ts=9]']

    asyncio.run(run())
