"""What Drainers get: the kernel beside the plain reading of the same folder."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.support.binlog.binlogs import cases, commit, prewrite, rollback, settled
from tidemill.binlog.messages import Binlog, BinlogType, fake
from tidemill.binlog.pump import pulling
from tidemill.binlog.pump.faults import PumpCorrupt
from tidemill.binlog.pump.pulling import Puller
from tidemill.binlog.pump.store import VALUE_FOLDER, Store


def everything(store: Store, folder: Path, *, plain: bool) -> list[bytes]:
    """All answers."""
    puller, found, last = Puller(store.index, folder / VALUE_FOLDER, plain=plain), [], 0
    try:
        while last < store.order.max_commit_ts:
            batch = puller.after(last, store.order.max_commit_ts)
            assert batch.count == len(batch.answers)
            found += batch.answers
            last = batch.upto
    finally:
        puller.close()
    return found


def history(rng: random.Random) -> list[bytes]:
    """Binlogs of transactions that overlap, some of them with bytes that TiDB does not write but that mean the same."""
    found, ts, opened = [], 1, list[int]()
    for _ in range(rng.randrange(1, 300)):
        ts += rng.randrange(1, 300)
        kind = rng.random()
        if kind < 0.5 or not opened:
            value = rng.randbytes(rng.choice((0, 20, 200, 3000, 300_000) if kind < 0.02 else (0, 20, 200)))
            query = b"create table t" if rng.random() < 0.1 else b""
            state = rng.choice((0, 5)) if query else 0
            found.append(Binlog(BinlogType.PREWRITE, ts, 0, b"key", value, query, rng.choice((0, 300)) if query else 0, state).encode())
            opened.append(ts)
        elif kind < 0.55:
            found.append(fake(ts).encode())
        elif kind < 0.6:
            found.append(rollback(opened.pop(rng.randrange(len(opened)))))
        else:
            one = commit(opened.pop(rng.randrange(len(opened))), ts, rng.choice((b"", b"key", b"k" * 200)))
            found.append(one if rng.random() < 0.9 else one + b"\x18" + _again(ts))
    found += [commit(start, ts := ts + 1) for start in opened]
    return found


def _again(commit_ts: int) -> bytes:
    """The commit_ts once more: of a field that comes twice the last one counts."""
    out = bytearray()
    while commit_ts > 127:
        out.append(commit_ts & 127 | 128)
        commit_ts >>= 7
    return bytes([*out, commit_ts])


@pytest.mark.parametrize("seed", range(3))
def test_the_kernel_gives_what_the_plain_puller_gives(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(pulling, "WINDOW", 20_000)
    monkeypatch.setattr(pulling, "BACK", 5_000)
    monkeypatch.setattr(pulling, "KEPT_BYTES", rng.choice((4_000, 1 << 20)))
    monkeypatch.setattr(pulling, "BATCH_BYTES", rng.choice((300, 10_000)))
    monkeypatch.setattr(pulling, "BATCH_KEYS", rng.choice((3, 50, 5000)))

    async def run() -> None:
        store = Store(tmp_path, sync=False, file_bytes=30_000)
        store.start()
        for payload in history(rng):
            await store.write(payload)
        await settled(store)
        found = everything(store, tmp_path, plain=False)
        assert found == everything(store, tmp_path, plain=True)
        assert found
        await store.close()

    asyncio.run(run())


def test_recorded_binlogs_are_read_by_the_kernel_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_reference = 0
    answer = Puller.answer

    def counted(self: Puller, at: object) -> bytes:
        nonlocal by_reference
        by_reference += 1
        return answer(self, at)  # type: ignore[arg-type]

    monkeypatch.setattr(Puller, "answer", counted)

    async def run() -> None:
        store = Store(tmp_path, sync=False)
        store.start()
        await asyncio.gather(*(store.write(payload) for case in cases() for payload in case.writes))
        await settled(store)
        assert len(everything(store, tmp_path, plain=False)) > 100
        await store.close()

    asyncio.run(run())
    assert by_reference == 0


@pytest.mark.parametrize("place", [0, 5, 12, 20])
def test_a_broken_record_is_told_by_both(place: int, tmp_path: Path) -> None:
    async def run() -> None:
        store = Store(tmp_path, sync=False)
        store.start()
        for payload in (prewrite(1), commit(1, 2), prewrite(3), commit(3, 4)):
            await store.write(payload)
        await settled(store)
        at = store.index.get(3)
        assert at is not None
        with (tmp_path / VALUE_FOLDER / "000000.vlog").open("r+b") as file:
            file.seek(at.offset + place)
            file.write(b"\xa5")
        for plain in (False, True):
            with pytest.raises(PumpCorrupt, match=r"000000\.vlog"):
                everything(store, tmp_path, plain=plain)
        await store.close()

    asyncio.run(run())


def test_the_table_of_kept_prewrites_is_begun_again_when_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "KEPT_BYTES", 1 << 11)

    async def run() -> None:
        store = Store(tmp_path, sync=False)
        store.start()
        for first in range(0, 400, 40):
            await asyncio.gather(*(store.write(prewrite(100 * first + n + 1)) for n in range(40)))
            await asyncio.gather(*(store.write(commit(100 * first + n + 1, 100 * first + n + 50)) for n in range(40)))
        await settled(store)
        found = everything(store, tmp_path, plain=False)
        assert len(found) == 400
        assert found == everything(store, tmp_path, plain=True)
        await store.close()

    asyncio.run(run())
