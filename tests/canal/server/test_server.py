"""The server on sockets: places survive it, nobody waits for another, what is broken is closed."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.canal.client import Closed, PlainClient
from tests.support.canal.server_runs import ServerThread, one_destination
from tests.support.canal.store import GrowingStore, texts, transactions
from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tidemill.canal.scramble import stored
from tidemill.canal.server.connection import Connection
from tidemill.canal.server.server import KEPT_FILES
from tidemill.changelog.storage.open import LocalStorage
from tidemill.errors import ConfigError, LogLocked
from tidemill.protocols.canal.packets import Ack, ClientAuth, Get, frame, write_packet
from tidemill.sinks.canal.store.retention import acknowledged
from tidemill.tso import compose


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    return GrowingStore(LocalStorage(tmp_path / "store", sync=False))


@pytest.fixture
def served(store: GrowingStore) -> Iterator[ServerThread]:
    with ServerThread(store.storage) as server:
        yield server


def test_entries_come_as_they_are_published(store: GrowingStore, served: ServerThread) -> None:
    with PlainClient(served.address) as client:
        assert client.get() == (-1, [])
        for number, ts in enumerate((20, 30, 40), 1):
            store.add(transactions(ts), ts)
            assert client.get() == (number, texts(ts))
            client.ack(number)
        assert client.get() == (-1, [])
    served.stop()
    assert acknowledged(store.storage) == 39


def test_a_get_that_waits_ends_when_its_batch_is_full(store: GrowingStore, served: ServerThread) -> None:
    with PlainClient(served.address) as client:
        client.send(Get("d", "1001", 1, 0))
        store.add(transactions(20), 20)
        store.add(transactions(30, size=1100), 30)
        answer = client.receive()
        assert [bytes(one)[:6] for one in answer.entries][:4] == [b"begin ", b"row 20", b"end 20", b"begin "]  # type: ignore[union-attr]


def test_a_get_that_waits_for_any_entry(store: GrowingStore) -> None:
    store.add([], 15)
    with ServerThread(store.storage, one_destination({"get.wait": "any"})) as server, PlainClient(server.address) as client:
        client.send(Get("d", "1001", 1000, 0))
        store.add(transactions(20), 20)
        answer = client.receive()
        assert [bytes(one) for one in answer.entries] == texts(20)  # type: ignore[union-attr]


def test_a_get_gives_what_there_is_when_its_time_is_up(store: GrowingStore, served: ServerThread) -> None:
    store.add(transactions(20), 20)
    with PlainClient(served.address) as client:
        assert client.get(1000, 300, 2) == (1, texts(20))
        assert client.get(1000, 1, 1) == (-1, [])


def test_a_client_that_waits_or_is_gone_keeps_nobody_waiting(store: GrowingStore, served: ServerThread) -> None:
    waiting = [PlainClient(served.address, client=number) for number in range(1, 9)]
    for client in waiting:
        client.send(Get("d", client.client, 1000, 0))
    for client in waiting[:4]:
        client.socket.close()
    store.add(transactions(20), 20)
    with PlainClient(served.address) as other:
        assert other.get() == (1, texts(20))
    for client in waiting[4:]:
        client.socket.close()


def test_a_first_subscription_begins_at_start_ts(tmp_path: Path) -> None:
    """A client that has a position keeps it."""
    times = [compose(1_700_000_000_000 + ms) for ms in (0, 1, 2, 3)]
    store = GrowingStore(LocalStorage(tmp_path / "store", sync=False), times[0])
    store.add(transactions(*times[1:]), times[3])
    with ServerThread(store.storage, one_destination({"start-ts": str(times[1])})) as server, PlainClient(server.address) as client:
        assert client.get() == (1, texts(*times[2:]))
        client.ack(1)
    with (
        ServerThread(store.storage, one_destination({"start-ts": str(times[2])})) as server,
        PlainClient(server.address) as client,
        PlainClient(server.address, client=7) as fresh,
    ):
        assert client.get() == (-1, [])
        assert fresh.get() == (1, texts(times[3]))


def test_places_survive_the_server(store: GrowingStore) -> None:
    store.add(transactions(20, 30, 40), 40)
    items = one_destination({"canal.instance.memory.batch.mode": "ITEMSIZE"})
    with ServerThread(store.storage, items) as server, PlainClient(server.address) as client:
        assert client.get(3) == (1, texts(20))
        assert client.get(3) == (2, texts(30))
        client.ack(1)
        assert client.get(3) == (3, texts(40))
    with ServerThread(store.storage) as server, PlainClient(server.address) as client:
        assert client.get() == (1, texts(30, 40))
        with PlainClient(server.address, client=7, filter_="none") as other:
            assert other.get() == (-1, [])


def test_a_place_is_safe_before_the_next_answer(tmp_path: Path) -> None:
    """A GET behind an acknowledgement is answered when the place is written."""
    bucket, blocked, asked = Bucket(), threading.Event(), threading.Event()
    hold = threading.Event()

    def gate(what: str, name: str) -> None:
        if hold.is_set() and name.startswith("clients/") and what not in ("GET", "LIST"):
            asked.set()
            assert blocked.wait(120)

    store = GrowingStore(MemoryStorage(bucket))
    store.add(transactions(20, 30), 30)
    with ServerThread(MemoryStorage(bucket, gate)) as server, PlainClient(server.address) as client:
        assert client.get(0)[0] == 1
        hold.set()
        client.ack(1)
        client.send(Get("d", "1001", 1000, -1))
        assert asked.wait(120)
        client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        client.socket.settimeout(120)
        blocked.set()
        assert client.receive().batch_id == 2  # type: ignore[union-attr]


def test_a_second_server_is_refused(store: GrowingStore, served: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.changelog.storage.flock.PATIENCE", 0.1)
    with pytest.raises(LogLocked, match="another server serves"), ServerThread(store.storage):
        pass


def test_on_objects_the_server_whose_file_was_overwritten_ends(tmp_path: Path) -> None:
    bucket = Bucket()
    store = GrowingStore(MemoryStorage(bucket))
    store.add(transactions(20, 30), 30)
    first, second = ServerThread(MemoryStorage(bucket)), ServerThread(MemoryStorage(bucket))
    with first, PlainClient(first.address) as old:
        old.get(0)
        with second, PlainClient(second.address) as new:
            assert new.get(0)[0] == 1
            new.ack(1)
            assert new.get(0)[0] == 2
            old.ack(1)
            with pytest.raises(Closed):
                old.get()
            first.wait()
            assert "another server" in str(first.error)


def test_a_client_behind_the_store_is_told(store: GrowingStore, served: ServerThread) -> None:
    store.add(transactions(20, 30), 30)
    with PlainClient(served.address) as client:
        store.publisher.begin_at(25)
        served.until(lambda status: status["begins"] == 25)
        assert "begins at" in client.error()
        with PlainClient(served.address, client=7) as new:
            assert new.get() == (1, texts(30))


def test_a_client_without_news_is_not_behind_when_the_store_moves_on(store: GrowingStore, served: ServerThread) -> None:
    """Nothing came for a long time: what was removed had nothing for it."""
    store.add(transactions(20), 20)
    with PlainClient(served.address) as client:
        assert client.get() == (1, texts(20))
        client.ack(1)
        store.add([], 500)
        assert client.get() == (-1, [])
        store.publisher.begin_at(400)
        store.add(transactions(600), 600)
        assert client.get() == (2, texts(600))


def test_the_pages(store: GrowingStore, served: ServerThread) -> None:
    store.add(transactions(20, 30), 30)
    with PlainClient(served.address, filter_=r"db\..*") as client:
        client.get()
        status = served.status()
        assert (status["checkpoint_ts"], status["connections"], status["errors"]) == (30, 1, [])
        (one,) = status["clients"]
        assert (one["client"], one["filter"], one["open_batches"], one["rows"], one["subscribed"]) == (1001, r"db\..*", 1, 2, True)
        client.ack(1)
        assert client.get() == (-1, [])
        (one,) = served.status()["clients"]
        assert (one["open_batches"], one["acks"], one["acknowledged_ts"]) == (0, 1, 30)
    metrics = served.page("/metrics")
    assert 'tidemill_canal_rows_total{client="1001",destination="d"} 2' in metrics
    assert "tidemill_canal_checkpoint_ts 30" in metrics


def test_passwords_and_plain_ones(store: GrowingStore) -> None:
    login = {"canal.user": "canal", "canal.passwd": stored("Canal@123")}
    with ServerThread(store.storage, one_destination(login)) as server:
        with PlainClient(server.address, user="canal", password="Canal@123") as client:
            assert client.get() == (-1, [])
        with pytest.raises(AssertionError):
            PlainClient(server.address, user="canal", password="other")


def test_idle_connections_are_closed(served: ServerThread) -> None:
    with PlainClient(served.address, subscribe=False) as client:
        assert client.ask(ClientAuth("", b"", 100, 0)) == Ack()
        with pytest.raises(Closed):
            client.receive()


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", (1 << 30).to_bytes(4, "big"), b"\0\0\0\4abcd"])
def test_what_is_no_client_is_closed(served: ServerThread, data: bytes) -> None:
    with PlainClient(served.address, subscribe=False) as client:
        client.socket.sendall(data)
        with pytest.raises(Closed):
            client.receive()
    assert served.status()["refused"] == 1


def test_one_byte_at_a_time(store: GrowingStore, served: ServerThread) -> None:
    store.add(transactions(20), 20)
    with PlainClient(served.address) as client:
        for byte in frame(write_packet(Get("d", "1001", 1000, -1, 2))):
            client.socket.sendall(bytes([byte]))
        assert client.receive().batch_id == 1  # type: ignore[union-attr]


def test_requests_without_end_take_no_memory(store: GrowingStore, served: ServerThread) -> None:
    """A client that asks and does not read is read no further."""
    store.add(transactions(20, size=1 << 20), 20)
    ask = frame(write_packet(Get("d", "1001", 10_000, -1, 2))) + frame(write_packet(Get("d", "1001", 1, 0, 2)))
    with PlainClient(served.address) as client:
        client.socket.settimeout(1.0)
        sent = 0
        with suppress(TimeoutError):
            while sent < 32 << 20:
                sent += client.socket.send(ask * 1000)
    assert sent < 32 << 20


def test_large_batches_arrive_whole(store: GrowingStore, served: ServerThread) -> None:
    store.add(transactions(*range(20, 60), size=200_000), 60)
    with PlainClient(served.address) as client:
        client.send(Get("d", "1001", 8000, -1, 2))
        answer = client.receive()
        assert len(answer.entries) == 120  # type: ignore[union-attr]


def test_the_store_may_come_later(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "store", sync=False)
    server = ServerThread(storage)
    timer = threading.Timer(0.5, lambda: GrowingStore(storage))
    timer.start()
    with server, PlainClient(server.address) as client:
        assert client.get() == (-1, [])
    timer.join()


def test_an_address_that_is_taken(tmp_path: Path, served: ServerThread) -> None:
    port = int(served.address.rpartition(":")[2])
    other = GrowingStore(LocalStorage(tmp_path / "other", sync=False))
    with pytest.raises(ConfigError, match="--listen"), ServerThread(other.storage, listen=f"127.0.0.1:{port}"):
        pass


def test_a_broken_place_is_named(store: GrowingStore) -> None:
    store.storage.replace("clients/d/1001.json", b"{}")
    with pytest.raises(Exception, match=r"clients/d/1001\.json"), ServerThread(store.storage):
        pass


def test_quick_acknowledgements_after_every_read(served: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a client that sends a packet in two writes, without TCP_NODELAY, waits 40 ms for each. The system forgets the option."""
    calls = []
    quick = Connection._quick_ack
    monkeypatch.setattr(Connection, "_quick_ack", lambda self: calls.append(quick(self)))
    with PlainClient(served.address, subscribe=False) as client:
        for count in range(1, 4):
            client.send(ClientAuth("", b"x"))
            client.receive()
            assert len(calls) == 1 + count


def test_records_are_what_retention_reads(store: GrowingStore, served: ServerThread) -> None:
    store.add(transactions(20), 20)
    with PlainClient(served.address, client=-5) as client:
        client.get()
        client.ack(1)
        assert client.get() == (-1, [])
    served.stop()
    found = json.loads(store.storage.read("clients/d/-5.json") or b"")
    assert found["commit_ts"] == 20


def test_who_does_not_log_in_gives_way(store: GrowingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that have logged in are served whatever else connects, and no descriptor is used up."""
    monkeypatch.setattr("tidemill.canal.server.server.raise_limit", lambda: KEPT_FILES + 4)
    with ServerThread(store.storage) as server, PlainClient(server.address) as client:
        silent = [socket.create_connection(address_of(server.address), timeout=30) for _ in range(20)]
        for one in silent[:10]:
            with suppress(ConnectionError):
                while one.recv(4096):  # the greeting, then the end
                    pass
        store.add(transactions(20), 20)
        assert client.get() == (1, texts(20))
        for one in silent:
            one.close()
        with PlainClient(server.address) as another:
            assert another.get() == (1, texts(20)) or another.get()


def test_a_login_has_a_time_however_often_something_comes(store: GrowingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.canal.server.connection.LOGIN_S", 0.2)
    with ServerThread(store.storage) as server, PlainClient(server.address) as client:
        with socket.create_connection(address_of(server.address), timeout=30) as silent, suppress(ConnectionError):
            silent.sendall(b"\0")
            while silent.recv(4096):
                pass
        store.add(transactions(20), 20)
        assert client.get() == (1, texts(20))


def address_of(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
