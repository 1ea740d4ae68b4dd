"""Clients' places in a folder: files, an old journal and a new one say together where each client is, whenever the server dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
from pathlib import Path

import pytest

from tidemill.canal.conversation.cutting import Place, Selector
from tidemill.canal.conversation.fields import Fields
from tidemill.canal.conversation.filters import Kinds, TableFilter, name_filter
from tidemill.canal.conversation.subscriber import Key, Record, Subscriber
from tidemill.canal.server import journal as module
from tidemill.canal.server.journal import Journal, line_of, parse_journal
from tidemill.canal.server.saving import Saving, load, settle
from tidemill.canal.server.seat import Seat
from tidemill.changelog.storage.open import LocalStorage
from tidemill.errors import DiskLow, LogCorrupt, LogError
from tidemill.sinks.canal.store.position import Position
from tidemill.sinks.canal.store.retention import acknowledged

ALL = Selector(TableFilter(name_filter(""), name_filter("")), Kinds(), Fields())


def subscriber(number: int, ts: int = 10) -> Subscriber:
    place = Place(Position(ts, 0))
    return Subscriber(Key("d", number), place, place, "", ALL, subscribed=True)


def moved(client: Subscriber, ts: int) -> None:
    client.acked = client.read = Place(Position(ts, 0))


def seated(storage: LocalStorage) -> Seat:
    seat = Seat(storage)
    seat.take()
    return seat


def places(storage: LocalStorage) -> dict[int, int]:
    return {key.client: record.place.position.commit_ts for key, record in load(storage).items()}


def test_lines_are_read_as_they_were_written() -> None:
    record = Record(Place(Position(7, 3), inside=True), "x\né", subscribed=True)
    data = line_of(Key("d,é", -3), record) + line_of(Key("d", 1), None)
    want = [(Key("d,é", -3), record), (Key("d", 1), None)]
    assert list(parse_journal(data, "j")) == want
    for cut in range(len(data)):
        assert list(parse_journal(data[:cut], "j")) == want[: data[:cut].count(b"\n")]
    with pytest.raises(LogCorrupt, match="line 1"):
        list(parse_journal(b"{}\n" + data, "j"))


def test_whenever_it_dies_no_place_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step that changes the folder is the last one once."""

    class Killed(BaseException):
        pass

    async def run(storage: LocalStorage, safe: dict[int, int], steps: int) -> None:
        count = 0

        def step() -> None:
            nonlocal count
            count += 1
            if count > steps:
                raise Killed

        saving = Saving(storage, seated(storage), lambda error: None)
        replace, append, rotate, drop = storage.replace, Journal._append, Journal._rotate, Journal._drop_old

        def stepped(call):  # type: ignore[no-untyped-def]
            def done(*args, **options):  # type: ignore[no-untyped-def]
                step()
                return call(*args, **options)

            return done

        monkeypatch.setattr(storage, "replace", stepped(replace))
        for name, call in (("_append", append), ("_rotate", rotate), ("_drop_old", drop)):
            monkeypatch.setattr(Journal, name, stepped(call))
        clients = [subscriber(number) for number in range(3)]
        rng = random.Random(5)
        try:
            for turn in range(12):
                client = rng.choice(clients)
                moved(client, 100 + 10 * turn if turn != 8 else 15)
                await saving._put(client, saving._kept.setdefault(client.key, module_kept()), client.record)
                safe[client.key.client] = client.acked.position.commit_ts
                if turn in (5, 9):
                    await saving._settle()
                    if count > steps:
                        raise Killed
        finally:
            monkeypatch.undo()
            assert saving._journal is not None
            saving._journal.close()

    def module_kept():  # type: ignore[no-untyped-def]
        from tidemill.canal.server.saving import _Kept

        return _Kept()

    steps = 0
    while True:
        storage = LocalStorage(tmp_path / str(steps), sync=False)
        safe: dict[int, int] = {}
        try:
            asyncio.run(run(storage, safe, steps))
            died = False
        except Killed:
            died = True
        found = places(storage)
        assert {number: ts for number, ts in found.items() if safe.get(number) != ts} == {} or len(
            [number for number in found if safe.get(number) != found[number]]
        ) == 1  # what was being written
        assert set(safe) <= set(found)
        low = acknowledged(storage)
        assert low is None or low < min(found.values())
        settle(storage, load(storage))
        assert places(storage) == found
        assert not list((tmp_path / str(steps) / "clients").glob("journal*"))
        if not died:
            break
        steps += 1
    assert steps > 15


def test_what_cannot_be_written_whole_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    write = os.pwrite

    async def run() -> None:
        journal = Journal(str(path), contextlib.nullcontext)
        await journal.append(b"one\n")
        left = 3

        def short(handle: int, data: bytes, offset: int) -> int:
            nonlocal left
            if left <= 0:
                raise OSError(28, "No space left on device")
            left -= len(data[:3])
            return write(handle, data[:3], offset)

        monkeypatch.setattr(module.os, "pwrite", short)
        with pytest.raises((DiskLow, LogError)):
            await journal.append(b"second\n")
        monkeypatch.undo()
        await asyncio.gather(*(journal.append(b"%d\n" % i) for i in range(5)))
        journal.close()

    asyncio.run(run())
    assert path.read_bytes() == b"one\n0\n1\n2\n3\n4\n"


def test_a_full_journal_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FULL_BYTES", 2000)
    storage = LocalStorage(tmp_path, sync=False)

    async def run() -> None:
        saving = Saving(storage, seated(storage), lambda error: None)
        clients = [subscriber(number) for number in range(5)]
        for ts in range(20, 60):
            for client in clients:
                moved(client, ts)
                saving.save(client)
            for client in clients:
                await saving.safe(client.key)
        await saving._settle()
        assert sum(file.stat().st_size for file in (tmp_path / "clients").glob("journal*")) == 0
        await saving.forget(clients[0].key)
        assert places(storage) == dict.fromkeys(range(1, 5), 59)
        await saving.close()

    asyncio.run(run())
    assert places(storage) == dict.fromkeys(range(1, 5), 59)
    assert acknowledged(storage) == 58


def test_a_client_that_is_forgotten_while_its_file_is_written_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention reads the files alone: one that is left would hold the entries forever."""

    async def work() -> None:
        storage = LocalStorage(tmp_path)
        saving, client = Saving(storage, seated(storage), lambda error: None), subscriber(1)
        saving.save(client)
        await saving.safe(client.key)
        moved(client, 20)
        saving.save(client)
        await saving.safe(client.key)
        begun, may_go_on = asyncio.Event(), threading.Event()
        replace, delete, loop = saving._replace, saving._delete, asyncio.get_running_loop()

        def slow(name: str, data: bytes) -> None:
            loop.call_soon_threadsafe(begun.set)
            may_go_on.wait()
            replace(name, data)

        def at_once(name: str) -> None:
            delete(name)
            may_go_on.set()

        monkeypatch.setattr(saving, "_replace", slow)
        monkeypatch.setattr(saving, "_delete", at_once)
        writing = asyncio.create_task(saving._settle())
        await begun.wait()
        forgetting = asyncio.create_task(saving.forget(client.key))
        done, _ = await asyncio.wait({forgetting}, timeout=0.2)
        may_go_on.set()
        await asyncio.gather(writing, forgetting)
        assert not done, "it waits for the file"
        assert [name for name in storage.names("clients/d") if name.endswith(".json")] == []
        await saving.close()

    asyncio.run(work())
