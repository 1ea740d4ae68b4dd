"""What goes from the begin of an entry store, and what stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemill.changelog.storage.open import LocalStorage
from tidemill.errors import LogCorrupt, PositionGone
from tidemill.protocols.canal.codes import EntryType
from tidemill.sinks.canal.store import names
from tidemill.sinks.canal.store.names import SegmentName
from tidemill.sinks.canal.store.position import Position
from tidemill.sinks.canal.store.publish import StorePublisher
from tidemill.sinks.canal.store.reader import EntryStoreReader
from tidemill.sinks.canal.store.retention import acknowledged, removable, retain
from tidemill.sinks.canal.store.writer import SegmentWriter, index_of
from tidemill.tso import LOGICAL_BITS

HOUR = names.HOUR_MS << LOGICAL_BITS
STEP = HOUR // 4


def filled(storage: LocalStorage, steps: int) -> StorePublisher:
    """A store with an interval of two segments each quarter of an hour; in each of them an entry of 1,000 bytes."""
    publisher = StorePublisher(storage, "feed", 0)
    for step in range(steps):
        low, high = step * STEP, (step + 1) * STEP
        for begin, end in ((low, low + STEP // 2), (low + STEP // 2, high)):
            writer = SegmentWriter(storage, begin, end, 1)
            index = index_of(1)
            index["commit_ts"], index["size"], index["kind"], index["name"] = end, 1000, EntryType.ROWDATA, writer.number("s", "t")
            writer.add(index, bytes(1000))
            writer.seal()
            writer.publish()
        publisher.publish(low, high, publisher.attempt(low, high, 1))
    return publisher


def client(storage: LocalStorage, name: str, ts: int) -> None:
    storage.replace(f"clients/{name}.json", json.dumps({"commit_ts": ts, "index": 0}).encode())


def times(storage: LocalStorage) -> list[int]:
    reader = EntryStoreReader(storage)
    return [entry.position.commit_ts for entry in reader.read(Position(reader.begins(), 1 << 40), 10_000, 1 << 30)]


def test_the_slowest_client_decides(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, sync=False)
    publisher = filled(storage, 12)
    everything = times(storage)
    assert retain(storage, publisher, None, None) == 0, "no client is known"
    client(storage, "one/1001", 9 * STEP)
    client(storage, "two/1001", 6 * STEP + 5)
    assert acknowledged(storage) == 6 * STEP + 4
    reader = EntryStoreReader(storage)
    assert retain(storage, publisher, None, None) == 6 * STEP + 4
    assert times(storage) == [ts for ts in everything if ts > 6 * STEP + 4]
    assert sorted(path.name for path in (tmp_path / "entries").iterdir() if path.name[0] == "0") == ["00000001", "00000002", "00000003"]
    reader.refresh()
    with pytest.raises(PositionGone):
        reader.read(Position(5 * STEP, 0), 1, 1)
    assert reader.read(Position(6 * STEP + 5, 0), 1, 1)[0].position.commit_ts == 6 * STEP + STEP // 2
    client(storage, "two/1001", 12 * STEP)
    assert retain(storage, publisher, None, None) == 9 * STEP - 1
    assert times(storage) == [ts for ts in everything if ts > 9 * STEP - 1]
    assert StorePublisher(storage, "feed", 0).begins == 9 * STEP - 1


def test_age_and_size_whoever_needs_it(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, sync=False)
    publisher = filled(storage, 12)
    client(storage, "one/1001", 0)
    assert retain(storage, publisher, names.HOUR_MS, None) == 8 * STEP
    assert times(storage)[0] == 8 * STEP + STEP // 2
    left = len(times(storage))
    begins = retain(storage, publisher, None, 3500)
    assert begins > 8 * STEP
    assert len(times(storage)) < left
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.seg")) <= 3500 + 1200  # a segment of the interval that is begun


def test_limits_never_reach_past_the_head() -> None:
    segments = [(SegmentName(0, 9, 1, "a"), 100)]
    assert removable(5, 90, segments, None, 1) == 5
    assert removable(5, None, segments, 10**9, None) == 0


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"commit_ts":"5"}', b'{"commit_ts":-1}', b'{"commit_ts":true}'])
def test_a_broken_position_removes_nothing(tmp_path: Path, text: bytes) -> None:
    storage = LocalStorage(tmp_path, sync=False)
    publisher = filled(storage, 2)
    storage.replace("clients/one/1001.json", text)
    with pytest.raises(LogCorrupt, match="1001"):
        retain(storage, publisher, 1, 1)
    assert len(times(storage)) == 4
