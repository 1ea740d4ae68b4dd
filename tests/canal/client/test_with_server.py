"""The client on Tidemill's own server: passwords, filters, rollbacks, what is refused, and both killed in the middle."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.canal.server_runs import ServerProcess, ServerThread, one_destination
from tests.support.canal.store import GrowingStore, Made, transaction
from tidemill.canal import AsyncClient, Backoff, CanalRefused, Client
from tidemill.canal.scramble import stored
from tidemill.changelog.storage.open import LocalStorage
from tidemill.process.ports import free_ports


def rows(*times: int) -> list[Made]:
    return [one for ts in times for one in transaction(ts, [Made(ts, b"row %d" % ts, name=("db", "t"), event=1, rows=1)])]


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    return GrowingStore(LocalStorage(tmp_path / "store", sync=False))


def place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def test_the_life_of_a_client(store: GrowingStore) -> None:
    settings = one_destination({"canal.user": "u", "canal.passwd": stored("p")})
    with ServerThread(store.storage, settings) as server:
        with pytest.raises(CanalRefused, match="auth failed"):
            Client(*place(server.address), "d", user="u", password="q").connect()
        with Client(*place(server.address), "d", user="u", password="p", filter="", lazy=True) as client:
            assert client.get_without_ack().empty
            store.add(rows(20, 30), 30)
            first = client.get_without_ack(1)
            assert first.raw == tuple(one.data for one in rows(20, 30))
            client.rollback(first)
            again = client.get_without_ack(1)
            assert (again.raw, again.id) == (first.raw, first.id + 1)
            client.ack(again)
            assert client.get().empty
            client.unsubscribe()
        with pytest.raises(CanalRefused, match="subscription"):
            Client(*place(server.address), "no", user="u", password="p", filter="", lazy=True).connect()


def test_async(store: GrowingStore) -> None:
    store.add(rows(*range(20, 60)), 60)

    async def read(port: str) -> int:
        async with AsyncClient(*place(port), "d", filter="", lazy=True, client_id=7) as client:
            async for batch in client.batches(1):
                return len(batch)
        return 0

    with ServerThread(store.storage) as server:
        assert asyncio.run(read(server.address)) > 2


@pytest.mark.slow
def test_servers_that_are_killed(store: GrowingStore, tmp_path: Path) -> None:
    """All comes, in order, and nothing that was acknowledged comes again."""
    times = range(20, 220)
    for low in range(20, 220, 20):
        store.add(rows(*range(low, low + 20)), low + 19)
    (port,) = free_ports(1)
    server = ServerProcess(tmp_path / "store", port)
    try:
        with Client("127.0.0.1", port, "d", filter="", lazy=True, reconnect=Backoff(first=0.05, longest=0.2)) as client:
            seen: list[bytes] = []
            for number, batch in enumerate(client.batches(1, 100)):
                seen += [raw for raw in batch.raw if raw.startswith(b"row ")]
                if seen and seen[-1] == b"row %d" % times[-1]:
                    break
                if number % 3 == 2:
                    server.kill()
                    server = ServerProcess(tmp_path / "store", port)
    finally:
        server.kill()
    assert list(dict.fromkeys(seen)) == [b"row %d" % ts for ts in times]
