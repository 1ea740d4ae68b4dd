"""A safe point is held while a query runs, and is gone afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.capture.captures import until
from tests.support.spark.tables import later, read_table, safe_points, table_reader
from tidemill.playground.server import PlaygroundThread
from tidemill.process import orders
from tidemill.spark.cluster.connection import Cluster
from tidemill.spark.table import keeper
from tidemill.spark.table.keeper import Keeping, Tasks


@pytest.fixture(scope="module")
def cluster() -> Iterator[PlaygroundThread]:
    with PlaygroundThread(5) as made:
        made.execute("CREATE DATABASE app; CREATE TABLE app.t (id INT PRIMARY KEY); INSERT INTO app.t VALUES (1), (2)")
        yield made


def test_a_safe_point_is_held_until_all_is_read(cluster: PlaygroundThread) -> None:
    cluster.execute("SPLIT TABLE app.t BETWEEN (0) AND (100) REGIONS 2")
    reader = table_reader(cluster.pd_address, "app.t")
    first, second = reader.partitions()
    (name,) = safe_points(cluster)
    assert "-table-" in name
    store = cluster.playground.cluster
    cluster.execute("DELETE FROM app.t WHERE id = 1")
    later(cluster)
    cluster.call(store.collect_garbage, 1000)
    found = [row for batch in reader.read(first) for row in batch.to_pylist()]
    assert found == [{"id": 1}, {"id": 2}], "the deleted row is there as of that ts"
    assert safe_points(cluster) == [name]
    assert list(reader.read(second)) == []
    asyncio.run(until(lambda: safe_points(cluster) == []))


def test_nothing_is_held_for_no_rows(cluster: PlaygroundThread) -> None:
    from pyspark.sql.datasource import EqualTo

    assert read_table(cluster.pd_address, "app.t", EqualTo(("id",), 1), EqualTo(("id",), 2)) == []
    assert safe_points(cluster) == []


async def _speak(port: int, *lines: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.writelines(lines[:1])
    answer = await reader.readline()
    writer.writelines(lines[1:])
    writer.close()
    await writer.wait_closed()
    return answer


def test_tasks_are_counted() -> None:
    async def main() -> None:
        tasks = Tasks(2, "secret")
        server = await asyncio.start_server(tasks.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def speak(*lines: bytes) -> bytes:
            answer = await _speak(port, *lines)
            if answer:
                await asyncio.wait_for(tasks.change.wait(), 60)
            return answer

        assert await speak(b"guess\n", b"0\n") == b""
        assert await speak(b"secret\n") == b"held\n"
        assert not tasks.is_over(), "the task has not read its part: it is run again"
        for number in (b"0\n", b"0\n"):
            assert await speak(b"secret\n", number) == b"held\n"
        assert not tasks.is_over()
        await speak(b"secret\n", b"1\n")
        while not tasks.is_over():
            tasks.change.clear()
            await asyncio.wait_for(tasks.change.wait(), 60)
        server.close()

    asyncio.run(main())


def test_strangers_do_not_use_up_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has been silent longest is closed; a task that has sent the token stays."""
    monkeypatch.setattr(keeper, "STRANGERS", 2)

    async def main() -> None:
        tasks = Tasks(2, "secret")
        server = await asyncio.start_server(tasks.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        task, held = await asyncio.open_connection("127.0.0.1", port)
        held.write(b"secret\n")
        assert await task.readline() == b"held\n"
        strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        async with asyncio.timeout(60):
            with suppress(ConnectionError):
                assert await strangers[0][0].read() == b""
        held.write(b"0\n")
        async with asyncio.timeout(60):
            assert await task.read() == b""
        assert tasks._done == {0}
        for _, writer in [*strangers, (task, held)]:
            writer.transport.abort()
        server.close()

    asyncio.run(main())


def test_it_is_over_when_no_task_comes() -> None:
    assert Tasks(2, "secret", idle_s=-1).is_over()
    assert not Tasks(2, "secret").is_over()


def test_what_the_keeper_is_told() -> None:
    keeping = Keeping(Cluster(("a:1",), (Path("/ca"), None, None)), "name", 5, 2, "secret", 7, "127.0.0.1")
    assert orders.from_plain(Keeping, json.loads(json.dumps(orders.to_plain(keeping)))) == keeping
