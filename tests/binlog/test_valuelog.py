"""Records of a value log: a real Pump's, torn ones, broken ones."""

from __future__ import annotations

import gzip
import json

from hypothesis import given
from hypothesis import strategies as st

from tests.support.binlog.binlogs import GOLDEN, commit, prewrite
from tidemill.binlog.indexkeys import Pointer, ts_key
from tidemill.binlog.messages import BinlogType, read_head
from tidemill.binlog.valuelog import Record, Skipped, end_of, finish, frame, scan


def test_records_and_keys_are_those_of_a_real_pump() -> None:
    sample = json.loads(gzip.decompress((GOLDEN / "pump_disk_sample.json.gz").read_bytes()))
    data = b"".join(bytes.fromhex(one["record_hex"]) for one in sample["records"])
    found = list(scan(data, len(data)))
    assert len(found) == len(sample["records"]) == 60
    for record, told in zip(found, sample["records"], strict=True):
        assert isinstance(record, Record)
        assert frame(record.payload).hex() == told["record_hex"]
        assert record.offset == told["offset"]
        head = read_head(record.payload)
        assert ts_key(head.start_ts if head.tp is BinlogType.PREWRITE else head.commit_ts).hex() == told["index_key_hex"]
        assert Pointer(0, record.offset).encode().hex() == told["index_value_hex"]


def test_the_end_of_a_file_is_no_record() -> None:
    data = frame(b"one") + finish(77)
    assert [type(one) for one in scan(data, len(data))] == [Record]
    assert end_of(data) == 77
    assert end_of(frame(b"one")) is None


@given(st.data())
def test_a_file_that_was_cut_gives_the_whole_records_before(data: st.DataObject) -> None:
    payloads = [prewrite(1), frame(b"a record in a record") * 2, commit(1, 2)]
    whole = b"".join(frame(one) for one in payloads)
    cut = data.draw(st.integers(0, len(whole)))
    found = list(scan(whole[:cut], cut))
    records = [one.payload for one in found if isinstance(one, Record)]
    assert records == payloads[: len(records)]
    torn = [one for one in found if isinstance(one, Skipped)]
    assert all(one.torn for one in torn)
    assert sum(len(frame(one)) for one in records) + sum(one.size for one in torn) == cut


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_costs_at_most_its_record(place: int, change: int) -> None:
    payloads = [b"first " * 9, b"second " * 9, b"third " * 9]
    data = bytearray(b"".join(frame(one) for one in payloads))
    data[place % len(data)] ^= change
    found = list(scan(bytes(data), len(data)))
    records = [one.payload for one in found if isinstance(one, Record)]
    assert set(records) <= set(payloads)
    broken = place % len(data) // len(frame(payloads[0]))
    if any(isinstance(one, Skipped) and not one.torn for one in found):
        assert records == [one for one in payloads if one in records]
        assert len(records) >= 2 or broken == 0
