"""Files with checksums: readers and `verify` find any changed byte; nothing is copied; other Arrow readers accept the files.

A second parser of a file's end, made from the description alone, with a CRC32C of a few lines, checks the first.
"""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest

from tests.support.changelog.logs import CHANGE, START, Change, batch_of, build_log, changes_of, put, read_changes, write_arrow
from tests.support.schema.described_tables import META
from tidemill.changelog import initial_load
from tidemill.changelog.compaction import Compactor
from tidemill.changelog.files import sums
from tidemill.changelog.files.arrowfile import ArrowFile, write
from tidemill.changelog.files.segment import ipc_options, read_batch
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader, open_segment
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.delivery.task.reader import Sources
from tidemill.errors import LogCorrupt
from tidemill.events import META_PAIR, RAW_CHANGE

NOTHING_GROWS = LogOptions(low_water_bytes=0, grace_s=0.0)


def crc32c(data: bytes) -> int:
    """Castagnoli's, bit by bit."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def rows(first: int, count: int, size: int = 40) -> list[Change]:
    return [put(7, i, START + first + i, bytes([65 + i % 26]) * size, b"old" if i % 3 else None) for i in range(count)]


def made(path: Path, batches: Sequence[list[Change]], compression: str = "none") -> Path:
    with pa.OSFile(str(path), "wb") as below:
        write(below, [batch_of(b) for b in batches], RAW_CHANGE, ipc_options(compression))
    return path


def read(path: Path) -> list[Change]:
    file = open_segment(str(path))
    return [c for i in range(file.num_record_batches) for c in changes_of(read_batch(file, i, str(path)))]


# ---- the format


@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_lies_at_the_end_of_a_file(tmp_path: Path, count: int) -> None:
    batches = [rows(10 * k, 4) for k in range(count)]
    data = made(tmp_path / "a.arrow", batches).read_bytes()
    length, magic = struct.unpack("<i6s", data[-10:])
    assert magic == b"ARROW1"
    footer = len(data) - 10 - length
    n, checksum, mark = struct.unpack("<II8s", data[footer - 16 : footer])
    assert (n, mark) == (count, b"TMSUMS2\n")
    begin = 0
    for k in range(n):
        end, one, held, first, last = struct.unpack_from("<QIIQQ", data, footer - 16 - 32 * (n - k))
        assert one == crc32c(data[begin:end])
        assert (held, first, last) == (4, batches[k][0].commit_ts, batches[k][-1].commit_ts)
        begin = end
    rest = bytearray(data[begin:])
    rest[footer - begin - 12 : footer - begin - 8] = bytes(4)
    assert checksum == crc32c(bytes(rest))


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_any_arrow_reader_takes_the_file(tmp_path: Path, compression: str) -> None:
    batches = [rows(0, 50), rows(50, 50)]
    path = made(tmp_path / "a.arrow", batches, compression)
    wanted = batches[0] + batches[1]
    with pa.OSFile(str(path)) as source:
        assert changes_of(pa.ipc.open_file(source).read_all()) == wanted
    with pa.OSFile(str(path)) as source:  # one that reads from the front
        source.seek(8)
        assert changes_of(pa.ipc.open_stream(source).read_all()) == wanted
    assert read(path) == wanted
    file = open_segment(str(path))
    assert (file.count_rows(), file.num_record_batches, file.has_sums) == (100, 2, True)
    assert [file.last_ts(i) for i in range(2)] == [START + 49, START + 99]
    assert file.read_all().schema == RAW_CHANGE


def test_a_mapped_file_is_not_copied(tmp_path: Path) -> None:
    source = pa.memory_map(str(made(tmp_path / "a.arrow", [rows(0, 500), rows(500, 500)])))
    whole = source.read_buffer()
    file = ArrowFile(source, "a")
    for i in range(2):
        for buffer in (b for column in file.get_batch(i).columns for b in column.buffers() if b is not None):
            assert whole.address <= buffer.address < whole.address + whole.size


def test_more_batches_than_one_look_at_the_end_shows(tmp_path: Path) -> None:
    count = sums.LOOK // sums.ENTRY.itemsize + 100
    path = made(tmp_path / "a.arrow", [rows(k, 1, 1) for k in range(count)])
    file = open_segment(str(path))
    assert (file.num_record_batches, file.count_rows()) == (count, count)
    assert changes_of(file.get_batch(count - 1)) == [put(7, 0, START + count - 1, b"A")]


class _Counted:
    """A file as ArrowFile reads it, with the bytes that were asked for."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at, self.bytes = data, 0, 0

    def size(self) -> int:
        return len(self._data)

    def seek(self, at: int) -> None:
        self._at = at

    def read_buffer(self, size: int) -> pa.Buffer:
        self.bytes += size
        return pa.py_buffer(self._data[self._at : self._at + size])


def test_rows_and_times_are_known_from_the_end_of_a_file_alone(tmp_path: Path) -> None:
    """On an object store a reader asks for no more than that, and later for the batches that it needs."""
    path = made(tmp_path / "a.arrow", [rows(1000 * k, 1000, 500) for k in range(8)])
    source = _Counted(path.read_bytes())
    file = ArrowFile(source, "a")
    assert (file.count_rows(), file.last_ts(7)) == (8000, START + 7999)
    assert source.bytes == sums.LOOK < source.size() // 40
    source.bytes = 0
    assert changes_of(file.get_batch(5)) == rows(5000, 1000, 500)
    assert source.bytes < source.size() // 7


# ---- damage


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def is_found(data: bytes, look: Callable[[bytes], object]) -> bool:
    try:
        look(data)
    except LogCorrupt as e:
        return "somewhere" in e.message
    return False


def look_at_all(data: bytes) -> None:
    file = ArrowFile(pa.BufferReader(data), "somewhere")
    assert file.schema == RAW_CHANGE
    for i in range(file.num_record_batches):
        file.get_batch(i)


@pytest.mark.parametrize(
    "batches", [[], [rows(0, 3), rows(3, 2)], pytest.param([rows(0, 5)], marks=pytest.mark.thorough("one batch, beside none and two"))]
)
def test_every_bit_is_covered(tmp_path: Path, batches: Sequence[list[Change]]) -> None:
    data = made(tmp_path / "a.arrow", batches).read_bytes()
    look_at_all(data)
    missed = [bit for bit in range(8 * len(data)) if not is_found(flipped(data, bit), look_at_all)]
    assert missed == []


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_every_shortened_file_is_refused(tmp_path: Path, compression: str) -> None:
    data = made(tmp_path / "a.arrow", [rows(0, 5), rows(5, 5)], compression).read_bytes()
    assert all(is_found(data[:size], look_at_all) for size in range(1, len(data)))


def test_a_damaged_batch_is_named_with_its_file_and_others_can_be_read(tmp_path: Path) -> None:
    path = made(tmp_path / f"{START:020d}-{START + 99:020d}.arrow", [rows(1, 30), rows(31, 30)])
    data = bytearray(path.read_bytes())
    data[data.rindex(b"C" * 40)] ^= 1  # a value of the second batch
    path.write_bytes(data)
    file = open_segment(str(path))
    assert changes_of(file.get_batch(0)) == rows(1, 30)
    with pytest.raises(LogCorrupt, match=rf"{path}: record batch 1 is damaged") as e:
        file.get_batch(1)
    assert "Restore the file from a copy" in e.value.hint
    sources = Sources([[str(path)]], START + 31, START + 60)  # as a task reads it
    with pytest.raises(LogCorrupt, match=rf"{path}: record batch 1 is damaged"):
        sources.advance(0)


def test_a_process_looks_once_at_a_batch_of_a_mapped_file_and_verify_always(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_log(tmp_path).close()
    [path, *_] = sorted((tmp_path / "rows/0").glob("*.arrow"))
    looks: list[int] = []
    check = sums.Sums.check
    monkeypatch.setattr(sums.Sums, "check", lambda self, stretch, data: (looks.append(stretch), check(self, stretch, data)))
    for _ in range(3):
        sources = Sources([[str(path)]], START, START + 10)
        sources.advance(0)
    assert looks == [0]
    os.utime(path, ns=(0, 0))  # another file of that name
    open_segment(str(path)).get_batch(0)
    assert looks == [0, 0]
    looks.clear()
    assert verify(tmp_path).problems == []
    assert verify(tmp_path).problems == []
    assert len(looks) >= 2 * 3


# ---- logs


def new_log(folder: Path, **identity: object) -> LogWriter:
    plan = initial_load.Plan(START + 5, (initial_load.PlannedTable(7, "d.t7", ((b"a", b"z"),)),))
    place = LocalStorage(folder, sync=False)
    log = LogWriter.create(place, LogIdentity("1", START, 1, **identity), snapshot=META, options=NOTHING_GROWS)  # type: ignore[arg-type]
    initial_load.write_plan(place, plan)
    initial_load.write_part(place, plan.parts()[0], [batch_of([put(7, h, START + 5, start_ts=START + 5) for h in range(9)])])
    log.schema.publish(START + 90, [])
    for k in range(3):
        log.partition(0).publish(START + 10 + 30 * k, [batch_of(rows(6 + 30 * k, 5))])
    return log


def test_verify_finds_any_flipped_bit(tmp_path: Path) -> None:
    new_log(tmp_path).close()
    report = verify(tmp_path)
    assert (report.problems, report.unsummed, report.rows) == ([], 0, 24)
    rng = random.Random(7)
    for path in sorted(tmp_path.glob("**/*.arrow")):
        data = path.read_bytes()
        for _ in range(15):
            path.write_bytes(flipped(data, rng.randrange(8 * len(data))))
            assert any(path.name in problem.path for problem in verify(tmp_path).problems), path
        path.write_bytes(data)
    assert verify(tmp_path).problems == []


def test_a_new_log_has_format_2_and_all_its_files_must_have_checksums(tmp_path: Path) -> None:
    new_log(tmp_path).close()
    assert json.loads((tmp_path / "log.json").read_text())["format"] == 2
    [*_, path] = sorted((tmp_path / "rows/0").glob("*.arrow"))
    write_arrow(path, CHANGE, read(path))
    with pytest.raises(LogCorrupt, match=r"has no checksums, and log\.json says"):
        LogReader(tmp_path).open_segment(str(path))
    assert [problem.path for problem in verify(tmp_path).problems] == [str(path)]


def test_a_log_of_format_1_goes_on_with_files_that_have_checksums(tmp_path: Path) -> None:
    log = build_log(tmp_path / "log", rows(1, 20), ends=[START + 10, START + 30], snapshot=META)
    with LogWriter.open(LocalStorage(log, sync=False), options=NOTHING_GROWS) as writer:
        writer.partition(0).publish(START + 60, [batch_of(rows(40, 5))])
        assert json.loads((log / "log.json").read_text())["format"] == 1
        assert [has_sums(p) for p in sorted((log / "rows/0").glob("*.arrow"))] == [False, False, True]
        assert (verify(log).problems, verify(log).unsummed) == ([], 4)
        writer.options = LogOptions()
        Compactor(writer.storage, writer.ownership, "none", 24, 0.0).compact(LogReader(log), "rows/0", 1 << 30)
        joined = f"{START:020d}-{START + 60:020d}.arrow"
        assert has_sums(log / "rows/0" / joined)
        assert len([c for c in read_changes(log, 0) if c.commit_ts > 0]) == 50, "the joined file beside those that it replaces"
        assert read(log / "rows/0" / joined) == rows(1, 20) + rows(40, 5)


def has_sums(path: Path) -> bool:
    return open_segment(str(path)).has_sums


def test_snapshots_parts_and_what_retention_writes_have_checksums(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        log.schema.snapshot(START + 50, META)
    assert all(has_sums(path) for path in tmp_path.glob("**/*.arrow"))
    [path] = tmp_path.glob(f"schema/snapshot-{START + 50:020d}.arrow")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"t7", b"t8", 1))
    with pytest.raises(LogCorrupt, match=rf"{path}: record batch 0 is damaged"):
        LogReader(tmp_path).read_snapshot(START + 50)
    assert META_PAIR.names == ["key", "value"]
