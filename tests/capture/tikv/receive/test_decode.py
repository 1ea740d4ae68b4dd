"""Messages -> entries: equal to the protobuf library on every recorded byte, and safe on any bytes."""

from __future__ import annotations

import random

import pytest

from tests.support.capture.eventfeeds import RECORDINGS, Row, recorded_messages
from tidemill.capture.tikv.receive.decode import Batch, Scanner, WireError
from tidemill.kernels.receive.layout import ENTRY, ERROR, RESOLVED
from tidemill.wire import cdcpb_pb2 as cdcpb

Entry = tuple[int, int, int, int, int, int, int, int, bytes, bytes, bytes]


def entries(batch: Batch) -> list[Entry]:
    out = []
    for e in batch.entries[: batch.count]:
        key, value, old = (
            batch.data[e[at] : e[at] + e[n]].tobytes() for at, n in (("key", "key_len"), ("value", "value_len"), ("old", "old_len"))
        )
        numbers = (int(e[f]) for f in ("kind", "op", "start_ts", "commit_ts", "generation", "region_id", "request_id", "stream"))
        out.append((*numbers, key, value, old))
    return out


def by_library(messages: list[bytes], stream: int = 0) -> list[Entry]:
    out: list[Entry] = []
    for message in messages:
        parsed = cdcpb.ChangeDataEvent.FromString(message)
        for e in parsed.events:
            ids = (e.region_id, e.request_id, stream)
            out += [
                (r.type, r.op_type, r.start_ts, r.commit_ts, r.generation, *ids, r.key, r.value, r.old_value) for r in e.entries.entries
            ]
            if e.HasField("error"):
                out.append((ERROR, 0, 0, 0, 0, *ids, b"", e.error.SerializeToString(), b""))
            if e.HasField("resolved_ts"):
                out.append((RESOLVED, 0, e.resolved_ts, 0, 0, *ids, b"", b"", b""))
        batched = parsed.resolved_ts
        out += [(RESOLVED, 0, batched.ts, 0, 0, region, batched.request_id, stream, b"", b"", b"") for region in batched.regions]
    return out


@pytest.mark.parametrize("name", sorted(p.name.removesuffix(".jsonl.gz") for p in RECORDINGS.glob("*.jsonl.gz")))
def test_every_recording_reads_as_with_the_library(name: str) -> None:
    messages = recorded_messages(name)
    scanner = Scanner()
    for at in range(0, len(messages), 50):
        part = messages[at : at + 50]
        batch = scanner.scan(part, 3)
        assert batch.error is None
        assert entries(batch) == by_library(part, 3)


def test_unknown_fields_any_order_and_unpacked() -> None:
    row = Row(type=4, op_type=1, start_ts=5, commit_ts=2**63 - 1, key=b"k", value=b"v" * 200, generation=2**40)
    rows = cdcpb.Event.Entries(entries=[row]).SerializeToString()
    unknown = b"\xa8\x01\x07" + b"\xb2\x01\x03abc" + b"\xb9\x01" + b"12345678" + b"\xbd\x01" + b"1234"  # fields 21-23, all wire types
    event = b"\x38\x09" + unknown + b"\x1a" + bytes([len(rows) & 127 | 128, len(rows) >> 7]) + rows + b"\x08\x05"
    first = unknown + b"\x0a" + bytes([len(event) & 127 | 128, len(event) >> 7]) + event
    unpacked = b"\x08\x01\x08\x02\x10\x64\x18\x07"
    batch = Scanner().scan([first, b"\x12" + bytes([len(unpacked)]) + unpacked, b""])
    assert batch.error is None
    assert entries(batch) == [
        (4, 1, 5, 2**63 - 1, 2**31 - 1, 5, 9, 0, b"k", b"v" * 200, b""),
        (RESOLVED, 0, 100, 0, 0, 1, 7, 0, b"", b"", b""),
        (RESOLVED, 0, 100, 0, 0, 2, 7, 0, b"", b"", b""),
    ]


@pytest.mark.parametrize(
    ("bad", "offset", "text"),
    [
        (b"\x0a\x05\x08", 0, "beyond"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 0, "varint"),
        (b"\x0a\x04\x1a\x02\x0a\x7f", 4, "beyond"),
        (b"\x0b\x04", 0, "wire type"),
        (b"\x02\x00", 0, "field number"),
        (b"\x0a\x0d\x1a\x0b\x0a\x09\x08\xff\xff\xff\xff\xff\xff\xff\xff", 6, "varint"),
        (b"\x0a\x0f\x1a\x0d\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 6, "2\\^63"),
    ],
)
def test_malformed_names_the_place(bad: bytes, offset: int, text: str) -> None:
    good = cdcpb.ChangeDataEvent(resolved_ts=cdcpb.ResolvedTs(regions=[1], ts=5)).SerializeToString()
    scanner = Scanner()
    batch = scanner.scan([good, bad, good])
    assert batch.error is not None
    assert (batch.error.index, batch.error.offset, batch.count) == (1, offset, 1)
    with pytest.raises(WireError, match=text):
        raise batch.error
    rest = scanner.after_error(batch)
    assert rest.error is None
    assert rest.count == 1


def test_broken_bytes_never_crash() -> None:
    """Real messages, cut, flipped and stretched: an error, or entries inside the batch."""
    random_ = random.Random(7)
    pool = [m for n in ("live_2pc", "scan_past", "feed_v2", "region_split", "not_leader") for m in recorded_messages(n)]
    scanner = Scanner()
    bad = 0
    for _ in range(20000):
        message = bytearray(random_.choice(pool))
        for _ in range(random_.randint(1, 4)):
            if not message:
                break
            at, kind = random_.randrange(len(message)), random_.random()
            if kind < 0.5:
                message[at] = random_.choice((0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256)))
            elif kind < 0.75:
                del message[at : at + random_.randint(1, 9)]
            else:
                message[at:at] = random_.randbytes(random_.randint(1, 9))
        batch = scanner.scan([bytes(message)])
        found = batch.entries[: batch.count]
        for at_, n in (("key", "key_len"), ("value", "value_len"), ("old", "old_len")):
            assert (found[at_] >= 0).all()
            assert (found[n] >= 0).all()
            assert (found[at_].astype("i8") + found[n] <= len(message)).all()
        bad += batch.error is not None
    assert 1000 < bad < 20000


def test_entry_buffer_grows() -> None:
    rows = [Row(type=5)] * 100000
    message = cdcpb.ChangeDataEvent(events=[cdcpb.Event(region_id=1, entries=cdcpb.Event.Entries(entries=rows))]).SerializeToString()
    batch = Scanner().scan([message, message])
    assert batch.error is None
    assert batch.count == 200000
    assert batch.entries.dtype == ENTRY
