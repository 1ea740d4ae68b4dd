"""Files with bytes changed anywhere: readers raise LogCorrupt with the file's name, and no process dies."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.changelog.logs import CHANGE, PAIR, START, build_log, put, write_arrow
from tidemill.changelog.files.segment import read_batch
from tidemill.changelog.reader import LogReader
from tidemill.delivery.task.reader import Sources
from tidemill.errors import LogCorrupt, LogError, TidemillError
from tidemill.events import META_PAIR


def sound_log(folder: Path) -> tuple[Path, Path]:
    """A log, and its one segment of rows."""
    rows = [put(7, i, START + i, b"v" * i, b"old" if i % 2 else None) for i in range(1, 60)]
    log = build_log(folder, rows, snapshot={b"mDB:1": b"{}"}, schema_changes=[put(0, 1, START + 3)])
    [segment] = (log / "rows/0").glob("0*.arrow")
    return log, segment


def read_rows(segment: Path) -> None:
    """What a task does before kernels follow the addresses."""
    sources = Sources([[str(segment)]], START, START + 100)
    while sources.words[0][2]:  # S_MORE
        sources.begin_chunk()
        sources.advance(0)


def broken_offsets(segment: Path) -> bytes:
    """The file with an offset of its keys that points far outside."""
    data = bytearray(segment.read_bytes())
    with pa.OSFile(str(segment)) as file:
        batch = pa.ipc.open_file(file).get_batch(0)
    offsets = batch.column("key").buffers()[1].to_pybytes()
    at = data.index(offsets[:240])
    data[at + 4 * 30 : at + 4 * 31] = np.int32(2_000_000_000).tobytes()
    return bytes(data)


def test_offsets_that_point_outside_are_not_followed(tmp_path: Path) -> None:
    _, segment = sound_log(tmp_path / "log")
    read_rows(segment)
    segment.write_bytes(broken_offsets(segment))
    with pytest.raises(LogCorrupt, match=rf"{segment}: record batch 0: the lengths of key are broken"):
        read_rows(segment)


def test_bytes_changed_anywhere(tmp_path: Path) -> None:
    log, segment = sound_log(tmp_path / "log")
    whole = {path: path.read_bytes() for path in (segment, log / f"schema/snapshot-{START:020d}.arrow")}
    for seed in range(200):
        rng = random.Random(seed)
        for path, sound in whole.items():
            data = bytearray(sound)
            for _ in range(rng.choice((1, 1, 8))):
                data[rng.randrange(len(data))] = rng.choice((0, 255, 128, rng.randrange(256)))
            path.unlink()  # a reader before may have mapped it still
            path.write_bytes(data)
        for look in (lambda: read_rows(segment), lambda: LogReader(log).read_snapshot(START)):
            with contextlib.suppress(LogCorrupt):
                look()


@pytest.mark.parametrize("column", ["table_id", "start_ts", "commit_ts", "key"])
def test_what_must_not_be_null(tmp_path: Path, column: str) -> None:
    _, segment = sound_log(tmp_path / "log")
    row = put(7, 1, START + 1)._replace(**{column: None})
    write_arrow(segment, CHANGE, [row])
    with pytest.raises(LogCorrupt, match=f"1 rows have no {column}"):
        read_rows(segment)


@pytest.mark.parametrize("schema", [PAIR, pa.schema([CHANGE.field(i) for i in (1, 0, 2, 3, 4, 5, 6)])])
def test_other_columns(tmp_path: Path, schema: pa.Schema) -> None:
    _, segment = sound_log(tmp_path / "log")
    write_arrow(segment, schema, [])
    with pytest.raises(LogCorrupt, match="other columns"):
        read_rows(segment)


def test_a_file_without_rows_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "empty.arrow"
    batch = pa.record_batch([pa.array([], f.type) for f in PAIR], schema=PAIR)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, PAIR) as writer:
        writer.write_batch(batch)
    with pa.OSFile(str(path)) as file:
        assert read_batch(pa.ipc.open_file(file), 0, str(path), META_PAIR).num_rows == 0
    assert issubclass(LogCorrupt, TidemillError)


def test_rows_outside_of_the_interval_that_the_name_says(tmp_path: Path) -> None:
    _, segment = sound_log(tmp_path / "log")
    other = segment.with_name(f"{START:020d}-{START + 58:020d}.arrow")
    segment.rename(other)
    with pytest.raises(LogCorrupt, match=f"{other}: its rows reach from {START + 1} to {START + 59}"):
        read_rows(other)


def test_a_number_of_partitions_that_nobody_has(tmp_path: Path) -> None:
    """A reader would open each of them."""
    log, _ = sound_log(tmp_path / "log")
    text = (log / "log.json").read_text()
    (log / "log.json").write_text(text.replace('"partitions": 1', '"partitions": 100000000000'))
    with pytest.raises(LogError, match=r"log\.json: partitions is 100000000000, not a whole number from 1 to 65536"):
        LogReader(log)


def test_json_that_is_too_deep(tmp_path: Path) -> None:
    log, _ = sound_log(tmp_path / "log")
    (log / "rows/0/head.json").write_text("[" * 200_000)
    with pytest.raises(LogCorrupt, match=r"head\.json is nested too deep"):
        LogReader(log).resolved_ts()
