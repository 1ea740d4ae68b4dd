"""Pump's store: what it keeps, in which order it gives it, and what a kill or a full disk at any file operation leaves."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import os
import shutil
import struct
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import plyvel
import pytest

from tests.support.binlog.binlogs import GOLDEN, cases, commit, prewrite, pulled, rollback, settled, until
from tests.support.binlog.watched import Watched
from tidemill.binlog.messages import BinlogType, read_head
from tidemill.binlog.pump import log as log_module
from tidemill.binlog.pump.faults import PumpCorrupt, PumpFailed
from tidemill.binlog.pump.index import Index
from tidemill.binlog.pump.store import Store
from tidemill.errors import MalformedMessage


def _opened(folder: Path, **options: Any) -> Store:
    store = Store(folder, sync=False, **options)
    store.start()
    return store


def test_recorded_binlogs_come_as_from_the_real_pump_also_without_the_index(tmp_path: Path) -> None:
    wanted = {ts: answer for case in cases() for ts, answer in case.pulls.items()}

    async def run() -> None:
        store = _opened(tmp_path)
        await asyncio.gather(*(store.write(payload) for case in cases() for payload in case.writes))
        assert store.counts.syncs < store.counts.binlogs / 4  # many share a sync
        await settled(store)
        assert {ts: answer for ts, answer in pulled(store, tmp_path).items() if ts in wanted} == wanted
        middle = sorted(wanted)[len(wanted) // 2]
        assert list(pulled(store, tmp_path, middle)) == [ts for ts in sorted(wanted) if ts > middle]
        await store.close()
        shutil.rmtree(tmp_path / "kv")
        store = _opened(tmp_path)
        await settled(store)
        assert list(pulled(store, tmp_path)) == sorted(wanted)
        await store.close()

    asyncio.run(run())


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _parsed(folder: Path) -> dict[tuple[int, int], bytes]:
    """The records of a value log, by file and offset, as the real program's format has them: written down here, not taken from ours."""
    found: dict[tuple[int, int], bytes] = {}
    files = sorted((folder / "value").iterdir())
    for path in files:
        data, at, finished = path.read_bytes(), 0, False
        while at < len(data):
            if struct.unpack_from("<I", data, at + 8)[0] == 0x123AB922 and at + 12 == len(data):
                finished, at = True, at + 12
                continue
            magic, size, crc = struct.unpack_from("<IQI", data, at)
            payload = data[at + 16 : at + 16 + size]
            assert (magic, len(payload), crc) == (0x823A56E8, size, _crc32c(payload))
            found[int(path.stem), at] = payload
            at += 16 + size
        assert path.name == f"{int(path.stem):06d}.vlog"
        assert finished or path is files[-1]
    return found


@pytest.mark.parametrize("has_index", [True, False])
def test_the_folder_of_a_real_pump_is_opened_read_and_gone_on_in(tmp_path: Path, has_index: bool) -> None:
    """With the index that it wrote, as far as the records were recorded, and without."""
    sample = json.loads(gzip.decompress((GOLDEN / "pump_disk_sample.json.gz").read_bytes()))
    records = sample["records"]
    (tmp_path / "value").mkdir()
    (tmp_path / "value" / "000000.vlog").write_bytes(b"".join(bytes.fromhex(one["record_hex"]) for one in records))
    greatest = max(one["commit_ts"] for one in records)
    if has_index:
        with closing(plyvel.DB(str(tmp_path / "kv"), create_if_missing=True)) as index:
            for one in records:
                index.put(bytes.fromhex(one["index_key_hex"]), bytes.fromhex(one["index_value_hex"]))
            assert set(sample["leveldb_other_keys"]) == {"!binlog!handlePointer", "!binlog!headPointer", "!binlog!maxCommitTS"}
            for name, value in sample["leveldb_other_keys"].items():  # theirs are of a place behind the sample's end
                last = bytes.fromhex(records[-1]["index_value_hex"]) if "Pointer" in name else greatest.to_bytes(8, "little")
                assert len(last) == len(bytes.fromhex(value))
                index.put(name.encode(), last)
    commits = {one["commit_ts"] for one in records if one["type"] == "Commit"}
    fakes = {one["commit_ts"] for one in records if one["type"] == "Rollback" and one["commit_ts"] == one["start_ts"]}
    start_ts, commit_ts = greatest + 1, greatest + 2

    async def run() -> None:
        store = _opened(tmp_path)
        await until(lambda: not store.behind)
        for open_ts in list(store.order.open):
            store.forget(open_ts)
        assert store.order.max_commit_ts == greatest
        for one in records:
            at = store.index.get(one["start_ts"] if one["type"] == "Prewrite" else one["commit_ts"])
            assert at is not None
            assert at.encode().hex() == one["index_value_hex"]
        before = pulled(store, tmp_path)
        assert commits | fakes == set(before)
        await store.write(prewrite(start_ts))
        await store.write(commit(start_ts, commit_ts))
        await settled(store)
        assert list(pulled(store, tmp_path)) == [*before, commit_ts]
        await store.close()

    asyncio.run(run())
    found = _parsed(tmp_path)
    assert list(found.values()) == [
        *(bytes.fromhex(one["record_hex"])[16:] for one in records),
        prewrite(start_ts),
        commit(start_ts, commit_ts),
    ]
    with closing(plyvel.DB(str(tmp_path / "kv"))) as index:
        last = {key: value for key, value in index if key.startswith(b"!binlog!")}
        assert set(last) == {b"!binlog!handlePointer", b"!binlog!headPointer", b"!binlog!maxCommitTS"}
        assert int.from_bytes(last[b"!binlog!maxCommitTS"], "little") == commit_ts
        for (file, offset), payload in found.items():
            head = read_head(payload)
            ts = head.start_ts if head.tp is BinlogType.PREWRITE else head.commit_ts
            assert index.get(b"ts:" + ts.to_bytes(8, "big")) == struct.pack("<Iq", file, offset)
        assert last[b"!binlog!handlePointer"] == last[b"!binlog!headPointer"] == struct.pack("<Iq", *list(found)[-1])


def test_a_prewrite_without_commit_holds_back_what_follows(tmp_path: Path) -> None:
    async def run() -> None:
        store = _opened(tmp_path)
        for payload in (prewrite(1), prewrite(2), commit(2, 4)):
            await store.write(payload)
        await until(lambda: len(store.order) == 3)
        assert pulled(store, tmp_path) == {}
        await store.write(commit(1, 3))
        await settled(store)
        assert list(pulled(store, tmp_path)) == [3, 4]
        await store.write(prewrite(5))
        await store.write(rollback(5))
        await settled(store)
        assert list(pulled(store, tmp_path)) == [3, 4]
        await store.close()

    asyncio.run(run())


def test_an_index_that_is_too_slow_goes_on_from_the_value_log(tmp_path: Path) -> None:
    async def run() -> None:
        store = _opened(tmp_path, chan_cap=8)
        await settled(store)
        pairs = [(2 * n + 1, 2 * n + 2) for n in range(100)]
        await asyncio.gather(*(store.write(one) for start, end in pairs for one in (prewrite(start), commit(start, end))))
        await settled(store)
        assert store.counts.caught_up > 100
        assert list(pulled(store, tmp_path)) == [end for _, end in pairs]
        await store.close()

    asyncio.run(run())


def test_files_are_finished_when_they_are_full_and_begun_again_after_a_torn_end(tmp_path: Path) -> None:
    async def run() -> None:
        store = _opened(tmp_path, file_bytes=200)
        for n in range(10):
            await store.write(prewrite(2 * n + 1))
            await store.write(commit(2 * n + 1, 2 * n + 2))
        assert len(store.log.files()) > 2
        assert store.log.greatest_ts(0) >= 2
        await settled(store)
        await store.close()
        last = store.log.files()[-1]
        with (tmp_path / "value" / f"{last:06d}.vlog").open("ab") as file:
            file.write(bytes.fromhex("e8563a82ff00000000000000") + b"torn")
        store = _opened(tmp_path, file_bytes=200)
        assert store.log.files()[-1] == last + 1
        assert any("skipped" in text for text in store.log.skipped)
        await settled(store)
        assert list(pulled(store, tmp_path)) == [2 * n + 2 for n in range(10)]
        await store.close()

    asyncio.run(run())


def test_a_broken_record_is_told_and_not_left_out(tmp_path: Path) -> None:
    async def run() -> None:
        store = _opened(tmp_path)
        for payload in (prewrite(1), commit(1, 2), prewrite(3), commit(3, 4)):
            await store.write(payload)
        await settled(store)
        at = store.index.get(2)
        assert at is not None
        with (tmp_path / "value" / "000000.vlog").open("r+b") as file:
            file.seek(at.offset + 20)
            file.write(b"\xff")
        with pytest.raises(PumpCorrupt, match=r"000000\.vlog"):
            pulled(store, tmp_path)
        await store.close()

    asyncio.run(run())


def test_what_is_no_binlog_is_not_kept(tmp_path: Path) -> None:
    async def run() -> None:
        store = _opened(tmp_path)
        with pytest.raises(MalformedMessage):
            await store.write(b"\xff\xff")
        assert store.log.size() == 0
        await store.close()

    asyncio.run(run())


def test_after_a_kill_at_any_file_operation_all_that_was_answered_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is copied ahead of each operation, with half of a write done: so a kill would have left it."""
    folder, copies, answered = tmp_path / "live", tmp_path / "copies", list[bytes]()
    left: list[tuple[Path, list[bytes]]] = []
    turn = threading.Lock()

    def keep(name: str, args: tuple[Any, ...] = ()) -> None:
        if not folder.exists():
            return
        with turn:
            copy, promised = copies / str(len(left)), list(answered)
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("LOCK"))
            if name == "write":
                last = max((copy / "value").glob("*.vlog"))
                with last.open("ab") as file:
                    file.write(bytes(args[1][: len(args[1]) // 2]))
            left.append((copy, promised))

    put, progress = Index.put, Index.progress
    monkeypatch.setattr(log_module, "os", Watched(keep))
    monkeypatch.setattr(Index, "put", lambda self, entries: (keep("put"), put(self, entries))[1])
    monkeypatch.setattr(Index, "progress", lambda self, ts, at: (keep("progress"), progress(self, ts, at))[1])

    async def write(store: Store, payload: bytes) -> None:
        await store.write(payload)
        answered.append(payload)

    async def live() -> None:
        store = Store(folder, file_bytes=150)
        store.start()
        for n in range(0, 30, 6):
            await asyncio.gather(*(write(store, prewrite(start)) for start in (n + 1, n + 2)))
            await asyncio.gather(write(store, commit(n + 2, n + 3)), write(store, prewrite(n + 4)))
            await asyncio.gather(write(store, commit(n + 1, n + 5)), write(store, rollback(n + 4)))
        await settled(store)
        await store.close()

    async def check(copy: Path, wanted: list[bytes]) -> None:
        store = _opened(copy)
        await until(lambda: not store.behind)
        for start_ts in list(store.order.open):
            store.forget(start_ts)
        found = set(pulled(store, copy))
        commits = {read_head(one).commit_ts for one in wanted if read_head(one).tp is BinlogType.COMMIT}
        assert commits <= found <= set(range(31))
        await store.write(prewrite(1000))
        await store.write(commit(1000, 1001))
        await settled(store)
        assert set(pulled(store, copy)) == found | {1001}
        await store.close()

    asyncio.run(live())
    monkeypatch.undo()
    assert len(left) > 40
    for copy, wanted in left:
        asyncio.run(check(copy, wanted))


def test_a_full_disk_refuses_and_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = False

    def before(name: str, args: tuple[Any, ...]) -> None:
        if full and name == "write":
            os.write(args[0], bytes(args[1][:5]))
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(log_module, "os", Watched(before))

    async def run() -> None:
        nonlocal full
        store = _opened(tmp_path)
        await store.write(prewrite(1))
        full = True
        with pytest.raises(OSError, match="No space"):
            await store.write(commit(1, 2))
        full = False
        await store.write(commit(1, 3))
        await settled(store)
        assert list(pulled(store, tmp_path)) == [3]
        assert store.counts.failures == 1
        await store.close()
        store = _opened(tmp_path)
        await settled(store)
        assert store.log.skipped == []
        await store.close()

    asyncio.run(run())


def test_a_failed_sync_ends_the_store_and_is_never_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def before(name: str, args: tuple[Any, ...]) -> None:
        if name == "fdatasync":
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(log_module, "os", Watched(before))

    async def run() -> None:
        store = Store(tmp_path)
        store.start()
        with pytest.raises(PumpFailed, match="could not be synced"):
            await store.write(prewrite(1))
        with pytest.raises(PumpFailed):
            await store.failure
        with pytest.raises(PumpFailed, match="writes no more"):
            await store.write(prewrite(2))
        await store.close()

    asyncio.run(run())
