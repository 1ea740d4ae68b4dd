"""Servers that take turns by a real ZooKeeper: the nodes of Canal's cluster clients, and who serves when one dies, freezes and wakes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.canal.client import Closed, PlainClient
from tests.support.canal.golden import lines
from tests.support.canal.server_runs import ServerProcess, ServerThread
from tests.support.canal.store import GrowingStore, transactions
from tests.support.faults.s3_faults import Fault, spoiled
from tests.support.servers.s3 import make_bucket, s3_server  # noqa: F401
from tests.support.servers.zookeeper import ZooKeeper
from tidemill.canal.server.election import Election
from tidemill.canal.server.seat import Seat
from tidemill.changelog.storage.base import Storage
from tidemill.changelog.storage.open import LocalStorage, open_storage
from tidemill.cli.canal.serving import address_of
from tidemill.errors import ConfigError, LogFenced
from tidemill.process.ports import free_ports

RUNNING = "/otter/canal/destinations/d/running"
SESSION_S = 2.0
PATIENCE_S = 240.0
LIVING: list[ServerProcess] = []
"""What the tests have started."""


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper") / "server") as found:
        yield found


@pytest.fixture
def nodes(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.address)
    client.start()
    yield client
    while LIVING:
        LIVING.pop().kill()
    awaited(lambda: not client.exists("/otter/canal/cluster") or not client.get_children("/otter/canal/cluster"))
    client.delete("/otter", recursive=True)
    client.stop()
    client.close()


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    return filled(LocalStorage(tmp_path / "store", sync=False))


def filled(storage: Storage) -> GrowingStore:
    made = GrowingStore(storage)
    made.add(transactions(*range(20, 60)), 60)
    return made


def url_of(endpoint: str) -> str:
    return f"s3://test:secret@canal/store?endpoint_override={endpoint.partition('://')[2]}&scheme=http&region=us-east-1"


@pytest.fixture(scope="module")
def bucket(s3_server: str) -> str:  # noqa: F811
    """The endpoint of a server with the bucket `canal`."""
    make_bucket(s3_server, "canal")
    return s3_server


ON_S3 = pytest.mark.thorough("a seat on an object store is in test_who_took_the_seat_last_writes")


@pytest.fixture(params=["folder", pytest.param("s3", marks=ON_S3)])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> GrowingStore:
    """A store in a folder, or on an object store."""
    if request.param == "folder":
        return filled(LocalStorage(tmp_path / "store", sync=False))
    return filled(open_storage(url_of(request.getfixturevalue("bucket"))))


def server(store: GrowingStore, zookeeper: ZooKeeper, *more: str, wait: bool = True) -> ServerProcess:
    options = ("--zookeeper", zookeeper.address, "--zookeeper-timeout", str(SESSION_S), *more)
    made = ServerProcess(store.storage.location, free_ports(1)[0], *options, until="serving d at" if wait else "waiting: ")
    LIVING.append(made)
    return made


def awaited(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def runs(nodes: KazooClient) -> str:
    """Who serves, as cluster clients see it."""
    if nodes.exists(RUNNING) is None:
        return ""
    fields = json.loads(nodes.get(RUNNING)[0])
    assert fields == {"active": True, "address": fields["address"]}
    return str(fields["address"])


def recorded(title: str) -> dict[str, str | None]:
    """The nodes at a moment of the recording, with their content."""
    moments: dict[str, dict[str, str | None]] = {}
    for line in lines("zookeeper_nodes"):
        if line["kind"] == "zk":
            moments[line["title"]] = nodes = {}
        elif line["kind"] == "node":
            nodes[line["path"]] = line["data"]
    return moments[title]


def tree(nodes: KazooClient, path: str = "/otter") -> Iterator[tuple[str, str | None]]:
    data = nodes.get(path)[0]
    yield path, data.decode() if data else None
    for name in nodes.get_children(path):
        yield from tree(nodes, f"{path}/{name}")


@pytest.mark.slow
def test_the_nodes_are_those_that_canal_keeps(store: GrowingStore, zookeeper: ZooKeeper, nodes: KazooClient) -> None:
    """For clients, and for whoever looks. Those below a client's number are the client's own, and positions, which lie in the store."""
    one = server(store, zookeeper)
    wanted = {
        path.replace("zkdest", "d").replace("127.0.0.1:21116", one.address): data and data.replace("127.0.0.1:21116", one.address)
        for path, data in recorded("server started, no client yet").items()
    }
    assert dict(tree(nodes)) == wanted
    with PlainClient(one.address) as client:
        client.get(0)
        client.ack(1)
        client.get(0)
    assert dict(tree(nodes)) == wanted
    one.stop()


@pytest.mark.slow
def test_a_server_that_does_not_serve_is_not_named(store: GrowingStore, zookeeper: ZooKeeper, nodes: KazooClient, tmp_path: Path) -> None:
    """Of its two destinations one is served by a server of another store."""
    (tmp_path / "two.toml").write_text('[canal.destinations."e"]\n')
    nodes.create("/otter/canal/destinations/e/running", b'{"active":true,"address":"other:1"}', ephemeral=True, makepath=True)
    both = server(store, zookeeper, "--config", str(tmp_path / "two.toml"), wait=False)
    both.said_now("waiting: other:1 serves e")
    assert runs(nodes) == ""
    nodes.delete("/otter/canal/destinations/e/running")
    both.said_now("serving d, e at")
    assert runs(nodes) == both.address
    both.stop()


@pytest.mark.slow
def test_the_nodes_are_canals_and_the_next_one_takes_over(store: GrowingStore, zookeeper: ZooKeeper, nodes: KazooClient) -> None:
    first = server(store, zookeeper)
    second = server(store, zookeeper, wait=False)
    both = sorted([first.address, second.address])
    assert sorted(nodes.get_children("/otter/canal/cluster")) == both
    assert sorted(nodes.get_children("/otter/canal/destinations/d/cluster")) == both
    assert nodes.get(RUNNING)[0] == json.dumps({"active": True, "address": first.address}, separators=(",", ":")).encode()
    with pytest.raises(OSError, match="refused"):
        PlainClient(second.address)
    with PlainClient(first.address) as client:
        number, entries = client.get(0)
        client.ack(number)
        assert client.get(0)[1] == [b"row 20"]
    assert first.stop() == 0
    awaited(lambda: runs(nodes) == second.address)
    assert nodes.get_children("/otter/canal/cluster") == [second.address]
    second.said_now("serving d at")
    with PlainClient(second.address) as client:
        assert client.get(0) == (1, [b"row 20"])
    second.kill()
    awaited(lambda: nodes.exists(RUNNING) is None)
    assert entries == [b"begin 20"]


@pytest.mark.slow
def test_a_server_that_dies(store: GrowingStore, zookeeper: ZooKeeper, nodes: KazooClient) -> None:
    first = server(store, zookeeper)
    second = server(store, zookeeper, wait=False)
    with PlainClient(first.address) as client:
        client.get(0)
        client.ack(1)
        assert client.get(0)[0] == 2
        first.kill()
        second.said_now("serving d at")
        assert runs(nodes) == second.address
    with PlainClient(second.address) as client:
        assert client.get(0) == (1, [b"row 20"])
    second.stop()


@pytest.mark.slow
def test_a_server_that_was_frozen_neither_serves_nor_acknowledges(anywhere: GrowingStore, zookeeper: ZooKeeper, nodes: KazooClient) -> None:
    """Each goes on where the other one's clients were, wherever the store lies."""
    first = server(anywhere, zookeeper)
    second = server(anywhere, zookeeper, wait=False)
    with PlainClient(first.address) as old:
        assert old.get(0)[1] == [b"begin 20"]
        old.ack(1)
        assert old.get(0)[1] == [b"row 20"]
        os.kill(first.pid, signal.SIGSTOP)
        old.ack(2)  # it lies in the socket until the server wakes
        second.said_now("serving d at")
        with PlainClient(second.address) as new:
            assert new.get(0) == (1, [b"row 20"])
            os.kill(first.pid, signal.SIGCONT)
            with pytest.raises(Closed):
                old.get(0)
            assert new.get(0) == (2, [b"end 20"])
            new.ack(1)
            assert new.get(0) == (3, [b"begin 21"])
    assert runs(nodes) == second.address
    first.said_now("does not serve any more")
    second.kill()
    first.said_now("serving d at", times=2)  # its turn again
    with PlainClient(first.address) as client:
        assert client.get(0) == (1, [b"end 20"])
    first.stop()


@pytest.mark.slow
@pytest.mark.last
def test_zookeeper_that_goes_away_and_comes_back(store: GrowingStore, zookeeper: ZooKeeper) -> None:
    """Nobody knows then who serves, so nobody does."""
    alone = server(store, zookeeper)
    zookeeper.stop()
    alone.said_now("does not serve any more")
    awaited(lambda: refused(alone.address))
    zookeeper.start()
    alone.said_now("serving d at", times=2)
    with PlainClient(alone.address) as client:
        assert client.get(0) == (1, [b"begin 20"])
    assert alone.stop() == 0


def refused(address: str) -> bool:
    try:
        PlainClient(address).socket.close()
    except (OSError, Closed):
        return True
    return False


@pytest.mark.parametrize("fault", [Fault.UNCONDITIONAL, Fault.NOT_IMPLEMENTED])
def test_storage_without_conditional_writes_is_refused_before_the_server_listens(bucket: str, fault: Fault) -> None:
    """One that was frozen could write over newer positions."""
    port = free_ports(1)[0]
    with spoiled(bucket, lambda method, path: fault if method == "PUT" else Fault.NONE) as endpoint:
        storage = open_storage(url_of(endpoint))
        turns = Election("127.0.0.1:1", f"127.0.0.1:{port}", ["d"])
        with (
            pytest.raises(ConfigError, match=r"--zookeeper: s3://.*no conditional PUT") as error,
            ServerThread(storage, listen=f"127.0.0.1:{port}", turns=turns),
        ):
            pass
        assert "secret" not in str(error.value)
        with pytest.raises(OSError, match="refused"):
            PlainClient(f"127.0.0.1:{port}")


@pytest.mark.parametrize("place", ["folder", "s3"])
def test_who_took_the_seat_last_writes(place: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "store", sync=False) if place == "folder" else open_storage(url_of(request.getfixturevalue("bucket")))
    first, second = Seat(storage), Seat(storage)
    first.take()
    with first.held():
        pass
    assert second.take() == first.epoch + 1
    with pytest.raises(LogFenced, match="another server"), first.held():
        pass
    with second.held():
        pass


def test_an_address_that_others_know() -> None:
    assert address_of("", "10.0.0.1:11111") == "10.0.0.1:11111"
    assert address_of("name", "0.0.0.0:11111") == "name:11111"
    assert address_of("name:7", "0.0.0.0:11111") == "name:7"
    with pytest.raises(ConfigError, match="not an address"):
        address_of("", "0.0.0.0:11111")
