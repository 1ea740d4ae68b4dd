"""The memory of all connections together has a limit: who does not fit waits its turn, and clients that do not read hold nobody up."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.canal.client import PlainClient
from tests.support.canal.server_runs import ServerThread, one_destination
from tests.support.canal.store import GrowingStore, texts, transactions
from tidemill.canal.server import memory
from tidemill.canal.server.config import settings_of
from tidemill.canal.server.memory import LIMIT_BYTES, SMALL_BYTES, Memory, Share
from tidemill.changelog.storage.open import LocalStorage
from tidemill.errors import ConfigError
from tidemill.protocols.canal.packets import Get

MIB = 1 << 20
IDLE, ACTIVE = 300, 40


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    return GrowingStore(LocalStorage(tmp_path / "store", sync=False))


def test_connections_wait_their_turn_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PATIENCE_S", 60.0)

    async def run() -> None:
        whole, served = Memory(4 * MIB), []
        first = Share(whole)
        assert await first.take(3 * MIB) == 3 * MIB

        async def one(number: int, size: int) -> Share:
            share = Share(whole)
            assert await share.take(size) == size
            served.append(number)
            return share

        tasks = [asyncio.create_task(one(number, size)) for number, size in enumerate((2 * MIB, MIB, 4 * MIB))]
        await asyncio.sleep(0)
        assert (served, whole.waiting, whole.used) == ([], 3, 3 * MIB)
        first.keep(MIB)
        shares = list(await asyncio.gather(*tasks[:2]))
        assert (served, whole.used) == ([0, 1], 4 * MIB)
        for share in (first, *shares):
            share.keep(0)
        (await tasks[2]).keep(0)
        assert (served, whole.used, whole.waiting) == ([0, 1, 2], 0, 0)

    asyncio.run(run())


def test_one_that_goes_while_it_waits_leaves_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PATIENCE_S", 60.0)

    async def run() -> None:
        whole = Memory(MIB)
        first, next_ = Share(whole), Share(whole)
        await first.take(MIB)
        gone = asyncio.create_task(Share(whole).take(MIB))
        stays = asyncio.create_task(next_.take(MIB))
        await asyncio.sleep(0)
        first.keep(0)
        gone.cancel()
        assert await stays == MIB
        assert (whole.used, whole.waiting) == (MIB, 0)

    asyncio.run(run())


def test_small_batches_are_always_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody gives anything back: the memory is with clients that do not read."""
    monkeypatch.setattr(memory, "PATIENCE_S", 0.01)

    async def run() -> None:
        whole = Memory(MIB)
        await Share(whole).take(5 * MIB)
        assert whole.used == MIB
        assert await asyncio.gather(*(Share(whole).take(MIB) for _ in range(10))) == [SMALL_BYTES] * 10
        assert (whole.used, whole.waiting) == (MIB + 10 * SMALL_BYTES, 0)

    asyncio.run(run())


def test_clients_that_do_not_read_hold_nobody_up(store: GrowingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PATIENCE_S", 0.02)
    size = 300_000
    times = range(20, 80)
    store.add(transactions(*times, size=size), 80)
    settings = settings_of({"memory-limit": str(2 * MIB)}, {"d": {}}, "test")
    with ServerThread(store.storage, settings) as server, ExitStack() as stack:
        for number in (1, 2, 3):
            greedy = stack.enter_context(PlainClient(server.address, client=number))
            for _ in range(30):
                greedy.send(Get("d", greedy.client, 8000, -1, 2))
        server.until(lambda status: status["memory_bytes"] >= 2 * MIB)
        got = 0
        with PlainClient(server.address) as reader:
            for number in range(1, len(times) * 3):
                found = reader.get(8000)
                if found[0] == -1:
                    break
                assert found[0] == number
                got += len(found[1])
                reader.ack(number)
        assert got == 3 * len(times)
        assert server.status()["memory_bytes"] < 2 * MIB + 4 * (size + SMALL_BYTES)
    assert server.error is None


def test_what_was_sent_takes_no_memory(store: GrowingStore) -> None:
    store.add(transactions(20, 30), 30)
    with ServerThread(store.storage) as server, PlainClient(server.address) as client:
        assert client.get() == (1, texts(20, 30))
        client.ack(1)
        assert client.get() == (-1, [])
        assert (server.status()["memory_bytes"], server.status()["waiting_for_memory"]) == (0, 0)


@pytest.mark.parametrize("text", ["1", "-1", "256MiB", "9" * 19])
def test_limits_that_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="memory-limit"):
        settings_of({"memory-limit": text}, {}, "test")
    assert settings_of({}, {}, "test").memory_limit == LIMIT_BYTES


@contextmanager
def many_files() -> Iterator[None]:
    """Room for the sockets of a thousand clients and their server in one process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, 8192)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"{hard} open files at most")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_hundreds_of_idle_clients_beside_active_ones(store: GrowingStore) -> None:
    store.add([], 15)
    with many_files(), ServerThread(store.storage, one_destination({"get.wait": "any"})) as server, ExitStack() as stack:
        idle = [stack.enter_context(PlainClient(server.address, client=number, filter_="other")) for number in range(1, IDLE + 1)]
        for client in idle:
            client.send(Get("d", client.client, 1000, 0))
        active = [stack.enter_context(PlainClient(server.address, client=number)) for number in range(2001, 2001 + ACTIVE)]
        for client in active:
            client.send(Get("d", client.client, 1000, 0))
        store.add(transactions(20, 30), 30)
        for client in active:
            assert [bytes(one) for one in client.receive().entries] == texts(20, 30)  # type: ignore[union-attr]
        assert server.status()["connections"] == IDLE + ACTIVE
