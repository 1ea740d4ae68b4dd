"""Segments as bytes: hostile ones raise our errors."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from tests.support.canal.store import plain_after, plain_index
from tidemill.errors import LogError
from tidemill.protocols.canal.codes import EntryType
from tidemill.sinks.canal.store import names
from tidemill.sinks.canal.store.names import Interval, StoreIdentity
from tidemill.sinks.canal.store.position import Position
from tidemill.sinks.canal.store.segment import INDEX, MAGIC, PLACE, TAIL, Damaged, SegmentBuilder, ends_size, parse_block, parse_ends


def segment(seed: int, blocks: int = 3) -> bytes:
    """A segment of random entries."""
    rng = np.random.default_rng(seed)
    builder = SegmentBuilder()
    out, ts = MAGIC, 5
    for _ in range(blocks):
        index = np.zeros(int(rng.integers(1, 20)), INDEX)
        index["commit_ts"] = ts + np.cumsum(rng.integers(0, 3, len(index)))
        ts = int(index["commit_ts"][-1])
        index["size"] = rng.integers(0, 30, len(index))
        index["kind"] = EntryType.ROWDATA
        index["name"] = [builder.name("s", f"t{n}") for n in rng.integers(0, 4, len(index))]
        out += b"".join(map(bytes, builder.block(index, rng.bytes(int(index["size"].sum())))))
    return out + builder.end()


def parsed(data: bytes) -> list[tuple[Position, bytes]]:
    """All entries of a segment."""
    wanted = ends_size(data[-TAIL.size :], len(data))
    ends = parse_ends(data[-wanted:], len(data))
    found = []
    for place in ends.places:
        offset, size = int(place["offset"]), int(place["size"])
        block = parse_block(data[offset : offset + size], place, ends.names)
        found += [(e.position, bytes(e.data)) for e in map(block.entry, range(len(block)))]
    assert ends.last == (found[-1][0] if found else None)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_positions_count_over_blocks(seed: int) -> None:
    found = [position for position, _ in parsed(segment(seed, seed % 5))]
    for before, position in pairwise(found):
        assert position == Position(before.commit_ts, before.index + 1) or (position.commit_ts > before.commit_ts and not position.index)


@pytest.mark.parametrize("seed", range(300))
def test_broken_segments(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(segment(seed % 7))
    match seed % 3:
        case 0:
            del data[rng.randrange(len(data)) :]
        case 1:
            data[rng.randrange(len(MAGIC), len(data))] ^= 1 << rng.randrange(8)
        case 2:
            at = rng.randrange(len(MAGIC), len(data))
            data[at : at + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(12))
    if bytes(data) == segment(seed % 7):
        return
    with pytest.raises(Damaged):
        parsed(bytes(data))


@pytest.mark.parametrize("seed", range(300))
def test_segments_whose_checksums_are_right(seed: int) -> None:
    """Of a writer that is wrong: all numbers are checked too."""
    rng = random.Random(seed)
    good = segment(seed % 7)
    ends = parse_ends(good, len(good))
    place = ends.places[0].copy()
    name = rng.choice(PLACE.names or ())
    place[name] = rng.choice([0, 1, int(place[name]) + 1, 2**31, 2**32 - 1])
    body = bytearray(good[len(MAGIC) : len(MAGIC) + int(ends.places[0]["size"])])
    body[rng.randrange(INDEX.itemsize)] ^= 1 << rng.randrange(8)
    for data, names_ in ((bytes(body), ends.names), (bytes(body), ()), (b"", ends.names), (rng.randbytes(len(body)), ends.names)):
        try:
            block = parse_block(data, place, names_, checked=True)
            for number in range(len(block)):
                block.entry(number)
        except Damaged:
            continue


@pytest.mark.parametrize("seed", range(200))
def test_the_index_is_read_as_the_plain_reader_reads_it(seed: int) -> None:
    """Also where its numbers are of a writer that is wrong."""
    rng = random.Random(f"index {seed}")
    index = np.zeros(rng.randrange(1, 60), INDEX)
    index["commit_ts"] = np.cumsum([rng.choice((0, 0, 1, 1 << 40)) for _ in index], dtype=np.uint64)
    index["size"] = [rng.choice((0, 7, 300)) for _ in index]
    index["kind"] = [rng.randrange(1, 4) for _ in index]
    index["name"] = [rng.randrange(5) for _ in index]
    index["ddl"] = [rng.random() < 0.05 for _ in index]
    first = rng.choice((0, 3, 1 << 20))
    if seed % 2:
        raw = bytearray(index.tobytes())
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        index = np.frombuffer(bytes(raw), INDEX)
    want = plain_index(index, first, 5)
    data = index.tobytes() + rng.randbytes(int(index["size"].sum()) if int(index["size"].sum()) < 1 << 20 else 0)
    place = np.zeros(1, PLACE)[0]
    place["size"], place["entries"], place["first_index"] = len(data), len(index), first
    place["first_ts"], place["last_ts"] = index["commit_ts"][0], index["commit_ts"][-1]
    names_ = [("s", f"t{number}") for number in range(5)]
    if want is None or want[0][-1] != len(data) - index.nbytes:
        with pytest.raises(Damaged):
            parse_block(data, place, names_, checked=True)
        return
    block = parse_block(data, place, names_, checked=True)
    assert (block.offsets.tolist(), block.indexes.tolist()) == want
    assert block.has_ddls == bool(index["ddl"].any())
    for time in {0, *index["commit_ts"].tolist(), int(index["commit_ts"][-1]) + 1}:
        for number in (0, 1, first, first + 2, 1 << 62):
            assert block.after(Position(time, number)) == plain_after(block, Position(time, number))
        assert len(block.until(time)) == plain_after(block, Position(time, 1 << 62))


def test_broken_json() -> None:
    for data in (
        b"",
        b"[]",
        b"{}",
        b'{"format":true}',
        b'{"format":2,"changefeed":"a","begins":1}',
        b'{"format":1,"changefeed":1,"begins":1}',
    ):
        with pytest.raises(LogError, match=r"store\.json"):
            StoreIdentity.from_json(data, "store.json")
    file = f"{names.hour_of(5)}/{2:020d}-{5:020d}.1-aa.seg"
    good = f'{{"format":1,"segments":[["{file}",7,5]]}}'
    assert Interval.from_json(good.encode(), "x.json").segments[0].size == 7
    for old, new in (
        (file, "../../etc/passwd"),
        (",7,", ',"7",'),
        (",7,", ",-7,"),
        (",7,5", ",7"),
        ('"format":1', '"format":9'),
        ("[[", "["),
    ):
        with pytest.raises(LogError, match=r"x\.json"):
            Interval.from_json(good.replace(old, new).encode(), "x.json")
