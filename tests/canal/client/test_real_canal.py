"""The client on Canal's own server: passwords, batches, rollbacks, refusals, and a server that is killed."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator

import pytest

from tests.support.canal.golden import lines
from tests.support.canal.real import PASSWORD, RealCanal
from tests.support.servers.java_sources import java_version
from tidemill.canal import AsyncClient, Backoff, CanalRefused, Client

pytestmark = pytest.mark.slow

BATCH = next(batch for batch in lines("flat_message") if batch["scenario"] == "dml_types")
ENTRIES = [base64.b64decode(entry) for entry in BATCH["entries"]]


@pytest.fixture
def server() -> Iterator[RealCanal]:
    if not java_version():
        pytest.skip("no JDK here")
    started = RealCanal(ENTRIES)
    yield started
    started.kill()


def client(port: int, **options: object) -> Client:
    return Client("127.0.0.1", port, "d", **({"user": "canal", "password": PASSWORD, "filter": ""} | options))  # type: ignore[arg-type]


def all_of(reader: Client, count: int) -> list[bytes]:
    """Entries up to this number, got in small batches and acknowledged."""
    found: list[bytes] = []
    for batch in reader.batches(1, 200):
        found += batch.raw
        if len(found) >= count:
            reader.ack(batch)
            return found
    raise AssertionError("the iterator ended")


def test_the_life_of_a_client(server: RealCanal) -> None:
    for wrong in ({"password": "other"}, {"password": None}, {"user": "other"}):
        with pytest.raises(CanalRefused, match="400 auth failed for user"):
            client(server.port, **wrong).connect()
    with client(server.port) as reader:
        first, second = reader.get_without_ack(1), reader.get_without_ack(2)
        assert reader.open_batches == (1, 2)
        assert (*first.raw, *second.raw) == tuple(ENTRIES[: len(first) + len(second)])
        reader.rollback()
        again = reader.get_without_ack(1)
        assert (again.id, again.raw) == (3, first.raw)
        reader.ack(again)
        assert all_of(reader, len(ENTRIES) - len(first)) == ENTRIES[len(first) :]
        assert reader.get_without_ack(5, 50).empty
        server.put(ENTRIES[:2])
        assert reader.get(1000, 300).raw == tuple(ENTRIES[:2])
        reader.unsubscribe()


def test_a_refused_acknowledgement(server: RealCanal) -> None:
    with client(server.port, rollback_on_connect=False) as reader:
        reader.ack(77)
        with pytest.raises(CanalRefused, match=r"to acknowledge batch 77, or a GET after it: 400 .*batchId:77 is not exist"):
            reader.get_without_ack()
        assert reader.get_without_ack(1000).raw == tuple(ENTRIES)


@pytest.mark.thorough("test_the_life_of_a_client has the server, test_clients.py the client")
def test_async(server: RealCanal) -> None:
    async def read() -> list[bytes]:
        options = {"user": "canal", "password": PASSWORD, "filter": ""}
        found: list[bytes] = []
        async with AsyncClient("127.0.0.1", server.port, "d", **options) as reader:  # type: ignore[arg-type]
            async for batch in reader.batches(1, 200):
                found += batch.raw
                if len(found) == len(ENTRIES):
                    break
        return found

    assert asyncio.run(read()) == ENTRIES


@pytest.mark.thorough("test_session.py has it with a model of this server, test_with_server.py with a real one of ours")
def test_a_server_that_is_killed(server: RealCanal) -> None:
    """The next one has the same entries, and counts batches from 1: what was open is not acknowledged by mistake."""
    with client(server.port, reconnect=Backoff(first=0.05, longest=0.5)) as reader:
        batches = reader.batches(1, 100)
        first = next(batches)
        server.kill()
        after = RealCanal(ENTRIES, server.port)
        try:
            second = next(batches)
            assert (first.id, second.id) == (1, 1)
            assert second.raw == first.raw
            reader.ack(second)
            assert [*second.raw, *all_of(reader, len(ENTRIES) - len(second))] == ENTRIES
        finally:
            after.kill()
