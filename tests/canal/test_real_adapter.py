"""canal-adapter's reading on the server: its own consumer and its loop, with a target that fails and a server that is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.canal.clients import adapter, told
from tests.support.canal.clients.stores import made
from tests.support.canal.server_runs import ServerProcess
from tests.support.servers.zookeeper import ZooKeeper
from tidemill.process.ports import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def shapes(entry: dict[str, Any]) -> tuple[Any, ...]:
    """What tells the messages of entries apart: the adapter passes transactions' ends over."""
    names = [[column[2] for column in row[1] or row[0]] for row in entry["rows"]]
    return entry["event_type"], entry["schema"], entry["table"], entry["ddl"], entry["sql"], names


def test_it_synchronizes_everything(tmp_path: Path) -> None:
    """What was rolled back, or lost with a connection, comes again: all of it arrives in order, and rows of one batch may come twice."""
    want = [shapes(one) for one in map(told, made(tmp_path)) if one["type"] == "ROWDATA"]
    (port,) = free_ports(1)
    server = ServerProcess(tmp_path / "store", port)
    loop = adapter(server.address, "d")
    got: list[tuple[Any, ...]] = []
    lost: list[str] = []
    rolled_back = 0
    try:
        assert loop.stdout is not None
        for line in loop.stdout:
            said = json.loads(line)
            if "lost" in said:
                lost.append(said["lost"])
                continue
            if "rolled_back" in said:
                assert said["rolled_back"].endswith(("the target is away", "Connection reset")), said
                rolled_back += said["rolled_back"].endswith("the target is away")
                continue
            names = [list(row) for row in said["data"] or []]
            got.append((said["type"], said["database"], said["table"], said["isDdl"], said["sql"], names))
            if len(got) == len(want) // 2:
                server.kill()
                server = ServerProcess(tmp_path / "store", port)
            if len(got) >= len(want) and without_repeats(got, want) == want:
                break
    finally:
        loop.kill()
        loop.communicate()
        server.kill()
    assert rolled_back
    assert lost


@pytest.mark.thorough("its nodes in ZooKeeper, and the server that takes over, are in tests/canal/server/test_turns.py")
def test_a_cluster_client_finds_the_server_that_takes_over(tmp_path: Path) -> None:
    """Canal's ClusterCanalConnector by a real ZooKeeper: the server that it reads is killed half-way, and everything arrives."""
    want = [shapes(one) for one in map(told, made(tmp_path)) if one["type"] == "ROWDATA"]
    servers: list[ServerProcess] = []
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        options = ("--zookeeper", zookeeper.address, "--zookeeper-timeout", "2")
        for port, until in zip(free_ports(2), ("serving d at", "waiting: "), strict=True):
            servers.append(ServerProcess(tmp_path / "store", port, *options, until=until))
        loop = adapter(f"zookeeper={zookeeper.address}", "d")
        got: list[tuple[Any, ...]] = []
        try:
            assert loop.stdout is not None
            for line in loop.stdout:
                said = json.loads(line)
                if "lost" in said or "rolled_back" in said:
                    continue
                names = [list(row) for row in said["data"] or []]
                got.append((said["type"], said["database"], said["table"], said["isDdl"], said["sql"], names))
                if len(got) == len(want) // 2:
                    servers[0].kill()
                if len(got) >= len(want) and without_repeats(got, want) == want:
                    break
            servers[1].said_now("serving d at")
        finally:
            loop.kill()
            loop.communicate()
            for server in servers:
                server.kill()
    assert without_repeats(got, want) == want


def without_repeats(got: list[tuple[Any, ...]], want: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What was got, less what came again behind the loss of a connection: then it goes on at an earlier place."""
    at = next((at for at, (one, other) in enumerate(zip(got, want, strict=False)) if one != other), len(want))
    rest = got[at:]
    if not rest:
        return got
    again = next((back for back in range(at, -1, -1) if want[back : back + len(rest)] == rest), None)
    return got if again is None else want[:again] + rest
